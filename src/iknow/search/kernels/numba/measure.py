"""The exact distance in compiled search: bit for bit the same as numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.core.arrays import Floats, Floats32, Ints
from iknow.search.kernels.numba.compile import compiled, compiled_bare, inlined
from iknow.search.kernels.numba.vectors import sum_of_eights

PIECE = 128  # numbers that numpy sums in one piece; it halves longer sums until they fit
MOST_PIECES = 64


@compiled
def measure(queries: Floats32, query: int, points: Floats32, row: int) -> Any:
    """The distance between a query and a row in float64, bit for bit as numpy sums it."""
    n = queries.shape[1]
    if n <= PIECE:
        return np.sqrt(_sum_of_piece(queries, query, points, row, 0, n))
    waiting, sums = np.empty(MOST_PIECES, dtype=np.int64), np.empty(MOST_PIECES)
    return measure_long(queries, query, points, row, waiting, sums)


@compiled_bare
def measure_long(
    queries: Floats32, query: int, points: Floats32, row: int, waiting: Ints, sums: Floats
) -> Any:
    """The same for any number of features. waiting, sums: memory for `MOST_PIECES` of each."""
    # numpy halves a long sum recursively, and adds the results in that order. What is waiting are
    # sizes of parts, or 0 to add two sums.
    waiting[0] = queries.shape[1]
    top, n_sums, start = 1, 0, 0
    while top:
        size = waiting[top - 1]
        if size == 0:
            n_sums -= 1
            sums[n_sums - 1] += sums[n_sums]
            top -= 1
        elif size <= PIECE:
            top -= 1
            sums[n_sums] = _sum_of_piece(queries, query, points, row, start, size)
            start += size
            n_sums += 1
        else:
            half = size // 2
            half -= half % 8
            waiting[top - 1], waiting[top], waiting[top + 1] = 0, size - half, half
            top += 2
    return np.sqrt(sums[0])


@compiled
def _sum_of_piece(
    queries: Floats32, query: int, points: Floats32, row: int, start: int, n: int
) -> Any:
    whole = n - n % 8
    total = sum_of_eights(queries, query, points, row, start, whole)
    for j in range(start + whole, start + n):
        total += _squared_difference(queries, query, points, row, j)
    return total


@inlined
def _squared_difference(queries: Floats32, query: int, points: Floats32, row: int, j: int) -> Any:
    # No slices: numba would count references to them, at some cost.
    difference = np.float64(points[row, j]) - np.float64(queries[query, j])
    return difference * difference
