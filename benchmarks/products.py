"""The yardstick: all products of queries and points by numpy, in tiles, on all cores, discarded.

A search that visits every row needs these products. The tiles stay in the cache, so we time
arithmetic, not memory. numpy stores each product; a kernel that takes minima as it goes does not,
and for short rows that can make it a little faster than the yardstick.
"""

from __future__ import annotations

import numpy as np

from benchmarks.racing import best_of
from iknow.core.arrays import Floats32
from iknow.search.threads import for_each, n_cores

TILES = ((256, 256), (512, 256), (1024, 256), (512, 512), (1024, 512), (2048, 512))
"""Tile shapes (rows and queries) to try: the fastest depends on the caches and the BLAS."""
PRODUCTS_TRIED = 5_000_000_000


def multiply_all(points: Floats32, queries: Floats32, tile: tuple[int, int]) -> None:
    """All products of points of shape (n, d) and queries of shape (m, d), in tiles."""
    height, width = tile
    width = max(1, min(width, -(-len(queries) // n_cores())))

    def work(start: int) -> None:
        columns = np.ascontiguousarray(queries[start : start + width].T)
        out = np.empty((height, columns.shape[1]), dtype=np.float32)
        for first in range(0, len(points), height):
            rows = points[first : first + height]
            np.matmul(rows, columns, out=out[: len(rows)])

    for_each(work, range(0, len(queries), width))


def fastest_tile(points: Floats32, queries: Floats32) -> tuple[int, int]:
    """The fastest tile shape, tried on enough queries and rows for all cores."""
    asked = queries[: 1024 * n_cores()]
    rows = points[: max(4096, PRODUCTS_TRIED // asked.size)]
    return min(TILES, key=lambda tile: best_of(lambda: multiply_all(rows, asked, tile), 2))
