"""Targets: what the library promises to cost, and whether a run confirms it.

Each is judged by its worst case. A quick run does not use the sizes of the targets: it only shows
that everything runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from benchmarks.records import (
    ASSERTION,
    CELLS,
    CLASS_DISTANCES,
    CURVES,
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

WIDE = 32  # features

Found = list[tuple[str, float]]
"""Cases with their measurements."""


@dataclass(frozen=True)
class Verdict:
    """One target. where: the deciding case. met: None if nothing was measured."""

    target: str
    wanted: str
    measured: str
    where: str
    met: bool | None


def judge(results: Results) -> list[Verdict]:
    """All targets, in the order in which the library states them."""
    layers = [
        (case.name if len(case.layers) == 1 else f"{case.name}, {layer}", n_features)
        for case in results.cases
        for layer, n_features in case.layers.items()
    ]

    def over_products(narrow: bool) -> Found:
        names = [name for name, n in layers if (n < WIDE) == narrow and not is_point(name)]
        return _known((n, results.ratio(n, CLASS_DISTANCES, DENSE, PRODUCTS)) for n in names)

    def over_class_distances(task: str) -> Found:
        pairs = ((n, results.find(n, task, DENSE), results.find(n, CLASS_DISTANCES, DENSE))
                 for n, _ in layers)  # fmt: skip
        return [(n, more.best / alone.best) for n, more, alone in pairs if more and alone]

    def over_ours(task: str, rival: str) -> Found:
        """A rival's cost divided by that of our faster index, on MNIST and synthetic data."""
        cases = dict.fromkeys(each.case for each in results.timings if each.task == task)
        ratios = {
            case: [results.ratio(case, task, rival, ours) for ours in OURS]
            for case in cases
            if case.startswith(("mnist", "synthetic"))
        }
        return _known(
            (case, max((each for each in row if each is not None), default=None))
            for case, row in ratios.items()
        )

    def sizes(what: str) -> Found:
        return [(each.case, each.value) for each in results.quantities if each.what == what]

    latency = [
        (each.contestant, each.value)
        for each in results.quantities
        if (each.case, each.what) == ("mnist", MEDIAN_LATENCY) and each.contestant in OURS
    ]
    wide, narrow = f"{WIDE}+ features", "10 features"
    verdicts = [
        _judge(f"class distances ÷ bare products, {wide}", 1.25, over_products(False)),
        _judge(f"class distances ÷ bare products, {narrow}", 2.0, over_products(True)),
        *(
            _judge(f"{what} ÷ class distances alone", most, over_class_distances(task))
            for what, most, task in (
                ("with 10 neighbours", 2.0, WITH_NEIGHBORS),
                ("5 nearest of each class", 1.5, WITH_FEW),
            )
        ),
    ]
    verdicts += [
        _judge(f"{task}: {short} ÷ iknow", 3.0, over_ours(task, rival), least=True)
        for task in (CLASS_DISTANCES, ASSERTION)
        for rival, short in ((SKLEARN, "scikit-learn"), (FAISS, "FAISS"))
    ]
    dense = _known([("mnist", results.ratio("mnist", ASSERTION, DENSE, CELLS))])
    return [
        *verdicts,
        _judge("memory beyond index and result", 256.0, sizes(EXTRA_MEMORY), "MiB"),
        _judge("assertion on MNIST: dense ÷ cells", 3.0, dense, least=True),
        _growth(results),
        # The faster of our indexes: it is the one to choose.
        _judge("single query on MNIST, p50", 1_000.0, sorted(latency, key=_value)[:1], "µs"),
        _judge("loading a bundle of 1,000,000 × 64", 100.0, sizes(LOAD), "ms"),
    ]


def is_point(case: str) -> bool:
    """Whether a case is a point of a curve."""
    return case.startswith(CURVES)


def _growth(results: Results) -> Verdict:
    """The power of the number of rows with which the time of cells grows, by a fit."""
    sizes, costs = [], []
    for case in results.cases:
        timing = results.find(case.name, ASSERTION, CELLS)
        if case.name.startswith("rows") and timing is not None:
            sizes.append(float(case.n_rows))
            costs.append(timing.best)
    what, most = "cells: cost grows as rows to the power of", 0.75
    if len(set(sizes)) < 2:
        return Verdict(what, f"≤ {most:g}", "–", "not measured", None)
    exponent = float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])  # 1: linear, 0: constant
    where = f"{min(sizes):,.0f} to {max(sizes):,.0f} rows"
    return Verdict(what, f"≤ {most:g}", f"{exponent:.2f}", where, exponent <= most)


def _judge(
    target: str, limit: float, found: Found, unit: str = "", *, least: bool = False
) -> Verdict:
    wanted = f"{'≥' if least else '≤'} {_say(limit, unit)}"
    if not found:
        return Verdict(target, wanted, "–", "not measured", None)
    where, worst = (min if least else max)(found, key=_value)
    met = worst >= limit if least else worst <= limit
    return Verdict(target, wanted, _say(worst, unit), where, met)


def _known(found: Iterable[tuple[str, float | None]]) -> Found:
    return [(case, value) for case, value in found if value is not None]


def _value(pair: tuple[str, float]) -> float:
    return pair[1]


def _say(value: float, unit: str) -> str:
    if unit:
        return amount(value, unit)
    return f"{value:g}×" if value == round(value, 2) else ratio(value)


def duration(microseconds: float) -> str:
    """A time in a suitable unit, with three digits: 12.3 µs, 1.24 ms, 3.05 s."""
    for limit, divisor, unit in ((1e3, 1.0, "µs"), (1e6, 1e3, "ms")):
        if float(f"{microseconds:.3g}") < limit:
            return f"{three_digits(microseconds / divisor)} {unit}"
    return f"{three_digits(microseconds / 1e6)} s"


def ratio(value: float | None) -> str:
    """A ratio with a cross; a dash for None."""
    return "–" if value is None else f"{three_digits(value)}×"


def amount(value: float, unit: str) -> str:
    """A value with its unit; times in a suitable unit."""
    factors = {"µs": 1.0, "ms": 1e3, "s": 1e6}
    if unit in factors:
        return duration(value * factors[unit])
    return f"{three_digits(value)} {unit}"


def three_digits(value: float) -> str:
    """Three significant digits, without an exponent: 0.0123, 1.23, 12.3, 1,230."""
    rounded = float(f"{value:.3g}")
    size = abs(rounded)
    decimals = 0 if size >= 100 or size == 0 else 1 if size >= 10 else 2 if size >= 1 else 3
    return f"{rounded:,.{decimals}f}"
