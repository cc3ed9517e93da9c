"""Blocks searched by numpy alone, on all cores; and what else measures with numpy."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from iknow.core.arrays import Floats, Floats32, Ints
from iknow.core.decision import Scope
from iknow.core.evidence import NO_EXEMPLAR, Evidence, empty_evidence
from iknow.pages import slices
from iknow.search.bounds import LowerBounds
from iknow.search.engine import NO_ROW, Blocks, Groups, positions
from iknow.search.index import RowIndex
from iknow.search.threads import for_each, n_cores

QUERIES_PER_TASK = 512
BYTES_FOR_MINIMA = 32 << 20
BYTES_FOR_MEASURING = 1 << 20


class NumpyBlocks(Blocks):
    """Stored rows in blocks, by numpy."""

    xp = np
    bytes_of_candidates, bytes_of_minima = 8 << 20, BYTES_FOR_MINIMA

    def __init__(self, stored: RowIndex) -> None:
        # Not `stored` itself: a part of an index must be freed as soon as nobody refers to it.
        self.points, self.rows, self.n_classes = stored.points, stored.rows, stored.n_classes
        self.size = size = _choose_size(stored)
        firsts = stored.class_starts
        self.classes: Ints = np.flatnonzero(np.diff(firsts))
        cuts = [np.arange(firsts[c], firsts[c + 1], size) for c in self.classes]
        self.starts: Ints = np.concatenate(cuts)
        self.ends: Ints = np.append(self.starts[1:], stored.n_rows)
        self.group(np.array([len(cut) for cut in cuts]))
        self._bounds = LowerBounds(self.points, self.starts, size)

    def search(self, points: Floats32, scope: Scope) -> Evidence:
        """All evidence about points of shape (n, n_features)."""
        n, k, m = len(points), scope.any, scope.per_class
        evidence = empty_evidence(n, self.n_classes, k, m)

        def work(part: slice) -> None:
            own, codes = evidence[part], self.classes  # views
            found = self.find(points[part], k, m)
            numbers = np.where(found.numbers == NO_ROW, NO_EXEMPLAR, found.numbers)
            own.distances[:, codes], own.rows[:, codes] = found.distances.T, numbers.T
            own.neighbor_distances[:] = found.neighbors.T

        affordable = self.bytes_of_minima // (4 * len(self.starts))
        for_each(work, slices(n, min(QUERIES_PER_TASK, affordable, -(-n // n_cores()))))
        return evidence

    def bound(self, queries: Floats32) -> tuple[Any, Callable[[Floats], Any]]:
        return self._bounds.bound(queries)

    def promising(self, minima: Floats32, groups: Groups, m: int) -> tuple[Floats32, Ints]:
        shape = min(m, groups.largest), len(groups.starts) - 1, minima.shape[1]
        low, block = np.full(shape, np.inf, minima.dtype), np.empty(shape, dtype=np.int64)
        every = np.arange(shape[2])
        for i, (start, end) in enumerate(pairwise(groups.starts.tolist())):
            if m == 1:
                minima[start:end].min(axis=0, out=low[0, i])
                continue
            chosen = choose_blocks(minima[start:end], m)
            found = len(chosen)
            block[:found, i], block[found:, i] = start + chosen, start
            low[:found, i] = minima[block[:found, i], every]
        if m == 1:  # whichever of equals is listed last
            listed, query = positions(np, self.mark_within(minima, low[0], groups))
            block[0, groups.ranks[listed], query] = listed
        return low, block

    def candidates(
        self, queries: Floats32, query: Ints, block: Ints, m: int
    ) -> tuple[Floats, Ints]:
        places = self.starts[block, None] + np.arange(self.size)
        exists = places < self.ends[block, None]
        places[~exists] = 0
        distances = measure_pairs(self.points, queries, query[:, None], places)
        distances[~exists] = np.inf
        if m > 1:
            return distances.T, np.where(exists, self.rows[places], NO_ROW).T
        place = distances.argmin(axis=1)  # of equals the first, whose number is the lowest
        every = np.arange(len(place))
        return distances[None, every, place], self.rows[places[None, every, place]]


def _choose_size(stored: RowIndex) -> int:
    """Rows per block: small blocks cost minima to compare, large ones rows to measure.

    The optimum scales with the root of rows / (classes * features); the factor is measured. Blocks
    grow with the index so that the minima of a task stay within budget.
    """
    balance = 0.5 * np.sqrt(stored.n_rows / (stored.n_classes * stored.n_features))
    budget = stored.n_rows * 4 * QUERIES_PER_TASK / (2 * BYTES_FOR_MINIMA)
    smallest = min(4, max(1, stored.n_rows // stored.n_classes))
    return int(2 ** np.ceil(np.log2(max(balance, budget, smallest))))


def choose_blocks(minima: Floats32, k: int) -> Ints:
    """Promising blocks for each query, k or all if there are fewer: (k or n_blocks, n_queries).

    minima: (n_blocks, n_queries). Of neighboring blocks only the lowest are ranked.
    """
    n_blocks, n_queries = minima.shape
    if n_blocks <= k:
        return np.tile(np.arange(n_blocks)[:, None], n_queries)
    near = max(1, min(16, n_blocks // (4 * k)))
    n_groups = n_blocks // near
    groups = minima[: n_groups * near].reshape(n_groups, near, n_queries)
    ranked = np.argpartition(groups.min(axis=1), k - 1, axis=0)[:k]
    best = groups[ranked, :, np.arange(n_queries)].argmin(axis=2)
    chosen: Ints = ranked * near + best
    return chosen


def measure_pairs(points: Floats32, queries: Floats32, query: Ints, row: Ints) -> Floats:
    """Distances in float64 from queries to points, both by position, in the shape of `row`.

    query, row: of shape (n,), or (n, 1) and (n, size). We subtract before squaring, so nothing
    cancels, and each distance depends on its two points alone, in whatever batch, block or shard
    they meet.
    """
    distances = np.empty(row.shape)
    step = BYTES_FOR_MEASURING // (8 * points.shape[1] * max(1, row[:1].size))
    for part in slices(len(row), step):
        difference = np.subtract(points[row[part]], queries[query[part]], dtype=np.float64)
        difference *= difference
        np.sqrt(difference.sum(axis=-1), out=distances[part])
    return distances


def lowest_few(table: Floats, m: int) -> tuple[Floats, Ints]:
    """The m lowest numbers of each row, ascending, and their columns: both of shape (n, m).

    table: of shape (n, n_columns), n_columns >= m. Of equal numbers the first columns count.
    """
    if m == 1:  # most often, and faster
        place = table.argmin(axis=1)[:, None]
        return np.take_along_axis(table, place, axis=1), place
    limit = np.partition(table, m - 1, axis=1)[:, m - 1 :]
    row, column = np.nonzero(table <= limit[:, :1])  # m in each row, and those tied with the m-th
    number = table[row, column]
    order = np.lexsort((number, row))  # stable: equals stay in the order of their columns
    first = np.searchsorted(row, np.arange(len(table)))
    chosen = order[first[:, None] + np.arange(m)]
    return number[chosen], column[chosen]
