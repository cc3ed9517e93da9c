"""One case: class distances layer by layer, whole assertions, build times and latencies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.agreement import assertions_differ, distances_differ
from benchmarks.cases import Case, Layer
from benchmarks.entrants import (
    Entrant,
    contestants_in_assertion,
    enter_dense,
    enter_products,
    rivals_in_distances,
)
from benchmarks.plan import Effort
from benchmarks.racing import Answer, Contestant, Lap, latencies, race, timed
from benchmarks.recording import Recorder
from benchmarks.records import (
    ASSERTION,
    BALL_TREE,
    CLASS_DISTANCES,
    DENSE,
    MEDIAN_LATENCY,
    OURS,
    TAIL_LATENCY,
    WITH_FEW,
    WITH_NEIGHBORS,
    Quantity,
    Timing,
)
from iknow.core.arrays import Floats
from iknow.search.cells import CpuIndex

N_NEIGHBORS = 10
PER_CLASS = 5
FIRST = slice(0, 1)

Differ = Callable[[Any, Entrant], str | None]


def measure_case(case: Case, effort: Effort, record: Recorder) -> None:
    """Race all contestants on a case and record their other costs."""
    for layer in case.layers:
        _race_distances(case, layer, effort, record)
    race_assertions(case, effort, record)


def _race_distances(case: Case, layer: Layer, effort: Effort, record: Recorder) -> None:
    name = case.label_of(layer)
    expected = _class_distances(case, layer)

    def differ(answer: Any, entrant: Entrant) -> str | None:
        assert entrant.precision is not None
        return distances_differ(layer, expected[: len(answer)], answer, entrant.precision)

    entrants = [
        enter_products([layer]),
        enter_dense(case, layer),
        *rivals_in_distances(case, layer),
    ]
    plain = _build(name, CLASS_DISTANCES, entrants, case.n_queries, differ, record)
    more = {
        WITH_NEIGHBORS: enter_dense(case, layer, min(N_NEIGHBORS, case.n_rows)),
        WITH_FEW: enter_dense(case, layer, per_class=PER_CLASS),
    }
    others = [Contestant(DENSE, _ready(entrant), whole=True) for entrant in more.values()]
    # All tasks race in the same rounds: some targets are their ratios.
    laps = _race(name, [*plain, *others], case.n_queries, effort, record)
    record_laps(name, CLASS_DISTANCES, laps[: len(plain)], record)
    for task, lap in zip(more, laps[len(plain) :], strict=True):
        record_laps(name, task, [lap], record)


def race_assertions(case: Case, effort: Effort, record: Recorder, *, scaling: bool = False) -> None:
    """Race the contestants that can assert; for a point of a curve, fewer and nothing else."""
    expected = [_class_distances(case, layer) for layer in case.layers]
    supports = [
        distances <= layer.radius for layer, distances in zip(case.layers, expected, strict=True)
    ]
    asserted = case.assert_about(slice(None), supports)
    record.add_case(case.describe(asserted))

    def differ(answer: Any, entrant: Entrant) -> str | None:
        assert entrant.precision is not None
        n = len(answer)
        return assertions_differ(
            case, [each[:n] for each in expected], asserted[:n], answer, entrant.precision
        )

    entrants = [enter_products(case.layers), *contestants_in_assertion(case, not scaling)]
    built = _build(
        case.name, ASSERTION, entrants, case.n_queries, differ, record, keep_times=not scaling
    )
    laps = _race(case.name, built, case.n_queries, effort, record)
    record_laps(case.name, ASSERTION, laps, record)
    if not scaling:
        for each in built:
            if each.name in (*OURS, BALL_TREE):
                _measure_latency(case.name, each, case.n_queries, effort, record)


def _class_distances(case: Case, layer: Layer) -> Floats:
    """The reference answer, of shape (n_queries, n_classes)."""
    index = CpuIndex(layer.points, case.labels, case.n_classes)
    return index.gather(layer.queries).class_distances


def _build(
    name: str,
    task: str,
    entrants: Sequence[Entrant],
    n_queries: int,
    differ: Differ,
    record: Recorder,
    keep_times: bool = False,
) -> list[Contestant]:
    """The contestants that can be built and answer correctly; records why others are left out."""
    built: list[Contestant] = []
    for entrant in entrants:
        record.say(f"{name}: building {entrant.name}")
        try:
            answer, seconds = timed(partial(_ready, entrant))
        except ImportError as error:
            record.leave_out(name, task, entrant.name, f"not installed ({error})")
            continue
        if entrant.precision is not None:
            checked = slice(0, n_queries if entrant.whole else min(entrant.fewest, n_queries))
            reason = differ(answer(checked), entrant)
            if reason is not None:
                record.leave_out(name, task, entrant.name, reason)
                continue
            if keep_times:
                record.add(Quantity("build", name, "build", entrant.name, seconds, "s"))
        built.append(Contestant(entrant.name, answer, entrant.whole, entrant.fewest, entrant.note))
    return built


def _ready(entrant: Entrant) -> Answer:
    """Build and ask once: an index may leave work for the first query."""
    answer = entrant.build()
    answer(FIRST)
    return answer


def _race(
    name: str, built: Sequence[Contestant], n_queries: int, effort: Effort, record: Recorder
) -> list[Lap]:
    record.say(f"{name}: {len(built)} contestants take turns, {effort.repeats} rounds")
    return race(built, n_queries, effort.repeats, effort.seconds_per_call, effort.pause)


def record_laps(name: str, task: str, laps: Sequence[Lap], record: Recorder) -> None:
    """Record the times; for two variants of one contestant, the faster."""
    fastest: dict[str, Timing] = {}
    for lap in laps:
        each = lap.contestant
        timing = Timing(name, task, each.name, lap.n_queries, lap.seconds, each.note)
        if each.name not in fastest or timing.best < fastest[each.name].best:
            fastest[each.name] = timing
    for timing in fastest.values():
        record.add_timing(timing)


def _measure_latency(
    name: str, each: Contestant, n_queries: int, effort: Effort, record: Recorder
) -> None:
    record.say(f"{name}: one query at a time, {each.name}")
    taken = latencies(each.answer, min(n_queries, effort.single_queries), effort.latency_seconds)
    note = f"{len(taken):,} queries"
    for what, percent in ((MEDIAN_LATENCY, 50), (TAIL_LATENCY, 99)):
        # One of the times themselves: a tail is not softened by interpolation.
        value = 1e6 * float(np.percentile(taken, percent, method="inverted_cdf"))
        record.add(Quantity("latency", name, what, each.name, value, "µs", note))
