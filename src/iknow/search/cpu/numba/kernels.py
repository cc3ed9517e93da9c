"""Search compiled for the current CPU: lower bounds on panels, exact distances where they matter.

Each function works on a batch of queries without Python's lock, so batches share the cores. Rows
with promising bounds are measured in float64, summed in numpy's order, to the same bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.core.arrays import Floats, Floats32, Ints
from iknow.search.cpu.numba.compile import compiled, inlined
from iknow.search.cpu.numba.few import find_few
from iknow.search.cpu.numba.measure import measure
from iknow.search.cpu.numba.neighbors import find_neighbors
from iknow.search.cpu.numba.records import Blocks, Pack, Queries, limit_for, limit_terms
from iknow.search.cpu.numba.vectors import (
    QUERIES_AT_ONCE,
    lowest_bit,
    minimum_of_panels,
    scan_panel,
)
from iknow.search.cpu.numba.visiting import sort_by_block
from iknow.search.cpu.packed import LANES


@compiled
def gather_batch(
    pack: Pack, blocks: Blocks, queries: Queries, distances: Floats, exemplars: Ints, kth: Floats
) -> None:
    """Evidence about a batch of queries, written into its three arrays.

    distances, exemplars: of shape (n_classes, n_queries, m), filled with inf and -1, for the m
    nearest rows of each class. kth: of shape (n_queries, k), filled with inf; its rows end up
    ascending.
    """
    minima = find_block_minima(pack.panels, blocks.starts, queries.points)
    # Class by class: the panels of one class stay in the cache while all queries visit them.
    for code in range(len(blocks.classes) - 1):
        first, last = blocks.classes[code], blocks.classes[code + 1]
        found = distances[code], exemplars[code]
        if first < last and distances.shape[2] > 1:
            find_few(pack, blocks.starts, queries, minima, first, last, *found)
        elif first < last:
            _find_nearest(pack, blocks.starts, queries, minima, first, last, *found)
    if kth.shape[1]:
        find_neighbors(pack, blocks.starts, queries, minima, kth)


@compiled
def find_block_minima(panels: Floats32, starts: Ints, points: Floats32) -> Any:
    """The lowest bound in each block, of shape (groups of queries, n_blocks, QUERIES_AT_ONCE)."""
    n_queries, n_features = points.shape
    n_groups = -(-n_queries // QUERIES_AT_ONCE)
    n_blocks = len(starts) - 1
    grouped = np.zeros((n_groups, n_features, QUERIES_AT_ONCE), dtype=np.float32)
    for i in range(n_queries):
        for j in range(n_features):
            grouped[i // QUERIES_AT_ONCE, j, i % QUERIES_AT_ONCE] = points[i, j]
    flat_queries = grouped.reshape(-1)
    minima = np.empty((n_groups, n_blocks, QUERIES_AT_ONCE), dtype=np.float32)
    flat_minima = minima.reshape(-1)
    panel_size = (n_features + 1) * LANES
    for block in range(n_blocks):
        for group in range(n_groups):
            minimum_of_panels(
                panels, starts[block] * panel_size, starts[block + 1] - starts[block], n_features,
                flat_queries, group * n_features * QUERIES_AT_ONCE,
                flat_minima, (group * n_blocks + block) * QUERIES_AT_ONCE,
            )  # fmt: skip
    return minima


@compiled
def _find_nearest(
    pack: Pack,
    starts: Ints,
    queries: Queries,
    minima: Any,
    first: int,
    last: int,
    distances: Floats,
    numbers: Ints,
) -> None:
    """The nearest row of one class, whose blocks are first..last-1, for each query.

    distances, numbers: of shape (n_queries, 1).
    """
    panels, slots, points, rows = pack.panels, pack.slots, pack.points, pack.rows
    placed, given = queries.points, queries.given
    values = np.empty(LANES, dtype=np.float32)
    n_queries = len(given)
    lowest = np.empty(n_queries, dtype=np.float32)
    second = np.empty(n_queries, dtype=np.float32)
    best = np.empty(n_queries, dtype=np.int64)
    for i in range(n_queries):
        bounds = minima[i // QUERIES_AT_ONCE, :, i % QUERIES_AT_ONCE]
        lowest[i], second[i], best[i] = _two_lowest(bounds, first, last)
    # Block by block: each is read from memory once, for all queries that visit it first.
    for i in sort_by_block(best, first, last):
        bounds = minima[i // QUERIES_AT_ONCE, :, i % QUERIES_AT_ONCE]
        squared, low, block = queries.squared[i], lowest[i], best[i]
        factor, offset = limit_terms(pack.scale, pack.error, pack.underflow, squared)
        # The row with the lowest bound is nearly always the nearest, and usually the only one.
        guess = np.float32(low + 2.0**-20 * abs(low) + 8 * pack.error * squared)
        nearest, row = _improve(
            panels, slots, points, rows, placed, given, i, factor, offset, values,
            starts[block], starts[block + 1], guess, np.inf, -1,
        )  # fmt: skip
        limit = limit_for(nearest, factor, offset)
        if not limit <= guess or second[i] <= limit:
            for block in range(first, last):
                if not bounds[block] > limit:
                    nearest, row = _improve(
                        panels, slots, points, rows, placed, given, i, factor, offset, values,
                        starts[block], starts[block + 1], limit, nearest, row,
                    )  # fmt: skip
                    limit = limit_for(nearest, factor, offset)
        distances[i, 0] = nearest
        numbers[i, 0] = rows[row]


@inlined
def _two_lowest(bounds: Any, first: int, last: int) -> Any:
    """The two lowest bounds of blocks first..last-1, and the block with the lowest."""
    # Without branches, which no processor could predict.
    lowest, second, best = bounds[first], np.float32(np.inf), first
    for block in range(first + 1, last):
        bound = bounds[block]
        is_lower = bound < lowest
        higher = lowest if is_lower else bound
        second = higher if higher < second else second
        best = block if is_lower else best
        lowest = bound if is_lower else lowest
    return lowest, second, best


@inlined
def _improve(
    panels: Floats32,
    slots: Ints,
    points: Floats32,
    rows: Ints,
    placed: Floats32,
    given: Floats32,
    i: int,
    factor: float,
    offset: float,
    values: Floats32,
    first: int,
    last: int,
    limit: Any,
    nearest: float,
    row: int,
) -> Any:
    """The nearest so far, after panels first..last-1 within a limit; on ties, the lowest row."""
    n_features = placed.shape[1]
    panel_size = (n_features + 1) * LANES
    for panel in range(first, last):
        bits = scan_panel(panels, panel * panel_size, n_features, placed, i, limit, values)
        while bits:
            slot = lowest_bit(bits)
            bits &= bits - np.uint64(1)
            other = slots[panel * LANES + slot]
            if other < 0 or other == row or values[slot] > limit:
                continue
            distance = measure(given, i, points, other)
            if distance < nearest:
                nearest, row = distance, other
                limit = min(limit, limit_for(nearest, factor, offset))
            elif distance == nearest and (row < 0 or rows[other] < rows[row]):
                row = other
    return nearest, row
