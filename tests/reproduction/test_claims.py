"""The claims on the paper's own numbers, and on numbers that are changed one by one."""

import os
import re
from pathlib import Path

import pytest

from reproduction.claims import CLAIMS
from reproduction.dataset_numbers import DatasetNumbers
from reproduction.tables import Key, load_published

LAST = {
    "grid_stability": "large",
    "iris": "large",
    "italy_power_demand": "large",
    "synthetic_control": "adversarial",
    "mnist": "adversarial",
    "gtsrb": "adversarial",
}
LOGIT = ["synthetic_control", "mnist", "gtsrb"]
(
    MATCHED, SEPARATES, WELL, COMPARABLE, SURE, FALLS, LOW, KEEPS,
    NEAREST, LESS, SAFER, ROBUST, SIMILAR, COVERS, NOISE, ATTACK,
) = CLAIMS  # fmt: skip
# Read in the tables by eye: all are true but these.
FALSE = [
    (MATCHED, "gtsrb"),  # k-NN 0.595 beside the ball's 0.488
    (SEPARATES, "iris"),  # 1.000 on both sides
    (WELL, "iris"),  # 0.973 inside and 1.000 outside
]
PAPER = Path(os.environ.get("IKNOW_DATA") or "nowhere").parent / "paper"
handed_down = pytest.mark.skipif(not PAPER.is_dir(), reason="IKNOW_DATA has no paper beside it")
NAN = float("nan")


def holds(claim, dataset, changes=()):
    """Whether a claim is true once some published numbers are replaced.

    By (method, condition[, metric[, layers]]); "last" is the last condition.
    """
    numbers = dict(load_published())
    for place, value in dict(changes).items():
        method, condition, metric, layers = (*place, *("F_IK", "two")[len(place) - 2 :])
        condition = LAST[dataset] if condition == "last" else condition
        key = Key(dataset, layers, method, condition, metric)
        assert key in numbers
        numbers[key] = value
    assert dataset in claim.datasets
    return claim.holds(DatasetNumbers(numbers, dataset))


def published(dataset, method, condition, metric="F_IK", layers="two"):
    condition = LAST[dataset] if condition == "last" else condition
    return load_published()[dataset, layers, method, condition, metric]


def test_the_paper_s_numbers():
    for claim in CLAIMS:
        for dataset in claim.datasets:
            assert holds(claim, dataset) is ((claim, dataset) not in FALSE), (claim.text, dataset)
    assert len({claim.text for claim in CLAIMS}) == len(CLAIMS)


def test_the_last_condition_of_each_dataset():
    for dataset, last in LAST.items():
        reading = DatasetNumbers(load_published(), dataset)
        assert reading.strongest == last
        assert reading.conditions == ("nominal", "gaussian", "uniform", last)


@handed_down
def test_the_words_are_the_paper_s():
    text = " ".join(next(PAPER.glob("*.tex")).read_text("utf-8").split())
    text = text.replace("\\varepsilon", "ε").replace("$", "")
    text = re.sub(r"([FA])_\{IK\}", r"\1_IK", text)
    for claim in CLAIMS:
        assert claim.words in text


@pytest.mark.parametrize("dataset", LAST)
def test_coverage_that_is_not_matched_makes_it_false(dataset):
    ball = published(dataset, "ball", "nominal")
    for softmax, nearest, expected in [
        (0.09, -0.09, True), (0.11, 0, False), (0, -0.11, False), (0, 0, True)
    ]:  # fmt: skip
        changes = {("softmax", "nominal"): ball + softmax, ("knn", "nominal"): ball + nearest}
        assert holds(MATCHED, dataset, changes) is expected


@pytest.mark.parametrize("dataset", LAST)
def test_accuracies_that_are_equal_or_turned_do_not_separate(dataset):
    inside, outside = ("ball", "nominal", "A_IK"), ("ball", "nominal", "A_notIK")
    for values, expected in [((0.9, 0.8), True), ((0.8, 0.8), False), ((0.8, 0.9), False)]:
        changes = dict(zip((inside, outside), values, strict=True))
        assert holds(SEPARATES, dataset, changes) is expected
    # All known: the accuracy is that inside.
    assert not holds(SEPARATES, dataset, {("ball", "nominal"): 1.0, outside: 0.1})
    assert not holds(SEPARATES, dataset, {outside: NAN})


@pytest.mark.parametrize("dataset", LAST)
def test_softmax_must_separate_under_both_kinds_of_noise(dataset):
    good = {
        ("softmax", noise, metric): value
        for noise in ("gaussian", "uniform")
        for metric, value in [("A_IK", 0.9), ("A_notIK", 0.8)]
    }
    assert holds(WELL, dataset, good)
    for noise in ("gaussian", "uniform"):
        for outside in (0.9, 0.95, NAN):
            assert not holds(WELL, dataset, good | {("softmax", noise, "A_notIK"): outside})


def similar(claim, dataset, one, other, conditions):
    """Whatever differs by more than 0.1, and accuracies of which only one is undefined."""
    same = {
        (method, condition, metric): 0.5
        for method in (one, other)
        for condition in conditions
        for metric in ("F_IK", "A_IK")
    }
    assert holds(claim, dataset, same)
    for condition in conditions:
        for metric in ("F_IK", "A_IK"):
            for value, expected in [(0.59, True), (0.41, True), (0.61, False), (0.39, False)]:
                changes = same | {(one, condition, metric): value}
                assert holds(claim, dataset, changes) is expected
        undefined = {(one, condition, "A_IK"): NAN}
        assert not holds(claim, dataset, same | undefined)
        assert holds(claim, dataset, same | undefined | {(other, condition, "A_IK"): NAN})


