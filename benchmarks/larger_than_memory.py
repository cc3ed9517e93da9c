"""Rows that do not fit into memory: time and memory of a DiskIndex, next to products by blocks.

    python -m benchmarks.larger_than_memory --rows 10000000 --features 64 --out disk.json

Clustered data as in `cases`. The rows are drawn piece by piece and written straight to disk, so
they are never in memory at once, and vanish at the end. The peak of memory is the system's: it
counts every page of a mapped file that the process holds. Some answers are compared, to the last
bit, with distances measured in float64 to every row.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import Mixture, disturb, mislabel
from benchmarks.memory import lifelong_peak
from benchmarks.race import Contestant, keep, latencies, race, tell, timed
from iknow.core.arrays import Floats32, Ints
from iknow.core.decision import decide
from iknow.core.evidence import Evidence, merge_evidence
from iknow.pages import read_through, release
from iknow.rules import RelativeBall
from iknow.search.disk import USUAL_BLOCK, DiskIndex
from iknow.search.scratch import write_rows
from iknow.testing.index import assert_same_decision, assert_same_evidence, brute_force

PIECE = 1 << 18  # rows
BLOCK = 1 << 14  # rows, for the products
QUORUM = 1, 3
RULE = RelativeBall(3.0, 1.5, quorum=QUORUM)


def write_mixture(
    mixture: Mixture, n_rows: int, n_classes: int, seed: int, folder: Path
) -> tuple[Floats32, Ints, Ints]:
    """Rows on disk, sorted by class, with their labels and numbers."""
    rng = np.random.default_rng(seed + 1)
    clusters = rng.integers(mixture.n_clusters, size=n_rows, dtype=np.int32)
    labels = (clusters // mixture.per_class).astype(np.int64)
    mislabel(labels, n_classes, rng)
    order = np.argsort(labels, kind="stable")

    def draw(start: int) -> Floats32:
        """A piece; the same each time it is drawn."""
        return mixture.draw(clusters[start : start + PIECE], np.random.default_rng([seed, start]))

    pieces = map(draw, range(0, n_rows, PIECE))
    return write_rows(folder, order, mixture.n_features, pieces), labels[order], order


def multiply(index: DiskIndex, queries: Floats32) -> Floats32:
    """The distance to each class by bare float32 products, block by block: not exact."""
    squared = np.einsum("ij,ij->i", queries, queries)
    nearest = np.full((len(queries), index.n_classes), np.inf, dtype=np.float32)
    labels = read_through(index.labels, BLOCK)
    for rows, codes in zip(read_through(index.points, BLOCK), labels, strict=True):
        found = queries @ rows.T
        found *= -2
        found += np.einsum("ij,ij->i", rows, rows)
        present, starts = np.unique(codes, return_index=True)
        lowest = np.minimum.reduceat(found, starts, axis=1)
        nearest[:, present] = np.minimum(nearest[:, present], lowest)
    distances: Floats32 = np.sqrt(np.maximum(nearest + squared[:, None], 0))
    return distances


def measure_all(index: DiskIndex, queries: Floats32, k: int, per_class: int) -> Evidence:
    """The evidence by measuring every distance in float64, block by block."""
    parts = []
    for start in range(0, index.n_rows, PIECE):
        part = slice(start, start + PIECE)
        rows, labels = np.array(index.points[part]), index.labels[part]
        release(index.points)
        asked = queries, k, index.rows[part], per_class
        parts.append(brute_force(rows, labels, index.n_classes, *asked))
    return merge_evidence(parts)


def run(given: argparse.Namespace) -> dict[str, Any]:
    """All figures of one run; each time as seconds that passed, and of all cores."""
    rng = np.random.default_rng(given.seed)
    mixture = Mixture(given.features, given.classes, rng)
    writing = timed(
        lambda: write_mixture(mixture, given.rows, given.classes, given.seed, given.folder)
    )
    points, labels, numbers = writing.result
    after_writing = lifelong_peak()
    tell(f"written in {writing.wall:.0f} s")
    clusters = rng.integers(mixture.n_clusters, size=given.queries + 1)
    queries = mixture.draw(clusters, rng)
    belief = disturb(queries, clusters // mixture.per_class, given.classes, rng)

    def build() -> DiskIndex:
        index = DiskIndex(
            points, labels, given.classes, numbers, memory=given.memory,
            folder=given.folder, block=given.block,
        )  # fmt: skip
        index.warm_up()
        return index

    index, built, built_cpu = timed(build)
    tell(f"built in {built:.0f} s")
    found: dict[str, Any] = {
        "rows": given.rows, "features": given.features, "classes": given.classes,
        "writing_s": writing.wall, "building_s": built, "building_cpu_s": built_cpu,
        "peak_after_writing_bytes": after_writing, "peak_after_building_bytes": lifelong_peak(),
    }  # fmt: skip
    contestants = [
        Contestant("decide", lambda part: index.decide(queries[part], RULE, belief[part])),
        Contestant("gather", lambda part: index.gather(queries[part], 1)),
        Contestant("products", lambda part: multiply(index, queries[part])),
    ]
    for lap in race(contestants, given.queries, given.repeat):
        name, answer = lap.contestant.name, lap.contestant.answer
        few = given.alone if name != "products" else min(given.alone, 3)
        alone = 1e3 * np.median(latencies(answer, min(few, given.queries)), axis=0)
        found[f"{name}_batch"] = {"ms": lap.best / 1e3, "cpu_ms": lap.best_cpu / 1e3}
        found[f"{name}_alone"] = dict(zip(("ms", "cpu_ms"), alone.tolist(), strict=True))
    some = slice(0, given.checked)
    decided, gathered, products = (each.answer(some) for each in contestants)
    found["peak_bytes"] = lifelong_peak()
    found["products_off_by"] = float(np.abs(products - gathered.class_distances).max(initial=0.0))
    expected = measure_all(index, queries[some], 1, max(QUORUM))
    assert_same_decision(decided, decide(expected, RULE, belief[some]))
    assert_same_evidence(gathered, measure_all(index, queries[some], 1, 1))
    return found | {"compared_with_float64": given.checked}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=2, help="rounds of the race")
    parser.add_argument("--alone", type=int, default=50, help="queries to ask one by one")
    parser.add_argument("--checked", type=int, default=10, help="queries to compare with float64")
    parser.add_argument("--memory", type=int, default=1 << 29, help="bytes for building")
    parser.add_argument("--block", type=int, default=USUAL_BLOCK, help="rows in a block")
    parser.add_argument("--folder", type=Path, help="where the rows go")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    given = parser.parse_args()
    print(json.dumps(keep({"figures": run(given)}, given.out), indent=1))


if __name__ == "__main__":
    main()
