"""Who races: iknow, the products that bound it, scikit-learn and FAISS, and how exact each is.

A rival answers in the fastest way we know that gives the same result. The yardstick is all products
of queries and points by numpy, in tiles that stay in the cache, on all cores, thrown away: a search
that visits every row needs them. A kernel that takes minima as it goes need not store them, and for
short rows that can make it a little faster than the yardstick.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import pairwise_distances_argmin_min
from sklearn.neighbors import BallTree, KDTree, NearestNeighbors

from benchmarks.agreement import FLOAT32, FLOAT64, Precision
from benchmarks.cases import Case, Layer
from benchmarks.race import Answer, best_of
from benchmarks.records import BALL_TREE, CELLS, DENSE, FAISS, KD_TREE, PRODUCTS, SKLEARN
from iknow.core.arrays import Bools, Floats, Floats32, Ints
from iknow.core.codes import NO_BELIEF
from iknow.core.support import find_support
from iknow.rules import Ball
from iknow.search.cells import CpuIndex
from iknow.search.threads import for_each, n_cores, share

TILES = ((256, 256), (512, 256), (1024, 256), (512, 512), (1024, 512), (2048, 512))
"""Tile shapes (rows and queries) to try: the fastest depends on the caches and the BLAS."""
PRODUCTS_TRIED = 5_000_000_000
ENOUGH_DISTANCES = 64_000_000
TREES = {BALL_TREE: BallTree, KD_TREE: KDTree}

Distances = Callable[[Floats32], Floats]
Support = Callable[[Floats32], Bools]


@dataclass(frozen=True, eq=False)
class Entrant:
    """A contestant that is not built yet.

    build: prepares it and returns its answering function. whole, fewest: see `Contestant`.
    precision: of its answers, None if it has none to compare.
    """

    name: str
    build: Callable[[], Answer]
    precision: Precision | None = FLOAT64
    whole: bool = False
    fewest: int = 256
    note: str = ""


def multiply_all(points: Floats32, queries: Floats32, tile: tuple[int, int]) -> None:
    """All products of points of shape (n, d) and queries of shape (m, d), in tiles."""
    height, width = tile
    width = max(1, min(width, -(-len(queries) // n_cores())))

    def work(start: int) -> None:
        columns = np.ascontiguousarray(queries[start : start + width].T)
        out = np.empty((height, columns.shape[1]), dtype=np.float32)
        for first in range(0, len(points), height):
            rows = points[first : first + height]
            np.matmul(rows, columns, out=out[: len(rows)])

    for_each(work, range(0, len(queries), width))


def fastest_tile(points: Floats32, queries: Floats32) -> tuple[int, int]:
    """The fastest tile shape, tried on enough queries and rows for all cores."""
    asked = queries[: 1024 * n_cores()]
    rows = points[: max(4096, PRODUCTS_TRIED // asked.size)]
    return min(TILES, key=lambda tile: best_of(lambda: multiply_all(rows, asked, tile), 2))


def products(points: Floats32, queries: Floats32) -> Answer:
    """The yardstick for one layer, in its fastest tiles."""
    tile = fastest_tile(points, queries)
    return lambda part: multiply_all(points, queries[part], tile)


def enter_products(layers: Sequence[Layer]) -> Entrant:
    """The yardstick, for all layers together."""

    def build() -> Answer:
        parts = [products(layer.points, layer.queries) for layer in layers]
        return lambda part: [multiply(part) for multiply in parts] and None

    return Entrant(PRODUCTS, build, precision=None, whole=True)


def enter_dense(case: Case, layer: Layer, k: int = 0, per_class: int = 1) -> Entrant:
    """Evidence of a layer: the nearest of each class and, if k > 0, k neighbor distances."""

    def build() -> Answer:
        index = CpuIndex(layer.points, case.labels, case.n_classes)
        return lambda part: index.gather(layer.queries[part], k, per_class).class_distances

    return Entrant(DENSE, build, whole=True)


def rivals_in_distances(case: Case, layer: Layer) -> list[Entrant]:
    """Others that can find the distance to the nearest row of each class."""
    rows = [layer.points[case.labels == code] for code in range(case.n_classes)]

    def enter(name: str, prepare: Callable[[Floats32], Distances], note: str) -> Entrant:
        def build() -> Answer:
            finders = [prepare(part) if len(part) else _nothing for part in rows]

            def answer(part: slice) -> Floats:
                queries = layer.queries[part]
                return np.stack([find(queries) for find in finders], axis=1)

            return answer

        return Entrant(name, build, FLOAT32, fewest=_fair_batch(case), note=f"{note}, each class")

    return [
        enter(SKLEARN, _by_argmin, "argmin"),
        enter(SKLEARN, _by_neighbors, "k = 1"),
        enter(FAISS, _by_faiss, "k = 1"),
    ]


def _nothing(queries: Floats32) -> Floats:
    return np.full(len(queries), np.inf)


def _by_argmin(rows: Floats32) -> Distances:
    return lambda queries: pairwise_distances_argmin_min(queries, rows)[1]


def _by_neighbors(rows: Floats32) -> Distances:
    """Which of scikit-learn's two ways is faster depends on the size."""
    search = NearestNeighbors(algorithm="brute", n_neighbors=1).fit(rows)
    return lambda queries: search.kneighbors(queries)[0][:, 0]


