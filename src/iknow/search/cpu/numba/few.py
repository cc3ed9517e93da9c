"""The m nearest rows of a class, compiled.

Each of the m blocks with the lowest bounds holds a row whose bound is at most the m-th of these.
So the m nearest rows have bounds up to about that, and we measure the rows of these blocks within
it: few more than m. Only where rounding leaves a doubt do we visit further blocks.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.core.arrays import Floats, Floats32, Ints
from iknow.search.cpu.numba.compile import compiled, inlined
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
    guesses = np.empty(n_queries, dtype=np.float32)
    for i in range(n_queries):
        low = np.float64(lowest[i, m - 1]) if n_chosen == m else np.inf
        guesses[i] = low + 2.0**-20 * abs(low) + 8 * pack.error * queries.squared[i]
    limits = guesses.copy()
    # Block by block: each is read from memory once, for all queries that visit it.
    for visit in sort_by_block(chosen[:, :n_chosen].copy().reshape(-1), first, last):
        i = visit // n_chosen
        if lowest[i, visit % n_chosen] > limits[i]:
            continue
        block = chosen[i, visit % n_chosen]
        factor, offset = limit_terms(pack.scale, pack.error, pack.underflow, queries.squared[i])
        limits[i] = _insert(
            panels, slots, points, placed, given, i, factor, offset, values,
            starts[block], starts[block + 1], limits[i], distances, numbers,
        )  # fmt: skip
    for i in range(n_queries):
        factor, offset = limit_terms(pack.scale, pack.error, pack.underflow, queries.squared[i])
        limit = np.float32(np.inf)
        if numbers[i, m - 1] >= 0:
            limit = limit_for(distances[i, m - 1], factor, offset)
        if not limit <= guesses[i] or lowest[i, n_chosen] <= limit:
            bounds = minima[i // QUERIES_AT_ONCE, :, i % QUERIES_AT_ONCE]
            for block in range(first, last):
                if not bounds[block] > limit:
                    limit = _insert(
                        panels, slots, points, placed, given, i, factor, offset, values,
                        starts[block], starts[block + 1], limit, distances, numbers,
                    )  # fmt: skip
        for place in range(m):
            if numbers[i, place] >= 0:
                numbers[i, place] = pack.rows[numbers[i, place]]


@compiled
def _choose_blocks(minima: Any, n_queries: int, first: int, last: int, n: int) -> Any:
    """The n + 1 lowest bounds of blocks first..last-1, ascending, and their blocks.

    Both of shape (n_queries, n + 1); the last bound is inf if there are only n blocks.
    """
    lowest = np.full((n_queries, n + 1), np.float32(np.inf))
    chosen = np.full((n_queries, n + 1), first)
    for i in range(n_queries):
        bounds = minima[i // QUERIES_AT_ONCE, :, i % QUERIES_AT_ONCE]
        highest = np.float32(np.inf)
        for block in range(first, last):
            bound = bounds[block]
            if bound < highest or block - first <= n:
                place = min(n, block - first)
                while place > 0 and bound < lowest[i, place - 1]:
                    lowest[i, place], chosen[i, place] = lowest[i, place - 1], chosen[i, place - 1]
                    place -= 1
                lowest[i, place], chosen[i, place] = bound, block
                highest = lowest[i, n]
    return lowest, chosen


@inlined
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
    distances: Floats,
    found: Ints,
) -> Any:
    """Insert the rows of panels first..last-1 within a limit; returns the limit that remains.

    distances, found: of shape (n_queries, m), the nearest so far and their rows.
    """
    n_features = placed.shape[1]
    panel_size = (n_features + 1) * LANES
    end = distances.shape[1] - 1
    for panel in range(first, last):
        bits = scan_panel(panels, panel * panel_size, n_features, placed, i, limit, values)
        while bits:
            slot = lowest_bit(bits)
            bits &= bits - np.uint64(1)
            row = slots[panel * LANES + slot]
            if row < 0 or values[slot] > limit or _holds(found, i, row):
                continue
            distance = measure(given, i, points, row)
            if not precedes(distance, row, distances[i, end], found[i, end]):
                continue
            place = end
            while place > 0 and precedes(
                distance, row, distances[i, place - 1], found[i, place - 1]
            ):
                distances[i, place], found[i, place] = distances[i, place - 1], found[i, place - 1]
                place -= 1
            distances[i, place], found[i, place] = distance, row
            if found[i, end] >= 0:
                limit = min(limit, limit_for(distances[i, end], factor, offset))
    return limit


@inlined
def _holds(found: Ints, i: int, row: int) -> Any:
    for place in range(found.shape[1]):  # noqa: SIM110  (numba compiles no generators)
        if found[i, place] == row:
            return True
    return False


@inlined
def precedes(distance: float, row: int, other_distance: float, other: int) -> Any:
    """Whether a row comes before another: it is nearer, or as near and stored before it."""
    return distance < other_distance or (distance == other_distance and row < other)
