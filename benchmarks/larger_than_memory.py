"""Rows that do not fit into memory: time and memory of a DiskIndex, next to products by blocks.

    python -m benchmarks.larger_than_memory --rows 10000000 --features 64 --out disk.json

Each class is a mixture of clusters of at most 8 dimensions, as in `synthetic`, with noise, wrong
labels and queries off the clusters. The rows are drawn piece by piece and written straight to disk,
so they are never in memory at once, and vanish at the end. The peak of memory is the system's
(VmHWM): it counts every page of a mapped file that the process holds. Some answers are compared, to
the last bit, with distances measured in float64 to every row.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.machine import describe_machine
from benchmarks.synthetic import AMBIENT_NOISE, CENTER_DISTANCE, MISLABELLED, N_CLUSTERS, RANK
from iknow.core.arrays import Floats32, Ints
from iknow.core.decision import Decision, decide
from iknow.core.evidence import Evidence, merge_evidence
from iknow.core.rule import Rule
from iknow.pages import read_through, release
from iknow.rules import RelativeBall
from iknow.search.disk import USUAL_BLOCK, DiskIndex
from iknow.search.scratch import write_rows
from iknow.testing.index import assert_same_decision, assert_same_evidence, brute_force

PIECE = 1 << 18  # rows
BLOCK = 1 << 14  # rows, for the products
PUSH, PUSHED, WRONG = 4.0, 0.1, 0.05
QUORUM = 1, 3


class Mixture:
    """Clusters in subspaces of at most 8 dimensions, shared out among the classes."""

    def __init__(self, n_features: int, n_classes: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.n_features, self.seed = n_features, seed
        self.per_class = max(2, N_CLUSTERS // n_classes)
        n_clusters, rank = self.per_class * n_classes, min(RANK, n_features)
        spread = max(n_clusters ** (1 / n_features), CENTER_DISTANCE / np.sqrt(2 * n_features))
        self.centers = rng.normal(scale=spread, size=(n_clusters, n_features)).astype(np.float32)
        bases = rng.standard_normal((n_clusters, n_features, rank))
        self.bases = np.linalg.qr(bases)[0].transpose(0, 2, 1).astype(np.float32)

    def draw(self, clusters: Any, piece: int) -> Floats32:
        """One point of each cluster; the same for the same piece."""
        rng = np.random.default_rng([self.seed, piece])
        n, rank = len(clusters), self.bases.shape[1]
        points = rng.standard_normal((n, self.n_features), dtype=np.float32)
        points *= np.float32(AMBIENT_NOISE)
        inside = rng.standard_normal((n, rank), dtype=np.float32)
        order = np.argsort(clusters, kind="stable")
        starts = np.searchsorted(clusters[order], np.arange(len(self.centers) + 1))
        for cluster, (start, end) in enumerate(pairwise(starts.tolist())):
            rows = order[start:end]
            points[rows] += inside[rows] @ self.bases[cluster] + self.centers[cluster]
        return points


def write_mixture(
    mixture: Mixture, n_rows: int, n_classes: int, folder: Path
) -> tuple[Floats32, Ints, Ints]:
    """Rows on disk, sorted by class, with their labels and numbers."""
    rng = np.random.default_rng(mixture.seed + 1)
    clusters = rng.integers(len(mixture.centers), size=n_rows, dtype=np.int32)
    labels = (clusters // mixture.per_class).astype(np.int64)
    wrong = rng.random(n_rows, dtype=np.float32) < MISLABELLED
    labels[wrong] = rng.integers(n_classes, size=int(wrong.sum()))
    order = np.argsort(labels, kind="stable")
    starts = enumerate(range(0, n_rows, PIECE))
    pieces = (mixture.draw(clusters[at : at + PIECE], number) for number, at in starts)
    points = write_rows(folder, order, mixture.n_features, pieces)
    return points, labels[order], order


def draw_queries(mixture: Mixture, n: int, n_classes: int) -> tuple[Floats32, Ints]:
    """Queries, one in ten off its cluster, and beliefs, one in twenty wrong."""
    rng = np.random.default_rng(mixture.seed + 2)
    clusters = rng.integers(len(mixture.centers), size=n)
    queries = mixture.draw(clusters, -1 % (1 << 32))
    pushed = rng.random(n) < PUSHED
    push = rng.normal(scale=PUSH / np.sqrt(mixture.n_features), size=queries[pushed].shape)
    queries[pushed] += push.astype(np.float32)
    belief = clusters // mixture.per_class
    wrong = rng.random(n) < WRONG
    return queries, np.where(wrong, rng.integers(n_classes, size=n), belief)


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
    found: Evidence | None = None
    for start in range(0, index.n_rows, PIECE):
        part = slice(start, start + PIECE)
        rows, labels = np.array(index.points[part]), index.labels[part]
        release(index.points)
        asked = queries, k, index.rows[part], per_class
        piece = brute_force(rows, labels, index.n_classes, *asked)
        found = piece if found is None else merge_evidence([found, piece])
    assert found is not None
    return found


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Timed(NamedTuple):
    """What some work returned, its seconds, and those that all cores spent on it.

    On a machine that others use as well, only the latter tell what it costs.
    """

    result: Any
    wall: float
    cpu: float


def timed(work: Callable[[], Any]) -> Timed:
    start, spent = time.perf_counter(), time.process_time()
    result = work()
    return Timed(result, time.perf_counter() - start, time.process_time() - spent)


def peak() -> int:
    """The largest resident set of this process so far, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def milliseconds(runs: Sequence[Timed], n: int | None = None) -> dict[str, float]:
    """For each query: the best of several runs of n queries at once, or the middle one of many."""
    choose = np.median if n is None else np.min
    walls, cpus = [run.wall for run in runs], [run.cpu for run in runs]
    return {
        "ms": 1e3 * float(choose(walls)) / (n or 1),
        "cpu_ms": 1e3 * float(choose(cpus)) / (n or 1),
    }


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """All figures of one run."""
    shape = arguments.features, arguments.classes
    mixture = Mixture(*shape, arguments.seed)
    writing = timed(
        lambda: write_mixture(mixture, arguments.rows, arguments.classes, arguments.folder)
    )
    points, labels, numbers = writing.result
    after_writing = peak()
    tell(f"written in {writing.wall:.0f} s")

    def build() -> DiskIndex:
        index = DiskIndex(
            points, labels, arguments.classes, numbers, memory=arguments.memory,
            folder=arguments.folder, block=arguments.block,
        )  # fmt: skip
        index.warm_up()
        return index

    building = timed(build)
    index: DiskIndex = building.result
    tell(f"built in {building.wall:.0f} s")
    figures: dict[str, Any] = {
        "rows": arguments.rows, "features": arguments.features, "classes": arguments.classes,
        "writing_s": writing.wall, "building_s": building.wall, "building_cpu_s": building.cpu,
        "peak_after_writing_bytes": after_writing, "peak_after_building_bytes": peak(),
    }  # fmt: skip
    queries, belief = draw_queries(mixture, arguments.queries + 1, arguments.classes)
    rule: Rule = RelativeBall(3.0, 1.5, quorum=QUORUM)
    index.gather(queries[-1:], 1)
    index.decide(queries[-1:], rule, belief[-1:])  # compiled by now
    n, alone = arguments.queries, min(arguments.alone, arguments.queries)
    asked: dict[str, Callable[[slice], Any]] = {
        "decide": lambda part: index.decide(queries[part], rule, belief[part]),
        "gather": lambda part: index.gather(queries[part], 1),
        "products": lambda part: multiply(index, queries[part]),
    }
    answers = {}
    for name, work in asked.items():
        runs = [timed(partial(work, slice(0, n))) for _ in range(arguments.repeat)]
        answers[name] = runs[0].result
        figures[f"{name}_batch"] = milliseconds(runs, n)
        tell(f"{name}, {n} queries at once: {figures[f'{name}_batch']}")
    for name, work in asked.items():
        some = range(alone if name != "products" else min(alone, 3))
        figures[f"{name}_alone"] = milliseconds(
            [timed(partial(work, slice(i, i + 1))) for i in some]
        )
        tell(f"{name}, one query: {figures[f'{name}_alone']}")
    decided, gathered, products = answers.values()
    figures["products_off_by"] = float(np.abs(products - gathered.class_distances).max())
    figures["peak_bytes"] = peak()
    check(index, queries, belief, rule, gathered, decided, arguments.checked)
    figures["compared_with_float64"] = arguments.checked
    return figures


def check(
    index: DiskIndex, queries: Floats32, belief: Ints, rule: Rule, gathered: Evidence,
    decided: Decision, n: int,
) -> None:  # fmt: skip
    """Some answers, to the last bit."""
    if n:
        expected = measure_all(index, queries[:n], 1, max(QUORUM))
        assert_same_decision(decided[:n], decide(expected, rule, belief[:n]))
        nearest = measure_all(index, queries[:n], 1, 1)
        assert_same_evidence(gathered[:n], nearest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=64)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=2, help="runs of each batch")
    parser.add_argument("--alone", type=int, default=50, help="queries to ask one by one")
    parser.add_argument("--checked", type=int, default=10, help="queries to compare with float64")
    parser.add_argument("--memory", type=int, default=1 << 29, help="bytes for building")
    parser.add_argument("--block", type=int, default=USUAL_BLOCK, help="rows in a block")
    parser.add_argument("--folder", type=Path, default=None, help="where the rows go")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None, help="a JSON file for the figures")
    arguments = parser.parse_args()
    text = json.dumps({"machine": describe_machine(), "figures": run(arguments)}, indent=2)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