def _by_faiss(rows: Floats32) -> Distances:
    index = _flat(rows)
    return lambda queries: np.sqrt(np.maximum(index.search(queries, 1)[0][:, 0], 0))


def _flat(rows: Floats32) -> Any:
    """FAISS's flat index: float32, with all its threads."""
    import faiss  # optional: without it, everything else still runs

    index = faiss.IndexFlatL2(rows.shape[1])
    index.add(np.ascontiguousarray(rows))
    return index


def _fair_batch(case: Case) -> int:
    """The fewest queries to ask at once: enough that a call's overhead, for each class, is small.

    On many rows few queries are work enough; more would only take longer.
    """
    return max(2 * case.n_classes, min(1024, max(64, ENOUGH_DISTANCES // case.n_rows)))


def contestants_in_assertion(case: Case, with_rivals: bool = True) -> list[Entrant]:
    """All contestants that can assert IK, IMK or IDK, by the support in every layer."""

    def enter(name: str, make: Callable[[Case, Layer], Support], **more: Any) -> Entrant:
        def build() -> Answer:
            finders = [(layer, make(case, layer)) for layer in case.layers]

            def answer(part: slice) -> Any:
                supports = [find(layer.queries[part]) for layer, find in finders]
                return case.assert_about(part, supports)

            return answer

        return Entrant(name, build, **more)

    ours = [enter(DENSE, _dense, whole=True), enter(CELLS, _cells, whole=True)]
    fair: dict[str, Any] = {"precision": FLOAT32, "fewest": _fair_batch(case)}
    ball_tree, kd_tree = (enter(name, _tree_support(name), fewest=32) for name in TREES)
    faiss = enter(FAISS, _faiss_support, note="range search", **fair)
    if not with_rivals:
        return [*ours, ball_tree, faiss]
    return [*ours, enter(SKLEARN, _brute_support, **fair), ball_tree, kd_tree, faiss]


def _dense(case: Case, layer: Layer) -> Support:
    index = CpuIndex(layer.points, case.labels, case.n_classes)
    return lambda queries: find_support(index.gather(queries), Ball(layer.radius))


def _cells(case: Case, layer: Layer) -> Support:
    index, rule = CpuIndex(layer.points, case.labels, case.n_classes), Ball(layer.radius)
    return lambda queries: index.decide(queries, rule, np.full(len(queries), NO_BELIEF)).support


def _brute_support(case: Case, layer: Layer) -> Support:
    search = NearestNeighbors(algorithm="brute", radius=layer.radius).fit(layer.points)

    def find(queries: Floats32) -> Bools:
        near = search.radius_neighbors(queries, return_distance=False)
        return support_of_lists(near, case.labels, case.n_classes)

    return find


def _tree_support(name: str) -> Callable[[Case, Layer], Support]:
    """By a tree, which computes in float64; queries on all cores."""

    def make(case: Case, layer: Layer) -> Support:
        tree = TREES[name](layer.points)

        def find(queries: Floats32) -> Bools:
            support = np.empty((len(queries), case.n_classes), dtype=bool)

            def work(part: slice) -> None:
                near = tree.query_radius(queries[part], layer.radius)
                support[part] = support_of_lists(near, case.labels, case.n_classes)

            # Several parts for each core, as some queries take longer than others.
            step = max(1, len(queries) // (4 * n_cores()))
            share(work, [slice(i, i + step) for i in range(0, len(queries), step)])
            return support

        return find

    return make


def _faiss_support(case: Case, layer: Layer) -> Support:
    index = _flat(layer.points)

    def find(queries: Floats32) -> Bools:
        ends, _, rows = index.range_search(queries, layer.radius**2)
        support = np.zeros((len(queries), case.n_classes), dtype=bool)
        query = np.repeat(np.arange(len(queries)), np.diff(ends.astype(np.int64)))
        support[query, case.labels[rows]] = True
        return support

    return find


def support_of_lists(neighbors: Sequence[Any], labels: Ints, n_classes: int) -> Bools:
    """A mask of shape (n_queries, n_classes) from the rows near each query."""
    sizes = [len(rows) for rows in neighbors]
    support = np.zeros((len(neighbors), n_classes), dtype=bool)
    if any(sizes):
        query = np.repeat(np.arange(len(neighbors)), sizes)
        support[query, labels[np.concatenate(neighbors)]] = True
    return support
