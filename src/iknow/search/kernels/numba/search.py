"""Compiled search as an index uses it: rows packed for vector units, and queries in batches."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from iknow.core.arrays import Bools, Floats, Floats32, Ints
from iknow.core.decision import Scope
from iknow.core.evidence import NO_EXEMPLAR, Evidence, stack_evidence
from iknow.locking import cached_property
from iknow.pages import slices
from iknow.search.bounds import error_of_product, power_of_two_scale
from iknow.search.index import RowIndex
from iknow.search.kernels.numba.products import Pack, PanelBlocks, Queries, gather_batch
from iknow.search.kernels.numba.tree import BallTree, plant, sort_rows
from iknow.search.kernels.numba.vectors import LANES, QUERIES_AT_ONCE
from iknow.search.kernels.numba.walk import ALONE, Coarse, FoundRows, Question, Shadows, walk_batch
from iknow.search.projection import Coordinates
from iknow.search.threads import for_each, n_cores, share

PANELS_PER_TASK = 1 << 10
TOO_FAR = 1e37
"""The squared norm from which products might leave the range of float32."""
BYTES_FOR_MINIMA = 128 << 20
"""Memory for the minima of all batches in flight, in total."""
QUERIES_PER_BATCH = 85 * QUERIES_AT_ONCE
FEWEST_PER_BATCH = 64 * QUERIES_AT_ONCE
FEWEST_TO_SORT = 48


class PackedRows:
    """Rows in panels, class by class.

    coordinates: of the rows, of shape (n_rows, d): their features, or what bounds their distances.
    order: positions of the rows in packing order, class by class; by default as stored.
    """

    def __init__(self, stored: RowIndex, coordinates: Floats32, order: Ints | None = None) -> None:
        self.center: Floats = coordinates.mean(axis=0, dtype=np.float64)
        scale = power_of_two_scale(coordinates, self.center)
        starts = stored.class_starts
        n_panels = -(-np.diff(starts) // LANES)
        # The first panel of each class and, last, the number of panels: shape (n_classes + 1,).
        self.class_panels: Ints = np.append(0, np.cumsum(n_panels)).astype(np.int64)
        self.n_panels, self.n_terms = int(n_panels.sum()), int(coordinates.shape[1])
        slots: Ints = np.full(self.n_panels * LANES, -1, dtype=np.int64)
        shift = np.repeat(self.class_panels[:-1] * LANES - starts[:-1], np.diff(starts))
        slots[np.arange(stored.n_rows) + shift] = (
            np.arange(stored.n_rows) if order is None else order
        )
        panels = np.empty((self.n_panels, self.n_terms + 1, LANES), dtype=np.float32)
        points, numbers = np.ascontiguousarray(stored.points), np.asarray(stored.rows)
        self.pack = Pack(
            panels.reshape(-1), slots, read_only(points), read_only(numbers), scale,
            *error_of_product(self.n_terms),
        )  # fmt: skip
        for_each(
            lambda first: self._fill(coordinates, panels[first : first + PANELS_PER_TASK], first),
            range(0, self.n_panels, PANELS_PER_TASK),
        )

    def place(self, queries: Floats32, coordinates: Floats32) -> Queries:
        """A batch of queries, of shape (n_queries, n_features), with their coordinates."""
        with np.errstate(over="ignore"):
            points = ((coordinates - self.center) * self.pack.scale).astype(np.float32)
            squared = np.einsum("ij,ij->i", points, points, dtype=np.float64)
        far = ~(squared < TOO_FAR)
        if far.any():
            points[far], squared[far] = 0.0, np.inf
        given = queries[:]
        given.flags.writeable = False  # of one type for the compiler, like the rows
        return Queries(given, points, squared)

    def _fill(self, coordinates: Floats32, panels: Floats32, first: int) -> None:
        slots = self.pack.slots[first * LANES : (first + len(panels)) * LANES]
        placed = (coordinates[np.maximum(slots, 0)] - self.center) * self.pack.scale
        shifted = placed.astype(np.float32)
        shifted[slots < 0] = 0.0
        squared = np.einsum("ij,ij->i", shifted, shifted, dtype=np.float64)
        bounds = (squared * (0.5 - 2 * self.pack.error)).astype(np.float32)
        bounds = np.nextafter(bounds, np.float32(-np.inf))  # rounded down
        panels[:, 0] = np.where(slots < 0, np.float32(np.inf), bounds).reshape(-1, LANES)
        np.negative(shifted.reshape(len(panels), LANES, -1).transpose(0, 2, 1), panels[:, 1:])


class ProductSearch:
    """Search by products with all rows. packed: by their features."""

    def __init__(self, packed: PackedRows, n_classes: int) -> None:
        self.packed = packed
        # Small blocks mean more minima to compare and large ones more rows to measure, which takes
        # about as long per feature as a comparison: the root balances the two.
        size = round(math.sqrt(packed.n_panels / (max(1, n_classes) * packed.n_terms)))
        # In a large index, enough that the minima of enough queries fit the memory set aside.
        most = BYTES_FOR_MINIMA // (n_cores() * 4 * FEWEST_PER_BATCH)
        size = max(1, size, -(-packed.n_panels // most))
        n_blocks = -(-np.diff(packed.class_panels) // size)
        classes = np.append(0, np.cumsum(n_blocks)).astype(np.int64)
        number = np.arange(classes[-1]) - np.repeat(classes[:-1], n_blocks)
        starts = np.repeat(packed.class_panels[:-1], n_blocks) + number * size
        self.blocks = PanelBlocks(np.append(starts, packed.n_panels).astype(np.int64), classes)

    def search(self, queries: Floats32, scope: Scope) -> Evidence:
        """All evidence about queries of shape (n_queries, n_features)."""
        if len(queries) == 1:
            return self._find(queries, scope)
        affordable = BYTES_FOR_MINIMA // (n_cores() * 4 * (len(self.blocks.starts) - 1))
        parts = cut_evenly(len(queries), max(1, min(QUERIES_PER_BATCH, affordable)))
        return stack_evidence(share(lambda part: self._find(queries[part], scope), parts))

    def _find(self, queries: Floats32, scope: Scope) -> Evidence:
        """The evidence about one batch."""
        n, m = len(queries), max(scope.own, scope.other)
        # Class by class, as they are searched.
        distances = np.full((len(self.blocks.classes) - 1, n, m), np.inf)
        numbers = np.full(distances.shape, NO_EXEMPLAR, dtype=np.int64)
        neighbors = np.full((n, scope.any), np.inf)
        batch = self.packed.place(queries, queries)
        gather_batch(self.packed.pack, self.blocks, batch, distances, numbers, neighbors)
        by_query = np.ascontiguousarray(distances.transpose(1, 0, 2))
        return Evidence(by_query, neighbors, np.ascontiguousarray(numbers.transpose(1, 0, 2)))


class WalkSearch:
    """Search that stops at a horizon, among rows by their coordinates, sorted into cells."""

    def __init__(self, stored: RowIndex, coordinates: Coordinates) -> None:
        self.coordinates = coordinates
        near, far = coordinates.show_rows(np.ascontiguousarray(stored.points))
        self.packed = PackedRows(stored, near, sort_rows(near, stored.class_starts))
        # By slot, so that the rows of a cell lie side by side.
        self.far = read_only(far[np.maximum(self.packed.pack.slots, 0)])

    @cached_property
    def coarse(self) -> Coarse:
        """The panels in integers of 8 bits, where there are shadows."""
        n, n_panels = self.packed.n_terms, self.packed.n_panels if self.far.shape[1] else 0
        panels = self.packed.pack.panels.reshape(-1, n + 1, LANES)[:n_panels, 1:]
        widest = np.maximum(panels.max((0, 2), initial=0), -panels.min((0, 2), initial=0))
        steps = np.where(widest > 0, widest / 127, 1).astype(np.float64)
        integers, error = np.zeros((n_panels, n + n % 2, LANES), dtype=np.int8), 0.0
        for part in slices(n_panels, PANELS_PER_TASK):
            rounded = np.rint(panels[part] / steps[:, None])
            lost = np.square(panels[part] - rounded * steps[:, None]).sum(axis=1).max()
            integers[part, :n], error = rounded, max(error, 1.001 * math.sqrt(lost))
        pairs = integers.reshape(n_panels, (n + 1) // 2, 2, LANES).transpose(0, 1, 3, 2)
        return Coarse(pairs.reshape(-1), steps, error)

    @cached_property
    def tree(self) -> BallTree:
        """The balls around the cells."""
        return plant(self.packed.pack, self.packed.class_panels, self.packed.n_terms)

    def search(
        self, queries: Floats32, scope: Scope, patience: int, is_flat: bool
    ) -> tuple[Evidence, Bools, Ints]:
        """The evidence within the horizon of a scope with a belief, which queries ran out of
        patience, of shape (n_queries,), and the panels, shadows and rows looked at.
        """
        horizon, k = scope.horizon, scope.any
        assert horizon is not None
        # A copy: numba compiles separately for arrays that are read-only.
        belief = np.array(scope.belief, dtype=np.int64)
        shape = len(queries), len(self.packed.class_panels) - 1, scope.per_class
        answer = FoundRows(
            np.full(shape, np.inf), np.full(shape, NO_EXEMPLAR, dtype=np.int64),
            np.full((shape[0], k), np.inf), np.full((shape[0], 3), np.inf),
            np.zeros(shape[0], dtype=np.bool_),
        )  # fmt: skip
        question = Question(scope.own, scope.other, *horizon[:2], patience, is_flat)
        scale = self.coordinates.stretch, 1 / self.coordinates.unit, self.coordinates.blur
        costs = []

        def work(part: slice) -> None:
            own = FoundRows._make(column[part] for column in answer)  # views
            near, far, slack, safe = self.coordinates.show(queries[part])
            own.given_up[:] = ~safe
            order = np.arange(len(near))
            if len(near) >= FEWEST_TO_SORT:  # those that visit the same cells, one after the other
                order = np.lexsort((near[:, 0], belief[part]))
            batch = self.packed.place(queries[part], near)
            shadows = Shadows(self.far, far, slack, *scale)
            rows = self.packed.pack, self.coarse, self.tree, shadows
            costs.append(walk_batch(*rows, batch, belief[part], order, question, own))

        if len(queries) <= ALONE:  # so few start no threads, neither ours nor BLAS's
            work(slice(len(queries)))
        else:
            for_each(work, cut_evenly(len(queries), QUERIES_PER_BATCH))
        evidence = Evidence(answer.distances, answer.neighbors, answer.rows, answer.complete)
        return evidence, answer.given_up, sum(costs)


def cut_evenly(n: int, most: int) -> list[slice]:
    """Slices of similar size, at most `most`, in a number that the cores can share evenly."""
    n_parts = min(n, -(-n // (most * n_cores())) * n_cores())
    size = max(1, -(-n // max(1, n_parts)))
    # Whole groups of queries go through the vector units together.
    group = QUERIES_AT_ONCE if size > QUERIES_AT_ONCE else 1
    return slices(n, -(-size // group) * group)


def read_only(array: Any) -> Any:
    """A read-only view, so that arrays in memory and mapped ones have the same type."""
    view = array.view(np.ndarray)[:]
    view.flags.writeable = False
    return view
