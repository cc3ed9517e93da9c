"""Search compiled for the CPU at hand: lower bounds on panels, exact distances where they matter.

Each function works on a batch of queries without holding Python's lock, so batches share the cores.
What is promising by its bound is measured in float64, summed as numpy sums: the compiled search
gives the same bits as the one in numpy.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from iknow.core.arrays import Floats, Floats32, Ints
from iknow.search.numba_measure import compiled, inlined, measure
from iknow.search.numba_vectors import (
    QUERIES_AT_ONCE,
    lowest_bit,
    minimum_of_panels,
    scan_panel,
)
from iknow.search.packed import LANES

# Arrays are handed to functions one by one: a record of arrays would be counted in and out of every
# call, which costs more than the call.


class Pack(NamedTuple):
    """Packed rows as the compiled functions take them.

    panels: flat, float32. slots: the row in each slot, or -1. points: the rows themselves, of shape
    (n_rows, n_features). rows: the number each is known by, of shape (n_rows,). scale, error,
    underflow: the constants of the bounds.
    """

    panels: Floats32
    slots: Ints
    points: Floats32
    rows: Ints
    scale: float
    error: float
    underflow: float


class Blocks(NamedTuple):
    """Panels in blocks of a class each.

    starts: the first panel of each block and, last, the number of panels, of shape (n_blocks + 1,).
    classes: the first block of each class and, last, their number, of shape (n_classes + 1,).
    """

    starts: Ints
    classes: Ints


class Queries(NamedTuple):
    """A batch of queries: as given, and as `PackedRows.place` puts them."""

    given: Floats32
    points: Floats32
    squared: Floats


@compiled
def gather_batch(
    pack: Pack, blocks: Blocks, queries: Queries, distances: Floats, exemplars: Ints, kth: Floats
) -> None:
    """Evidence about a batch of queries, written into its three arrays.

    distances, exemplars: of shape (n_queries, n_classes), filled with inf and -1. kth: of shape
    (n_queries, k), filled with inf; its rows are left ascending.
    """
    minima = find_block_minima(pack.panels, blocks.starts, queries.points)
    # Class by class: the panels of one class stay in the cache while all queries look at them.
    for code in range(len(blocks.classes) - 1):
        first, last = blocks.classes[code], blocks.classes[code + 1]
        if first < last:
            _find_nearest(
                pack, blocks.starts, queries, minima, first, last, distances, exemplars, code
            )
    if kth.shape[1]:
        _find_neighbors(pack, blocks.starts, queries, minima, kth)


@compiled
def find_block_minima(panels: Floats32, starts: Ints, points: Floats32) -> Any:
    """The lowest bound in each block, of shape (groups of queries, n_blocks, QUERIES_AT_ONCE)."""
    n_queries, n_features = points.shape
    n_groups = -(-n_queries // QUERIES_AT_ONCE)
    n_blocks = len(starts) - 1
    grouped = np.zeros((n_groups, n_features, QUERIES_AT_ONCE), dtype=np.float32)
    for i in range(n_queries):
        grouped[i // QUERIES_AT_ONCE, :, i % QUERIES_AT_ONCE] = points[i]
    flat_queries = grouped.reshape(-1)
    minima = np.empty((n_groups, n_blocks, QUERIES_AT_ONCE), dtype=np.float32)
    flat_minima = minima.reshape(-1)
    panel_size = (n_features + 1) * LANES
    for block in range(n_blocks):
        for group in range(n_groups):
            minimum_of_panels(
                panels,
                starts[block] * panel_size,
                starts[block + 1] - starts[block],
                n_features,
                flat_queries,
                group * n_features * QUERIES_AT_ONCE,
                flat_minima,
                (group * n_blocks + block) * QUERIES_AT_ONCE,
            )
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
    exemplars: Ints,
    code: int,
) -> None:
    """The nearest row of one class, whose blocks are first..last-1, for each query."""
    panels, slots, points, rows = pack.panels, pack.slots, pack.points, pack.rows
    placed, given = queries.points, queries.given
    values = np.empty(LANES, dtype=np.float32)
    for i in range(len(queries.given)):
        bounds = minima[i // QUERIES_AT_ONCE, :, i % QUERIES_AT_ONCE]
        squared = queries.squared[i]
        factor, offset = limit_terms(pack.scale, pack.error, pack.underflow, squared)
        lowest, second, best = bounds[first], np.float32(np.inf), first
        for block in range(first + 1, last):
            bound = bounds[block]
            if bound < second:
                if bound < lowest:
                    lowest, second, best = bound, lowest, block
                else:
                    second = bound
        # The row with the lowest bound is nearly always the nearest, and alone in having it.
        guess = np.float32(lowest + 2.0**-20 * abs(lowest) + 8 * pack.error * squared)
        nearest, row = _improve(
            panels, slots, points, rows, placed, given, i, factor, offset, values,
            starts[best], starts[best + 1], guess, np.inf, -1,
        )  # fmt: skip
        limit = limit_for(nearest, factor, offset)
        if not limit <= guess or second <= limit:
            for block in range(first, last):
                if not bounds[block] > limit:
                    nearest, row = _improve(
                        panels, slots, points, rows, placed, given, i, factor, offset, values,
                        starts[block], starts[block + 1], limit, nearest, row,
                    )  # fmt: skip
                    limit = limit_for(nearest, factor, offset)
        distances[i, code] = nearest
        exemplars[i, code] = rows[row]


@compiled
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
    """Distance and row of the nearest so far, after panels first..last-1 within a limit.

    Of rows equally near, the one with the lowest number.
    """
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


@compiled
def _find_neighbors(
    pack: Pack, starts: Ints, queries: Queries, minima: Any, neighbors: Floats
) -> None:
    """The k smallest distances of each query, ascending, in `neighbors` that is filled with inf.

    The k blocks with the lowest bounds come first: what is found there rules out nearly all others.
    """
    panels, slots, points = pack.panels, pack.slots, pack.points
    placed, given = queries.points, queries.given
    values = np.empty(LANES, dtype=np.float32)
    n_blocks = len(starts) - 1
    k = neighbors.shape[1]
    lowest = np.empty(k, dtype=np.float32)
    chosen = np.empty(k, dtype=np.int64)
    done = np.zeros(n_blocks, dtype=np.bool_)
    for i in range(len(queries.given)):
        bounds = minima[i // QUERIES_AT_ONCE, :, i % QUERIES_AT_ONCE]
        kth = neighbors[i]
        factor, offset = limit_terms(pack.scale, pack.error, pack.underflow, queries.squared[i])
        n_chosen = 0
        for block in range(n_blocks):
            if n_chosen < k or bounds[block] < lowest[n_chosen - 1]:
                n_chosen = min(k, n_chosen + 1)
                place = n_chosen - 1
                while place > 0 and bounds[block] < lowest[place - 1]:
                    lowest[place], chosen[place] = lowest[place - 1], chosen[place - 1]
                    place -= 1
                lowest[place], chosen[place] = bounds[block], block
        for block in chosen[:n_chosen]:
            done[block] = True
            _insert(
                panels, slots, points, placed, given, i, factor, offset, values,
                starts[block], starts[block + 1], kth,
            )  # fmt: skip
        limit = limit_for(kth[k - 1], factor, offset)
        for block in range(n_blocks):
            if not bounds[block] > limit and not done[block]:
                _insert(
                    panels, slots, points, placed, given, i, factor, offset, values,
                    starts[block], starts[block + 1], kth,
                )  # fmt: skip
                limit = limit_for(kth[k - 1], factor, offset)
        done[chosen[:n_chosen]] = False


@compiled
def _insert(
    panels: Floats32,
    slots: Ints,
    points: Floats32,
    placed: Floats32,
    given: Floats32,
    i: int,
    factor: float,
    offset: float,
    values: Floats32,
    first: int,
    last: int,
    kth: Floats,
) -> None:
    """Put the distances of rows in panels first..last-1 among the k smallest, where they belong."""
    n_features = placed.shape[1]
    panel_size = (n_features + 1) * LANES
    end = len(kth) - 1
    limit = limit_for(kth[end], factor, offset)
    for panel in range(first, last):
        bits = scan_panel(panels, panel * panel_size, n_features, placed, i, limit, values)
        while bits:
            slot = lowest_bit(bits)
            bits &= bits - np.uint64(1)
            row = slots[panel * LANES + slot]
            if row < 0 or values[slot] > limit:
                continue
            distance = measure(given, i, points, row)
            if distance < kth[end]:
                place = end
                while place > 0 and distance < kth[place - 1]:
                    kth[place] = kth[place - 1]
                    place -= 1
                kth[place] = distance
                limit = limit_for(kth[end], factor, offset)


@inlined
def limit_terms(scale: float, error: float, underflow: float, squared: float) -> Any:
    """What `limit_for` needs to know of a query: a factor and an offset, for |q̂|² = squared."""
    if not np.isfinite(squared):
        return 0.0, np.inf
    allowance = 2 * error * squared + underflow * (1 + np.sqrt(squared))
    return 0.5 * scale * scale, allowance - 0.5 * squared


@inlined
def limit_for(distance: float, factor: float, offset: float) -> Any:
    """What the bound of a row within a distance never exceeds, rounded up."""
    limit = factor * (distance * distance) + offset
    return np.float32(limit + 2.0**-22 * abs(limit) + 2.0**-120)
