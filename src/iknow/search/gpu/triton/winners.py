"""The winner of each tile: its stripe with the lowest bound, and a bound for all other stripes.

Two numbers for each query and tile replace one for each block: `low`, a bound for every row of the
tile, whose last bits name the stripe that has it, and `second`, a bound for every row but those of
that stripe. To measure one stripe of each class then settles most of them: see `torch.winners`.
"""

from __future__ import annotations

import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]

from iknow.search.gpu.triton.measuring import measure, nearest_of
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
    PRECISION: tl.constexpr,
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
        products = multiply(first_query, tl.load(row_at), PRECISION, WIDEN)
        for step in range(1, N_STEPS):
            products += multiply(
                tl.load(query_at + step * STEP), tl.load(row_at + step * STEP), PRECISION, WIDEN
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
    """The tile of each class with the lowest low, that low, and the lowest low of its other tiles."""
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
    distance, number = measure(points, numbers, queries, q, tile * STRIPES + stripe, SIZE, WIDTH)
    nearest, lowest = nearest_of(distance, number)
    limit = _limit(nearest, tl.load(half_norms + q), tl.load(scales + q), constants)
    other = tl.minimum(tl.load(seconds + at), tl.load(others + pair, mask=exists, other=0.0))
    tl.store(distance_out + pair, nearest, mask=exists)
    tl.store(number_out + pair, lowest, mask=exists)
    tl.store(limit_out + pair, tl.where(other <= limit, limit, float("-inf")), mask=exists)


@triton.jit  # type: ignore[untyped-decorator]
def _limit(distance, half_norm, scale, constants):  # type: ignore[no-untyped-def]
    """As `bounds.QueryBounds.to_limits`."""
    reach = tl.load(constants) * (distance * distance)
    limit = (reach - tl.load(constants + 1) * half_norm) * scale.to(tl.float64)
    limit = (limit + tl.load(constants + 2)).to(tl.float32)
    bits = limit.to(tl.int32, bitcast=True)
    upward = tl.where(limit > 0, bits + 1, tl.where(limit < 0, bits - 1, 1))
    return tl.where(limit == float("inf"), limit, upward.to(tl.float32, bitcast=True))
