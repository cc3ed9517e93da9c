"""The m nearest rows of a class, compiled.

Each of the m blocks with the lowest bounds holds a row whose bound is at most the m-th of these.
So the m nearest rows have bounds up to about that, and we measure few others: the rows of these
blocks within it, the best block first, less and less far. Only where rounding leaves a doubt do we
visit further blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.core.arrays import Floats, Floats32, Ints
from iknow.search.cpu.numba.compile import compiled
from iknow.search.cpu.numba.measure import measure
from iknow.search.cpu.numba.records import Pack, Queries, limit_for, limit_terms
from iknow.search.cpu.numba.vectors import QUERIES_AT_ONCE, lowest_bit, scan_panel
from iknow.search.cpu.numba.visiting import sort_by_block
from iknow.search.cpu.packed import LANES


@compiled
def find_few(
    pack: Pack,
    starts: Ints,
    queries: Queries,
    minima: Any,
    first: int,
    last: int,
    distances: Floats,
    numbers: Ints,
) -> None:
    """The nearest rows of one class, whose blocks are first..last-1, for each query.

    distances, numbers: of shape (n_queries, m), filled with inf and -1; by distance and then by
    number, as rows are stored in that order.
    """
    panels, slots, points = pack.panels, pack.slots, pack.points
    placed, given = queries.points, queries.given
    values = np.empty(LANES, dtype=np.float32)
    n_queries, m = distances.shape
    n_chosen = min(m, last - first)
    lowest, chosen = _choose_blocks(minima, n_queries, first, last, n_chosen)
    nearest, found = np.empty(m), np.empty(m, dtype=np.int64)
    # Block by block: each is read from memory once, for all queries that visit it first.
    for i in sort_by_block(chosen[0], first, last):
        bounds = minima[i // QUERIES_AT_ONCE, :, i % QUERIES_AT_ONCE]
        squared = queries.squared[i]
        factor, offset = limit_terms(pack.scale, pack.error, pack.underflow, squared)
        nearest[:], found[:] = np.inf, -1
        low = np.float64(lowest[m - 1, i]) if n_chosen == m else np.inf
        guess = np.float32(low + 2.0**-20 * abs(low) + 8 * pack.error * squared)
        limit = guess
        for place in range(n_chosen):
            if lowest[place, i] > limit:
                break
            block = chosen[place, i]
            limit = _insert(
                panels, slots, points, placed, given, i, factor, offset, values,
                starts[block], starts[block + 1], limit, nearest, found,
            )  # fmt: skip
        limit = (
            limit_for(nearest[m - 1], factor, offset) if found[m - 1] >= 0 else np.float32(np.inf)
        )
        if not limit <= guess or lowest[n_chosen, i] <= limit:
            for block in range(first, last):
                if not bounds[block] > limit:
                    limit = _insert(
                        panels, slots, points, placed, given, i, factor, offset, values,
                        starts[block], starts[block + 1], limit, nearest, found,
                    )  # fmt: skip
        for place in range(m):
            if found[place] >= 0:
                distances[i, place] = nearest[place]
                numbers[i, place] = pack.rows[found[place]]


@compiled
def _choose_blocks(minima: Any, n_queries: int, first: int, last: int, n: int) -> Any:
    """The n + 1 lowest bounds of blocks first..last-1, ascending, and their blocks.

    Both of shape (n + 1, n_queries); the last bound is inf if there are only n blocks.
    """
    lowest = np.full((n + 1, n_queries), np.float32(np.inf))
    chosen = np.full((n + 1, n_queries), first)
    for i in range(n_queries):
        bounds = minima[i // QUERIES_AT_ONCE, :, i % QUERIES_AT_ONCE]
        for block in range(first, last):
            bound = bounds[block]
            count = block - first
            if count <= n or bound < lowest[n, i]:
                place = min(n, count)
                while place > 0 and bound < lowest[place - 1, i]:
                    lowest[place, i], chosen[place, i] = lowest[place - 1, i], chosen[place - 1, i]
                    place -= 1
                lowest[place, i], chosen[place, i] = bound, block
    return lowest, chosen


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
    limit: Any,
    nearest: Floats,
    found: Ints,
) -> Any:
    """Insert the rows of panels first..last-1 within a limit; returns the limit that remains."""
    n_features = placed.shape[1]
    panel_size = (n_features + 1) * LANES
    end = len(nearest) - 1
    for panel in range(first, last):
        bits = scan_panel(panels, panel * panel_size, n_features, placed, i, limit, values)
        while bits:
            slot = lowest_bit(bits)
            bits &= bits - np.uint64(1)
            row = slots[panel * LANES + slot]
            if row < 0 or values[slot] > limit or _holds(found, row):
                continue
            distance = measure(given, i, points, row)
            place = end
            if not _precedes(distance, row, nearest[end], found[end]):
                continue
            while place > 0 and _precedes(distance, row, nearest[place - 1], found[place - 1]):
                nearest[place], found[place] = nearest[place - 1], found[place - 1]
                place -= 1
            nearest[place], found[place] = distance, row
            if found[end] >= 0:
                limit = min(limit, limit_for(nearest[end], factor, offset))
    return limit


@compiled
def _holds(found: Ints, row: int) -> Any:
    for other in found:  # noqa: SIM110  (numba compiles no generators)
        if other == row:
            return True
    return False


@compiled
def _precedes(distance: float, row: int, other_distance: float, other: int) -> Any:
    """Whether a row comes before another: it is nearer, or as near and stored before it."""
    return distance < other_distance or (distance == other_distance and row < other)
