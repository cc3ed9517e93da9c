"""Distances in float64, added up in numpy's order (see `torch.sums`).

Up to 128 features the loops are unrolled. Wider sums loop instead: unrolled, several hundred
features take the compiler more than a minute.
"""

from __future__ import annotations

import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]

LEAF = tl.constexpr(128)
NO_ROW = tl.constexpr(2**63 - 1)


@triton.jit  # type: ignore[untyped-decorator]
def _square(points, queries, column):  # type: ignore[no-untyped-def]
    difference = tl.load(points + column).to(tl.float64) - tl.load(queries + column).to(tl.float64)
    return difference * difference


@triton.jit  # type: ignore[untyped-decorator]
def _sum_of_squares(  # type: ignore[no-untyped-def]
    points, queries, START, LENGTH: tl.constexpr, UNROLL: tl.constexpr
):
    """Σ (x_j - q_j)² over LENGTH columns from START, added as numpy does.

    points: pointers of shape (pairs, size); queries: of shape (pairs, 1). Nothing may be fused.
    """
    if LENGTH > LEAF:
        HALF: tl.constexpr = LENGTH // 2 - (LENGTH // 2) % 8
        total = _sum_of_squares(points, queries, START, HALF, UNROLL)
        total += _sum_of_squares(points, queries, START + HALF, LENGTH - HALF, UNROLL)
    else:
        IN_EIGHTS: tl.constexpr = LENGTH - LENGTH % 8
        if LENGTH < 8:
            total = _square(points, queries, START)
            for j in tl.static_range(1, LENGTH):
                total += _square(points, queries, START + j)
        else:
            eight = START + tl.arange(0, 8)[None, None, :]
            sums = _square(points[:, :, None], queries[:, :, None], eight)
            if UNROLL:
                for j in tl.static_range(8, IN_EIGHTS, 8):
                    sums += _square(points[:, :, None], queries[:, :, None], eight + j)
            else:
                for j in range(8, IN_EIGHTS, 8):
                    sums += _square(points[:, :, None], queries[:, :, None], eight + j)
            PAIRS: tl.constexpr = points.shape[0]
            SIZE: tl.constexpr = points.shape[1]
            # Each of these sums has two terms, so their order does not matter.
            fours = tl.sum(tl.reshape(sums, (PAIRS, SIZE, 4, 2)), axis=3)
            twos = tl.sum(tl.reshape(fours, (PAIRS, SIZE, 2, 2)), axis=3)
            total = tl.sum(twos, axis=2)
            for j in tl.static_range(IN_EIGHTS, LENGTH):
                total += _square(points, queries, START + j)
    return total


@triton.jit  # type: ignore[untyped-decorator]
def measure(  # type: ignore[no-untyped-def]
    points, numbers, queries, query, block, SIZE: tl.constexpr, WIDTH: tl.constexpr
):
    """Distances and row numbers of pairs of a query and a block, both of shape (pairs, SIZE)."""
    row = block.to(tl.int64)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    number = tl.load(numbers + row)
    squared = _sum_of_squares(
        points + row * WIDTH,
        queries + query.to(tl.int64)[:, None] * WIDTH,
        0,
        WIDTH,
        UNROLL=WIDTH <= LEAF,
    )
    return tl.where(number == NO_ROW, float("inf"), tl.sqrt(squared)), number


@triton.jit  # type: ignore[untyped-decorator]
def nearest_of(distance, number):  # type: ignore[no-untyped-def]
    """The lowest distance of each pair and the lowest number that has it."""
    nearest = tl.min(distance, axis=1)
    return nearest, tl.min(tl.where(distance == nearest[:, None], number, NO_ROW), axis=1)


@triton.jit  # type: ignore[untyped-decorator]
def nearest_of_pairs(  # type: ignore[no-untyped-def]
    points,  # (n_blocks * SIZE, WIDTH), float32
    numbers,  # (n_blocks * SIZE,), int64
    queries,  # (n_queries, WIDTH), float32
    query,  # (n_pairs,), int64
    block,  # (n_pairs,), int64
    n_pairs,
    distance_out,  # (FEW, n_pairs), float64
    number_out,  # (FEW, n_pairs), int64
    PAIRS: tl.constexpr,
    SIZE: tl.constexpr,
    WIDTH: tl.constexpr,
    FEW: tl.constexpr,
):
    """The nearest rows of each pair: their distances and numbers, the lowest number on ties."""
    pair = tl.program_id(0) * PAIRS + tl.arange(0, PAIRS)
    exists = pair < n_pairs
    q = tl.load(query + pair, mask=exists, other=0)
    b = tl.load(block + pair, mask=exists, other=0)
    distance, number = measure(points, numbers, queries, q, b, SIZE, WIDTH)
    for rank in tl.static_range(FEW):
        nearest, lowest = nearest_of(distance, number)
        tl.store(distance_out + pair, nearest, mask=exists)
        tl.store(number_out + pair, lowest, mask=exists)
        if rank + 1 < FEW:
            is_stored = number == lowest[:, None]
            distance = tl.where(is_stored, float("inf"), distance)
            number = tl.where(is_stored, NO_ROW, number)
            distance_out += n_pairs
            number_out += n_pairs


@triton.jit  # type: ignore[untyped-decorator]
def distances_of_pairs(  # type: ignore[no-untyped-def]
    points,
    numbers,
    queries,
    query,
    block,
    n_pairs,
    distance_out,  # (n_pairs, SIZE), float64
    PAIRS: tl.constexpr,
    SIZE: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """The distances to all rows of each pair; inf for padding."""
    pair = tl.program_id(0) * PAIRS + tl.arange(0, PAIRS)
    exists = pair < n_pairs
    q = tl.load(query + pair, mask=exists, other=0)
    b = tl.load(block + pair, mask=exists, other=0)
    distance, _ = measure(points, numbers, queries, q, b, SIZE, WIDTH)
    out = pair.to(tl.int64)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    tl.store(distance_out + out, distance, mask=exists[:, None])
