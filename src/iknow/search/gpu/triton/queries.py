"""The numbers of queries that `torch.bounds.QueryBounds` names, in one pass over the queries."""

from __future__ import annotations

import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]


@triton.jit  # type: ignore[untyped-decorator]
def bound_queries(  # type: ignore[no-untyped-def]
    queries,  # (n_queries, n_features), float32
    center,  # (n_features,), float64
    constants,  # (3,), float64: scale of the frame, 1 + slack, error
    low_out,  # (multiple of TILE_Q, WIDTH), float16; zero beyond the features
    numbers_out,  # (3, multiple of TILE_Q), float32: scales, norms and errors
    half_norm_out,  # (n_queries,), float64; -inf where there are no bounds
    n_queries,
    n_features,
    n_padded,
    TILE_Q: tl.constexpr,
    STEP: tl.constexpr,
    WIDTH: tl.constexpr,
    SMALLEST: tl.constexpr,
    TOP: tl.constexpr,
    FAR: tl.constexpr,
    TRUSTED: tl.constexpr,
):
    """Program i: queries i * TILE_Q and on."""
    q = tl.program_id(0) * TILE_Q + tl.arange(0, TILE_Q)
    is_query = q < n_queries
    scale = tl.load(constants)
    worse = tl.load(constants + 1)
    largest = tl.zeros((TILE_Q,), tl.float64)
    whole = tl.zeros((TILE_Q,), tl.float64)
    for first in range(0, n_features, STEP):
        placed = _place(queries, center, scale, q, is_query, first, n_features, STEP)
        largest = tl.maximum(largest, tl.max(tl.abs(placed), axis=1))
        whole += tl.sum(placed * placed, axis=1)
    # A double is 1.m · 2^(b - 1023), with the biased exponent b in bits 52 to 62.
    exponent = ((largest.to(tl.int64, bitcast=True) >> 52) & 0x7FF) - 1022
    is_far = exponent > FAR
    shift = tl.where(is_far, 0, tl.minimum(TOP - exponent, 0))
    factor = ((shift + 1023) << 52).to(tl.float64, bitcast=True)
    norm = tl.zeros((TILE_Q,), tl.float64)
    lost = tl.zeros((TILE_Q,), tl.float64)
    kept = tl.zeros((TILE_Q,), tl.float64)
    for first in range(0, WIDTH, STEP):
        placed = _place(queries, center, scale, q, is_query, first, n_features, STEP)
        scaled = tl.where(is_far[:, None], 0.0, placed * factor[:, None])
        single = tl.where(tl.abs(scaled) < SMALLEST, 0.0, scaled).to(tl.float32)
        low = single.to(tl.float16)
        column = first + tl.arange(0, STEP)
        tl.store(low_out + q.to(tl.int64)[:, None] * WIDTH + column[None, :], low)
        exact = low.to(tl.float32).to(tl.float64)
        norm += tl.sum(scaled * scaled, axis=1)
        lost += tl.sum((scaled - exact) * (scaled - exact), axis=1)
        kept += tl.sum(exact * exact, axis=1)
    norm = tl.sqrt(norm)
    error = tl.sqrt(lost) + 2.220446049250313e-16 * norm + tl.load(constants + 2) * tl.sqrt(kept)
    tl.store(numbers_out + q, factor.to(tl.float32))
    tl.store(numbers_out + n_padded + q, _rounded_up(norm * worse))
    tl.store(numbers_out + 2 * n_padded + q, _rounded_up(error * worse))
    if TRUSTED:
        half = tl.where(is_far, float("-inf"), whole / 2)
    else:
        half = tl.full((TILE_Q,), float("-inf"), tl.float64)
    tl.store(half_norm_out + q, half, mask=is_query)


@triton.jit  # type: ignore[untyped-decorator]
def _place(queries, center, scale, q, is_query, first, n_features, STEP: tl.constexpr):  # type: ignore[no-untyped-def]
    """X of the columns from `first`, in float64; 0 for padding."""
    column = first + tl.arange(0, STEP)
    is_feature = column < n_features
    mask = is_query[:, None] & is_feature[None, :]
    at = queries + q.to(tl.int64)[:, None] * n_features + column[None, :]
    middle = tl.load(center + column, mask=is_feature, other=0.0)
    placed = (tl.load(at, mask=mask, other=0.0).to(tl.float64) - middle[None, :]) * scale
    return tl.where(mask, placed, 0.0)


@triton.jit
def _rounded_up(values):  # type: ignore[no-untyped-def]
    """Values >= 0 in float32, rounded up and away from underflow."""
    bits = values.to(tl.float32).to(tl.int32, bitcast=True) + 1
    return tl.maximum(bits.to(tl.float32, bitcast=True), 7.888609052210118e-31)
