"""Search by products of queries and rows, compiled: the nearest rows of each class, and of all.

Rows lie class by class in panels of 16, so that one instruction works on 16 rows at once. A panel
of d features is d + 1 vectors of 16 numbers:

    h            |x̂|²/2 minus an allowance for rounding; inf in empty slots
    -x̂_1 … -x̂_d  the rows, shifted by their mean and scaled by a power of two

so that h - x̂·q̂, summed in any order in float32, is a lower bound as derived in `lower_bounds`:
for every row within a distance ρ of the query it is at most

    s²ρ²/2 - |q̂|²/2 + 2c|q̂|² + underflow             (the query's limit for ρ)

because cN² = c(|x̂| + |q̂|)² <= 2c|x̂|² + 2c|q̂|², and h contains the first term. What a bound does not
rule out is measured in float64, summed in numpy's order, to the same bits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from iknow.core.arrays import Floats, Floats32, Ints
from iknow.search.kernels.numba import vectors
from iknow.search.kernels.numba.compile import compiled, compiled_bare, inlined
from iknow.search.kernels.numba.vectors import LANES, QUERIES_AT_ONCE, lowest_bit

PIECE = 128  # numbers that numpy sums in one piece; it halves longer sums until they fit
MOST_PIECES = 64

# Compiled functions pass arrays to each other one by one: numba would count the references of a
# record of arrays around every call, which costs more than most calls.


class Pack(NamedTuple):
    """Packed rows as the compiled functions take them, with the constants of the bounds."""

    panels: Floats32  # flat
    slots: Ints  # the row in each slot, or -1
    points: Floats32  # the rows themselves, of shape (n_rows, n_features)
    rows: Ints  # their numbers in the training set, of shape (n_rows,)
    scale: float
    error: float
    underflow: float


class PanelBlocks(NamedTuple):
    """Panels in blocks of one class each."""

    starts: Ints  # the first panel of each block and, last, the number of panels: (n_blocks + 1,)
    classes: Ints  # the first block of each class and, last, their number: (n_classes + 1,)


class Queries(NamedTuple):
    """A batch of queries. Where float32 might overflow, |q̂|² is inf: every limit is then inf, too,
    and rules nothing out.
    """

    given: Floats32  # of shape (n_queries, n_features)
    points: Floats32  # q̂, their coordinates, shifted and scaled like those of the rows
    squared: Floats  # |q̂|² of shape (n_queries,)


@inlined
def limit_terms(scale: float, error: float, underflow: float, squared: float) -> Any:
    """A query's factor and offset for `limit_for`, where |q̂|² = squared."""
    if not np.isfinite(squared):
        return 0.0, np.inf
    allowance = 2 * error * squared + underflow * (1 + np.sqrt(squared))
    return 0.5 * scale * scale, allowance - 0.5 * squared


@inlined
def limit_for(distance: float, factor: float, offset: float) -> Any:
    """The largest bound that a row within a distance can have, rounded up."""
    limit = factor * (distance * distance) + offset
    return np.float32(limit + 2.0**-22 * abs(limit) + 2.0**-120)


@inlined
def precedes(distance: float, row: int, other_distance: float, other: int) -> Any:
    """Whether a row comes before another: it is nearer, or as near and stored before it."""
    return distance < other_distance or (distance == other_distance and row < other)


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
    total = vectors.sum_of_eights(queries, query, points, row, start, whole)
    for j in range(start + whole, start + n):
        # No slices: numba would count references to them, at some cost.
        difference = np.float64(points[row, j]) - np.float64(queries[query, j])
        total += difference * difference
    return total


@compiled
def gather_batch(
    pack: Pack, blocks: PanelBlocks, queries: Queries, distances: Floats, numbers: Ints, kth: Floats
) -> None:
    """Evidence about a batch of queries, written into its three arrays, filled with inf and -1.

    distances, numbers: of shape (n_classes, n_queries, m), for the m nearest rows of each class.
    kth: of shape (n_queries, k); its rows end up ascending.
    """
    minima = find_block_minima(pack.panels, blocks.starts, queries.points)
    # Class by class: the panels of one class stay in the cache while all queries visit them.
    for code in range(len(blocks.classes) - 1):
        first, last = blocks.classes[code], blocks.classes[code + 1]
        if first < last:
            find_few(
                pack, blocks.starts, queries, minima, first, last, distances[code], numbers[code]
            )
    if kth.shape[1]:
        n_blocks, unnamed = len(blocks.starts) - 1, np.full(kth.shape, -1, dtype=np.int64)
        find_few(pack, blocks.starts, queries, minima, 0, n_blocks, kth, unnamed)


