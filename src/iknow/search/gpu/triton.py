"""Kernels for `torch.by_triton`: bounds without a matrix of distances, and distances as in numpy.

The bounds are those of `torch.bounds`, whose proof names the numbers used here. All kernels also
run in Triton's interpreter.
"""

from __future__ import annotations

import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]

LEAF = tl.constexpr(128)
NO_ROW = tl.constexpr(2**63 - 1)
NO_BLOCK = tl.constexpr(2**31 - 1)


@triton.jit  # type: ignore[untyped-decorator]
def block_minima(  # type: ignore[no-untyped-def]
    rows,  # (n_tiles * TILE_R, N_STEPS * STEP): row r of a tile is of its block r % SHARE
    half_norms,  # (n_tiles * TILE_R,), in the same order; inf for padding
    losses,  # (n_tiles * SHARE,)
    lengths,  # (n_tiles * SHARE,)
    queries,  # (multiple of TILE_Q, N_STEPS * STEP)
    scales,  # (multiple of TILE_Q,), as the next two
    norms,
    errors,
    minima,  # out: (n_tiles * SHARE, stride)
    stride,
    n_tiles,
    tiles_each,
    STEP: tl.constexpr,
    N_STEPS: tl.constexpr,
    TILE_Q: tl.constexpr,
    TILE_R: tl.constexpr,
    SHARE: tl.constexpr,
    PRECISION: tl.constexpr,
    WIDEN: tl.constexpr,
):
    """Lower bounds of all blocks of TILE_R / SHARE rows; program (i, j): queries i, tiles j."""
    WIDTH: tl.constexpr = STEP * N_STEPS
    q = tl.program_id(0) * TILE_Q + tl.arange(0, TILE_Q)
    r = tl.arange(0, TILE_R)
    k = tl.arange(0, STEP)
    s = tl.arange(0, SHARE)
    scale = tl.load(scales + q)[:, None]
    norm = tl.load(norms + q)[:, None]
    error = tl.load(errors + q)[:, None]
    query_at = queries + q.to(tl.int64)[:, None] * WIDTH + k[None, :]
    first_query = tl.load(query_at)
    first = tl.program_id(1) * tiles_each
    for tile in range(first, tl.minimum(first + tiles_each, n_tiles)):
        row_at = rows + (tile * TILE_R + r).to(tl.int64)[None, :] * WIDTH + k[:, None]
        products = _multiply(first_query, tl.load(row_at), PRECISION, WIDEN)
        for step in range(1, N_STEPS):
            products += _multiply(
                tl.load(query_at + step * STEP), tl.load(row_at + step * STEP), PRECISION, WIDEN
            )
        half_norm = tl.load(half_norms + tile * TILE_R + r)
        bounds = half_norm[None, :] * scale - products
        low = tl.min(tl.reshape(bounds, (TILE_Q, TILE_R // SHARE, SHARE)), axis=1)
        block = tile * SHARE + s
        low -= tl.load(losses + block)[None, :] * norm
        low -= tl.load(lengths + block)[None, :] * error
        tl.store(minima + block.to(tl.int64)[None, :] * stride + q[:, None], low)


@triton.jit  # type: ignore[untyped-decorator]
def _multiply(a, b, PRECISION: tl.constexpr, WIDEN: tl.constexpr):  # type: ignore[no-untyped-def]
    if WIDEN:  # the interpreter cannot multiply bf16, and warns for fp16
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, input_precision=PRECISION)


@triton.jit  # type: ignore[untyped-decorator]
def lowest_of_segments(  # type: ignore[no-untyped-def]
    minima,  # (at least all blocks, stride)
    starts,  # (n_segments,): the segment is start, start + step, ... below its end
    ends,
    step,
    low_out,  # (n_segments, n_queries)
    block_out,  # (n_segments, n_queries), int64
    stride,
    n_queries,
    AT_ONCE: tl.constexpr,
    TILE_Q: tl.constexpr,
):
    """The lowest minimum of each segment and the first block that has it."""
    segment = tl.program_id(0).to(tl.int64)
    q = tl.program_id(1) * TILE_Q + tl.arange(0, TILE_Q)
    is_query = q < n_queries
    start, end = tl.load(starts + segment).to(tl.int32), tl.load(ends + segment).to(tl.int32)
    low = tl.full((TILE_Q,), float("inf"), tl.float32)
    best = tl.zeros((TILE_Q,), tl.int32) + start
    for first in range(start, end, step * AT_ONCE):
        block = first + step * tl.arange(0, AT_ONCE)
        value = tl.load(
            minima + block.to(tl.int64)[:, None] * stride + q[None, :],
            mask=(block < end)[:, None] & is_query[None, :],
            other=float("inf"),
        )
        here = tl.min(value, axis=0)
        where = tl.min(tl.where(value == here[None, :], block[:, None], NO_BLOCK), axis=0)
        best = tl.where(here < low, where, best)
        low = tl.minimum(low, here)
    out = segment * n_queries + q
    tl.store(low_out + out, low, mask=is_query)
    tl.store(block_out + out, best.to(tl.int64), mask=is_query)


@triton.jit  # type: ignore[untyped-decorator]
def _is_within(  # type: ignore[no-untyped-def]
    minima, limits, ranks, stride, n_blocks, n_queries, TILE_B: tl.constexpr, TILE_Q: tl.constexpr
):
    """Blocks, queries and a mask of shape (TILE_B, TILE_Q): where minima are within limits."""
    block = tl.program_id(0) * TILE_B + tl.arange(0, TILE_B)
    q = tl.program_id(1) * TILE_Q + tl.arange(0, TILE_Q)
    exists = (block < n_blocks)[:, None] & (q < n_queries)[None, :]
    rank = tl.load(ranks + block, mask=block < n_blocks, other=0)
    value = tl.load(
        minima + block.to(tl.int64)[:, None] * stride + q[None, :], mask=exists, other=float("inf")
    )
    limit = tl.load(limits + rank[:, None] * n_queries + q[None, :], mask=exists, other=0.0)
    return block, q, exists & (value <= limit)


@triton.jit  # type: ignore[untyped-decorator]
def count_within(  # type: ignore[no-untyped-def]
    minima,  # (at least n_blocks, stride)
    limits,  # (n_limits, n_queries)
    ranks,  # (n_blocks,), int64: which limit is for a block
    counts,  # out: one per program
    stride,
    n_blocks,
    n_queries,
    TILE_B: tl.constexpr,
    TILE_Q: tl.constexpr,
):
    """How many minima of each tile are within their limits."""
    _, _, marked = _is_within(minima, limits, ranks, stride, n_blocks, n_queries, TILE_B, TILE_Q)
    program = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    tl.store(counts + program, tl.sum(tl.sum(marked.to(tl.int32), axis=1), axis=0))


@triton.jit  # type: ignore[untyped-decorator]
def list_within(  # type: ignore[no-untyped-def]
    minima,
    limits,
    ranks,
    counts,
    offsets,  # (n_programs,), int64: the marks of all programs before
    first,  # the list starts with mark number `first`
    block_out,  # (capacity,), int64
    query_out,
    capacity,
    stride,
    n_blocks,
    n_queries,
    TILE_B: tl.constexpr,
    TILE_Q: tl.constexpr,
):
    """Block and query of the minima within their limits, one after the other."""
    program = tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)
    offset = tl.load(offsets + program) - first
    count = tl.load(counts + program)
    if (count > 0) & (offset < capacity) & (offset + count > 0):
        block, q, marked = _is_within(
            minima, limits, ranks, stride, n_blocks, n_queries, TILE_B, TILE_Q
        )
        flat = tl.reshape(marked.to(tl.int32), (TILE_B * TILE_Q,))
        place = tl.reshape(tl.cumsum(flat, axis=0), (TILE_B, TILE_Q)) - 1 + offset
        listed = marked & (place >= 0) & (place < capacity)
        zero = tl.zeros((TILE_B, TILE_Q), tl.int64)
        tl.store(block_out + place, zero + block[:, None], mask=listed)
        tl.store(query_out + place, zero + q[None, :], mask=listed)


@triton.jit
def _square(points, queries, column):  # type: ignore[no-untyped-def]
    difference = tl.load(points + column).to(tl.float64) - tl.load(queries + column).to(tl.float64)
    return difference * difference


@triton.jit  # type: ignore[untyped-decorator]
def _sum_of_squares(points, queries, START, LENGTH: tl.constexpr):  # type: ignore[no-untyped-def]
    """Σ (x_j - q_j)² over LENGTH columns from START, added as numpy does (see `torch.sums`).

    points: pointers of shape (pairs, size); queries: of shape (pairs, 1). Nothing may be fused.
    """
    if LENGTH > LEAF:
        HALF: tl.constexpr = LENGTH // 2 - (LENGTH // 2) % 8
        total = _sum_of_squares(points, queries, START, HALF)
        total += _sum_of_squares(points, queries, START + HALF, LENGTH - HALF)
    else:
        IN_EIGHTS: tl.constexpr = LENGTH - LENGTH % 8
        if LENGTH < 8:
            total = _square(points, queries, START)
            for j in tl.static_range(1, LENGTH):
                total += _square(points, queries, START + j)
        else:
            eight = START + tl.arange(0, 8)[None, None, :]
            sums = _square(points[:, :, None], queries[:, :, None], eight)
            for j in tl.static_range(8, IN_EIGHTS, 8):
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
def _measure(  # type: ignore[no-untyped-def]
    points, numbers, queries, query, block, SIZE: tl.constexpr, WIDTH: tl.constexpr
):
    """Distances and row numbers of pairs of a query and a block, both of shape (pairs, SIZE)."""
    row = block.to(tl.int64)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    number = tl.load(numbers + row)
    squared = _sum_of_squares(
        points + row * WIDTH, queries + query.to(tl.int64)[:, None] * WIDTH, 0, WIDTH
    )
    return tl.where(number == NO_ROW, float("inf"), tl.sqrt(squared)), number


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
    distance, number = _measure(points, numbers, queries, q, b, SIZE, WIDTH)
    for rank in tl.static_range(FEW):
        nearest = tl.min(distance, axis=1)
        lowest = tl.min(tl.where(distance == nearest[:, None], number, NO_ROW), axis=1)
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
    distance, _ = _measure(points, numbers, queries, q, b, SIZE, WIDTH)
    out = pair.to(tl.int64)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    tl.store(distance_out + out, distance, mask=exists[:, None])


is_interpreted: bool = not isinstance(block_minima, triton.runtime.JITFunction)
