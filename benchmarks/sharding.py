"""One index, and the same rows in 1, 2 and 4 shards in processes of Ray's.

    python -m benchmarks.sharding --rows 1000000 --features 64 --out sharding.json

All of them may use the same cores: one index uses all of them, and each shard gets its part. So on
one machine shards cannot be faster than one index; what they cost is the question. Answers are
compared, bit for bit, before they are timed; contestants take turns, and the best round counts.
Building by Ray includes starting the processes. The rule is the default one, with a quorum of
(1, 3); its radius and ratio are quantiles of the distances of 500 queries. Synthetic activations
(`benchmarks.synthetic`), 10 classes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import describe_machine
from benchmarks.racing import latencies, timed
from benchmarks.synthetic import Shape, draw_clustered
from iknow.core.arrays import Ints
from iknow.core.decision import Decision
from iknow.core.evidence import Evidence, distances_for_and_against
from iknow.core.quorum import weigh
from iknow.rules import RelativeBall
from iknow.search.cells import CpuIndex
from iknow.search.index import RowIndex
from iknow.search.ray import RayIndex, join

N_CLASSES = 10
QUORUM = (1, 3)
ONE = "one index"


def find_makers(counts: list[int]) -> dict[str, Callable[..., RowIndex]]:
    """What makes each contestant, by name."""

    def ray(shards: int) -> Callable[..., RowIndex]:
        return lambda *arrays: RayIndex(*arrays, shards=shards)

    makers: dict[str, Callable[..., RowIndex]] = {ONE: CpuIndex}
    return makers | {f"Ray, {n} shards": ray(n) for n in counts}


def choose_rule(evidence: Evidence, belief: Ints) -> RelativeBall:
    """A rule by which most queries are IK, as tuning would choose."""
    own, other = distances_for_and_against(weigh(evidence, QUORUM, belief), belief)
    ratios = other / np.maximum(own, 1e-9)
    radius = float(np.quantile(own[np.isfinite(own)], 0.9))
    return RelativeBall(radius, float(np.quantile(ratios[ratios > 1], 0.1)), quorum=QUORUM)


def same(one: Decision, other: Decision) -> bool:
    """Whether two decisions are equal, bit for bit."""
    pairs = [
        (one.contrast.own, other.contrast.own),
        (one.contrast.other, other.contrast.other),
        (one.exemplars, other.exemplars),
        (one.support, other.support),
    ]
    return all(np.array_equal(first, second) for first, second in pairs)


def measure(shape: Shape, counts: list[int], repeats: int) -> dict[str, Any]:
    """Seconds to build, microseconds per query, and milliseconds of a single one, by name."""
    points, labels, queries, _, belief = draw_clustered(shape)
    indexes: dict[str, RowIndex] = {}
    found: dict[str, dict[str, float]] = {"Ray itself": {"start, s": timed(join)[1]}}
    for name, make in find_makers(counts).items():
        indexes[name], seconds = timed(lambda make=make: make(points, labels, N_CLASSES))  # type: ignore[misc]
        _, warming = timed(indexes[name].warm_up)
        found[name] = {"build, s": seconds, "and warm up, s": warming}
        print(f"{name}: built in {seconds:.2f} s, warmed up in {warming:.2f} s", flush=True)
    rule = choose_rule(indexes[ONE].gather(queries[:500], 0, max(QUORUM)), belief[:500])
    decided = indexes[ONE].decide(queries, rule, belief)
    for name, index in indexes.items():
        assert same(index.decide(queries, rule, belief), decided), name
    tasks: dict[str, Callable[[RowIndex], Any]] = {
        "decide, µs": lambda index: index.decide(queries, rule, belief),
        "gather, µs": lambda index: index.gather(queries, 0, max(QUORUM)),
    }
    for task, work in tasks.items():
        for _ in range(repeats):
            for name, index in indexes.items():
                seconds = timed(lambda index=index, work=work: work(index))[1]  # type: ignore[misc]
                best = found[name].get(task, np.inf)
                found[name][task] = min(best, seconds / len(queries) * 1e6)
    for name, index in indexes.items():

        def ask(rows: slice, index: RowIndex = index) -> Any:
            return index.decide(queries[rows], rule, belief[rows])

        found[name]["one query, ms"] = 1e3 * float(np.median(latencies(ask, 300, limit=10)))
    return {"rule": repr(rule), "IK": float(np.mean(decided.support.sum(axis=1) == 1)), **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--queries", type=int, default=2_000)
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    shape = Shape(given.rows, given.features, N_CLASSES, given.queries)
    machine = describe_machine()
    print(f"{given.rows:,} × {given.features}, {given.queries:,} queries, {machine['cores']} cores")
    found = measure(shape, given.shards, given.repeats)
    for name, figures in found.items():
        if isinstance(figures, dict):
            print(f"{name:16}", *(f"{what} {value:9.2f}" for what, value in figures.items()))
        else:
            print(f"{name}: {figures}")
    if given.out is not None:
        record = {"machine": machine, "arguments": vars(given) | {"out": None}, "found": found}
        given.out.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
