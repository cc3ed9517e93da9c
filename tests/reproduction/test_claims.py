"""The claims on the paper's own numbers, and on numbers that are changed one by one."""

import pytest

from reproduction.claims import list_claims
from reproduction.tables import Key, load_published

LAST = {
    "grid_stability": "large",
    "iris": "large",
    "italy_power_demand": "large",
    "synthetic_control": "adversarial",
    "mnist": "adversarial",
    "gtsrb": "adversarial",
}
LOGIT = ("synthetic_control", "mnist", "gtsrb")
FALLS, STAYS, SEPARATES, NARROWER, NEAREST, ROBUST, KEEPS = range(7)
# Read in the tables by eye: all are true but these.
FALSE = {
    ("iris", SEPARATES),  # 1.000 on both sides
    ("synthetic_control", STAYS),  # 0.907 becomes 0.243
}


def claims_of(dataset):
    return list(list_claims(dataset, last=LAST[dataset], logit=dataset in LOGIT))


def changed(dataset, changes):
    """The published numbers with some of them replaced: by (method, condition[, metric, ...])."""
    numbers = dict(load_published())
    for place, value in changes.items():
        method, condition, metric, layers = (*place, "F_IK", "two")[:4]
        if len(place) == 3:
            layers = "two"
        key = Key(dataset, layers, method, condition, metric)
        assert key in numbers
        numbers[key] = value
    return numbers


@pytest.mark.parametrize("dataset", LAST)
def test_the_paper_s_numbers(dataset):
    claims = claims_of(dataset)
    n = 5 + (dataset in LOGIT) + (dataset == "synthetic_control")
    assert len(claims) == n
    for number, claim in enumerate(claims):
        assert claim.dataset == dataset
        assert claim.holds(load_published()) is ((dataset, number) not in FALSE), claim.text


@pytest.mark.parametrize("dataset", LAST)
def test_what_is_about_the_last_condition_names_it(dataset):
    claims = claims_of(dataset)
    for number in (FALLS, STAYS):
        assert f"under {LAST[dataset]} perturbation" in claims[number].text
    assert len({claim.text for claim in claims}) == len(claims)


@pytest.mark.parametrize("dataset", LAST)
def test_coverage_of_either_ball_that_does_not_fall_makes_it_false(dataset):
    claim, last, published = claims_of(dataset)[FALLS], LAST[dataset], load_published()
    for method in ("ball", "h2"):
        nominal = published[dataset, "two", method, "nominal", "F_IK"]
        for share, expected in [(0.5, False), (0.499, True)]:
            numbers = changed(dataset, {(method, last): share * nominal})
            assert claim.holds(numbers) is expected


@pytest.mark.parametrize("dataset", LAST)
def test_coverage_of_softmax_at_half_decides(dataset):
    claim, last = claims_of(dataset)[STAYS], LAST[dataset]
    nominal = load_published()[dataset, "two", "softmax", "nominal", "F_IK"]
    for share, expected in [(0.5, True), (0.499, False), (1.5, True)]:
        assert claim.holds(changed(dataset, {("softmax", last): share * nominal})) is expected


@pytest.mark.parametrize("dataset", LAST)
def test_accuracies_that_are_equal_or_turned_do_not_separate(dataset):
    claim = claims_of(dataset)[SEPARATES]
    inside, outside = ("ball", "nominal", "A_IK"), ("ball", "nominal", "A_notIK")
    for values, expected in [((0.9, 0.8), True), ((0.8, 0.8), False), ((0.8, 0.9), False)]:
        numbers = changed(dataset, dict(zip((inside, outside), values, strict=True)))
        assert claim.holds(numbers) is expected
    # All known: the accuracy is that inside.
    assert not claim.holds(changed(dataset, {("ball", "nominal"): 1.0, outside: 0.1}))
    assert not claim.holds(changed(dataset, {outside: float("nan")}))


@pytest.mark.parametrize("dataset", LAST)
def test_one_condition_where_the_narrower_covers_more_makes_it_false(dataset):
    claims, published = claims_of(dataset), load_published()
    for condition in ("nominal", "gaussian", "uniform", LAST[dataset]):
        ball, nearest = (
            published[dataset, "two", method, condition, "F_IK"] for method in ("ball", "knn")
        )
        for more, expected in [(0.0, True), (0.001, False)]:
            numbers = changed(dataset, {("h2", condition): ball + more})
            assert claims[NARROWER].holds(numbers) is expected
        for more, expected in [(0.019, True), (0.021, False)]:
            numbers = changed(dataset, {("ball", condition): nearest + more})
            assert claims[NEAREST].holds(numbers) is expected


@pytest.mark.parametrize("dataset", LOGIT)
def test_more_known_and_wrong_with_two_layers_makes_it_false(dataset):
    claim, last = claims_of(dataset)[ROBUST], LAST[dataset]
    one = {
        ("ball", last, "F_IK", "logit"): 0.4,
        ("ball", last, "A_IK", "logit"): 0.5,  # 0.2 known and wrong
    }
    for share, accuracy, expected in [(0.3, 0.5, True), (0.5, 0.5, False), (0.5, 0.7, True)]:
        two = {("ball", last): share, ("ball", last, "A_IK"): accuracy}
        assert claim.holds(changed(dataset, one | two)) is expected
    # Where nothing is known, nothing is known wrongly, whatever the accuracy.
    nothing = {("ball", last): 0.0, ("ball", last, "A_IK"): float("nan")}
    assert claim.holds(changed(dataset, one | nothing))


def test_each_method_must_keep_its_accuracy_under_attack():
    claim = claims_of("synthetic_control")[KEEPS]
    for method in ("knn", "ball", "h2"):
        for accuracy, expected in [(0.9, True), (0.899, False), (float("nan"), False)]:
            numbers = changed("synthetic_control", {(method, "adversarial", "A_IK"): accuracy})
            assert claim.holds(numbers) is expected
    for accuracy, expected in [(0.899, True), (0.9, False)]:
        numbers = changed("synthetic_control", {("softmax", "adversarial", "A_IK"): accuracy})
        assert claim.holds(numbers) is expected
