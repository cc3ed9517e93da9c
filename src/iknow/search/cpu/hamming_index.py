"""HammingIndex: exact search by the number of features that differ, by counting them all.

Counts are integers, so there is nothing to round and ties are exact. With the extra `fast` counting
is compiled; without it numpy counts one feature at a time, and finds the same.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Floats, Floats32
from iknow.search.cpu.dense_index import is_compiled
from iknow.search.cpu.tile_index import TileIndex


class HammingIndex(TileIndex):
    """Activations of one layer with their class codes, searched by the number of differences.

    It takes `activations`, `labels`, `n_classes` and `rows` as a `DenseIndex` does.

    Examples:
        >>> index = HammingIndex([[1, 5, 3], [2, 6, 9]], [0, 1], n_classes=2)
        >>> index.gather([[1, 5, 9]]).class_distances
        array([[1., 2.]])
    """

    def _place(self, queries: Floats32) -> Floats32:
        return queries.copy()  # numba compiles separately for arrays that are read-only

    def _measure(self, queries: Floats32, tile: slice) -> Floats:
        columns = np.array(self.points[tile].T, order="C")
        return count_mismatches(queries, columns).astype(np.float64)


def count_mismatches(queries: Floats32, columns: Floats32) -> NDArray[np.int32]:
    """In how many features queries differ from rows, of shape (n_queries, n_rows).

    queries: of shape (n_queries, n_features). columns: of shape (n_features, n_rows).
    """
    counts = np.zeros((len(queries), columns.shape[1]), dtype=np.int32)
    if is_compiled():
        from iknow.search.cpu.numba.mismatches import count_mismatches as count

        count(queries, columns, counts)
        return counts
    for values, column in zip(queries.T, columns, strict=True):
        counts += values[:, None] != column
    return counts
