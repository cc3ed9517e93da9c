"""Bounds of blocks without a matrix of distances, and what is within a limit.

The bounds are those of `torch.bounds`, whose proof names the numbers used here. The rows of a tile
come in stripes of a few rows, interleaved, so that lanes share no work: row r is of stripe
r % STRIPES. A block is one or several successive stripes.
"""

from __future__ import annotations

import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]

NO_BLOCK = tl.constexpr(2**31 - 1)


@triton.jit  # type: ignore[untyped-decorator]
def block_minima(  # type: ignore[no-untyped-def]
    rows,  # (n_tiles * TILE_R, N_STEPS * STEP): row r of a tile is of stripe r % STRIPES
    half_norms,  # (n_tiles * TILE_R,), in the same order; huge for padding
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
    STRIPES: tl.constexpr,
    SHARE: tl.constexpr,
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
        products = multiply(first_query, tl.load(row_at), WIDEN)
        for step in range(1, N_STEPS):
            products += multiply(
                tl.load(query_at + step * STEP), tl.load(row_at + step * STEP), WIDEN
            )
        half_norm = tl.load(half_norms + tile * TILE_R + r)
        bounds = half_norm[None, :] * scale - products
        low = tl.min(tl.reshape(bounds, (TILE_Q, TILE_R // STRIPES, STRIPES)), axis=1)
        if STRIPES > SHARE:
            low = tl.min(tl.reshape(low, (TILE_Q, SHARE, STRIPES // SHARE)), axis=2)
        block = tile * SHARE + s
        low -= tl.load(losses + block)[None, :] * norm
        low -= tl.load(lengths + block)[None, :] * error
        tl.store(minima + block.to(tl.int64)[None, :] * stride + q[:, None], low)


@triton.jit  # type: ignore[untyped-decorator]
def multiply(a, b, WIDEN: tl.constexpr):  # type: ignore[no-untyped-def]
    if WIDEN:  # the interpreter warns for fp16
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b)


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


is_interpreted: bool = not isinstance(block_minima, triton.runtime.JITFunction)
