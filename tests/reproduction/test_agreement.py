"""Agreement, by cases worked out by hand."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reproduction.agreement import Comparison, Measured, compare, count_agreeing, measure
from reproduction.protocol import Cell, Outcome
from reproduction.tables import Key, load_published

HERE = Key("gtsrb", "two", "ball", "nominal", "F_IK")  # published: 0.488
INSIDE = HERE._replace(metric="A_IK")  # published: 0.999
OUTSIDE = HERE._replace(metric="A_notIK")  # published: 0.950


def outcomes_with(*tables):
    """One outcome for each table of values by key."""
    return [
        Outcome(HERE.dataset, seed, [Cell(*key[1:], value) for key, value in table.items()], {})
        for seed, table in enumerate(tables)
    ]


def compared(*tables, **options):
    found = compare(measure(outcomes_with(*tables), HERE.dataset), **options)
    return {each.key: each for each in found}


# Measuring


def test_a_cell_is_its_mean_and_deviation_over_the_seeds():
    measured = measure(outcomes_with({HERE: 0.1}, {HERE: 0.2}, {HERE: 0.6}), "gtsrb")
    assert list(measured) == [HERE]
    assert measured[HERE].mean == pytest.approx(0.3)
    # Squares of -0.2, -0.1 and 0.3 add up to 0.14; of three seeds two are free.
    assert measured[HERE].deviation == pytest.approx(math.sqrt(0.07))
    assert measured[HERE].n_seeds == 3


@given(st.lists(st.none() | st.floats(0, 1), min_size=1, max_size=10))
def test_measuring_is_python_s_own_statistics_over_what_is_defined(values):
    measured = measure(outcomes_with(*({INSIDE: value} for value in values)), "gtsrb")[INSIDE]
    defined = [value for value in values if value is not None]
    assert measured.n_seeds == len(defined)
    if not defined:
        assert math.isnan(measured.mean)
        assert math.isnan(measured.deviation)
    else:
        assert measured.mean == pytest.approx(statistics.fmean(defined))
        spread = statistics.stdev(defined) if len(defined) > 1 else 0.0
        assert measured.deviation == pytest.approx(spread, abs=1e-12)


def test_cells_are_kept_under_the_name_that_is_asked_for():
    measured = measure(outcomes_with({HERE: 0.4}), "mnist")
    assert list(measured) == [HERE._replace(dataset="mnist")]


# Agreeing


@pytest.mark.parametrize(
    ("ours", "agrees"),
    [
        ([0.488], True),
        ([0.537], True),  # 0.049 above
        ([0.439], True),  # 0.049 below
        ([0.539], False),  # 0.051 above, and one seed has no deviation
        ([0.437], False),
        ([0.55, 0.55, 0.55], False),
        ([0.30, 0.40], True),  # 0.138 below; the deviation is 0.0707, twice that 0.1414
        ([0.31, 0.39], False),  # 0.138 below; the deviation is 0.0566, twice that 0.1131
    ],
)
def test_within_the_tolerance_or_two_deviations(ours, agrees):
    found = compared(*({HERE: value} for value in ours))[HERE]
    assert found.agrees is agrees
    assert found.is_close is (abs(sum(ours) / len(ours) - 0.488) < 0.05)


@pytest.mark.parametrize(
    ("gap", "deviation", "agrees"),
    [(0.06, 0.031, True), (0.06, 0.029, False), (0.5, 0.251, True), (0.049, 0.0, True)],
)
def test_the_published_value_within_two_deviations(gap, deviation, agrees):
    for sign in (-1, 1):
        ours = Measured(0.5 + sign * gap, deviation, 5)
        assert Comparison(HERE, 0.5, ours, counted=True).agrees is agrees


def test_the_deviation_is_that_of_a_sample():
    # 0.588 and 0.628: mean 0.608, 0.12 away. A sample's deviation is 0.0283, twice that 0.057.
    assert not compared({HERE: 0.588}, {HERE: 0.628})[HERE].agrees
    # 0.528 and 0.588: mean 0.558, 0.07 away. A sample's deviation is 0.0424, twice that 0.085;
    # the deviation of these two alone would be 0.03, twice that 0.06: too little.
    assert compared({HERE: 0.528}, {HERE: 0.588})[HERE].agrees


@given(
    published=st.floats(0, 1),
    ours=st.lists(st.floats(0, 1), min_size=1, max_size=6),
)
def test_agreement_is_the_rule_in_words(published, ours):
    mean = statistics.fmean(ours)
    spread = statistics.stdev(ours) if len(ours) > 1 else 0.0
    gap = abs(mean - published)
    measured = measure(outcomes_with(*({HERE: value} for value in ours)), "gtsrb")[HERE]
    found = Comparison(HERE, published, measured, counted=True).agrees
    if min(abs(gap - 0.05), abs(gap - 2 * spread)) > 1e-9:
        assert found == (gap < 0.05 or gap < 2 * spread)


def test_a_gap_of_exactly_the_tolerance_agrees():
    assert Comparison(INSIDE, 1.0, Measured(0.95, 0.0, 1), counted=True).agrees


# Counting


@pytest.mark.parametrize(
    ("coverage", "inside", "outside"),
    [(0.5, True, True), (0.009, False, True), (0.011, True, True), (0.992, True, False)],
)
def test_an_accuracy_over_less_than_a_percent_here_is_not_counted(coverage, inside, outside):
    found = compared({HERE: coverage, INSIDE: 0.9, OUTSIDE: 0.9})
    assert found[HERE].counted
    assert found[INSIDE].counted is inside
    assert found[OUTSIDE].counted is outside


def test_an_accuracy_over_less_than_a_percent_in_the_paper_is_not_counted():
    # In mnist under attack the ball covers 0.000 in the paper, in italy under large noise 0.001.
    covered = Key("mnist", "two", "ball", "adversarial", "F_IK")
    keys = [covered._replace(metric=metric) for metric in ("F_IK", "A_IK", "A_notIK")]
    cells = [Cell(*key[1:], 0.5) for key in keys]
    found = compare(measure([Outcome("mnist", 0, cells, {})], "mnist"))
    assert [each.key for each in found] == keys
    assert [each.counted for each in found] == [True, False, True]
    assert count_agreeing(found) == (0, 2)


def test_a_share_is_that_of_the_mean_over_the_seeds():
    tables = [{HERE: 0.0, INSIDE: None, OUTSIDE: 0.95}, {HERE: 0.03, INSIDE: 0.999, OUTSIDE: 0.95}]
    found = compared(*tables)
    assert found[INSIDE].counted
    assert (found[INSIDE].ours.n_seeds, found[INSIDE].agrees) == (1, True)


def test_what_is_undefined_in_every_seed_is_not_counted():
    found = compared(
        {HERE: 0.0, INSIDE: None, OUTSIDE: 0.95}, {HERE: 0.0, INSIDE: None, OUTSIDE: 1.0}
    )
    assert not found[INSIDE].counted
    assert found[INSIDE].ours.n_seeds == 0
    assert found[OUTSIDE].counted
    everything = compared({HERE: 1.0, INSIDE: 0.95, OUTSIDE: None})
    assert not everything[OUTSIDE].counted
    assert everything[INSIDE].counted


def test_only_what_is_counted_can_agree(outcome_of):
    found = compare(measure([outcome_of("mnist")], "mnist"))
    # All have the published values; four groups hold under 1%: ball and H-2, both sets of layers.
    assert count_agreeing(found) == (116, 116)
    assert len(found) == 120
    assert count_agreeing([]) == (0, 0)


def test_cells_come_in_the_order_of_the_tables_and_others_are_left_out(outcome_of):
    found = compare(measure([outcome_of("iris")], "iris"))
    assert [each.key for each in found] == [k for k in load_published() if k.dataset == "iris"]
    for each in found:
        assert each.published == load_published()[each.key]


def test_the_hybrids_of_the_code_take_the_place_of_the_paper_s(outcome_of):
    tag = {"h1": 0.11, "h1_code": 0.12}
    outcome = outcome_of("gtsrb", 0, lambda key, value: tag.get(key.method, value))
    measured = measure([outcome], "gtsrb")
    own, code = compare(measured), compare(measured, code_hybrids=True)
    assert [each.key for each in own] == [each.key for each in code]
    for one, other in zip(own, code, strict=True):
        method = one.key.method
        if method == "h1":
            assert one.ours.mean == tag[method]
            assert other.ours.mean == tag[f"{method}_code"]
        else:
            assert one == other


def test_a_share_is_that_of_the_same_hybrid():
    key = Key("gtsrb", "two", "h1", "nominal", "F_IK")
    ours = {key: 0.5, key._replace(metric="A_IK"): 1.0}
    code = {each._replace(method="h1_code"): value for each, value in ours.items()}
    code[key._replace(method="h1_code")] = 0.001
    cells = [Cell(*each[1:], value) for each, value in (ours | code).items()]
    measured = measure([Outcome("gtsrb", 0, cells, {})], "gtsrb")
    for hybrids, counted in [(False, True), (True, False)]:
        found = {each.key: each for each in compare(measured, code_hybrids=hybrids)}
        assert found[key._replace(metric="A_IK")].counted is counted