@compiled
def group_queries(points: Floats32) -> Any:
    """Queries in groups of QUERIES_AT_ONCE, each feature by feature, flat; the last one padded."""
    n_queries, n_terms = points.shape
    n_groups = -(-n_queries // QUERIES_AT_ONCE)
    grouped = np.zeros((n_groups, n_terms, QUERIES_AT_ONCE), dtype=np.float32)
    for i in range(n_queries):
        for j in range(n_terms):
            grouped[i // QUERIES_AT_ONCE, j, i % QUERIES_AT_ONCE] = points[i, j]
    return grouped.reshape(-1)


@compiled
def find_block_minima(panels: Floats32, starts: Ints, points: Floats32) -> Any:
    """The lowest bound in each block, of shape (groups of queries, n_blocks, QUERIES_AT_ONCE)."""
    grouped, n_terms, n_blocks = group_queries(points), points.shape[1], len(starts) - 1
    n_groups = -(-len(points) // QUERIES_AT_ONCE)
    minima = np.empty((n_groups, n_blocks, QUERIES_AT_ONCE), dtype=np.float32)
    flat, size = minima.reshape(-1), (n_terms + 1) * LANES
    for block in range(n_blocks):
        for group in range(n_groups):
            vectors.minima_for_six(
                panels, starts[block] * size, starts[block + 1] - starts[block], n_terms,
                grouped, group * n_terms * QUERIES_AT_ONCE,
                flat, (group * n_blocks + block) * QUERIES_AT_ONCE, 1,
            )  # fmt: skip
    return minima


@compiled
def find_few(
    pack: Pack, starts: Ints, queries: Queries, minima: Any, first: int, last: int,
    distances: Floats, numbers: Ints,
) -> None:  # fmt: skip
    """The m nearest rows in blocks first..last-1, for each query.

    distances, numbers: of shape (n_queries, m), filled with inf and -1; by distance and then by
    number, as rows of a class are stored in that order. Each of the m blocks with the lowest bounds
    holds a row whose bound is at most the m-th of these. So the m nearest rows have bounds up to
    about that, and we measure the rows of these blocks within it: few more than m. Only where
    rounding leaves a doubt do we visit further blocks.
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
        if n == 1:  # without branches, which no processor could predict
            low, second, best = bounds[first], np.float32(np.inf), first
            for block in range(first + 1, last):
                bound = bounds[block]
                is_lower = bound < low
                higher = low if is_lower else bound
                second = higher if higher < second else second
                best = block if is_lower else best
                low = bound if is_lower else low
            lowest[i, 0], lowest[i, 1], chosen[i, 0] = low, second, best
            continue
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


@compiled
def sort_by_block(best: Ints, first: int, last: int) -> Any:
    """The visits in the order of their blocks, which are first..last-1."""
    place = np.zeros(last - first + 1, dtype=np.int64)
    for block in best:
        place[block - first + 1] += 1
    for block in range(last - first):
        place[block + 1] += place[block]
    order = np.empty(len(best), dtype=np.int64)
    for i in range(len(best)):
        order[place[best[i] - first]] = i
        place[best[i] - first] += 1
    return order


@inlined
def _insert(
    panels: Floats32, slots: Ints, points: Floats32, placed: Floats32, given: Floats32, i: int,
    factor: float, offset: float, values: Floats32, first: int, last: int, limit: Any,
    distances: Floats, found: Ints,
) -> Any:  # fmt: skip
    """Insert the rows of panels first..last-1 within a limit; returns the limit that remains.

    distances, found: of shape (n_queries, m), the nearest so far and their rows.
    """
    n_features = placed.shape[1]
    panel_size = (n_features + 1) * LANES
    end = distances.shape[1] - 1
    for panel in range(first, last):
        bits = vectors.scan_panel(panels, panel * panel_size, n_features, placed, i, limit, values)
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
