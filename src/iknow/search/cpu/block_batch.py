"""One batch of queries against blocks of rows: bounds, then exact distances where they matter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from iknow.core.arrays import Bools, Floats, Floats32, Ints
from iknow.core.evidence import NO_EXEMPLAR, Evidence
from iknow.search.cpu.ranking import lowest_few

if TYPE_CHECKING:
    from iknow.search.cpu.blocks import BlockSearch

BYTES_FOR_MEASURING = 1 << 20


class Batch:
    """The search for one batch of queries: bounds, then exact distances where they matter."""

    def __init__(self, index: BlockSearch, queries: Floats32) -> None:
        self._index = index
        self._queries = queries
        self._minima, self._half_norms = index.bounds.block_minima(queries)

    def fill(self, evidence: Evidence) -> None:
        """Write the evidence about the queries into `evidence`, which is empty."""
        m = evidence.per_class
        distance, row = self._nearest_of_each_class() if m == 1 else self._nearest_few(m)
        number = np.where(row >= 0, self._index.rows[row], NO_EXEMPLAR)
        evidence.class_distances[:], evidence.exemplars[:] = distance[:, :, 0], number[:, :, 0]
        evidence.further_distances[:] = distance[:, :, 1:]
        evidence.further_exemplars[:] = number[:, :, 1:]
        if evidence.n_neighbors:
            evidence.neighbor_distances[:] = self._k_smallest(evidence.n_neighbors)

    def _nearest_of_each_class(self) -> tuple[Floats, Ints]:
        """Distance and row of the nearest sample: both of shape (n_queries, n_classes, 1)."""
        classes = self._index.class_blocks
        shape = len(self._queries), self._index.n_classes
        distance, row = np.full(shape, np.inf), np.full(shape, -1)
        promising = self._blocks_within([self._minima[blocks].min(axis=0) for _, blocks in classes])
        self._improve(distance, row, promising)
        limits = self._index.bounds.to_bound(distance.T, self._half_norms)
        remaining = self._blocks_within([limits[code] for code, _ in classes])
        np.greater(remaining, promising, out=remaining)
        self._improve(distance, row, remaining)
        return distance[:, :, None], row[:, :, None]

    def _nearest_few(self, m: int) -> tuple[Floats, Ints]:
        """Distances and rows of the m nearest: both of shape (n_queries, n_classes, m).

        m promising blocks of a class hold m rows at least, or all of them: the m-th distance there
        is an upper bound. The blocks that may hold a nearer row are then measured too.
        """
        classes, n_queries = self._index.class_blocks, len(self._queries)
        shape = n_queries, self._index.n_classes, m
        distance, row = np.full(shape, np.inf), np.full(shape, -1)
        done = np.zeros(self._minima.shape, dtype=bool)
        every = np.arange(n_queries)
        for code, blocks in classes:
            # Ascending, so that of equally near rows the lowest comes first.
            block = np.sort(blocks.start + _choose_blocks(self._minima[blocks], m), axis=0).T
            done[block.T, every] = True
            measured = self._measure(np.repeat(every, block.shape[1]), block.ravel())
            measured = measured.reshape(n_queries, -1)
            n = min(m, measured.shape[1])
            nearest, place = lowest_few(measured, n)
            number, place = np.divmod(place, self._index.block_size)
            found = self._index.block_starts[block[every[:, None], number]] + place
            distance[:, code, :n] = nearest
            row[:, code, :n] = np.where(np.isinf(nearest), -1, found)
        limits = self._index.bounds.to_bound(distance[:, :, -1].T, self._half_norms)
        remaining = self._blocks_within([limits[code] for code, _ in classes])
        np.greater(remaining, done, out=remaining)
        self._rank(distance, row, remaining)
        return distance, row

    def _rank(self, distance: Floats, row: Ints, marked: Bools) -> None:
        """Measure the marked blocks and rank their rows among the m nearest so far, in place."""
        block, query = _positions(marked)
        measured = self._measure(query, block)
        code = self._index.labels[self._index.block_starts[block]]
        near, place = np.nonzero(measured <= distance[query, code, -1, None])
        pair = query[near] * distance.shape[1] + code[near]
        rivals = np.unique(pair)
        m = distance.shape[2]
        flat_distance, flat_row = distance.reshape(-1, m), row.reshape(-1, m)
        pairs = np.concatenate([np.repeat(rivals, m), pair])
        distances = np.concatenate([flat_distance[rivals].ravel(), measured[near, place]])
        rows = self._index.block_starts[block[near]] + place
        rows = np.concatenate([flat_row[rivals].ravel(), rows])
        order = np.lexsort((rows, distances, pairs))
        first = np.searchsorted(pairs[order], rivals)
        chosen = order[first[:, None] + np.arange(m)]
        flat_distance[rivals], flat_row[rivals] = distances[chosen], rows[chosen]

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

        It is the k-th smallest distance in k promising blocks.
        """
        n_queries = len(self._queries)
        chosen = _choose_blocks(self._minima, k).T
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


def _choose_blocks(minima: Floats32, k: int) -> Ints:
    """K promising blocks for each query, or all if there are fewer: (k or n_blocks, n_queries).

    minima: of shape (n_blocks, n_queries). Each block has the lowest bound of its group, so that
    only the groups need to be ranked.
    """
    n_blocks, n_queries = minima.shape
    if n_blocks <= k:
        return np.tile(np.arange(n_blocks)[:, None], n_queries)
    group = max(1, min(16, n_blocks // (4 * k)))
    n_groups = n_blocks // group
    groups = minima[: n_groups * group].reshape(n_groups, group, n_queries)
    ranked = np.argpartition(groups.min(axis=1), k - 1, axis=0)[:k]
    best = groups[ranked, :, np.arange(n_queries)].argmin(axis=2)
    chosen: Ints = ranked * group + best
    return chosen
