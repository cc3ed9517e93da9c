"""The exact distance in compiled search: bit for bit the same as numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.core.arrays import Floats32
from iknow.search.cpu.numba.compile import compiled, inlined

PIECE = 128  # numbers that numpy sums in one piece; it halves longer sums until they fit
MOST_PIECES = 64


@compiled
def measure(queries: Floats32, query: int, points: Floats32, row: int) -> Any:
    """The distance between a query and a row in float64, bit for bit as numpy sums it."""
    n = queries.shape[1]
    if n <= PIECE:
        return np.sqrt(_sum_of_piece(queries, query, points, row, 0, n))
    # numpy halves a long sum recursively, and adds the results in that order.
    starts = np.empty(MOST_PIECES, dtype=np.int64)
    sizes = np.empty(MOST_PIECES, dtype=np.int64)
    waits = np.empty(MOST_PIECES, dtype=np.bool_)
    sums = np.empty(MOST_PIECES)
    starts[0], sizes[0], waits[0] = 0, n, False
    top, n_sums = 1, 0
    while top:
        if waits[top - 1]:
            n_sums -= 1
            sums[n_sums - 1] += sums[n_sums]
            top -= 1
        elif sizes[top - 1] <= PIECE:
            top -= 1
            sums[n_sums] = _sum_of_piece(queries, query, points, row, starts[top], sizes[top])
            n_sums += 1
        else:
            waits[top - 1] = True
            start, size = starts[top - 1], sizes[top - 1]
            half = size // 2
            half -= half % 8
            starts[top], sizes[top], waits[top] = start + half, size - half, False
            starts[top + 1], sizes[top + 1], waits[top + 1] = start, half, False
            top += 2
    return np.sqrt(sums[0])


@compiled
def _sum_of_piece(
    queries: Floats32, query: int, points: Floats32, row: int, start: int, n: int
) -> Any:
    if n < 8:
        total = 0.0
        for j in range(start, start + n):
            total += _squared_difference(queries, query, points, row, j)
        return total
    s0 = s1 = s2 = s3 = s4 = s5 = s6 = s7 = 0.0
    whole = n - n % 8
    for j in range(start, start + whole, 8):
        s0 += _squared_difference(queries, query, points, row, j)
        s1 += _squared_difference(queries, query, points, row, j + 1)
        s2 += _squared_difference(queries, query, points, row, j + 2)
        s3 += _squared_difference(queries, query, points, row, j + 3)
        s4 += _squared_difference(queries, query, points, row, j + 4)
        s5 += _squared_difference(queries, query, points, row, j + 5)
        s6 += _squared_difference(queries, query, points, row, j + 6)
        s7 += _squared_difference(queries, query, points, row, j + 7)
    total = ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))
    for j in range(start + whole, start + n):
        total += _squared_difference(queries, query, points, row, j)
    return total


@inlined
def _squared_difference(queries: Floats32, query: int, points: Floats32, row: int, j: int) -> Any:
    # No slices: numba would count references to them, at some cost.
    difference = np.float64(points[row, j]) - np.float64(queries[query, j])
    return difference * difference
