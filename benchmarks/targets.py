"""Targets: what the library promises to cost, and whether this run confirms it.

Each target is judged by its worst case. A quick run does not use the sizes of the targets: it only
shows that everything runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from benchmarks.records import (
    ASSERTION,
    CELLS,
    CLASS_DISTANCES,
    DENSE,
    EXTRA_MEMORY,
    FAISS,
    LOAD,
    MEDIAN_LATENCY,
    OURS,
    PRODUCTS,
    SKLEARN,
    WITH_FEW,
    WITH_NEIGHBORS,
    Results,
)
from benchmarks.wording import amount, ratio

TIMES_PRODUCTS = 1.25
TIMES_PRODUCTS_NARROW = 2.0
WIDE = 32
TIMES_WITH_NEIGHBORS = 2.0
TIMES_WITH_FEW = 1.5
TIMES_FASTER = 3.0
EXTRA_MIB = 256.0
GROWTH = 0.75
SINGLE_QUERY_US = 1_000.0
LOAD_MS = 100.0


@dataclass(frozen=True)
class Verdict:
    """One target. where: the deciding case. met: None if nothing was measured."""

    target: str
    wanted: str
    measured: str
    where: str
    met: bool | None


Found = list[tuple[str, float]]
"""Cases with their measurements."""


def judge(results: Results) -> list[Verdict]:
    """All targets, in the order in which the library states them."""
    return [
        _at_most(
            f"class distances ÷ bare products, {WIDE}+ features",
            TIMES_PRODUCTS,
            _over_products(results, narrow=False),
        ),
        _at_most(
            "class distances ÷ bare products, 10 features",
            TIMES_PRODUCTS_NARROW,
            _over_products(results, narrow=True),
        ),
        _at_most(
            "with 10 neighbours ÷ class distances alone",
            TIMES_WITH_NEIGHBORS,
            _over_class_distances(results, WITH_NEIGHBORS),
        ),
        _at_most(
            "5 nearest of each class ÷ class distances alone",
            TIMES_WITH_FEW,
            _over_class_distances(results, WITH_FEW),
        ),
        *(
            _at_least(f"{task}: {short} ÷ iknow", TIMES_FASTER, _over_ours(results, task, rival))
            for task in (CLASS_DISTANCES, ASSERTION)
            for rival, short in ((SKLEARN, "scikit-learn"), (FAISS, "FAISS"))
        ),
        _at_most(
            "memory beyond index and result",
            EXTRA_MIB,
            [(each.case, each.value) for each in results.quantities if each.what == EXTRA_MEMORY],
            "MiB",
        ),
        _at_least(
            "assertion on MNIST: dense ÷ cells",
            TIMES_FASTER,
            _pairs([("mnist", results.ratio("mnist", ASSERTION, DENSE, CELLS))]),
        ),
        _growth(results),
        _at_most(
            "single query on MNIST, p50",
            SINGLE_QUERY_US,
            _single_query(results),
            "µs",
        ),
        _at_most(
            "loading a bundle of 1,000,000 × 64",
            LOAD_MS,
            [(each.case, each.value) for each in results.quantities if each.what == LOAD],
            "ms",
        ),
    ]


def _over_products(results: Results, narrow: bool) -> Found:
    found = []
    for case, n_features in _layers(results):
        if (n_features < WIDE) == narrow and not case.startswith(("rows", "features")):
            found.append((case, results.ratio(case, CLASS_DISTANCES, DENSE, PRODUCTS)))
    return _pairs(found)


def _over_class_distances(results: Results, task: str) -> Found:
    found = []
    for case, _ in _layers(results):
        more = results.find(case, task, DENSE)
        alone = results.find(case, CLASS_DISTANCES, DENSE)
        if more is not None and alone is not None:
            found.append((case, more.best / alone.best))
    return found


def _over_ours(results: Results, task: str, rival: str) -> Found:
    """A rival's cost divided by that of our faster index, on MNIST and synthetic data."""
    cases = dict.fromkeys(each.case for each in results.timings if each.task == task)
    found = []
    for case in cases:
        if case.startswith(("mnist", "synthetic")):
            over = [results.ratio(case, task, rival, ours) for ours in OURS]
            found.append((case, max((each for each in over if each is not None), default=None)))
    return _pairs(found)


def _growth(results: Results) -> Verdict:
    what, wanted = "cells: cost grows as rows to the power of", f"≤ {GROWTH:g}"
    sizes, costs = [], []
    for case in results.cases:
        timing = results.find(case.name, ASSERTION, CELLS)
        if case.name.startswith("rows") and timing is not None:
            sizes.append(float(case.n_rows))
            costs.append(timing.best)
    if len(set(sizes)) < 2:
        return _unmeasured(what, wanted)
    exponent = float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])  # 1: linear, 0: constant
    where = f"{min(sizes):,.0f} to {max(sizes):,.0f} rows"
    return Verdict(what, wanted, f"{exponent:.2f}", where, exponent <= GROWTH)


def _single_query(results: Results) -> Found:
    """The faster of our indexes: it is the one to choose."""
    found = []
    for ours in OURS:
        quantity = results.quantity("mnist", MEDIAN_LATENCY, ours)
        if quantity is not None:
            found.append((ours, quantity.value))
    return sorted(found, key=lambda each: each[1])[:1]


def _layers(results: Results) -> list[tuple[str, int]]:
    """Cases, by layer if there are several, with their number of features."""
    return [
        (case.name if len(case.layers) == 1 else f"{case.name}, {layer}", n_features)
        for case in results.cases
        for layer, n_features in case.layers.items()
    ]


def _pairs(found: Iterable[tuple[str, float | None]]) -> Found:
    return [(case, value) for case, value in found if value is not None]


def _at_most(target: str, limit: float, found: Found, unit: str = "") -> Verdict:
    wanted = f"≤ {_say(limit, unit)}"
    if not found:
        return _unmeasured(target, wanted)
    where, worst = max(found, key=lambda each: each[1])
    return Verdict(target, wanted, _say(worst, unit), where, worst <= limit)


def _at_least(target: str, limit: float, found: Found) -> Verdict:
    wanted = f"≥ {_say(limit, '')}"
    if not found:
        return _unmeasured(target, wanted)
    where, worst = min(found, key=lambda each: each[1])
    return Verdict(target, wanted, _say(worst, ""), where, worst >= limit)


def _unmeasured(target: str, wanted: str) -> Verdict:
    return Verdict(target, wanted, "–", "not measured", None)


def _say(value: float, unit: str) -> str:
    if unit:
        return amount(value, unit)
    return f"{value:g}×" if value == round(value, 2) else ratio(value)
