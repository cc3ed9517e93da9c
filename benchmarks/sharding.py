"""One index, and the same rows in 1, 2 and 4 shards in processes of Ray's.

    python -m benchmarks.sharding --rows 1000000 --features 64 --out sharding.json

All of them may use the same cores: one index uses all of them, and each shard gets its part. So on
one machine shards cannot be faster than one index; what they cost is the question. Answers are
compared, bit for bit, before they are timed. Building by Ray includes starting the processes. The
rule is the default one, with a quorum of (1, 3); its radius and ratio are quantiles of the
distances of 500 queries, by which most queries are IK, as tuning would choose.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import Shape, draw_clustered
from benchmarks.race import Contestant, keep, latencies, race, timed
from iknow.core.arrays import Ints
from iknow.core.evidence import Evidence, distances_for_and_against
from iknow.core.quorum import weigh
from iknow.rules import RelativeBall
from iknow.search.cells import CpuIndex
from iknow.search.index import RowIndex
from iknow.search.ray import RayIndex, join
from iknow.testing.index import assert_same_decision

N_CLASSES = 10
QUORUM = (1, 3)
ONE = "one index"


def choose_rule(evidence: Evidence, belief: Ints) -> RelativeBall:
    """A rule by which most queries are IK."""
    own, other = distances_for_and_against(weigh(evidence, QUORUM, belief), belief)
    ratios = other / np.maximum(own, 1e-9)
    radius = float(np.quantile(own[np.isfinite(own)], 0.9))
    return RelativeBall(radius, float(np.quantile(ratios[ratios > 1], 0.1)), quorum=QUORUM)


def measure(shape: Shape, counts: list[int], repeats: int) -> dict[str, Any]:
    """Seconds to build, microseconds per query, and milliseconds of a single one, by name."""
    points, labels, queries, _, belief = draw_clustered(shape)
    makers: dict[str, Any] = {ONE: CpuIndex}
    makers |= {f"Ray, {n} shards": partial(RayIndex, shards=n) for n in counts}
    indexes: dict[str, RowIndex] = {}
    found: dict[str, dict[str, float]] = {"Ray itself": {"start, s": timed(join).wall}}
    for name, make in makers.items():
        indexes[name], seconds, _ = timed(partial(make, points, labels, N_CLASSES))
        found[name] = {"build, s": seconds, "and warm up, s": timed(indexes[name].warm_up).wall}
    rule = choose_rule(indexes[ONE].gather(queries[:500], 0, max(QUORUM)), belief[:500])
    decided = indexes[ONE].decide(queries, rule, belief)
    for index in indexes.values():
        assert_same_decision(index.decide(queries, rule, belief), decided)

    def ask(index: RowIndex, part: slice) -> Any:
        return index.decide(queries[part], rule, belief[part])

    def gather(index: RowIndex, part: slice) -> Any:
        return index.gather(queries[part], 0, max(QUORUM))

    for task, work in {"decide, µs": ask, "gather, µs": gather}.items():
        contestants = [Contestant(name, partial(work, index)) for name, index in indexes.items()]
        for lap in race(contestants, len(queries), repeats):
            found[lap.contestant.name][task] = lap.best
    for name, index in indexes.items():
        alone = latencies(partial(ask, index), 300, limit=10)[:, 0]
        found[name]["one query, ms"] = 1e3 * float(np.median(alone))
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
    found = measure(shape, given.shards, given.repeats)
    for name, figures in found.items():
        if isinstance(figures, dict):
            print(f"{name:16}", *(f"{what} {value:9.2f}" for what, value in figures.items()))
    keep({"arguments": vars(given) | {"out": None}, "found": found}, given.out)


if __name__ == "__main__":
    main()
