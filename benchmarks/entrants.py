"""The contestants: how to build each, and how far to trust its arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks import sklearn
from benchmarks.agreement import FLOAT32, FLOAT64, Precision
from benchmarks.cases import Case, Layer
from benchmarks.products import fastest_tile, multiply_all
from benchmarks.racing import Answer
from benchmarks.records import (
    BALL_TREE,
    CELLS,
    DENSE,
    FAISS,
    KD_TREE,
    PRODUCTS,
    SKLEARN,
)
from iknow.core.arrays import Bools, Floats32
from iknow.core.codes import NO_BELIEF
from iknow.core.support import find_support
from iknow.rules import Ball
from iknow.search.cells import CpuIndex

ENOUGH_DISTANCES = 64_000_000

Find = Callable[[Floats32], Bools]


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


def enter_products(layers: Sequence[Layer]) -> Entrant:
    """The yardstick, for all layers together."""

    def build() -> Answer:
        tiles = [fastest_tile(layer.points, layer.queries) for layer in layers]

        def answer(part: slice) -> None:
            for layer, tile in zip(layers, tiles, strict=True):
                multiply_all(layer.points, layer.queries[part], tile)

        return answer

    return Entrant(PRODUCTS, build, precision=None, whole=True)


def enter_dense(case: Case, layer: Layer, k: int = 0, per_class: int = 1) -> Entrant:
    """Evidence of a layer: the nearest of each class and, if k > 0, k neighbor distances."""

    def build() -> Answer:
        index = CpuIndex(layer.points, case.labels, case.n_classes)
        return lambda part: index.gather(layer.queries[part], k, per_class).class_distances

    return Entrant(DENSE, build, whole=True)


def rivals_in_distances(case: Case, layer: Layer) -> list[Entrant]:
    """Others that can find the distance to the nearest row of each class."""

    def brute(make: Callable[[Case, Layer], sklearn.Distances]) -> Callable[[], Answer]:
        def build() -> Answer:
            find = make(case, layer)
            return lambda part: find(layer.queries[part])

        return build

    def faiss() -> Answer:
        # Imported here because FAISS is optional: without it, everything else still runs.
        from benchmarks.faiss import nearest_per_class

        find = nearest_per_class(case, layer)
        return lambda part: find(layer.queries[part])

    fewest = _fair_batch(case)
    argmin, nearest = brute(sklearn.nearest_per_class), brute(sklearn.neighbors_per_class)
    return [
        Entrant(SKLEARN, argmin, FLOAT32, fewest=fewest, note="argmin, each class"),
        Entrant(SKLEARN, nearest, FLOAT32, fewest=fewest, note="k = 1, each class"),
        Entrant(FAISS, faiss, FLOAT32, fewest=fewest, note="k = 1, each class"),
    ]


def _fair_batch(case: Case) -> int:
    """The fewest queries to ask at once: enough that a call's overhead, for each class, is small.

    On many rows few queries are work enough; more would only take longer.
    """
    return max(2 * case.n_classes, min(1024, max(64, ENOUGH_DISTANCES // case.n_rows)))


def contestants_in_assertion(case: Case, with_rivals: bool = True) -> list[Entrant]:
    """All contestants that can assert IK, IMK or IDK, by the support in every layer."""

    def dense(layer: Layer) -> Find:
        index = CpuIndex(layer.points, case.labels, case.n_classes)
        return lambda queries: find_support(index.gather(queries), Ball(layer.radius))

    def cells(layer: Layer) -> Find:
        index = CpuIndex(layer.points, case.labels, case.n_classes)

        def find(queries: Floats32) -> Bools:
            unbelieved = np.full(len(queries), NO_BELIEF)
            return index.decide(queries, Ball(layer.radius), unbelieved).support

        return find

    def faiss(layer: Layer) -> Find:
        from benchmarks.faiss import range_support

        return range_support(case, layer)

    def tree(name: str) -> Callable[[Layer], Find]:
        return lambda layer: sklearn.tree_support(case, layer, name)

    ours = [
        Entrant(DENSE, _asserting(case, dense), whole=True),
        Entrant(CELLS, _asserting(case, cells), whole=True),
    ]
    ball_tree = Entrant(BALL_TREE, _asserting(case, tree(BALL_TREE)), fewest=32)
    fewest = _fair_batch(case)
    flat = Entrant(FAISS, _asserting(case, faiss), FLOAT32, fewest=fewest, note="range search")
    if not with_rivals:
        return [*ours, ball_tree, flat]
    kd_tree = Entrant(KD_TREE, _asserting(case, tree(KD_TREE)), fewest=32)
    radius = _asserting(case, lambda layer: sklearn.brute_support(case, layer))
    brute = Entrant(SKLEARN, radius, FLOAT32, fewest=fewest)
    return [*ours, brute, ball_tree, kd_tree, flat]


def _asserting(case: Case, make: Callable[[Layer], Any]) -> Callable[[], Answer]:
    def build() -> Answer:
        finders = [(layer, make(layer)) for layer in case.layers]

        def answer(part: slice) -> Any:
            supports = [find(layer.queries[part]) for layer, find in finders]
            return case.assert_about(part, supports)

        return answer

    return build
