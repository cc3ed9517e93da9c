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

# mypy: disable-error-code="no-untyped-def, untyped-decorator"
from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
import triton  # type: ignore[import-untyped]
import triton.language as tl  # type: ignore[import-untyped]
from torch import Tensor

from iknow.core.arrays import Floats32, Ints
from iknow.search.engine import Found, Groups
from iknow.search.kernels.torch import (
    FAR_EXPONENT,
    LAST_BITS,
    LEAF,
    PADDING,
    SMALLEST_FACTOR,
    TOP_EXPONENT,
    QueryBounds,
    TorchBlocks,
)

PROGRAMS_WANTED = 16384  # many waves of programs, so that the last one is short
FEWEST_TILES = 16  # of a program: fewer would not pay for its start
MOST_PADDING = 1.25  # rows of tiles to rows
QUERIES_AT_ONCE = 16
ROWS_PER_PROGRAM = 128
TILE_BLOCKS, TILE_QUERIES = 16, 128
BLOCKS_AT_ONCE = 32
MOST_RANKED = 16  # rows of a block that a kernel ranks: each takes the compiler time
CAPACITY = 1 << 22
TILES_AT_ONCE, NUMBERS_AT_ONCE = 32, 4096
LISTED_AT_ONCE = 256
WARPS_FOR_ONE = 2  # entry of a list
NO_ROW = tl.constexpr(2**63 - 1)
NO_BLOCK = tl.constexpr(2**31 - 1)


class Tiling(NamedTuple):
    """How the products are tiled: queries and rows of a tile, warps and stages of a program.

    stripe: rows of a stripe; by default as `choose_stripe` says.
    """

    queries: int
    rows: int
    warps: int
    stages: int
    stripe: int | None = None


TILING = Tiling(128, 128, 4, 4)
"""Measured on an H200 by `benchmarks/gpu.py --tune`."""


