from dataclasses import replace

import pytest

from benchmarks.records import (
    ASSERTION,
    CELLS,
    CLASS_DISTANCES,
    DENSE,
    EXTRA_MEMORY,
    FAISS,
    LOAD,
    MEDIAN_LATENCY,
    SKLEARN,
    WITH_FEW,
    WITH_NEIGHBORS,
)
from benchmarks.targets import judge


def slower(results, case, task, contestant, factor):
    """The same results, but for one contestant that takes longer."""
    return replace(
        results,
        timings=tuple(
            replace(each, seconds=tuple(factor * s for s in each.seconds))
            if (each.case, each.task, each.contestant) == (case, task, contestant)
            else each
            for each in results.timings
        ),
    )


def larger(results, what, factor, contestant=None):
    return replace(
        results,
        quantities=tuple(
            replace(each, value=factor * each.value)
            if each.what == what and contestant in (None, each.contestant)
            else each
            for each in results.quantities
        ),
    )


def missed(results):
    return [verdict.target for verdict in judge(results) if verdict.met is False]


def test_good_results_meet_every_target(results):
    assert {verdict.met for verdict in judge(results)} == {True}
    assert len(judge(results)) == 13


@pytest.mark.parametrize(
    ("case", "task", "contestant", "factor", "target"),
    [
        ("mnist, relu2", CLASS_DISTANCES, DENSE, 1.01, "class distances ÷ bare products, 32+"),
        ("mnist, logits", CLASS_DISTANCES, DENSE, 1.61, "class distances ÷ bare products, 10"),
        ("mnist, relu2", WITH_NEIGHBORS, DENSE, 1.01, "with 10 neighbours"),
        ("mnist, logits", WITH_FEW, DENSE, 1.01, "5 nearest of each class"),
        ("mnist, logits", CLASS_DISTANCES, SKLEARN, 0.99, "class distances: scikit-learn"),
        ("mnist, logits", CLASS_DISTANCES, FAISS, 0.7, "class distances: FAISS"),
        ("synthetic, 10 classes", ASSERTION, SKLEARN, 0.99, "assertion: scikit-learn"),
        ("synthetic, 10 classes", ASSERTION, FAISS, 0.85, "assertion: FAISS"),
        ("mnist", ASSERTION, DENSE, 0.99, "assertion on MNIST"),
        ("rows 100,000", ASSERTION, CELLS, 4.0, "cells: cost grows"),
    ],
)
def test_a_worse_time_misses_its_target(results, case, task, contestant, factor, target):
    found = missed(slower(results, case, task, contestant, factor))
    assert any(each.startswith(target) for each in found), found


@pytest.mark.parametrize(
    ("what", "factor", "target"),
    [
        (EXTRA_MEMORY, 1.01, "memory"),
        (MEDIAN_LATENCY, 1.2, "single query"),
        (LOAD, 100, "loading"),
    ],
)
def test_a_worse_number_misses_its_target(results, what, factor, target):
    (found,) = missed(larger(results, what, factor))
    assert found.startswith(target)


def test_the_worst_case_decides_and_is_named(results):
    worse = slower(results, "synthetic, 10 classes", CLASS_DISTANCES, DENSE, 1.6)
    verdict = judge(worse)[0]
    assert (verdict.where, verdict.measured) == ("synthetic, 10 classes", "2×")
    assert verdict.met is False


def test_ours_is_judged_by_the_faster_index(results):
    assert missed(larger(results, MEDIAN_LATENCY, 10, contestant=DENSE)) == []
    assert missed(larger(results, MEDIAN_LATENCY, 10, contestant=CELLS)) != []


@pytest.mark.parametrize("exponent", [-0.5, 0, 0.3, 2])
def test_growth_is_the_exponent_of_a_power_law(results, exponent):
    rows = {case.name: case.n_rows for case in results.cases if case.name.startswith("rows")}
    timings = tuple(
        replace(each, seconds=(7.0 * rows[each.case] ** exponent,)) if each.case in rows else each
        for each in results.timings
    )
    (verdict,) = (v for v in judge(replace(results, timings=timings)) if "grows" in v.target)
    assert (float(verdict.measured), verdict.met) == (exponent, exponent <= 0.75)


def test_what_was_not_measured_is_neither_met_nor_missed(results):
    empty = replace(results, cases=(), timings=(), quantities=())
    assert {verdict.met for verdict in judge(empty)} == {None}


def test_points_of_the_curves_are_not_judged_as_cases(results):
    assert "rows 100,000" not in {verdict.where for verdict in judge(results)}
