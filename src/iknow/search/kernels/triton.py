"""Triton's kernels for a search on a GPU: no matrix of distances is ever written.

Rows lie in tiles: as many as a program multiplies at once, one or several successive blocks. The
rows of a tile come in stripes of a few successive rows, interleaved, so that the lanes of a program
find the minimum of a stripe without sharing work: row r of a tile is of stripe r % STRIPES. The
bounds are those of `iknow.search.bounds`, whose proof names the numbers used here.

**Winners** settle the nearest row of each class with two numbers for each query and tile, in place
of one for each block: `low`, a bound for every row of the tile, whose last bits name the stripe
that has it, and `second`, a bound for every row but those of that stripe. In the tile of a class
with the lowest low we measure that stripe in float64: a few rows. Let D be the distance found. No
other row of the class can be as near if

    second of that tile > limit of D    and    low of each other tile of the class > limit of D,

and then the class is settled: about 99 of 100 are. For the rest, we measure the named stripe of
each tile whose low is within the limit, and all its rows if its second is, too. A row at D exactly
counts if its number is lower, and the limit of D admits it.
"""

# mypy: disable-error-code="no-untyped-call, no-untyped-def, untyped-decorator"
from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor

from iknow.core.arrays import Floats32, Ints
from iknow.pages import slices
from iknow.search.engine import Found, Groups
from iknow.search.kernels.torch import (
    FAR_EXPONENT,
    LAST_BITS,
    PADDING,
    SMALLEST_FACTOR,
    TOP_EXPONENT,
    QueryBounds,
    TorchBlocks,
)
from iknow.search.kernels.triton_measure import (
    NO_ROW,
    list_leaves,
    measure_nearest,
    nearest_of_pairs,
)

TILE_QUERIES, TILE_ROWS, WARPS, STAGES = 128, 128, 4, 4
"""Of a program that multiplies: the fastest of 36 tilings on an H200."""
PROGRAMS_WANTED = 16384  # many waves of programs, so that the last one is short
FEWEST_TILES = 16  # of a program: fewer would not pay for its start
MOST_PADDING = 1.25  # rows of tiles to rows
QUERIES_AT_ONCE = 16
ROWS_PER_PROGRAM = 128
BLOCKS_AT_ONCE, NUMBERS_AT_ONCE = 32, 4096
LIST_TILES, LIST_QUERIES = 16, 128
CAPACITY = 1 << 22
NO_BLOCK = tl.constexpr(2**31 - 1)
TOP = tl.constexpr(TOP_EXPONENT)
SMALLEST = tl.constexpr(SMALLEST_FACTOR["fp16"])


