"""The exact curves against an assessment and its report, made anew at every radius."""

import numpy as np
import pytest

from iknow import Assertion, Assessment, Ball, Evidence, Nearest, evaluate
from iknow.core.evidence import discard_evidence
from iknow.errors import InputError
from iknow.evaluation.curves import radius_curve

NAMES = np.array(["cat", "dog", "owl"])


def random_evidence(rng, n, n_classes, n_neighbors=2):
    """Distances from a few numbers, so that ties abound; some classes have no sample."""
    distances = rng.choice([0.0, 0.5, 1.0, 1.5, 2.5, np.inf], size=(n, n_classes))
    neighbors = np.sort(distances, axis=1)[:, :n_neighbors]
    steps = np.sort(rng.choice([0.0, 0.5, np.inf], (n, n_classes, 2)))
    ranked = distances[:, :, None] + np.concatenate([np.zeros((n, n_classes, 1)), steps], axis=2)
    return Evidence(ranked, neighbors, np.where(np.isinf(ranked), -1, [7, 8, 9]))


def random_assessment(seed, neighborhoods):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 50))
    invalid = rng.random(n) < 0.1
    belief = rng.integers(len(NAMES), size=n)
    assessment = Assessment(
        classes=NAMES,
        belief_codes=belief,
        scores=np.eye(len(NAMES))[belief],
        evidence={
            layer: discard_evidence(random_evidence(rng, n, len(NAMES)), invalid)
            for layer in neighborhoods
        },
        neighborhoods=neighborhoods,
        invalid=invalid,
        knowable=None if seed % 3 else (0, 2),
    )
    return assessment, rng.choice([*NAMES, "yak"], size=n)


def assert_equals_brute_force(curve, assessment, y_true, layer):
    """Compare at every breakpoint, just before it, between two of them, and beyond the last."""
    middles = (curve.radii[1:] + curve.radii[:-1]) / 2
    tried = [*curve.radii, *np.nextafter(curve.radii[1:], 0), *middles, 1e9]
    for radius, at in zip(tried, curve.places(tried), strict=True):
        ball = Ball(radius, quorum=assessment.neighborhoods[layer].quorum)
        other = assessment.under({**assessment.neighborhoods, layer: ball})
        report = evaluate(other, y_true)
        for name in ("f_ik", "f_imk", "f_idk", "a_ik", "a_not_ik"):
            np.testing.assert_equal(getattr(curve, name)[at], getattr(report, name), err_msg=name)
        for assertion in Assertion:
            assert curve.counts[assertion, at] == report.matrix[assertion].sum()


@pytest.mark.parametrize("seed", range(60))
def test_the_curve_of_one_layer_equals_a_report_at_every_radius(seed):
    quorum = [(1, 1), (1, 3), (2, 2)][seed % 3]
    assessment, y_true = random_assessment(seed, {"a": Ball(1.0, quorum=quorum)})
    curve = radius_curve(assessment, y_true)
    assert curve.layer == "a"
    assert curve.n_samples == len(y_true)
    assert_equals_brute_force(curve, assessment, y_true, "a")


@pytest.mark.parametrize("others", [[Ball(1.0)], [Nearest(2)], [Ball(1.5), Nearest(1)]], ids=repr)
def test_other_layers_stay_as_they_are(others):
    neighborhoods = {"a": Ball(1.0), **{f"b{i}": rule for i, rule in enumerate(others)}}
    for seed in range(40):
        assessment, y_true = random_assessment(seed, neighborhoods)
        for layer in neighborhoods:
            curve = radius_curve(assessment, y_true, layer)
            assert_equals_brute_force(curve, assessment, y_true, layer)


def test_nothing_changes_between_two_radii_and_something_at_each():
    for seed in range(40):
        assessment, y_true = random_assessment(seed, {"a": Ball(1.0), "b": Ball(1.0)})
        curve = radius_curve(assessment, y_true, "a")
        assert curve.radii[0] == 0
        assert (np.diff(curve.radii) > 0).all()
        assert (np.diff(curve.counts, axis=1) != 0).any(axis=0).all()


def test_the_paper_s_remark_holds():
    for seed in range(40):
        assessment, y_true = random_assessment(seed, {"a": Ball(1.0)})
        curve = radius_curve(assessment, y_true)
        assert (np.diff(curve.f_idk) <= 0).all()
        assert (np.diff(curve.f_imk) >= 0).all()
        np.testing.assert_allclose(curve.f_ik + curve.f_imk + curve.f_idk, 1)


def test_a_curve_can_be_written_down_by_hand():
    distances = np.array([[1.0, 2.0], [3.0, 1.0], [4.0, np.inf]])
    assessment = Assessment(
        classes=np.array([0, 1]),
        belief_codes=np.array([0, 0, 0]),
        scores=np.eye(2)[[0, 0, 0]],
        evidence={"a": Evidence(distances, np.empty((3, 0)), np.zeros((3, 2), dtype=np.int64))},
        neighborhoods={"a": Ball(9.0)},
        invalid=np.zeros(3, dtype=bool),
    )
    curve = radius_curve(assessment, [0, 0, 1])
    assert curve.radii.tolist() == [0, 1, 2, 3, 4]
    assert curve.counts[Assertion.IDK].tolist() == [3, 2, 2, 1, 0]
    assert curve.counts[Assertion.IMK].tolist() == [0, 0, 1, 2, 2]
    assert curve.counts[Assertion.IK].tolist() == [0, 1, 0, 0, 1]
    np.testing.assert_array_equal(curve.a_ik, [np.nan, 1, np.nan, np.nan, 0])
    np.testing.assert_array_equal(curve.a_not_ik, [2 / 3, 1 / 2, 2 / 3, 2 / 3, 1])
    assert curve.best == 1
    assert curve.places([0, 0.5, 1, 3.9, np.inf]).tolist() == [0, 0, 1, 3, 4]


def test_one_of_several_layers_must_be_named():
    assessment, y_true = random_assessment(0, {"a": Ball(1.0), "b": Ball(1.0)})
    with pytest.raises(InputError, match=r"one of \['a', 'b'\]; got None"):
        radius_curve(assessment, y_true)
    with pytest.raises(InputError, match="got 'c'"):
        radius_curve(assessment, y_true, "c")


def test_labels_that_do_not_fit_are_refused():
    assessment, y_true = random_assessment(0, {"a": Ball(1.0)})
    with pytest.raises(InputError, match="one label for each"):
        radius_curve(assessment, [*y_true, "cat"])
    with pytest.raises(InputError, match="labels like the classifier's"):
        radius_curve(assessment, np.zeros(len(y_true)))


@pytest.mark.parametrize("radius", [-0.1, np.nan])
def test_radii_that_are_none_are_refused(radius):
    assessment, y_true = random_assessment(0, {"a": Ball(1.0)})
    with pytest.raises(InputError, match="numbers >= 0"):
        radius_curve(assessment, y_true).places([1.0, radius])
