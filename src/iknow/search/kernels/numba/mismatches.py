"""How many features differ between queries and rows, and which rows differ least, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.core.arrays import Floats, Floats32, Ints
from iknow.search.kernels.numba.compile import compiled

ROWS_AT_ONCE = 256
"""Their counts stay in the nearest cache, and vector units compare several rows at a time."""
LARGEST = 2.0**31 - 1
"""More than any count, for a place that is still free."""


@compiled
def count_mismatches(queries: Floats32, columns: Floats32, counts: Any) -> None:
    """Write in how many features queries differ from rows to `counts`, by comparing all.

    queries: of shape (n_queries, n_features). columns: the rows' features, of shape (n_features,
    n_rows). counts: int32, of shape (n_queries, n_rows).
    """
    n_features, n_rows = columns.shape
    block = np.empty(ROWS_AT_ONCE, dtype=np.int32)
    for start in range(0, n_rows, ROWS_AT_ONCE):
        size = min(ROWS_AT_ONCE, n_rows - start)
        for i in range(len(queries)):
            block[:] = 0
            for j in range(n_features):
                value = queries[i, j]
                column = columns[j, start : start + size]
                for row in range(size):
                    block[row] += np.int32(column[row] != value)
            counts[i, start : start + size] = block[:size]


@compiled
def look_up_mismatches(
    queries: Floats32, values: Floats32, firsts: Ints, starts: Ints, members: Any, counts: Any
) -> None:
    """Write the same to `counts`, by lists of the rows that have a value.

    values: those of each feature, ascending, one feature after the other; feature j has those from
    firsts[j] to firsts[j + 1]. members: the rows that have them; value v has those from starts[v]
    to starts[v + 1].
    """
    n_features = queries.shape[1]
    for i in range(len(queries)):
        row = counts[i]
        row[:] = n_features
        for j in range(n_features):
            value = queries[i, j]
            low, high = firsts[j], firsts[j + 1]
            while low < high:
                middle = (low + high) // 2
                if values[middle] < value:
                    low = middle + 1
                else:
                    high = middle
            if low < firsts[j + 1] and values[low] == value:
                for place in range(starts[low], starts[low + 1]):
                    row[members[place]] -= 1


@compiled
def keep_lowest(counts: Any, first: int, last: int, lowest: Floats, places: Ints) -> None:
    """Merge the counts of rows first..last-1 into the lowest, ascending; equals keep their order.

    Blocks of rows without any count below the last of the lowest are passed over.
    """
    end = len(lowest) - 1
    worst = np.int32(min(lowest[end], LARGEST))
    for start in range(first, last, ROWS_AT_ONCE):
        stop = min(start + ROWS_AT_ONCE, last)
        low = worst
        for row in range(start, stop):
            low = min(low, counts[row])
        if low == worst:
            continue
        for row in range(start, stop):
            if counts[row] < worst:
                at = end
                while at > 0 and counts[row] < lowest[at - 1]:
                    lowest[at], places[at] = lowest[at - 1], places[at - 1]
                    at -= 1
                lowest[at], places[at] = counts[row], row
                worst = np.int32(min(lowest[end], LARGEST))


@compiled
def rank_counts(
    counts: Any, class_starts: Ints, distances: Floats, places: Ints, neighbors: Floats
) -> None:
    """Write the rows with the lowest counts, of each class and of all.

    counts: int32, of shape (n_queries, n_rows), rows class by class. distances, places: of shape
    (n_queries, n_classes, m), filled with inf and -1. neighbors: of shape (n_queries, k), filled
    with inf. Of equal counts the first rows come first.
    """
    n_rows, k = counts.shape[1], neighbors.shape[1]
    nowhere = np.empty(k, dtype=np.int64)
    for i in range(len(counts)):
        for code in range(len(class_starts) - 1):
            first, last = class_starts[code], class_starts[code + 1]
            keep_lowest(counts[i], first, last, distances[i, code], places[i, code])
        if k:
            keep_lowest(counts[i], 0, n_rows, neighbors[i], nowhere)