@pytest.mark.parametrize("dataset", LAST)
def test_softmax_and_nearest_differ_under_noise(dataset):
    similar(COMPARABLE, dataset, "softmax", "knn", ("gaussian", "uniform"))


@pytest.mark.parametrize("dataset", LOGIT)
def test_the_first_hybrid_and_nearest_differ(dataset):
    similar(SIMILAR, dataset, "h1", "knn", ("nominal", "gaussian", "uniform", "last"))


@pytest.mark.parametrize("dataset", ["grid_stability", "mnist", "gtsrb"])
def test_softmax_is_sure_and_wrong_only_if_both(dataset):
    for known, right, expected in [
        (0.51, 0.49, True), (0.5, 0.1, False), (0.9, 0.5, False), (0.9, NAN, False)
    ]:  # fmt: skip
        changes = {("softmax", "last"): known, ("softmax", "last", "A_IK"): right}
        assert holds(SURE, dataset, changes) is expected


@pytest.mark.parametrize("dataset", LAST)
def test_coverage_of_either_ball_that_does_not_fall_makes_it_false(dataset):
    for method in ("ball", "h2"):
        nominal = published(dataset, method, "nominal")
        for share, expected in [(0.5, False), (0.499, True)]:
            assert holds(FALLS, dataset, {(method, "last"): share * nominal}) is expected
        if dataset != "synthetic_control":
            for value, expected in [(0.2, False), (0.199, True)]:
                assert holds(LOW, dataset, {(method, "last"): value}) is expected


def test_each_method_must_keep_its_accuracy_under_attack():
    for method in ("knn", "ball", "h2"):
        for accuracy, expected in [(0.9, True), (0.899, False), (NAN, False)]:
            changes = {(method, "last", "A_IK"): accuracy}
            assert holds(KEEPS, "synthetic_control", changes) is expected
    for accuracy, expected in [(0.899, True), (0.9, False)]:
        changes = {("softmax", "last", "A_IK"): accuracy}
        assert holds(KEEPS, "synthetic_control", changes) is expected


@pytest.mark.parametrize("dataset", LAST)
def test_one_condition_where_the_narrower_covers_more_makes_it_false(dataset):
    for condition in ("nominal", "gaussian", "uniform", "last"):
        nearest = published(dataset, "knn", condition)
        for more, expected in [(0.0, False), (-0.001, True)]:
            assert holds(LESS, dataset, {("h2", condition): nearest + more}) is expected
        for more, expected in [(0.019, True), (0.021, False)]:
            assert holds(NEAREST, dataset, {("ball", condition): nearest + more}) is expected


@pytest.mark.parametrize("dataset", LAST)
@pytest.mark.parametrize(
    ("claim", "rival", "margin"), [(SAFER, "knn", 0.02), (ROBUST, "softmax", 0)]
)
def test_more_known_and_wrong_than_the_rival_makes_it_false(dataset, claim, rival, margin):
    rivals = {(rival, "last"): 0.4, (rival, "last", "A_IK"): 0.5}  # 0.2 known and wrong
    nothing = {
        place: value
        for method in ("ball", "h2")
        for place, value in [((method, "last"), 0.0), ((method, "last", "A_IK"), NAN)]
    }
    assert holds(claim, dataset, rivals | nothing)
    for method in ("ball", "h2"):
        for more, expected in [(-0.001, True), (0.001, False)]:
            changes = {(method, "last"): 0.2 + margin + more, (method, "last", "A_IK"): 0.0}
            assert holds(claim, dataset, rivals | nothing | changes) is expected


@pytest.mark.parametrize("dataset", LOGIT)
def test_a_logit_that_covers_no_more_makes_it_false(dataset):
    two = published(dataset, "ball", "nominal")
    for more, expected in [(0.001, True), (0.0, False), (-0.1, False)]:
        changes = {("ball", "nominal", "F_IK", "logit"): two + more}
        assert holds(COVERS, dataset, changes) is expected


@pytest.mark.parametrize("dataset", LOGIT)
@pytest.mark.parametrize(
    ("claim", "condition"), [(NOISE, "gaussian"), (NOISE, "uniform"), (ATTACK, "last")]
)
def test_more_known_and_wrong_with_two_layers_makes_it_false(dataset, claim, condition):
    one = {
        ("ball", condition, "F_IK", "logit"): 0.4,
        ("ball", condition, "A_IK", "logit"): 0.5,  # 0.2 known and wrong
    }
    for share, accuracy, expected in [(0.3, 0.5, True), (0.5, 0.5, False), (0.5, 0.7, True)]:
        two = {("ball", condition): share, ("ball", condition, "A_IK"): accuracy}
        assert holds(claim, dataset, one | two) is expected
    # Where nothing is known, nothing is known wrongly, whatever the accuracy.
    nothing = {("ball", condition): 0.0, ("ball", condition, "A_IK"): NAN}
    assert holds(claim, dataset, one | nothing)
