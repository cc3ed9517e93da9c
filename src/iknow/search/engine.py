"""One search over blocks of rows, for numpy and for torch.

Rows lie in blocks of one class each, and a product in low precision bounds the distances to all
rows of a block from below (`bounds`). For the m nearest rows of a class,

1. we measure the m blocks of the class whose bounds are lowest: they hold m rows, or all there are;
2. the m-th smallest distance found, D, reaches m rows: what is farther is not among the m nearest;
3. we measure every other block whose bound admits a row at D. A row at D exactly counts if its
   number is lower, and the limit of D admits it.

The k nearest rows of any class are the same search with all blocks in one group. The result is
exact, whatever low precision lost. Arrays are numpy's or torch's: `xp` is the module they are of.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from iknow.pages import slices

NO_ROW = np.iinfo(np.int64).max
"""The row number of padding, which sorts after all rows."""
FEW = 16  # up to so many rows are ranked faster one after the other than by sorting, if
MANY = 64  # at least so many columns are ranked at once


class Groups(NamedTuple):
    """Successive blocks in groups: those of each class, or all of them."""

    starts: Any  # the first block of each group and, last, the number of blocks
    ranks: Any  # the group of each block, of shape (n_blocks,)
    smallest: int  # how many blocks a group has at least
    largest: int  # and at most


class Found(NamedTuple):
    """The nearest rows of each class for n queries, by (distance, number), in arrays of `xp`."""

    distances: Any  # of shape (m, n_classes, n); inf past the last row
    numbers: Any  # of the same shape; NO_ROW past the last row
    neighbors: Any  # the k smallest distances of all, of shape (k, n)


class Blocks(ABC):
    """Rows in blocks: where they lie and who computes."""

    xp: Any  # the library
    bytes_of_candidates: int  # memory for rows that are measured at once
    size: int  # rows of a block
    by_class: Groups  # to search, only of classes with rows
    as_one: Groups  # all blocks in one

    def group(self, counts: Any) -> None:
        """Set the groups. counts: how many blocks each class with rows has, of shape (n,)."""
        xp = self.xp
        starts = xp.concat([xp.zeros_like(counts[:1]), xp.cumsum(counts, 0)])
        n = int(starts[-1])
        block = xp.arange(n, device=counts.device)
        ranks = xp.searchsorted(starts[1:], block, side="right")
        self.by_class = Groups(starts, ranks, int(counts.min()), int(counts.max()))
        self.as_one = Groups(starts[[0, -1]], xp.zeros_like(ranks), n, n)

    @abstractmethod
    def bound(self, queries: Any) -> tuple[Any, Callable[[Any], Any]]:
        """A lower bound for each block, of shape (n_blocks, n_queries), and what gives limits.

        The second turns distances of shape (..., n_queries) into the largest bounds that rows at
        these distances can have.
        """

    @abstractmethod
    def promising(self, minima: Any, groups: Groups, m: int) -> tuple[Any, Any]:
        """Bounds and numbers of the `m` blocks of each group that are lowest, or nearly so.

        Both of shape (m or blocks of the largest group, n_groups, n_queries). A group with fewer
        blocks repeats one, with inf.
        """

    @abstractmethod
    def candidates(self, queries: Any, query: Any, block: Any, m: int) -> tuple[Any, Any]:
        """Distances and numbers of rows of a block, in any order, its `m` nearest among them.

        query, block: of shape (n_pairs,). Both of shape (count_candidates(m), n_pairs); inf and
        NO_ROW for padding.
        """

    def count_candidates(self, m: int) -> int:
        """How many rows of each block are candidates; 1 if m is 1."""
        return self.size if m > 1 else 1

    def within(
        self, minima: Any, limits: Any, groups: Groups, at_once: int
    ) -> Iterator[tuple[Any, Any]]:
        """Blocks and queries, in lists of at most `at_once`, whose bound is within the limit.

        limits: of shape (n_groups, n_queries). What is no number counts as within.
        """
        block, query = positions(self.xp, self.mark_within(minima, limits, groups))
        for part in slices(len(block), at_once):
            yield block[part], query[part]

    def mark_within(self, minima: Any, limits: Any, groups: Groups) -> Any:
        """A mask of the bounds that are within the limit of their group, of the shape of minima."""
        beyond = self.xp.empty_like(minima, dtype=self.xp.bool)
        for limit, (start, end) in zip(limits, pairwise(groups.starts.tolist()), strict=True):
            self.xp.greater(minima[start:end], limit, out=beyond[start:end])
        return self.xp.logical_not(beyond, out=beyond)

    def find(self, queries: Any, k: int, m: int) -> Found:
        """The m nearest rows of each class with rows, and the k smallest distances of all.

        queries: float32, of shape (n, n_features).
        """
        bounds = self.bound(queries)
        neighbors = self._nearest(queries, bounds, self.as_one, k)[0][:, 0] if k else None
        distances, numbers = self._nearest(queries, bounds, self.by_class, m)
        return Found(distances, numbers, distances[:0, 0] if neighbors is None else neighbors)

    def _nearest(self, queries: Any, bounds: Any, groups: Groups, m: int) -> tuple[Any, Any]:
        """Distances and numbers of the m nearest rows of each group: (m, n_groups, n_queries)."""
        (minima, to_limits), xp, n = bounds, self.xp, len(queries)
        every = xp.arange(n, device=queries.device)
        low, promising = self.promising(minima, groups, m)
        shape = m, *promising.shape[1:]
        at = promising.reshape(-1, n), every
        minima[at] = xp.inf  # measured
        at_once = max(1, self.bytes_of_candidates // (64 * self.count_candidates(m)))
        parts = []
        for part in slices(shape[1], at_once // (n * len(promising))):
            block = promising[:, part]
            pairs = xp.broadcast_to(every, block.shape).reshape(-1), block.reshape(-1)
            distances, numbers = self.candidates(queries, *pairs, m)
            if groups.smallest < len(block):
                is_again = (low[:, part] == xp.inf).reshape(-1)
                distances = xp.where(is_again, xp.inf, distances)
                numbers = xp.where(is_again, NO_ROW, numbers)
            # The candidates of all blocks of a group become one stack.
            columns = -1, block.shape[1] * n
            stack = distances.reshape(columns), numbers.reshape(columns)
            parts.append(lowest_of_stack(xp, *stack, m))
        nearest, number = (xp.concat(each, 1) for each in zip(*parts, strict=True))
        # While a group has too few rows, all its blocks are open, but not those measured already.
        limits = to_limits(nearest[-1].reshape(shape[1:]))
        limits = limits.clip(max=xp.finfo(limits.dtype).max)
        for block, query in self.within(minima, limits, groups, at_once):
            distances, numbers = self.candidates(queries, query, block, m)
            column = groups.ranks[block] * n + query
            last, last_number = nearest[-1][column], number[-1][column]
            is_lower = (distances < last) | ((distances == last) & (numbers < last_number))
            column = xp.broadcast_to(column, distances.shape)[is_lower]
            if len(column):
                merge_list(xp, nearest, number, distances[is_lower], numbers[is_lower], column)
        if len(groups.starts) == 2:
            minima[at] = low.reshape(-1, n)  # for a search in other groups
        return nearest.reshape(shape), number.reshape(shape)


def positions(xp: Any, marked: Any) -> tuple[Any, Any]:
    """Row and column numbers of the marks; much faster than nonzero in two dimensions."""
    place = xp.argwhere(marked.reshape(-1))[:, 0]
    return place // marked.shape[1], place % marked.shape[1]


def lowest_of_stack(xp: Any, distances: Any, numbers: Any, m: int) -> tuple[Any, Any]:
    """The m lowest of each column, by distance and number: (m, n_columns); inf and NO_ROW for none.

    distances, numbers: of shape (n, n_columns), n >= 1; no row is twice in a column.
    """
    if len(distances) == m == 1:
        return distances, numbers
    every = xp.arange(distances.shape[1], device=distances.device)
    if m > FEW or len(every) < MANY:
        return _sorted_stack(xp, distances, numbers, m, every)
    # The lowest goes, then the lowest of the rest. Their distances are right whichever of equals
    # goes first, so we look at the numbers of the few columns with equals afterwards.
    rest = xp.asarray(distances, copy=True)
    lowest, number = [], []
    for _ in range(m + 1):
        place = rest.argmin(0)
        lowest.append(rest[place, every])
        number.append(numbers[place, every])
        rest[place, every] = xp.inf
    # The last of the m may equal the one after it, which then belongs here if its number is lower.
    after, lowest = xp.stack(lowest[1:]), xp.stack(lowest[:-1])
    number = xp.where(lowest == xp.inf, NO_ROW, xp.stack(number[:-1]))
    column = every[((after == lowest) & (after < xp.inf)).any(0)]
    if len(column):
        asked = distances[:, column], numbers[:, column]
        number[:, column] = _sorted_stack(xp, *asked, m, every[: len(column)])[1]
    return lowest, number


def _sorted_stack(xp: Any, distances: Any, numbers: Any, m: int, every: Any) -> tuple[Any, Any]:
    """As `lowest_of_stack`, by sorting; every: the numbers of the columns."""
    missing = max(0, m - len(distances)), distances.shape[1]
    if missing[0]:
        nothing = {"dtype": distances.dtype, "device": distances.device}
        distances = xp.concat([distances, xp.full(missing, xp.inf, **nothing)])
        nothing["dtype"] = numbers.dtype
        numbers = xp.concat([numbers, xp.full(missing, NO_ROW, **nothing)])
    first = xp.argsort(numbers.T, stable=True)
    second = xp.argsort(distances.T[every[:, None], first], stable=True)
    order = first[every[:, None], second[:, :m]].T
    return distances[order, every], numbers[order, every]


def merge_list(
    xp: Any, nearest: Any, number: Any, distances: Any, numbers: Any, column: Any
) -> None:
    """Rank a list of rows among the lowest of their columns, in place.

    nearest, number: of shape (m, n_columns). distances, numbers, column: of shape (n,).
    """
    m, touched = len(nearest), xp.unique(column)
    distances = xp.concat([distances, nearest[:, touched].reshape(-1)])
    numbers = xp.concat([numbers, number[:, touched].reshape(-1)])
    column = xp.concat([column, xp.broadcast_to(touched, (m, len(touched))).reshape(-1)])
    order = xp.argsort(numbers, stable=True)
    for key in (distances, column):
        order = order[xp.argsort(key[order], stable=True)]
    column = column[order]
    place = xp.arange(len(column), device=column.device) - xp.searchsorted(column, column)
    is_kept = place < m
    at, order = (place[is_kept], column[is_kept]), order[is_kept]
    nearest[at], number[at] = distances[order], numbers[order]
