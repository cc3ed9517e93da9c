"""One batch of queries against blocks of rows: bounds, then exact distances where they matter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from iknow.core.arrays import Bools, Floats, Floats32, Ints
from iknow.core.evidence import NO_EXEMPLAR, Evidence
from iknow.search.cpu.block_few import find_few
from iknow.search.cpu.ranking import choose_blocks, positions

if TYPE_CHECKING:
    from iknow.search.cpu.blocks import BlockSearch

BYTES_FOR_MEASURING = 1 << 20


class Batch:
    """The search for one batch of queries: bounds, then exact distances where they matter."""

    def __init__(self, index: BlockSearch, queries: Floats32) -> None:
        self.index = index
        self.queries = queries
        self.placed, self.half_norms = index.bounds.place(queries)
        self.minima = index.bounds.block_minima(self.placed)

    def fill(self, evidence: Evidence) -> None:
        """Write the evidence about the queries into `evidence`, which is empty."""
        m = evidence.per_class
        distance, row = self._nearest_of_each_class() if m == 1 else find_few(self, m)
        number = np.where(row >= 0, self.index.rows[row], NO_EXEMPLAR)
        evidence.class_distances[:], evidence.exemplars[:] = distance[:, :, 0], number[:, :, 0]
        evidence.further_distances[:] = distance[:, :, 1:]
        evidence.further_exemplars[:] = number[:, :, 1:]
        if evidence.n_neighbors:
            evidence.neighbor_distances[:] = self._k_smallest(evidence.n_neighbors)

    def _nearest_of_each_class(self) -> tuple[Floats, Ints]:
        """Distance and row of the nearest sample: both of shape (n_queries, n_classes, 1)."""
        classes = self.index.class_blocks
        shape = len(self.queries), self.index.n_classes
        distance, row = np.full(shape, np.inf), np.full(shape, -1)
        promising = self.blocks_within([self.minima[blocks].min(axis=0) for _, blocks in classes])
        self._improve(distance, row, promising)
        limits = self.index.bounds.to_bound(distance.T, self.half_norms)
        remaining = self.blocks_within([limits[code] for code, _ in classes])
        np.greater(remaining, promising, out=remaining)
        self._improve(distance, row, remaining)
        return distance[:, :, None], row[:, :, None]

    def blocks_within(self, limits: list[Any]) -> Bools:
        """A mask of the blocks, (n_blocks, n_queries), whose bound is within their class's limit.

        limits: for each class that has rows, an array of shape (n_queries,).
        """
        within = np.empty(self.minima.shape, dtype=bool)
        for limit, (_, blocks) in zip(limits, self.index.class_blocks, strict=True):
            np.less_equal(self.minima[blocks], limit, out=within[blocks])
        return within

    def _improve(self, distance: Floats, row: Ints, marked: Bools) -> None:
        """Measure the marked blocks and update the best so far, in place."""
        block, query = positions(marked)
        measured = self.measure(query, block)
        place = measured.argmin(axis=1)
        nearest = measured[np.arange(len(place)), place]
        nearest_row = self.index.block_starts[block] + place
        code = self.index.labels[nearest_row]
        # One winner per query and class: the nearest and, on ties, the lowest row.
        order = np.lexsort((nearest_row, nearest, code, query))
        query, code = query[order], code[order]
        is_first = np.ones(len(order), dtype=bool)
        is_first[1:] = (query[1:] != query[:-1]) | (code[1:] != code[:-1])
        winner = order[is_first]
        at = query[is_first], code[is_first]
        better = (nearest[winner] < distance[at]) | (
            (nearest[winner] == distance[at]) & (nearest_row[winner] < row[at])
        )
        at = at[0][better], at[1][better]
        distance[at], row[at] = nearest[winner[better]], nearest_row[winner[better]]

    def _k_smallest(self, k: int) -> Floats:
        """The k smallest distances of each query, ascending, of shape (n_queries, k)."""
        enough = self._radius_of_k(k)
        limit = self.index.bounds.to_bound(enough, self.half_norms)
        block, query = positions(self.minima <= limit)
        measured = self.measure(query, block)
        near, place = np.nonzero(measured <= enough[query, None])
        distance, query = measured[near, place], query[near]
        order = np.lexsort((distance, query))
        first = np.searchsorted(query[order], np.arange(len(self.queries)))
        smallest: Floats = distance[order][first[:, None] + np.arange(k)]
        return smallest

    def _radius_of_k(self, k: int) -> Floats:
        """A distance within which at least k samples lie, of shape (n_queries,).

        It is the k-th smallest distance in k promising blocks.
        """
        n_queries = len(self.queries)
        chosen = choose_blocks(self.minima, k).T
        query = np.repeat(np.arange(n_queries), chosen.shape[1])
        measured = self.measure(query, chosen.ravel()).reshape(n_queries, -1)
        kth: Floats = np.partition(measured, k - 1, axis=1)[:, k - 1]
        return kth

    def measure(self, query: Ints, block: Ints) -> Floats:
        """Distances in float64 from queries to all rows of blocks, of shape (n_pairs, block_size).

        We subtract before squaring, so nothing cancels, and each distance depends on its two points
        alone, in whatever batch, block or shard they meet.
        """
        index, size = self.index, self.index.block_size
        distances = np.empty((len(query), size))
        step = max(1, BYTES_FOR_MEASURING // (8 * size * index.n_features))
        for start in range(0, len(query), step):
            part = slice(start, start + step)
            rows = index.block_starts[block[part], None] + np.arange(size)
            ends = index.block_ends[block[part], None]
            points = index.points[np.minimum(rows, ends - 1)]
            difference = np.subtract(points, self.queries[query[part], None, :], dtype=np.float64)
            difference *= difference
            squared = np.where(rows < ends, difference.sum(axis=2), np.inf)
            np.sqrt(squared, out=distances[part])
        return distances

    def measure_rows(self, query: Ints, row: Ints) -> Floats:
        """Distances in float64 from queries to rows, as `measure` finds them: shape (n_pairs,)."""
        return measure_pairs(self.index.points, self.queries, query, row)


def measure_pairs(points: Floats32, queries: Floats32, query: Ints, row: Ints) -> Floats:
    """Distances in float64 from some queries to some points, both by position: shape (n_pairs,)."""
    distances = np.empty(len(query))
    step = max(1, BYTES_FOR_MEASURING // (8 * points.shape[1]))
    for start in range(0, len(query), step):
        part = slice(start, start + step)
        difference = np.subtract(points[row[part]], queries[query[part]], dtype=np.float64)
        difference *= difference
        np.sqrt(difference.sum(axis=1), out=distances[part])
    return distances