class TritonBlocks(TorchBlocks):
    """Blocks on a GPU or, for tests, on the CPU in Triton's interpreter; factors are fp16.

    tiling: of the products. together: as in `TorchBlocks`; by default whole tiles, unless too much
    of them would be padding. The other arguments are those of `TorchBlocks`.
    """

    def __init__(
        self,
        points: Floats32,
        labels: Ints,
        numbers: Ints,
        size: int,
        device: torch.device,
        tiling: Tiling | None = None,
        together: int | None = None,
    ) -> None:
        self.tiling = tiling or TILING
        self.share = max(1, self.tiling.rows // size)  # blocks of a tile
        self.rows = self.share * size
        if together is None:
            counts = np.unique_counts(labels).counts
            in_tiles = (-(-counts // self.rows) * self.rows).sum()
            together = self.share if in_tiles <= MOST_PADDING * counts.sum() else 1
        super().__init__(points, labels, numbers, size, device, "fp16", together)

    def find(self, queries: Tensor, k: int, m: int) -> Found:
        """What `engine.find` finds; the nearest row of each class alone by winners."""
        if (k, m) != (0, 1) or not self.have_winners:
            return super().find(queries, k, m)
        nearest, number = Winners(self, queries).settle()
        return Found(nearest[None], number[None], nearest[:0])

    def warm_up(self, queries: Tensor) -> None:
        """Compile what only some searches need."""
        if self.have_winners:
            Winners(self, queries).settle(everything=True)

    def bytes_per_query(self, k: int, m: int) -> int:
        """Bytes that a search needs for each query, roughly."""
        if (k, m) != (0, 1) or not self.have_winners:
            return super().bytes_per_query(k, m)
        return 40 * len(self.classes) + 8 * self.n_tiles + 16 * self.width

    @property
    def have_winners(self) -> bool:
        """Whether no tile holds rows of two classes, and the last bits can name a stripe."""
        return self.together % self.share == 0 and self.n_stripes <= 1 << LAST_BITS

    def bound(self, queries: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        padded = self.bound_queries(queries)
        minima = queries.new_empty(self.n_tiles * self.share, len(padded.low))
        numbers = self.losses, self.lengths
        self.multiply(block_minima, padded, *numbers, minima, SHARE=self.share)
        return minima[: self.n_blocks, : len(queries)], padded.bounds.to_limits

    def lowest(
        self, minima: Tensor, starts: Tensor, ends: Tensor, step: int
    ) -> tuple[Tensor, Tensor]:
        n_sets, n = len(starts), minima.shape[1]
        low = minima.new_empty(n_sets, n)
        block = torch.empty_like(low, dtype=torch.int64)
        launch(
            lowest_of_segments,
            (n_sets, divide_up(n, TILE_QUERIES)),
            *(minima, starts, ends, step, low, block, minima.stride(0), n),
            AT_ONCE=BLOCKS_AT_ONCE,
            TILE_Q=TILE_QUERIES,
        )
        return low, block

    def within(
        self, minima: Tensor, limits: Tensor, groups: Groups, at_once: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        for block, query in list_pairs(minima, limits.contiguous(), groups.ranks, at_once):
            for start in range(0, len(block), at_once):
                part = slice(start, start + at_once)
                yield block[part].long(), query[part].long()

    def candidates(
        self, queries: Tensor, query: Tensor, block: Tensor, m: int
    ) -> tuple[Tensor, Tensor]:
        few, n = self.count_candidates(m), len(query)
        if m > MOST_RANKED:
            distance = queries.new_empty(n, few, dtype=torch.float64)
            self._launch(distances_of_pairs, queries, query, block, distance)
            return distance.T, self.numbers.view(-1, self.size)[block].T
        distance = queries.new_empty(few, n, dtype=torch.float64)
        number = torch.empty_like(distance, dtype=torch.int64)
        self._launch(nearest_of_pairs, queries, query, block, distance, number, FEW=few)
        return distance, number

    def count_candidates(self, m: int) -> int:
        return self.size if m > MOST_RANKED else min(m, self.size)

    def _launch(
        self,
        kernel: Any,
        queries: Tensor,
        query: Tensor,
        block: Tensor,
        *out: Tensor,
        **options: int,
    ) -> None:
        """Run a kernel that measures pairs of a query and a block."""
        if len(query) == 0:
            return
        pairs = max(1, ROWS_PER_PROGRAM // self.size)
        launch(
            kernel,
            (divide_up(len(query), pairs),),
            *(self.points, self.numbers, queries.contiguous(), self.leaves),
            *(query.contiguous(), block.contiguous(), len(query), *out),
            PAIRS=pairs,
            SIZE=self.size,
            WIDTH=self.n_features,
            N_LEAVES=len(self.leaves),
            **options,
            num_warps=4,
            enable_fp_fusion=False,  # a fused operation rounds once where numpy rounds twice
        )

    def bound_queries(self, queries: Tensor) -> PaddedQueries:
        """The numbers of float32 queries of shape (n_queries, n_features)."""
        n, frame = len(queries), self.frame
        n_padded = divide_up(n, self.tiling.queries) * self.tiling.queries
        low = self.low.new_empty(n_padded, self.width)
        numbers = queries.new_empty(3, n_padded)
        half_norms = queries.new_empty(n, dtype=torch.float64)
        launch(
            bound_queries,
            (divide_up(n_padded, QUERIES_AT_ONCE),),
            *(queries, frame.center, self._constants, low, numbers, half_norms),
            *(n, self.n_features, n_padded),
            TILE_Q=QUERIES_AT_ONCE,
            STEP=self.step,
            WIDTH=self.width,
            SMALLEST=SMALLEST_FACTOR["fp16"],
            TOP=TOP_EXPONENT,
            FAR=FAR_EXPONENT,
            TRUSTED=frame.is_trusted,
        )
        scales, norms, errors = numbers[:, :n]
        bounds = QueryBounds(frame, low[:n, : self.n_features], scales, norms, errors, half_norms)
        return PaddedQueries(low, numbers, bounds)

    def multiply(
        self,
        kernel: Any,
        queries: PaddedQueries,
        losses: Tensor,
        lengths: Tensor,
        *out: Tensor,
        **options: int,
    ) -> None:
        """Run a kernel over all tiles and queries. out: of shape (..., n_padded)."""
        tiling, n_padded = self.tiling, len(queries.low)
        n_query_tiles = n_padded // tiling.queries
        n_parts = min(self.n_tiles, divide_up(PROGRAMS_WANTED, n_query_tiles))
        tiles_each = max(divide_up(self.n_tiles, n_parts), min(FEWEST_TILES, self.n_tiles))
        launch(
            kernel,
            (n_query_tiles, divide_up(self.n_tiles, tiles_each)),
            *(self.low, self.half_norms, losses, lengths),
            *(queries.low, *queries.numbers.unbind(0)),
            *(*out, n_padded, self.n_tiles, tiles_each),
            STEP=self.step,
            N_STEPS=self.width // self.step,
            TILE_Q=tiling.queries,
            TILE_R=self.rows,
            STRIPES=self.n_stripes,
            **options,
            WIDEN=is_interpreted,
            num_warps=tiling.warps,
            num_stages=tiling.stages,
        )

    @cached_property
    def tile_starts(self) -> Tensor:
        """The first tile of each class with rows and, last, the number of tiles."""
        starts: Tensor = self.by_class.starts // self.share
        return starts

    @cached_property
    def tile_ranks(self) -> Tensor:
        """The class of each tile among those with rows, of shape (n_tiles,)."""
        ranks: Tensor = self.by_class.ranks[:: self.share].contiguous()
        return ranks

    @cached_property
    def leaves(self) -> Tensor:
        """The order in which to add up squares, of shape (n_leaves, 3)."""
        leaves = list_leaves(self.n_features)
        return torch.tensor(leaves, dtype=torch.int32, device=self.device)

    @cached_property
    def numbers_of_tiles(self) -> tuple[Tensor, Tensor]:
        """Losses and lengths of whole tiles, both of shape (n_tiles,)."""
        shape = -1, self.share
        return self.losses.view(shape).amax(1), self.lengths.view(shape).amax(1)

    @cached_property
    def constants_of_limits(self) -> Tensor:
        return torch.tensor(self.frame.constants_of_limits, dtype=torch.float64, device=self.device)

    @cached_property
    def _constants(self) -> Tensor:
        numbers = self.frame.scale, 1 + self.frame.slack, self.frame.error
        return torch.tensor(numbers, dtype=torch.float64, device=self.device)

    def _prepare(self) -> None:  # type: ignore[override]
        """The numbers of all rows in tiles, and of their blocks."""
        self.n_tiles = divide_up(self.n_blocks, self.share)
        per_class = self.n_tiles / len(self.classes)
        stripe = self.tiling.stripe or choose_stripe(per_class, self.n_features)
        self.stripe = stripe = min(stripe, self.size)
        self.n_stripes = self.rows // stripe
        # Products run in steps of 64 columns, or in one step with fewer columns.
        self.step = 64 if self.n_features > 64 else power_of_two(max(16, self.n_features))
        self.width = divide_up(self.n_features, self.step) * self.step
        device, shape = self.device, (self.n_tiles, stripe, self.n_stripes)
        low = torch.zeros(*shape, self.width, dtype=torch.float16, device=device)
        half_norms = torch.full(shape, PADDING, device=device)
        self.losses = torch.zeros(self.n_tiles * self.share, device=device)
        self.lengths = torch.zeros(self.n_tiles * self.share, device=device)
        for part, bounds in self._bound_rows(self.frame):
            self.losses[part] = bounds.losses.amax(1)
            self.lengths[part] = bounds.lengths.amax(1)
            first, end = part.start * self.size // stripe, part.stop * self.size // stripe
            number = torch.arange(first, end, device=device)
            at = number // self.n_stripes, slice(None), number % self.n_stripes
            half_norms[at] = bounds.half_norms.view(-1, stripe)
            low[*at, : self.n_features] = bounds.low.view(-1, stripe, self.n_features)
        self.low, self.half_norms = low.view(-1, self.width), half_norms.flatten()


class PaddedQueries(NamedTuple):
    """Queries for kernels, padded to whole tiles, and their bounds without padding.

    low: of shape (n_padded, width). numbers: scales, norms and errors, of shape (3, n_padded).
    """

    low: Tensor
    numbers: Tensor
    bounds: QueryBounds


class Winners:
    """The winners of each class for a batch of queries, of shape (n_queries, n_features).

    A pair is the number rank * n_queries + query of a class with rows and a query.
    """

    def __init__(self, blocks: TritonBlocks, queries: Tensor) -> None:
        self.blocks, self.queries = blocks, queries.contiguous()
        padded = blocks.bound_queries(self.queries)
        self.bounds = padded.bounds
        shape = blocks.n_tiles, len(padded.low)
        self.lows, self.seconds = queries.new_empty(shape), queries.new_empty(shape)
        blocks.multiply(tile_winners, padded, *blocks.numbers_of_tiles, self.lows, self.seconds)
        self.shape = len(blocks.classes), len(queries)
        self.tile = torch.empty(self.shape, dtype=torch.int32, device=queries.device)
        self.other = queries.new_empty(self.shape)
        most_tiles = blocks.by_class.largest // blocks.share
        at_once = min(TILES_AT_ONCE, power_of_two(most_tiles))
        tile_queries = NUMBERS_AT_ONCE // at_once
        launch(
            lowest_of_tiles,
            (self.shape[0], divide_up(self.shape[1], tile_queries)),
            *(self.lows, blocks.tile_starts, self.tile, self.other),
            *(self.lows.stride(0), self.shape[1]),
            AT_ONCE=at_once,
            TILE_Q=tile_queries,
        )

    def settle(self, *, everything: bool = False) -> tuple[Tensor, Tensor]:
        """Distance and number of the nearest row, both of shape (n_inhabited, n_queries).

        everything: measure all rows, which is slow, and the same whatever the bounds.
        """
        nearest, number, limits = self._measure()
        self._settle_within(nearest, number, limits.fill_(torch.inf) if everything else limits)
        return nearest.view(self.shape), number.view(self.shape)

    def _settle_within(self, nearest: Tensor, number: Tensor, limits: Tensor) -> None:
        """Measure all that lies within limits, and correct what was found.

        nearest, number, limits: of all pairs, of shape (n_pairs,).
        """
        blocks, ranks, n_queries = self.blocks, self.blocks.tile_ranks, self.shape[1]
        lows = self.lows[:, :n_queries]
        for tile, query in list_pairs(lows, limits.view(self.shape), ranks, CAPACITY):
            n = len(tile)
            distance, row = nearest.new_empty(n), number.new_empty(n)
            launch(
                measure_open,
                (n,),
                *(blocks.points, blocks.numbers, self.queries, blocks.leaves),
                *(self.lows.view(torch.int32), self.seconds, limits, ranks, tile, query),
                *(lows.stride(0), n_queries, distance, row, nearest.view(torch.int64), number),
                **self._sizes,
                num_warps=WARPS_FOR_ONE,
                enable_fp_fusion=False,
            )
            launch(
                name_nearest,
                (divide_up(n, LISTED_AT_ONCE),),
                *(ranks, tile, query, distance, row, n, n_queries, nearest, number),
                AT_ONCE=LISTED_AT_ONCE,
            )

    def _measure(self) -> tuple[Tensor, Tensor, Tensor]:
        """Distance, number and limit of the winners, -inf where settled: (n_pairs,)."""
        blocks, n = self.blocks, self.tile.numel()
        found = (
            self.queries.new_empty(n, dtype=torch.float64),
            self.queries.new_empty(n, dtype=torch.int64),
            self.queries.new_empty(n),
        )
        at_once = max(1, ROWS_PER_PROGRAM // blocks.stripe)
        launch(
            measure_winners,
            (divide_up(n, at_once),),
            *(blocks.points, blocks.numbers, self.queries, blocks.leaves),
            *(self.bounds.half_norms, self.bounds.scales, blocks.constants_of_limits),
            *(self.lows.view(torch.int32), self.seconds, self.tile, self.other),
            *(self.lows.stride(0), self.shape[1], n, *found),
            PAIRS=at_once,
            **self._sizes,
            num_warps=4,
            enable_fp_fusion=False,  # a fused operation rounds once where numpy rounds twice
        )
        return found

    @property
    def _sizes(self) -> dict[str, int]:
        """Those of what is measured, as kernels name them."""
        blocks = self.blocks
        return {
            "STRIPES": blocks.n_stripes,
            "SIZE": blocks.stripe,
            "WIDTH": blocks.n_features,
            "N_LEAVES": len(blocks.leaves),
        }


def list_pairs(
    bounds: Tensor, limits: Tensor, ranks: Tensor, at_once: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Tiles, or blocks, and queries whose bound is within its limit, in any order, as int32.

    bounds: of shape (n_tiles, n_queries). limits: (n_limits, n_queries). ranks: each tile's limit,
    (n_tiles,). at_once: pairs to list at once, or more if a single query has more.
    """
    (n_tiles, n_queries), device = bounds.shape, bounds.device
    capacity = min(bounds.numel(), max(at_once, n_tiles))
    asked = [(0, n_queries)]
    while asked:
        first, end = asked.pop()
        tile, query = torch.empty(2, capacity, dtype=torch.int32, device=device)
        count = torch.zeros(1, dtype=torch.int64, device=device)
        launch(
            list_within,
            (divide_up(n_tiles, TILE_BLOCKS), divide_up(end - first, TILE_QUERIES)),
            *(bounds, limits, ranks, tile, query, count, capacity),
            *(bounds.stride(0), n_tiles, n_queries, first, end),
            TILE_T=TILE_BLOCKS,
            TILE_Q=TILE_QUERIES,
        )
        n = int(count)
        if n > capacity:  # never with a single query
            middle = (first + end) // 2
            asked += [(first, middle), (middle, end)]
        elif n:
            yield tile[:n], query[:n]


def choose_stripe(tiles_per_class: float, n_features: int) -> int:
    """Rows of a stripe: small ones cost minima to compare, large ones rows to measure.

    The optimum scales with the root of tiles / features; the factor is measured.
    """
    balance = np.sqrt(5 * tiles_per_class / max(1, n_features))
    return int(np.clip(2 ** round(np.log2(balance)), 4, 32))


def list_leaves(n: int) -> list[tuple[int, int, int]]:
    """The leaves of numpy's sum of n terms in order (`kernels.torch.measure`): start, end, joins.

    joins: how many of the sums before wait to be joined to this one when it is done, the last
    first. So numpy's recursion becomes a loop with a stack.
    """
    if n <= LEAF:
        return [(0, n, 0)]
    half = n // 2 - (n // 2) % 8
    right = [(start + half, end + half, joins) for start, end, joins in list_leaves(n - half)]
    start, end, joins = right.pop()
    return [*list_leaves(half), *right, (start, end, joins + 1)]


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Run a kernel on the device of its tensors, whichever device is current."""
    device = next(argument.device for argument in arguments if isinstance(argument, Tensor))
    if device.type == "cuda":
        with torch.cuda.device(device):
            kernel[grid](*arguments, **options)
    else:
        kernel[grid](*arguments, **options)


def divide_up(a: int, b: int) -> int:
    return -(-a // b)


def power_of_two(n: int) -> int:
    """The lowest power of two that is at least n."""
    return 1 << (n - 1).bit_length()


# Kernels: the numbers of queries, of `QueryBounds`, in one pass over the queries.


@triton.jit
def bound_queries(
    queries, center, constants, low_out, numbers_out, half_norm_out, n_queries, n_features,
    n_padded, TILE_Q: tl.constexpr, STEP: tl.constexpr, WIDTH: tl.constexpr,
    SMALLEST: tl.constexpr, TOP: tl.constexpr, FAR: tl.constexpr, TRUSTED: tl.constexpr,
):  # fmt: skip
    """Program i: queries i * TILE_Q and on.

    queries: (n_queries, n_features), float32. center: (n_features,), float64. constants: (3,),
    float64: scale of the frame, 1 + slack, error. low_out: (multiple of TILE_Q, WIDTH), fp16; zero
    beyond the features. numbers_out: (3, multiple of TILE_Q), float32: scales, norms and errors.
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
    if TRUSTED:
        half = tl.where(is_far, float("-inf"), whole / 2)
    else:
        half = tl.full((TILE_Q,), float("-inf"), tl.float64)
    tl.store(half_norm_out + q, half, mask=is_query)


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


# The bounds of blocks, and what is within a limit.


@triton.jit
def block_minima(
    rows, half_norms, losses, lengths, queries, scales, norms, errors, minima, stride, n_tiles,
    tiles_each, STEP: tl.constexpr, N_STEPS: tl.constexpr, TILE_Q: tl.constexpr,
    TILE_R: tl.constexpr, STRIPES: tl.constexpr, SHARE: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Lower bounds of all blocks of TILE_R / SHARE rows; program (i, j): queries i, tiles j.

    rows: (n_tiles * TILE_R, N_STEPS * STEP): row r of a tile is of stripe r % STRIPES. half_norms:
    (n_tiles * TILE_R,), in the same order; huge for padding. losses: (n_tiles * SHARE,). lengths:
    (n_tiles * SHARE,). queries: (multiple of TILE_Q, N_STEPS * STEP). scales: (multiple of
    TILE_Q,), as the next two. minima: out: (n_tiles * SHARE, stride).
    """
    WIDTH: tl.constexpr = STEP * N_STEPS
    q = tl.program_id(0) * TILE_Q + tl.arange(0, TILE_Q)
    k = tl.arange(0, STEP)
    s = tl.arange(0, SHARE)
    scale = tl.load(scales + q)[:, None]
    norm = tl.load(norms + q)[:, None]
    error = tl.load(errors + q)[:, None]
    query_at = queries + q.to(tl.int64)[:, None] * WIDTH + k[None, :]
    first_query = tl.load(query_at)
    first = tl.program_id(1) * tiles_each
    for tile in range(first, tl.minimum(first + tiles_each, n_tiles)):
        low = _stripe_minima(
            rows, half_norms, query_at, first_query, scale, tile,
            STEP, N_STEPS, TILE_Q, TILE_R, STRIPES, WIDEN,
        )  # fmt: skip
        if STRIPES > SHARE:
            low = tl.min(tl.reshape(low, (TILE_Q, SHARE, STRIPES // SHARE)), axis=2)
        block = tile * SHARE + s
        low -= tl.load(losses + block)[None, :] * norm
        low -= tl.load(lengths + block)[None, :] * error
        tl.store(minima + block.to(tl.int64)[None, :] * stride + q[:, None], low)


@triton.jit
def _stripe_minima(
    rows, half_norms, query_at, first_query, scale, tile, STEP: tl.constexpr,
    N_STEPS: tl.constexpr, TILE_Q: tl.constexpr, TILE_R: tl.constexpr, STRIPES: tl.constexpr,
    WIDEN: tl.constexpr,
):  # fmt: skip
    """The lowest h σ - x̃·q̃ in each stripe of a tile, of shape (TILE_Q, STRIPES)."""
    r = tl.arange(0, TILE_R)
    k = tl.arange(0, STEP)
    row_at = rows + (tile * TILE_R + r).to(tl.int64)[None, :] * (STEP * N_STEPS) + k[:, None]
    products = _multiply(first_query, tl.load(row_at), WIDEN)
    for step in range(1, N_STEPS):
        at = step * STEP
        products += _multiply(tl.load(query_at + at), tl.load(row_at + at), WIDEN)
    half_norm = tl.load(half_norms + tile * TILE_R + r)
    bounds = half_norm[None, :] * scale - products
    return tl.min(tl.reshape(bounds, (TILE_Q, TILE_R // STRIPES, STRIPES)), axis=1)


@triton.jit
def _multiply(a, b, WIDEN: tl.constexpr):
    if WIDEN:  # the interpreter warns for fp16
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b)


@triton.jit
def lowest_of_segments(
    minima, starts, ends, step, low_out, block_out, stride, n_queries, AT_ONCE: tl.constexpr,
    TILE_Q: tl.constexpr,
):  # fmt: skip
    """The lowest minimum of each segment and the first block that has it.

    minima: (at least all blocks, stride). starts: (n_segments,): the segment is start, start +
    step, ... below its end. low_out: (n_segments, n_queries). block_out: (n_segments, n_queries),
    int64.
    """
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


@triton.jit
def list_within(
    bounds, limits, ranks, tile_out, query_out, count, capacity, stride, n_tiles, n_queries,
    first_query, end_query, TILE_T: tl.constexpr, TILE_Q: tl.constexpr,
):  # fmt: skip
    """Tiles, or blocks, and queries whose bound is within its limit, in any order.

    bounds: (n_tiles, stride). limits: (n_limits, n_queries). ranks: (n_tiles,), int64. tile_out:
    (capacity,), int32. query_out: (capacity,), int32. count: (1,), int64: how many there are,
    perhaps more than the capacity; 0 before. first_query: of those asked for.
    """
    tile = tl.program_id(0) * TILE_T + tl.arange(0, TILE_T)
    q = first_query + tl.program_id(1) * TILE_Q + tl.arange(0, TILE_Q)
    exists = (tile < n_tiles)[:, None] & (q < end_query)[None, :]
    rank = tl.load(ranks + tile, mask=tile < n_tiles, other=0)
    low = tl.load(bounds + tile.to(tl.int64)[:, None] * stride + q[None, :], mask=exists, other=0.0)
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


# Distances in float64, added up in numpy's order. Up to 128 features the loops are unrolled. Wider
# sums loop over the leaves of numpy's recursion: unrolled, several hundred features take the
# compiler many seconds and thousands take minutes.


@triton.jit
def _square(points, queries, column):
    difference = tl.load(points + column).to(tl.float64) - tl.load(queries + column).to(tl.float64)
    return difference * difference


@triton.jit
def _join_eight(sums):
    """Eight running sums, of shape (pairs, size, 8), joined in pairs."""
    PAIRS: tl.constexpr = sums.shape[0]
    SIZE: tl.constexpr = sums.shape[1]
    # Each of these sums has two terms, so their order does not matter.
    fours = tl.sum(tl.reshape(sums, (PAIRS, SIZE, 4, 2)), axis=3)
    twos = tl.sum(tl.reshape(fours, (PAIRS, SIZE, 2, 2)), axis=3)
    return tl.sum(twos, axis=2)


@triton.jit
def _sum_of_few(points, queries, LENGTH: tl.constexpr):
    """Σ (x_j - q_j)² over LENGTH <= LEAF columns."""
    if LENGTH < 8:
        total = _square(points, queries, 0)
        for j in tl.static_range(1, LENGTH):
            total += _square(points, queries, j)
    else:
        IN_EIGHTS: tl.constexpr = LENGTH - LENGTH % 8
        eight = tl.arange(0, 8)[None, None, :]
        sums = _square(points[:, :, None], queries[:, :, None], eight)
        for j in tl.static_range(8, IN_EIGHTS, 8):
            sums += _square(points[:, :, None], queries[:, :, None], eight + j)
        total = _join_eight(sums)
        for j in tl.static_range(IN_EIGHTS, LENGTH):
            total += _square(points, queries, j)
    return total


@triton.jit
def _sum_of_many(points, queries, leaves, N_LEAVES: tl.constexpr):
    """Σ (x_j - q_j)² over more columns: leaf by leaf, sums of halves waiting on a stack."""
    DEPTH: tl.constexpr = 16  # for 128 · 2^15 columns
    depth = tl.arange(0, DEPTH)[None, None, :]
    eight = tl.arange(0, 8)[None, None, :]
    stack = tl.zeros((points.shape[0], points.shape[1], DEPTH), tl.float64)
    top = 0
    for i in range(N_LEAVES):
        start, end = tl.load(leaves + 3 * i), tl.load(leaves + 3 * i + 1)
        in_eights = end - (end - start) % 8
        sums = _square(points[:, :, None], queries[:, :, None], eight + start)
        for j in range(start + 8, in_eights, 8):
            sums += _square(points[:, :, None], queries[:, :, None], eight + j)
        total = _join_eight(sums)
        for j in range(in_eights, end):
            total += _square(points, queries, j)
        for _ in range(tl.load(leaves + 3 * i + 2)):
            top -= 1
            total += tl.sum(tl.where(depth == top, stack, 0.0), axis=2)
        stack = tl.where(depth == top, total[:, :, None], stack)
        top += 1
    return tl.sum(tl.where(depth == 0, stack, 0.0), axis=2)


@triton.jit
def measure(
    points, numbers, queries, leaves, query, block, SIZE: tl.constexpr, WIDTH: tl.constexpr,
    N_LEAVES: tl.constexpr,
):  # fmt: skip
    """Distances and row numbers of pairs of a query and a block, both of shape (pairs, SIZE)."""
    row = block.to(tl.int64)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    number = tl.load(numbers + row)
    row_at, query_at = points + row * WIDTH, queries + query.to(tl.int64)[:, None] * WIDTH
    if N_LEAVES == 1:
        squared = _sum_of_few(row_at, query_at, WIDTH)
    else:
        squared = _sum_of_many(row_at, query_at, leaves, N_LEAVES)
    return tl.where(number == NO_ROW, float("inf"), tl.sqrt(squared)), number


@triton.jit
def nearest_of(distance, number):
    """The lowest distance of each pair and the lowest number that has it."""
    nearest = tl.min(distance, axis=1)
    return nearest, tl.min(tl.where(distance == nearest[:, None], number, NO_ROW), axis=1)


@triton.jit
def nearest_of_pairs(
    points, numbers, queries, leaves, query, block, n_pairs, distance_out, number_out,
    PAIRS: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr, N_LEAVES: tl.constexpr,
    FEW: tl.constexpr,
):  # fmt: skip
    """The nearest rows of each pair: their distances and numbers, the lowest number on ties.

    points: (n_blocks * SIZE, WIDTH), float32. numbers: (n_blocks * SIZE,), int64. queries:
    (n_queries, WIDTH), float32. leaves: (N_LEAVES, 3), int32: see `list_leaves`. query: (n_pairs,),
    int64. block: (n_pairs,), int64. distance_out: (FEW, n_pairs), float64. number_out: (FEW,
    n_pairs), int64.
    """
    pair = tl.program_id(0) * PAIRS + tl.arange(0, PAIRS)
    exists = pair < n_pairs
    q = tl.load(query + pair, mask=exists, other=0)
    b = tl.load(block + pair, mask=exists, other=0)
    distance, number = measure(points, numbers, queries, leaves, q, b, SIZE, WIDTH, N_LEAVES)
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


@triton.jit
def distances_of_pairs(
    points, numbers, queries, leaves, query, block, n_pairs, distance_out, PAIRS: tl.constexpr,
    SIZE: tl.constexpr, WIDTH: tl.constexpr, N_LEAVES: tl.constexpr,
):  # fmt: skip
    """The distances to all rows of each pair; inf for padding.

    distance_out: (n_pairs, SIZE), float64.
    """
    pair = tl.program_id(0) * PAIRS + tl.arange(0, PAIRS)
    exists = pair < n_pairs
    q = tl.load(query + pair, mask=exists, other=0)
    b = tl.load(block + pair, mask=exists, other=0)
    distance, _ = measure(points, numbers, queries, leaves, q, b, SIZE, WIDTH, N_LEAVES)
    out = pair.to(tl.int64)[:, None] * SIZE + tl.arange(0, SIZE)[None, :]
    tl.store(distance_out + out, distance, mask=exists[:, None])


# Winners.


@triton.jit
def tile_winners(
    rows, half_norms, losses, lengths, queries, scales, norms, errors, lows, seconds, stride,
    n_tiles, tiles_each, STEP: tl.constexpr, N_STEPS: tl.constexpr, TILE_Q: tl.constexpr,
    TILE_R: tl.constexpr, STRIPES: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """Low and second of all tiles; program (i, j): queries i, tiles j.

    The stripe to leave out is the one that `low` names, so `second` is right whichever it is.

    rows: (n_tiles * TILE_R, N_STEPS * STEP): row r of a tile is of stripe r % STRIPES. half_norms:
    (n_tiles * TILE_R,), in the same order; huge for padding. losses: (n_tiles,). lengths:
    (n_tiles,). queries: (multiple of TILE_Q, N_STEPS * STEP). scales: (multiple of TILE_Q,), as the
    next two. lows: out: (n_tiles, stride). seconds: out: (n_tiles, stride).
    """
    WIDTH: tl.constexpr = STEP * N_STEPS
    q = tl.program_id(0) * TILE_Q + tl.arange(0, TILE_Q)
    k = tl.arange(0, STEP)
    s = tl.arange(0, STRIPES)
    scale = tl.load(scales + q)[:, None]
    norm = tl.load(norms + q)
    error = tl.load(errors + q)
    query_at = queries + q.to(tl.int64)[:, None] * WIDTH + k[None, :]
    first_query = tl.load(query_at)
    first = tl.program_id(1) * tiles_each
    for tile in range(first, tl.minimum(first + tiles_each, n_tiles)):
        of_stripes = _stripe_minima(
            rows, half_norms, query_at, first_query, scale, tile,
            STEP, N_STEPS, TILE_Q, TILE_R, STRIPES, WIDEN,
        )  # fmt: skip
        named = _name(of_stripes, s[None, :], STRIPES)
        low = tl.min(named, axis=1)
        winner = low.to(tl.int32, bitcast=True) & (STRIPES - 1)
        second = tl.min(tl.where(s[None, :] == winner[:, None], float("inf"), named), axis=1)
        lost = tl.load(losses + tile) * norm + tl.load(lengths + tile) * error
        at = (tl.zeros((TILE_Q,), tl.int64) + tile) * stride + q
        tl.store(lows + at, _name(low - lost, winner, STRIPES))
        tl.store(seconds + at, second - lost)


@triton.jit
def _name(bounds, stripe, STRIPES: tl.constexpr):
    """Bounds with the number of a stripe in place of their last bits."""
    bits = (bounds.to(tl.int32, bitcast=True) & -STRIPES) | stripe
    return bits.to(tl.float32, bitcast=True)


@triton.jit
def lowest_of_tiles(
    lows, starts, tile_out, other_out, stride, n_queries, AT_ONCE: tl.constexpr,
    TILE_Q: tl.constexpr,
):  # fmt: skip
    """The tile of each class with the lowest low, and the lowest low of its other tiles.

    lows: (n_tiles, stride). starts: (n_classes + 1,), int64: the first tile of each class.
    tile_out: (n_classes, n_queries), int32. other_out: (n_classes, n_queries).
    """
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
    tl.store(other_out + out, other, mask=is_query)


@triton.jit
def measure_winners(
    points, numbers, queries, leaves, half_norms, scales, constants, lows, seconds, tiles, others,
    stride, n_queries, n_pairs, distance_out, number_out, limit_out, PAIRS: tl.constexpr,
    STRIPES: tl.constexpr, SIZE: tl.constexpr, WIDTH: tl.constexpr, N_LEAVES: tl.constexpr,
):  # fmt: skip
    """The nearest row of the winner, and the limit of its distance, -inf if nothing else is within.

    A pair of a class and a query is settled if its limit is -inf.

    points: (n_tiles * STRIPES * SIZE, WIDTH), float32. numbers: (n_tiles * STRIPES * SIZE,), int64.
    queries: (n_queries, WIDTH), float32. leaves: (N_LEAVES, 3), int32: see `list_leaves`.
    half_norms: (n_queries,), float64, as the next two: of `QueryBounds`. scales: (n_queries,),
    float32. constants: (3,), float64: `Frame.constants_of_limits`. lows: (n_tiles, stride), as
    int32. seconds: (n_tiles, stride). tiles: (n_classes * n_queries,), int32. others: (n_classes *
    n_queries,). distance_out: (n_classes * n_queries,), float64. number_out: (n_classes *
    n_queries,), int64. limit_out: (n_classes * n_queries,).
    """
    pair = tl.program_id(0).to(tl.int64) * PAIRS + tl.arange(0, PAIRS)
    exists = pair < n_pairs
    q = pair % n_queries
    tile = tl.load(tiles + pair, mask=exists, other=0).to(tl.int64)
    at = tile * stride + q
    stripe = tl.load(lows + at) & (STRIPES - 1)
    block = tile * STRIPES + stripe
    distance, number = measure(points, numbers, queries, leaves, q, block, SIZE, WIDTH, N_LEAVES)
    nearest, lowest = nearest_of(distance, number)
    limit = _limit(nearest, tl.load(half_norms + q), tl.load(scales + q), constants)
    other = tl.minimum(tl.load(seconds + at), tl.load(others + pair, mask=exists, other=0.0))
    tl.store(distance_out + pair, nearest, mask=exists)
    tl.store(number_out + pair, lowest, mask=exists)
    tl.store(limit_out + pair, tl.where(other <= limit, limit, float("-inf")), mask=exists)


@triton.jit
def measure_open(
    points, numbers, queries, leaves, lows, seconds, limits, ranks, tiles, listed_queries, stride,
    n_queries, distance_out, number_out, best, best_number, STRIPES: tl.constexpr,
    SIZE: tl.constexpr, WIDTH: tl.constexpr, N_LEAVES: tl.constexpr,
):  # fmt: skip
    """The nearest row of the stripe that the low of a tile names, or of the whole tile.

    Program i: entry i of the list. Distances >= 0 are ordered as their bits are.

    lows: (n_tiles, stride), as int32. limits: (n_classes, n_queries). tiles: (n_listed,), int32.
    listed_queries: (n_listed,), int32. distance_out: (n_listed,), float64. number_out: (n_listed,),
    int64. best: (n_classes * n_queries,), float64 as int64: lowered to the distances found.
    best_number: (n_classes * n_queries,), int64: forgotten, to be found anew.
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


@triton.jit
def _nearest_in(
    points, numbers, queries, leaves, query, block, SIZE: tl.constexpr, WIDTH: tl.constexpr,
    N_LEAVES: tl.constexpr,
):  # fmt: skip
    """Distance and number of the nearest row of blocks of a size, both of shape (pairs,).

    A function of its own: both branches of a kernel must end with variables of the same shapes.
    """
    distance, number = measure(
        points, numbers, queries, leaves, query, block, SIZE, WIDTH, N_LEAVES
    )
    return nearest_of(distance, number)


@triton.jit
def name_nearest(
    ranks, tiles, listed_queries, distances, numbers, n_listed, n_queries, best, best_number,
    AT_ONCE: tl.constexpr,
):  # fmt: skip
    """The number of the nearest row of each listed pair, after its distance is known.

    tiles: (n_listed,), as the next three. best: (n_classes * n_queries,), float64. best_number:
    (n_classes * n_queries,), int64: the lowest of those at the best distance.
    """
    i = tl.program_id(0) * AT_ONCE + tl.arange(0, AT_ONCE)
    exists = i < n_listed
    tile = tl.load(tiles + i, mask=exists, other=0)
    q = tl.load(listed_queries + i, mask=exists, other=0)
    pair = tl.load(ranks + tile) * n_queries + q
    is_nearest = tl.load(distances + i, mask=exists, other=0.0) == tl.load(best + pair)
    number = tl.load(numbers + i, mask=exists, other=NO_ROW)
    tl.atomic_min(best_number + pair, number, mask=exists & is_nearest)


@triton.jit
def _limit(distance, half_norm, scale, constants):
    """As `QueryBounds.to_limits`."""
    reach = tl.load(constants) * (distance * distance)
    limit = (reach - tl.load(constants + 1) * half_norm) * scale.to(tl.float64)
    limit = (limit + tl.load(constants + 2)).to(tl.float32)
    bits = limit.to(tl.int32, bitcast=True)
    upward = tl.where(limit > 0, bits + 1, tl.where(limit < 0, bits - 1, 1))
    return tl.where(limit == float("inf"), limit, upward.to(tl.float32, bitcast=True))


is_interpreted: bool = not isinstance(block_minima, triton.runtime.JITFunction)
