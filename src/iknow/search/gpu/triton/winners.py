"""The winner of each tile: its stripe with the lowest bound, and a bound for all other stripes.

Two numbers for each query and tile replace one for each block: `low`, a bound for every row of the
tile, whose last bits name the stripe that has it, and `second`, a bound for every row but those of
that stripe. To measure one stripe of each class then settles most of them: see `torch.winners`.
"""

from __future__ import annotations

import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]

from iknow.search.gpu.triton.measuring import NO_ROW, measure, nearest_of
from iknow.search.gpu.triton.minima import multiply


@triton.jit  # type: ignore[untyped-decorator]
def tile_winners(  # type: ignore[no-untyped-def]
    rows,  # (n_tiles * TILE_R, N_STEPS * STEP): row r of a tile is of stripe r % STRIPES
    half_norms,  # (n_tiles * TILE_R,), in the same order; huge for padding
    losses,  # (n_tiles,)
    lengths,  # (n_tiles,)
    queries,  # (multiple of TILE_Q, N_STEPS * STEP)
    scales,  # (multiple of TILE_Q,), as the next two
    norms,
    errors,
    lows,  # out: (n_tiles, stride)
    seconds,  # out: (n_tiles, stride)
    stride,
    n_tiles,
    tiles_each,
    STEP: tl.constexpr,
    N_STEPS: tl.constexpr,
    TILE_Q: tl.constexpr,
    TILE_R: tl.constexpr,
    STRIPES: tl.constexpr,
    WIDEN: tl.constexpr,
):
    """Low and second of all tiles; program (i, j): queries i, tiles j.

    The stripe to leave out is the one that `low` names, so `second` is right whichever it is.
    """
    WIDTH: tl.constexpr = STEP * N_STEPS
    q = tl.program_id(0) * TILE_Q + tl.arange(0, TILE_Q)
    r = tl.arange(0, TILE_R)
    k = tl.arange(0, STEP)
    s = tl.arange(0, STRIPES)
    scale = tl.load(scales + q)[:, None]
    norm = tl.load(norms + q)
    error = tl.load(errors + q)
    query_at = queries + q.to(tl.int64)[:, None] * WIDTH + k[None, :]
    first_query = tl.load(query_at)
    first = tl.program_id(1) * tiles_each
    for tile in range(first, tl.minimum(first + tiles_each, n_tiles)):
        row_at = rows + (tile * TILE_R + r).to(tl.int64)[None, :] * WIDTH + k[:, None]
        products = multiply(first_query, tl.load(row_at), WIDEN)
        for step in range(1, N_STEPS):
            products += multiply(
                tl.load(query_at + step * STEP), tl.load(row_at + step * STEP), WIDEN
            )
        half_norm = tl.load(half_norms + tile * TILE_R + r)
        bounds = half_norm[None, :] * scale - products
        of_stripes = tl.min(tl.reshape(bounds, (TILE_Q, TILE_R // STRIPES, STRIPES)), axis=1)
        named = _name(of_stripes, s[None, :], STRIPES)
        low = tl.min(named, axis=1)
        winner = low.to(tl.int32, bitcast=True) & (STRIPES - 1)
        second = tl.min(tl.where(s[None, :] == winner[:, None], float("inf"), named), axis=1)
        lost = tl.load(losses + tile) * norm + tl.load(lengths + tile) * error
        at = (tl.zeros((TILE_Q,), tl.int64) + tile) * stride + q
        tl.store(lows + at, _name(low - lost, winner, STRIPES))
        tl.store(seconds + at, second - lost)


@triton.jit  # type: ignore[untyped-decorator]
def _name(bounds, stripe, STRIPES: tl.constexpr):  # type: ignore[no-untyped-def]
    """Bounds with the number of a stripe in place of their last bits."""
    bits = (bounds.to(tl.int32, bitcast=True) & -STRIPES) | stripe
    return bits.to(tl.float32, bitcast=True)


@triton.jit  # type: ignore[untyped-decorator]
def lowest_of_tiles(  # type: ignore[no-untyped-def]
    lows,  # (n_tiles, stride)
    starts,  # (n_classes + 1,), int64: the first tile of each class
    tile_out,  # (n_classes, n_queries), int32
    low_out,  # (n_classes, n_queries)
    other_out,  # (n_classes, n_queries)
    stride,
    n_queries,
    AT_ONCE: tl.constexpr,
    TILE_Q: tl.constexpr,
):
    """The tile of each class with the lowest low, that low, and the lowest of its other tiles."""
    rank = tl.program_id(0).to(tl.int64)
    q = tl.program_id(1) * TILE_Q + tl.arange(0, TILE_Q)
    is_query = q < n_queries
    start, end = tl.load(starts + rank).to(tl.int32), tl.load(starts + rank + 1).to(tl.int32)
    low = tl.full((TILE_Q,), float("inf"), tl.float32)
    other = low
    best = tl.zeros((TILE_Q,), tl.int32) + start
    for first in range(start, end, AT_ONCE):
        tile = first + tl.arange(0, AT_ONCE)
        value = tl.load(
            lows + tile.to(tl.int64)[:, None] * stride + q[None, :],
            mask=(tile < end)[:, None] & is_query[None, :],
            other=float("inf"),
        )
        here = tl.min(value, axis=0)
        where = tl.min(tl.where(value == here[None, :], tile[:, None], end - 1), axis=0)
        rest = tl.min(tl.where(tile[:, None] == where[None, :], float("inf"), value), axis=0)
        other = tl.minimum(tl.minimum(other, rest), tl.maximum(low, here))
        best = tl.where(here < low, where, best)
        low = tl.minimum(low, here)
    out = rank * n_queries + q
    tl.store(tile_out + out, best, mask=is_query)
    tl.store(low_out + out, low, mask=is_query)
    tl.store(other_out + out, other, mask=is_query)


@triton.jit  # type: ignore[untyped-decorator]
def measure_winners(  # type: ignore[no-untyped-def]
    points,  # (n_tiles * STRIPES * SIZE, WIDTH), float32
    numbers,  # (n_tiles * STRIPES * SIZE,), int64
    queries,  # (n_queries, WIDTH), float32
    leaves,  # (N_LEAVES, 3), int32: see `torch.sums.list_leaves`
    half_norms,  # (n_queries,), float64, as the next two: of `bounds.QueryBounds`
    scales,  # (n_queries,), float32
    constants,  # (3,), float64: see `bounds.Frame.constants`
    lows,  # (n_tiles, stride), as int32
    seconds,  # (n_tiles, stride)
    tiles,  # (n_classes * n_queries,), int32
    others,  # (n_classes * n_queries,)
    pairs,  # (n_pairs,), int64: which of them to measure, if LISTED; else all
    stride,
    n_queries,
    n_pairs,
    distance_out,  # (n_classes * n_queries,), float64
    number_out,  # (n_classes * n_queries,), int64
    limit_out,  # (n_classes * n_queries,)
    PAIRS: tl.constexpr,
    LISTED: tl.constexpr,
    STRIPES: tl.constexpr,
    SIZE: tl.constexpr,
    WIDTH: tl.constexpr,
    N_LEAVES: tl.constexpr,
):
    """The nearest row of the winner, and the limit of its distance, -inf if nothing else is within.

    A pair of a class and a query is settled if its limit is -inf.
    """
    pair = tl.program_id(0).to(tl.int64) * PAIRS + tl.arange(0, PAIRS)
    exists = pair < n_pairs
    if LISTED:
        pair = tl.load(pairs + pair, mask=exists, other=0)
    q = pair % n_queries
    tile = tl.load(tiles + pair, mask=exists, other=0).to(tl.int64)
    at = tile * stride + q
    stripe = tl.load(lows + at) & (STRIPES - 1)
    block = tile * STRIPES + stripe
    nearest, lowest = _nearest_in(points, numbers, queries, leaves, q, block, SIZE, WIDTH, N_LEAVES)
    limit = _limit(nearest, tl.load(half_norms + q), tl.load(scales + q), constants)
    other = tl.minimum(tl.load(seconds + at), tl.load(others + pair, mask=exists, other=0.0))
    tl.store(distance_out + pair, nearest, mask=exists)
    tl.store(number_out + pair, lowest, mask=exists)
    tl.store(limit_out + pair, tl.where(other <= limit, limit, float("-inf")), mask=exists)


@triton.jit  # type: ignore[untyped-decorator]
def list_open(  # type: ignore[no-untyped-def]
    lows,  # (n_tiles, stride)
    limits,  # (n_classes, n_queries)
    ranks,  # (n_tiles,), int64
    tile_out,  # (capacity,), int32
    query_out,  # (capacity,), int32
    count,  # (1,), int64: how many there are, perhaps more than the capacity; 0 before
    capacity,
    stride,
    n_tiles,
    n_queries,
    first_query,  # of those asked for
    end_query,
    TILE_T: tl.constexpr,
    TILE_Q: tl.constexpr,
):
    """Tiles and queries whose low is within the limit of their class, in any order."""
    tile = tl.program_id(0) * TILE_T + tl.arange(0, TILE_T)
    q = first_query + tl.program_id(1) * TILE_Q + tl.arange(0, TILE_Q)
    exists = (tile < n_tiles)[:, None] & (q < end_query)[None, :]
    rank = tl.load(ranks + tile, mask=tile < n_tiles, other=0)
    low = tl.load(lows + tile.to(tl.int64)[:, None] * stride + q[None, :], mask=exists, other=0.0)
    limit = tl.load(
        limits + rank[:, None] * n_queries + q[None, :], mask=exists, other=float("-inf")
    )
    listed = exists & (low <= limit)
    flat = tl.reshape(listed.to(tl.int32), (TILE_T * TILE_Q,))
    total = tl.sum(flat, axis=0)
    if total > 0:
        first = tl.atomic_add(count, total.to(tl.int64))
        place = tl.reshape(tl.cumsum(flat, axis=0), (TILE_T, TILE_Q)) - 1 + first
        listed = listed & (place < capacity)
        zero = tl.zeros((TILE_T, TILE_Q), tl.int32)
        tl.store(tile_out + place, zero + tile[:, None], mask=listed)
        tl.store(query_out + place, zero + q[None, :], mask=listed)


@triton.jit  # type: ignore[untyped-decorator]
def measure_open(  # type: ignore[no-untyped-def]
    points,
    numbers,
    queries,
    leaves,
    lows,  # (n_tiles, stride), as int32
    seconds,
    limits,  # (n_classes, n_queries)
    ranks,
    tiles,  # (n_listed,), int32
    listed_queries,  # (n_listed,), int32
    stride,
    n_queries,
    distance_out,  # (n_listed,), float64
    number_out,  # (n_listed,), int64
    best,  # (n_classes * n_queries,), float64 as int64: lowered to the distances found
    best_number,  # (n_classes * n_queries,), int64: forgotten, to be found anew
    STRIPES: tl.constexpr,
    SIZE: tl.constexpr,
    WIDTH: tl.constexpr,
    N_LEAVES: tl.constexpr,
):
    """The nearest row of the stripe that the low of a tile names, or of the whole tile.

    Program i: entry i of the list. Distances >= 0 are ordered as their bits are.
    """
    i = tl.program_id(0)
    tile, q = tl.load(tiles + i).to(tl.int64), tl.load(listed_queries + i).to(tl.int64)
    pair = tl.load(ranks + tile) * n_queries + q
    at = tile * stride + q
    zero = tl.zeros((1,), tl.int64)
    if tl.load(seconds + at) <= tl.load(limits + pair):
        nearest, lowest = _nearest_in(
            points, numbers, queries, leaves, zero + q, zero + tile, STRIPES * SIZE, WIDTH, N_LEAVES
        )
    else:
        block = tile * STRIPES + (tl.load(lows + at) & (STRIPES - 1))
        nearest, lowest = _nearest_in(
            points, numbers, queries, leaves, zero + q, zero + block, SIZE, WIDTH, N_LEAVES
        )
    one = tl.arange(0, 1)
    tl.store(distance_out + i + one, nearest)
    tl.store(number_out + i + one, lowest)
    tl.atomic_min(best + pair + one, nearest.to(tl.int64, bitcast=True))
    tl.store(best_number + pair, NO_ROW)


@triton.jit  # type: ignore[untyped-decorator]
def _nearest_in(  # type: ignore[no-untyped-def]
    points,
    numbers,
    queries,
    leaves,
    query,
    block,
    SIZE: tl.constexpr,
    WIDTH: tl.constexpr,
    N_LEAVES: tl.constexpr,
):
    """Distance and number of the nearest row of blocks of a size, both of shape (pairs,)."""
    distance, number = measure(
        points, numbers, queries, leaves, query, block, SIZE, WIDTH, N_LEAVES
    )
    return nearest_of(distance, number)


@triton.jit  # type: ignore[untyped-decorator]
def name_nearest(  # type: ignore[no-untyped-def]
    ranks,
    tiles,  # (n_listed,), as the next three
    listed_queries,
    distances,
    numbers,
    n_listed,
    n_queries,
    best,  # (n_classes * n_queries,), float64
    best_number,  # (n_classes * n_queries,), int64: the lowest of those at the best distance
    AT_ONCE: tl.constexpr,
):
    """The number of the nearest row of each listed pair, after its distance is known."""
    i = tl.program_id(0) * AT_ONCE + tl.arange(0, AT_ONCE)
    exists = i < n_listed
    tile = tl.load(tiles + i, mask=exists, other=0)
    q = tl.load(listed_queries + i, mask=exists, other=0)
    pair = tl.load(ranks + tile) * n_queries + q
    is_nearest = tl.load(distances + i, mask=exists, other=0.0) == tl.load(best + pair)
    number = tl.load(numbers + i, mask=exists, other=NO_ROW)
    tl.atomic_min(best_number + pair, number, mask=exists & is_nearest)


@triton.jit
def _limit(distance, half_norm, scale, constants):  # type: ignore[no-untyped-def]
    """As `bounds.QueryBounds.to_limits`."""
    reach = tl.load(constants) * (distance * distance)
    limit = (reach - tl.load(constants + 1) * half_norm) * scale.to(tl.float64)
    limit = (limit + tl.load(constants + 2)).to(tl.float32)
    bits = limit.to(tl.int32, bitcast=True)
    upward = tl.where(limit > 0, bits + 1, tl.where(limit < 0, bits - 1, 1))
    return tl.where(limit == float("inf"), limit, upward.to(tl.float32, bitcast=True))
