"""The trade-off against methods really applied, setting by setting."""

from dataclasses import replace

import numpy as np
import pytest

from iknow import Assertion, Ball, BallElseNearest, BallWithNearest, Nearest
from iknow.errors import InputError
from iknow.evaluation.tradeoff import highest_probability, tradeoff

RADII = {"a": 1.0, "b": 0.5}
K = 3
METHODS = ["softmax", "Ball", "Nearest", "BallElseNearest", "BallWithNearest"]


@pytest.fixture(params=range(25))
def case(request, random_assessment):
    quorum = [(1, 1), (1, 3), (2, 2)][request.param % 3]
    rules = {layer: Ball(radius, quorum=quorum) for layer, radius in RADII.items()}
    return random_assessment(request.param, rules, discard=request.param % 2 == 0)


def rules_at(method, setting):
    if method == "Nearest":
        return {layer: Nearest(int(setting)) for layer in RADII}
    make = {
        "Ball": Ball,
        "BallElseNearest": lambda radius: BallElseNearest(radius, K),
        "BallWithNearest": lambda radius: BallWithNearest(radius, K),
    }[method]
    return {layer: make(radius * setting) for layer, radius in RADII.items()}


def outcome(assessment, y_true, method, setting):
    """Coverage and accuracy of a method as it is, by applying it."""
    if method == "softmax":
        covered = (highest_probability(assessment.scores) >= setting) & ~assessment.invalid
    else:
        quorum = assessment.neighborhoods["a"].quorum
        rules = {
            layer: replace(rule, quorum=quorum) for layer, rule in rules_at(method, setting).items()
        }
        covered = assessment.under(rules).assertion == Assertion.IK
    right = (assessment.belief == y_true)[covered]
    return covered.mean(), right.mean() if len(right) else np.nan


@pytest.mark.parametrize("method", METHODS)
def test_each_point_is_what_its_setting_gives(case, method):
    line = tradeoff(*case, k=K)[method]
    assert line.method == method
    for setting, *point in zip(line.settings, line.coverage, line.accuracy, strict=True):
        assert tuple(point) == outcome(*case, method, setting)


@pytest.mark.parametrize("method", METHODS)
def test_for_each_coverage_the_strictest_setting_is_taken(case, method):
    """Distances and radii are multiples of 0.5: these factors are all that differ."""
    every = {
        "softmax": np.unique(highest_probability(case[0].scores))[::-1],
        "Nearest": np.arange(6, 0, -1),
        "BallElseNearest": np.arange(24, -1, -1) / 2,
    }.get(method, np.arange(0, 25) / 2)
    expected, most = [], 0.0
    for setting in every:
        coverage, accuracy = outcome(*case, method, setting)
        if coverage > most:
            most = coverage
            expected.append((coverage, accuracy))
    line = tradeoff(*case, k=K)[method]
    assert list(zip(line.coverage, line.accuracy, strict=True)) == expected


@pytest.mark.parametrize("method", METHODS)
def test_what_was_given_is_marked(case, method):
    chosen = tradeoff(*case, k=K)[method].chosen
    if method == "softmax":
        assert chosen is None
    else:
        expected = outcome(*case, method, K if method == "Nearest" else 1.0)
        np.testing.assert_array_equal(chosen, expected)


def test_all_is_told_of_all(case):
    assessment, y_true = case
    record = tradeoff(assessment, y_true, k=K)
    assert [line.method for line in record.lines] == METHODS
    assert record.n_samples == len(y_true)
    assert record.overall_accuracy == (assessment.belief == y_true).mean()
    if not assessment.invalid.any():
        softmax = record["softmax"]
        assert softmax.coverage[-1] == 1
        assert softmax.accuracy[-1] == record.overall_accuracy


def test_radii_may_be_given_and_only_their_ratio_counts(case):
    assessment, y_true = case
    quorum = assessment.neighborhoods["a"].quorum
    other = assessment.under({layer: Nearest(1, quorum=quorum) for layer in RADII})
    twice = {layer: 2 * radius for layer, radius in RADII.items()}
    for method in METHODS:
        once, again = (
            tradeoff(assessment, y_true, K)[method],
            tradeoff(other, y_true, K, twice)[method],
        )
        np.testing.assert_array_equal(once.coverage, again.coverage)
        np.testing.assert_array_equal(once.accuracy, again.accuracy)
        factor = 1 if method in ("softmax", "Nearest") else 2
        np.testing.assert_array_equal(once.settings, factor * again.settings)


def test_confidence_may_be_given(case):
    assessment, y_true = case
    confidence = np.linspace(0, 1, len(y_true))
    line = tradeoff(assessment, y_true, K, confidence=confidence)["softmax"]
    np.testing.assert_array_equal(line.settings, confidence[~assessment.invalid][::-1])
    with pytest.raises(InputError, match="confidence must hold one number for each"):
        tradeoff(assessment, y_true, K, confidence=confidence[:, None])


def test_scores_become_probabilities_once():
    logits = np.array([[0.0, np.log(3.0)], [1.0, 1.0]])
    np.testing.assert_allclose(highest_probability(logits), [0.75, 0.5])
    np.testing.assert_allclose(highest_probability(np.array([[0.9, 0.1], [0.3, 0.7]])), [0.9, 0.7])
    # Not negative, but no shares either.
    np.testing.assert_allclose(highest_probability(np.array([[0.0, 0.0]])), [0.5])


def test_what_cannot_be_compared_is_refused(random_assessment):
    assessment, y_true = random_assessment(0, {"a": Ball(1.0), "b": Ball(0.0)})
    for radii in (None, {"a": 1.0}, {"a": 1.0, "b": np.inf}, {"a": 1.0, "b": -1.0}):
        with pytest.raises(InputError, match=r"layers \['a', 'b'\]: give radii"):
            tradeoff(assessment, y_true, K, radii)
    for rule in (Nearest(1), Ball([1.0, 1.0, 1.0])):
        other = assessment.under({"a": Ball(1.0), "b": rule})
        with pytest.raises(InputError, match="give radii"):
            tradeoff(other, y_true, K)
    with pytest.raises(InputError, match="gather it with k=7"):
        tradeoff(assessment, y_true, 7, RADII)
    with pytest.raises(InputError, match="one label for each"):
        tradeoff(assessment, [*y_true, "cat"], K, RADII)


def test_a_row_without_scores_changes_no_confidence_of_the_others():
    shares = np.array([[0.25, 0.75], [0.5, 0.5]])
    for absent in ([np.nan, np.nan], [np.inf, 0.0]):
        found = highest_probability(np.array([*shares, absent]))
        np.testing.assert_array_equal(found, [0.75, 0.5, np.nan])
    logarithms = highest_probability(np.array([[-np.inf, 0.0]]))
    assert logarithms.tolist() == [1.0]
