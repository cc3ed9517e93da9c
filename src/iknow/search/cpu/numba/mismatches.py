"""How many features differ between queries and rows, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.core.arrays import Floats32
from iknow.search.cpu.numba.compile import compiled

ROWS_AT_ONCE = 256
"""Their counts stay in the nearest cache, and vector units compare several rows at a time."""


@compiled
def count_mismatches(queries: Floats32, columns: Floats32, counts: Any) -> None:
    """Write in how many features queries differ from rows to `counts`.

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
