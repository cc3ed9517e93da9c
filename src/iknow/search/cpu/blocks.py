"""Search with numpy alone: block by block, by matrix products, on all cores.

Rows are sorted by class and cut into small blocks. One float32 product bounds all distances from
below and keeps one minimum per block (`lower_bounds`). For each query and class we measure the
block with the lowest bound in float64, then every other block whose bound does not exceed the
distance found: usually none. The result is exact, whatever float32 lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from iknow.core.arrays import Bools, Floats, Floats32, Ints
from iknow.core.evidence import Evidence
from iknow.search.cpu.lower_bounds import LowerBounds
from iknow.search.stored import StoredRows
from iknow.search.threads import for_each, n_cores

QUERIES_PER_TASK = 512
BYTES_FOR_MINIMA = 32 << 20
BYTES_FOR_MEASURING = 1 << 20


class BlockSearch:
    """Blocks of stored rows, searched with numpy."""

    def __init__(self, stored: StoredRows) -> None:
        # Not `stored` itself: a part of an index must be freed as soon as nobody refers to it.
        self.points, self.labels, self.rows = stored.points, stored.labels, stored.rows
        self.n_features, self.n_classes = stored.n_features, stored.n_classes
        self.block_size = size = _choose_block_size(stored)
        firsts, codes = stored.class_starts, range(stored.n_classes)
        starts = np.concatenate([np.arange(firsts[c], firsts[c + 1], size) for c in codes])
        ends = np.append(starts[1:], stored.n_rows)
        self.block_starts, self.block_ends = starts, ends
        found = np.searchsorted(starts, firsts).tolist()
        # The classes that have rows, with their blocks.
        self.class_blocks = [
            (c, slice(found[c], found[c + 1])) for c in codes if found[c] < found[c + 1]
        ]
        self.bounds = LowerBounds(self.points, starts, ends, size)

    def fill(self, queries: Floats32, evidence: Evidence) -> None:
        """Write the evidence about queries of shape (n_queries, n_features) into `evidence`."""
        # The slices of `evidence` are views: each task fills in its own queries.
        for_each(
            lambda part: _Search(self, queries[part]).fill(evidence[part]),
            self._parts(len(queries)),
        )

    def _parts(self, n_queries: int) -> Iterator[slice]:
        """Slices of queries that fit the memory budget, enough to keep all cores busy."""
        affordable = BYTES_FOR_MINIMA // (4 * len(self.block_starts))
        share = -(-n_queries // n_cores())
        size = max(1, min(QUERIES_PER_TASK, affordable, share))
        for start in range(0, n_queries, size):
            yield slice(start, start + size)


def _choose_block_size(stored: StoredRows) -> int:
    """Rows per block: small blocks cost minima to compare, large ones rows to measure.

    The optimum scales with the root of rows / (classes * features); the factor is measured.
    Blocks grow with the index so that the minima of a task stay within budget.
    """
    balance = 0.5 * np.sqrt(stored.n_rows / (stored.n_classes * stored.n_features))
    budget = stored.n_rows * 4 * QUERIES_PER_TASK / (2 * BYTES_FOR_MINIMA)
    smallest = min(4, max(1, stored.n_rows // stored.n_classes))
    return int(2 ** np.ceil(np.log2(max(balance, budget, smallest))))


class _Search:
    """The search for one batch of queries: bounds, then exact distances where they matter."""

    def __init__(self, index: BlockSearch, queries: Floats32) -> None:
        self._index = index
        self._queries = queries
        self._minima, self._half_norms = index.bounds.block_minima(queries)

    def fill(self, evidence: Evidence) -> None:
        distance, row = self._nearest_of_each_class()
        found = row >= 0
        evidence.class_distances[:] = distance
        evidence.exemplars[found] = self._index.rows[row[found]]
        if evidence.n_neighbors:
            evidence.neighbor_distances[:] = self._k_smallest(evidence.n_neighbors)

    def _nearest_of_each_class(self) -> tuple[Floats, Ints]:
        """Distance and row of the nearest sample: both of shape (n_queries, n_classes)."""
        classes = self._index.class_blocks
        shape = len(self._queries), self._index.n_classes
        distance, row = np.full(shape, np.inf), np.full(shape, -1)
        promising = self._blocks_within([self._minima[blocks].min(axis=0) for _, blocks in classes])
        self._improve(distance, row, promising)
        limits = self._index.bounds.to_bound(distance.T, self._half_norms)
        remaining = self._blocks_within([limits[code] for code, _ in classes])
        np.greater(remaining, promising, out=remaining)
        self._improve(distance, row, remaining)
        return distance, row

    def _blocks_within(self, limits: list[Any]) -> Bools:
        """A mask of the blocks, (n_blocks, n_queries), whose bound is within their class's limit.

        limits: for each class that has rows, an array of shape (n_queries,).
        """
        within = np.empty(self._minima.shape, dtype=bool)
        for limit, (_, blocks) in zip(limits, self._index.class_blocks, strict=True):
            np.less_equal(self._minima[blocks], limit, out=within[blocks])
        return within

    def _improve(self, distance: Floats, row: Ints, marked: Bools) -> None:
        """Measure the marked blocks and update the best so far, in place."""
        block, query = _positions(marked)
        measured = self._measure(query, block)
        place = measured.argmin(axis=1)
        nearest = measured[np.arange(len(place)), place]
        nearest_row = self._index.block_starts[block] + place
        code = self._index.labels[nearest_row]
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
        limit = self._index.bounds.to_bound(enough, self._half_norms)
        block, query = _positions(self._minima <= limit)
        measured = self._measure(query, block)
        near, place = np.nonzero(measured <= enough[query, None])
        distance, query = measured[near, place], query[near]
        order = np.lexsort((distance, query))
        first = np.searchsorted(query[order], np.arange(len(self._queries)))
        smallest: Floats = distance[order][first[:, None] + np.arange(k)]
        return smallest

    def _radius_of_k(self, k: int) -> Floats:
        """A distance within which at least k samples lie, of shape (n_queries,).

        It is the k-th smallest distance in k promising blocks, each with the lowest bound of its
        group, so that only the groups need to be ranked.
        """
        n_blocks, n_queries = self._minima.shape
        group = max(1, min(16, n_blocks // (4 * k)))
        if n_blocks <= k:
            chosen = np.tile(np.arange(n_blocks), (n_queries, 1))
        else:
            n_groups = n_blocks // group
            groups = self._minima[: n_groups * group].reshape(n_groups, group, n_queries)
            ranked = np.argpartition(groups.min(axis=1), k - 1, axis=0)[:k]
            best = groups[ranked, :, np.arange(n_queries)].argmin(axis=2)
            chosen = (ranked * group + best).T
        query = np.repeat(np.arange(n_queries), chosen.shape[1])
        measured = self._measure(query, chosen.ravel()).reshape(n_queries, -1)
        kth: Floats = np.partition(measured, k - 1, axis=1)[:, k - 1]
        return kth

    def _measure(self, query: Ints, block: Ints) -> Floats:
        """Distances in float64 from queries to all rows of blocks, of shape (n_pairs, block_size).

        We subtract before squaring, so nothing cancels, and each distance depends on its two points
        alone, in whatever batch, block or shard they meet.
        """
        index, size = self._index, self._index.block_size
        distances = np.empty((len(query), size))
        step = max(1, BYTES_FOR_MEASURING // (8 * size * index.n_features))
        for start in range(0, len(query), step):
            part = slice(start, start + step)
            rows = index.block_starts[block[part], None] + np.arange(size)
            ends = index.block_ends[block[part], None]
            points = index.points[np.minimum(rows, ends - 1)]
            difference = np.subtract(points, self._queries[query[part], None, :], dtype=np.float64)
            difference *= difference
            squared = np.where(rows < ends, difference.sum(axis=2), np.inf)
            np.sqrt(squared, out=distances[part])
        return distances


def _positions(marked: Bools) -> tuple[Ints, Ints]:
    """Row and column numbers of the marks; much faster than nonzero in two dimensions."""
    row, column = np.divmod(np.flatnonzero(marked), marked.shape[1])
    return row, column