class TritonBlocks(TorchBlocks):
    """Blocks on a GPU or, for tests, on the CPU in Triton's interpreter; factors are fp16.

    Each class gets whole tiles, unless too much of them would be padding.
    """

    def __init__(
        self, points: Floats32, labels: Ints, numbers: Ints, size: int, device: torch.device
    ) -> None:
        self.share = max(1, TILE_ROWS // size)  # blocks of a tile
        self.rows = self.share * size
        counts = np.unique_counts(labels).counts
        in_tiles = (-(-counts // self.rows) * self.rows).sum()
        together = self.share if in_tiles <= MOST_PADDING * len(labels) else 1
        super().__init__(points, labels, numbers, size, device, "fp16", together)

    def find(self, queries: Tensor, k: int, m: int) -> Found:
        """What `engine.find` finds; the nearest row of each class alone by winners."""
        with torch.cuda.device_of(queries):  # where kernels run, whichever device is current
            if (k, m) != (0, 1) or not self.have_winners:
                return super().find(queries, k, m)
            nearest, number = self._settle(queries.contiguous())
            return Found(nearest[None], number[None], nearest[:0])

    def bound(self, queries: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        bounds = self.bound_queries(queries)
        minima = queries.new_empty(self.n_tiles * self.share, len(bounds.low))
        self._multiply(bounds, minima)
        return minima[: self.n_blocks, : len(queries)], bounds.to_limits

    def lowest(
        self, minima: Tensor, starts: Tensor, ends: Tensor, step: int, *, other: bool = False
    ) -> tuple[Tensor, Tensor]:
        """As in `TorchBlocks`; other: in place of the lowest minimum, that of the other blocks."""
        n_sets, n = len(starts), minima.shape[1]
        low = minima.new_empty(n_sets, n)
        block = torch.empty_like(low, dtype=torch.int64)
        of_each = triton.cdiv(len(minima), n_sets)
        at_once = min(BLOCKS_AT_ONCE, triton.next_power_of_2(of_each))
        tile_queries = NUMBERS_AT_ONCE // at_once
        lowest_of_sets[(n_sets, triton.cdiv(n, tile_queries))](
            *(minima, starts, ends, step, low, block, minima.stride(0), n),
            AT_ONCE=at_once,
            TILE_Q=tile_queries,
            OTHER=other,
        )
        return low, block

    def within(
        self, minima: Tensor, limits: Tensor, groups: Groups, at_once: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        n_queries = limits.shape[1]
        for block, column in list_within(minima, limits.contiguous(), groups.ranks, at_once):
            for part in slices(len(block), at_once):
                yield block[part].long(), column[part] % n_queries

    def candidates(
        self, queries: Tensor, query: Tensor, block: Tensor, m: int
    ) -> tuple[Tensor, Tensor]:
        few, n = self.count_candidates(m), len(query)
        distance = queries.new_empty(few, n, dtype=torch.float64)
        number = torch.empty_like(distance, dtype=torch.int64)
        pairs = max(1, ROWS_PER_PROGRAM // self.size)
        nearest_of_pairs[(triton.cdiv(n, pairs),)](
            *(self.points, self.numbers, queries.contiguous(), self.leaves),
            *(query.contiguous(), block.contiguous(), n, few, distance, number),
            **self.measuring | {"PAIRS": pairs, "SIZE": self.size},
        )
        return distance, number

    def count_candidates(self, m: int) -> int:
        return min(m, self.size)

    def bound_queries(self, queries: Tensor) -> QueryBounds:
        """The numbers of float32 queries of shape (n_queries, n_features), padded for tiles."""
        n, frame = len(queries), self.frame
        n_padded = triton.cdiv(n, TILE_QUERIES) * TILE_QUERIES
        low = self.low.new_empty(n_padded, self.width)
        numbers = queries.new_empty(3, n_padded)
        half_norms = queries.new_empty(n, dtype=torch.float64)
        # Where bounds are of no use, every query is far.
        far = FAR_EXPONENT if frame.error else -(2**11)
        bound_queries[(triton.cdiv(n_padded, QUERIES_AT_ONCE),)](
            *(queries, frame.center, self.constants, low, numbers, half_norms),
            *(n, self.n_features, n_padded, far),
            TILE_Q=QUERIES_AT_ONCE,
            STEP=self.step,
            WIDTH=self.width,
        )
        scales, norms, errors = numbers
        return QueryBounds(frame, low, scales, norms, errors, half_norms)

    def _multiply(self, queries: QueryBounds, lows: Tensor, seconds: Tensor | None = None) -> None:
        """Bound all blocks or, if there are seconds, tiles; see `bound_tiles`."""
        n_padded, has_seconds = len(queries.low), seconds is not None
        n_query_tiles = n_padded // TILE_QUERIES
        n_parts = min(self.n_tiles, triton.cdiv(PROGRAMS_WANTED, n_query_tiles))
        tiles_each = max(triton.cdiv(self.n_tiles, n_parts), min(FEWEST_TILES, self.n_tiles))
        bound_tiles[(n_query_tiles, triton.cdiv(self.n_tiles, tiles_each))](
            *(self.low, self.half_norms, *(self.of_tiles if has_seconds else self.of_blocks)),
            *(queries.low, queries.scales, queries.norms, queries.errors),
            *(lows, seconds, n_padded, self.n_tiles, tiles_each),
            STEP=self.step,
            N_STEPS=self.width // self.step,
            TILE_Q=TILE_QUERIES,
            TILE_R=self.rows,
            STRIPES=self.n_stripes,
            SHARE=0 if has_seconds else self.share,
            num_warps=WARPS,
            num_stages=STAGES,
        )

    def _settle(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Distance and number of the nearest row of each class, by winners.

        Both of shape (n_inhabited, n_queries). A column is rank * n_queries + query, of a class
        with rows and a query.
        """
        bounds, n = self.bound_queries(queries), len(queries)
        lows, seconds = queries.new_empty(2, self.n_tiles, len(bounds.low))
        self._multiply(bounds, lows, seconds)
        starts, ends = self.tile_starts[:-1], self.tile_starts[1:]
        others, tiles = self.lowest(lows[:, :n], starts, ends, 1, other=True)
        nearest = torch.empty_like(tiles, dtype=torch.float64)
        number, limits = torch.empty_like(tiles), torch.empty_like(others)
        stored = self.points, self.numbers, queries, self.leaves
        names, sizes = lows.view(torch.int32), {"SIZE": self.stripe, "STRIPES": self.n_stripes}
        pairs = max(1, ROWS_PER_PROGRAM // self.stripe)
        measure_winners[(triton.cdiv(tiles.numel(), pairs),)](
            *(*stored, bounds.half_norms, bounds.scales, self.constants, names, seconds),
            *(tiles, others, lows.stride(0), n, tiles.numel(), nearest, number, limits),
            **self.measuring | sizes | {"PAIRS": pairs},
        )
        for tile, column in list_within(lows[:, :n], limits, self.tile_ranks, CAPACITY):
            distance = queries.new_empty(len(tile), dtype=torch.float64)
            row = torch.empty_like(column)
            measure_open[(len(tile),)](
                *(*stored, names, seconds, limits, tile, column, lows.stride(0), n, distance, row),
                **self.measuring | sizes | {"num_warps": 2},
            )
            # All rows that may be nearest are listed, so the number found before is listed, too.
            nearest.view(-1).scatter_reduce_(0, column, distance, "amin")
            row = torch.where(distance == nearest.view(-1)[column], row, NO_ROW.value)
            number.view(-1).index_fill_(0, column, NO_ROW.value)
            number.view(-1).scatter_reduce_(0, column, row, "amin")
        return nearest, number

    def _prepare(self) -> None:  # type: ignore[override]
        """The numbers of all rows in tiles, and of their blocks."""
        device, n_features = self.device, self.n_features
        self.n_tiles: int = triton.cdiv(self.n_blocks, self.share)
        # Small stripes cost minima to compare, large ones rows to measure. The optimum scales with
        # the root of tiles / (classes * features); the factor is measured.
        balance = np.sqrt(5 * self.n_tiles / (len(self.classes) * n_features))
        self.stripe = stripe = min(int(np.clip(2 ** round(np.log2(balance)), 4, 32)), self.size)
        self.n_stripes = self.rows // stripe
        # No tile holds rows of two classes, and the last bits can name a stripe.
        self.have_winners = self.together % self.share == 0 and self.n_stripes <= 1 << LAST_BITS
        # Products run in steps of 64 columns, or in one step with fewer columns.
        self.step = 64 if n_features > 64 else triton.next_power_of_2(max(16, n_features))
        self.width: int = triton.cdiv(n_features, self.step) * self.step
        shape = self.n_tiles, stripe, self.n_stripes
        low = torch.zeros(*shape, self.width, dtype=torch.float16, device=device)
        half_norms = torch.full(shape, PADDING, device=device)
        self.of_blocks = torch.zeros(2, self.n_tiles * self.share, device=device)
        for part, (factors, halves, *losses_and_lengths) in self._bound_rows(self.frame):
            self.of_blocks[:, part] = torch.stack(losses_and_lengths)
            first, end = part.start * self.size // stripe, part.stop * self.size // stripe
            number = torch.arange(first, end, device=device)
            at = number // self.n_stripes, slice(None), number % self.n_stripes
            half_norms[at] = halves.view(-1, stripe)
            low[*at, :n_features] = factors.view(-1, stripe, n_features)
        self.low, self.half_norms = low.view(-1, self.width), half_norms.flatten()
        self.of_tiles = self.of_blocks.view(2, -1, self.share).amax(2)
        self.tile_starts = self.by_class.starts // self.share
        self.tile_ranks = self.by_class.ranks[:: self.share].contiguous()
        numbers = self.frame.scale, 1 + self.frame.slack, self.frame.error
        constants = *numbers, *self.frame.constants_of_limits
        self.constants = torch.tensor(constants, dtype=torch.float64, device=device)
        leaves = list_leaves(n_features)
        self.leaves = torch.tensor(leaves, dtype=torch.int32, device=device)
        self.measuring = {
            "WIDTH": n_features,
            "N_LEAVES": len(leaves),
            "num_warps": 4,
            "enable_fp_fusion": False,  # fused operations round once where numpy rounds twice
        }


def list_within(
    bounds: Tensor, limits: Tensor, ranks: Tensor, at_once: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Tiles, or blocks, and columns whose bound is within its limit, in any order.

    bounds: of shape (n_tiles, n_queries). limits: (n_limits, n_queries): a column is a place there.
    ranks: each tile's limit, (n_tiles,). at_once: pairs to list at once, or more if a single query
    has more. Tiles are int32, columns int64.
    """
    (n_tiles, n_queries), device = bounds.shape, bounds.device
    capacity = min(bounds.numel(), max(at_once, n_tiles))
    asked = [(0, n_queries)]
    while asked:
        first, end = asked.pop()
        tile = torch.empty(capacity, dtype=torch.int32, device=device)
        column = torch.empty_like(tile, dtype=torch.int64)
        count = torch.zeros(1, dtype=torch.int64, device=device)
        list_columns[(triton.cdiv(n_tiles, LIST_TILES), triton.cdiv(end - first, LIST_QUERIES))](
            *(bounds, limits, ranks, tile, column, count, capacity),
            *(bounds.stride(0), n_tiles, n_queries, first, end),
            TILE_T=LIST_TILES,
            TILE_Q=LIST_QUERIES,
        )
        n = int(count)
        if n > capacity:  # never with a single query
            middle = (first + end) // 2
            asked += [(first, middle), (middle, end)]
        elif n:
            yield tile[:n], column[:n]


# Kernels. What several of them are given, float32 unless said:
#
# points: (n_slots, WIDTH), a slot for each row and for padding. numbers: (n_slots,), int64: those
# of the rows. queries: (n_queries, WIDTH). leaves: (N_LEAVES, 3), int32: of `list_leaves`.
# constants: (6,), float64: scale of the frame, 1 + slack, error, then `Frame.constants_of_limits`.
# lows, seconds: (n_tiles, stride); where names are read, lows are int32. limits: (n_limits,
# n_queries). distance_out, distances: float64. number_out: int64.
#
# First the numbers of queries, of `QueryBounds`, in one pass over the queries.


@triton.jit
def bound_queries(
    queries, center, constants, low_out, numbers_out, half_norm_out, n_queries, n_features,
    n_padded, far, TILE_Q: tl.constexpr, STEP: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Program i: queries i * TILE_Q and on; beyond `far`, an exponent, there are no bounds.

    queries: (n_queries, n_features). center: (n_features,), float64. low_out: (n_padded, WIDTH),
    fp16; zero beyond the features. numbers_out: (3, n_padded): scales, norms and errors.
    half_norm_out: (n_queries,), float64; -inf where there are no bounds.
    """
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
    is_far = exponent > far
    shift = tl.where(is_far, 0, -tl.maximum(exponent - TOP, 0))
    factor = ((shift + 1023) << 52).to(tl.float64, bitcast=True)
    norm = tl.zeros((TILE_Q,), tl.float64)
    lost = tl.zeros((TILE_Q,), tl.float64)
    kept = tl.zeros((TILE_Q,), tl.float64)
    for first in range(0, WIDTH, STEP):
        placed = _place(queries, center, scale, q, is_query, first, n_features, STEP)
        scaled = tl.where(is_far[:, None], 0.0, placed * factor[:, None])
        single = tl.where(tl.abs(scaled) < SMALLEST, 0.0, scaled).to(tl.float32)
        low = single.to(low_out.dtype.element_ty)
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
    half_norm = tl.where(is_far, float("-inf"), whole / 2)
    tl.store(half_norm_out + q, half_norm, mask=is_query)


@triton.jit
def _place(queries, center, scale, q, is_query, first, n_features, STEP: tl.constexpr):
    """X of the columns from `first`, in float64; 0 for padding."""
    column = first + tl.arange(0, STEP)
    is_feature = column < n_features
    mask = is_query[:, None] & is_feature[None, :]
    at = queries + q.to(tl.int64)[:, None] * n_features + column[None, :]
    middle = tl.load(center + column, mask=is_feature, other=0.0)
    placed = (tl.load(at, mask=mask, other=0.0).to(tl.float64) - middle[None, :]) * scale
    return tl.where(mask, placed, 0.0)


@triton.jit
def _rounded_up(values):
    """Values >= 0 in float32, rounded up and away from underflow."""
    bits = values.to(tl.float32).to(tl.int32, bitcast=True) + 1
    return tl.maximum(bits.to(tl.float32, bitcast=True), 7.888609052210118e-31)


# The bounds of blocks and tiles, and what is within a limit.


@triton.jit
def bound_tiles(
    rows, half_norms, losses, lengths, queries, scales, norms, errors, lows, seconds, stride,
    n_tiles, tiles_each, STEP: tl.constexpr, N_STEPS: tl.constexpr, TILE_Q: tl.constexpr,
    TILE_R: tl.constexpr, STRIPES: tl.constexpr, SHARE: tl.constexpr,
):  # fmt: skip
    """Lower bounds of all tiles, or of their blocks; program (i, j): queries i, tiles j.

    SHARE: the number of blocks of a tile, whose bounds go to lows, of shape (n_tiles * SHARE,
    stride). If it is 0, lows and seconds are those of winners. The stripe that a second leaves out
    is the one that the low names, so the second is right whichever it is.

    rows: (n_tiles * TILE_R, N_STEPS * STEP), fp16: row r of a tile is of stripe r % STRIPES.
    half_norms: (n_tiles * TILE_R,), in the same order; huge for padding. losses, lengths: of each
    tile or block. queries: (stride, N_STEPS * STEP), fp16. scales, norms, errors: (stride,).
    """
    WIDTH: tl.constexpr = STEP * N_STEPS
    q = tl.program_id(0) * TILE_Q + tl.arange(0, TILE_Q)
    r = tl.arange(0, TILE_R)
    k = tl.arange(0, STEP)
    scale = tl.load(scales + q)[:, None]
    norm = tl.load(norms + q)
    error = tl.load(errors + q)
    query_at = queries + q.to(tl.int64)[:, None] * WIDTH + k[None, :]
    first_query = tl.load(query_at)
    first = tl.program_id(1) * tiles_each
    for tile in range(first, tl.minimum(first + tiles_each, n_tiles)):
        row_at = rows + (tile * TILE_R + r).to(tl.int64)[None, :] * WIDTH + k[:, None]
        products = tl.dot(first_query, tl.load(row_at))
        for step in range(1, N_STEPS):
            products += tl.dot(tl.load(query_at + step * STEP), tl.load(row_at + step * STEP))
        half_norm = tl.load(half_norms + tile * TILE_R + r)
        bounds = half_norm[None, :] * scale - products
        low = tl.min(tl.reshape(bounds, (TILE_Q, TILE_R // STRIPES, STRIPES)), axis=1)
        if SHARE == 0:
            stripe = tl.arange(0, STRIPES)[None, :]
            named = _name(low, stripe, STRIPES)
            low = tl.min(named, axis=1)
            winner = low.to(tl.int32, bitcast=True) & (STRIPES - 1)
            second = tl.min(tl.where(stripe == winner[:, None], float("inf"), named), axis=1)
            lost = tl.load(losses + tile) * norm + tl.load(lengths + tile) * error
            at = (tl.zeros((TILE_Q,), tl.int64) + tile) * stride + q
            tl.store(lows + at, _name(low - lost, winner, STRIPES))
            tl.store(seconds + at, second - lost)
        else:
            if STRIPES > SHARE:
                low = tl.min(tl.reshape(low, (TILE_Q, SHARE, STRIPES // SHARE)), axis=2)
            block = tile * SHARE + tl.arange(0, SHARE)
            low -= tl.load(losses + block)[None, :] * norm[:, None]
            low -= tl.load(lengths + block)[None, :] * error[:, None]
            tl.store(lows + block.to(tl.int64)[None, :] * stride + q[:, None], low)


@triton.jit
def _name(bounds, stripe, STRIPES: tl.constexpr):
    """Bounds with the number of a stripe in place of their last bits."""
    bits = (bounds.to(tl.int32, bitcast=True) & -STRIPES) | stripe
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def lowest_of_sets(
    values, starts, ends, step, low_out, block_out, stride, n_queries, AT_ONCE: tl.constexpr,
    TILE_Q: tl.constexpr, OTHER: tl.constexpr,
):  # fmt: skip
    """The lowest value of each set and the first block that has it; program (i, j): set i.

    values: (at least all blocks, stride). starts, ends: (n_sets,), int64: a set is start, start +
    step, ... below its end. low_out: (n_sets, n_queries); with OTHER the lowest value of the other
    blocks. block_out: (n_sets, n_queries), int64.
    """
    i = tl.program_id(0).to(tl.int64)
    q = tl.program_id(1) * TILE_Q + tl.arange(0, TILE_Q)
    is_query = q < n_queries
    start, end = tl.load(starts + i).to(tl.int32), tl.load(ends + i).to(tl.int32)
    low = tl.full((TILE_Q,), float("inf"), tl.float32)
    other = low
    best = tl.zeros((TILE_Q,), tl.int32) + start
    for first in range(start, end, step * AT_ONCE):
        block = first + step * tl.arange(0, AT_ONCE)
        value = tl.load(
            values + block.to(tl.int64)[:, None] * stride + q[None, :],
            mask=(block < end)[:, None] & is_query[None, :],
            other=float("inf"),
        )
        here = tl.min(value, axis=0)
        where = tl.min(tl.where(value == here[None, :], block[:, None], NO_BLOCK), axis=0)
        if OTHER:
            rest = tl.min(tl.where(block[:, None] == where[None, :], float("inf"), value), axis=0)
            other = tl.minimum(tl.minimum(other, rest), tl.maximum(low, here))
        best = tl.where(here < low, where, best)
        low = tl.minimum(low, here)
    tl.store(low_out + i * n_queries + q, other if OTHER else low, mask=is_query)
    tl.store(block_out + i * n_queries + q, best.to(tl.int64), mask=is_query)


@triton.jit
def list_columns(
    bounds, limits, ranks, tile_out, column_out, count, capacity, stride, n_tiles, n_queries,
    first_query, end_query, TILE_T: tl.constexpr, TILE_Q: tl.constexpr,
):  # fmt: skip
    """As `list_within`, of the queries from first_query to end_query.

    bounds: (n_tiles, stride). ranks: (n_tiles,), int64. tile_out: (capacity,), int32. column_out:
    (capacity,), int64. count: (1,), int64: how many there are, perhaps more than the capacity; 0
    before.
    """
    tile = tl.program_id(0) * TILE_T + tl.arange(0, TILE_T)
    q = first_query + tl.program_id(1) * TILE_Q + tl.arange(0, TILE_Q)
    exists = (tile < n_tiles)[:, None] & (q < end_query)[None, :]
    rank = tl.load(ranks + tile, mask=tile < n_tiles, other=0)
    column = rank[:, None] * n_queries + q[None, :]
    low = tl.load(bounds + tile.to(tl.int64)[:, None] * stride + q[None, :], mask=exists, other=0.0)
    limit = tl.load(limits + column, mask=exists, other=float("-inf"))
    listed = exists & (low <= limit)
    flat = tl.reshape(listed.to(tl.int32), (TILE_T * TILE_Q,))
    total = tl.sum(flat, axis=0)
    if total > 0:
        first = tl.atomic_add(count, total.to(tl.int64))
        place = tl.reshape(tl.cumsum(flat, axis=0), (TILE_T, TILE_Q)) - 1 + first
        listed = listed & (place < capacity)
        tiles = tl.zeros((TILE_T, TILE_Q), tl.int32) + tile[:, None]
        tl.store(tile_out + place, tiles, mask=listed)
        tl.store(column_out + place, column, mask=listed)


# Winners.


@triton.jit
def measure_winners(
    points, numbers, queries, leaves, half_norms, scales, constants, lows, seconds, tiles, others,
    stride, n_queries, n_columns, distance_out, number_out, limit_out, PAIRS: tl.constexpr,
    STRIPES: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr, N_LEAVES: tl.constexpr,
):  # fmt: skip
    """The nearest row of the winner, and the limit of its distance, -inf if nothing else is within.

    A column is settled if its limit is -inf. half_norms, scales: (n_queries,), as in `QueryBounds`.
    tiles, int64, others and what goes out: (n_columns,).
    """
    column = tl.program_id(0).to(tl.int64) * PAIRS + tl.arange(0, PAIRS)
    exists = column < n_columns
    q = column % n_queries
    tile = tl.load(tiles + column, mask=exists, other=0)
    at = tile * stride + q
    stripe = tile * STRIPES + (tl.load(lows + at) & (STRIPES - 1))
    stored = points, numbers, queries, leaves
    nearest, lowest = measure_nearest(stored, q, stripe, SIZE, WIDTH, N_LEAVES)
    # As `QueryBounds.to_limits`.
    reach = tl.load(constants + 3) * (nearest * nearest)
    reach -= tl.load(constants + 4) * tl.load(half_norms + q)
    limit = (reach * tl.load(scales + q).to(tl.float64) + tl.load(constants + 5)).to(tl.float32)
    bits = limit.to(tl.int32, bitcast=True)
    upward = tl.where(limit > 0, bits + 1, tl.where(limit < 0, bits - 1, 1))
    upward = upward.to(tl.float32, bitcast=True)
    limit = tl.where(limit == float("inf"), limit, upward)
    other = tl.minimum(tl.load(seconds + at), tl.load(others + column, mask=exists, other=0.0))
    tl.store(distance_out + column, nearest, mask=exists)
    tl.store(number_out + column, lowest, mask=exists)
    tl.store(limit_out + column, tl.where(other <= limit, limit, float("-inf")), mask=exists)


@triton.jit
def measure_open(
    points, numbers, queries, leaves, lows, seconds, limits, tiles, columns, stride, n_queries,
    distance_out, number_out, STRIPES: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr,
    N_LEAVES: tl.constexpr,
):  # fmt: skip
    """The nearest row of the stripe that the low of a tile names, or of the whole tile.

    Program i: entry i of the list of tiles, int32, and columns, int64; all out: (n_listed,).
    """
    i = tl.program_id(0)
    tile, column = tl.load(tiles + i).to(tl.int64), tl.load(columns + i)
    at = tile * stride + column % n_queries
    stored, zero = (points, numbers, queries, leaves), tl.zeros((1,), tl.int64)
    q = zero + column % n_queries
    if tl.load(seconds + at) <= tl.load(limits + column):
        nearest, lowest = measure_nearest(stored, q, zero + tile, STRIPES * SIZE, WIDTH, N_LEAVES)
    else:
        stripe = zero + tile * STRIPES + (tl.load(lows + at) & (STRIPES - 1))
        nearest, lowest = measure_nearest(stored, q, stripe, SIZE, WIDTH, N_LEAVES)
    tl.store(distance_out + i + tl.arange(0, 1), nearest)
    tl.store(number_out + i + tl.arange(0, 1), lowest)
