"""Tiles: rows on a device, prepared for kernels that multiply them with queries.

A tile holds as many rows as a program multiplies at once: one or several successive blocks. Its
rows come in stripes of a few successive rows, interleaved, so that the lanes of a program find the
minimum of a stripe without sharing work.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from iknow.core.arrays import Ints
from iknow.search.gpu.torch.blocks import NO_ROW, Blocks
from iknow.search.gpu.torch.bounds import (
    FAR_EXPONENT,
    LAST_BITS,
    PADDING,
    SMALLEST_FACTOR,
    TOP_EXPONENT,
    QueryBounds,
)
from iknow.search.gpu.torch.launching import divide_up, launch, power_of_two
from iknow.search.gpu.torch.sums import list_leaves
from iknow.search.gpu.triton.minima import is_interpreted
from iknow.search.gpu.triton.queries import bound_queries

PROGRAMS_WANTED = 16384  # many waves of programs, so that the last one is short
FEWEST_TILES = 16  # of a program: fewer would not pay for its start
MOST_PADDING = 1.25  # rows of tiles to rows
QUERIES_AT_ONCE = 16


@dataclass(frozen=True)
class Tiling:
    """How the products are tiled: queries and rows of a tile, warps and stages of a program.

    stripe: rows of a stripe; by default as `choose_stripe` says.
    """

    queries: int
    rows: int
    warps: int
    stages: int
    stripe: int | None = None


# Measured on an H200 by `benchmarks/gpu.py --tune`.
TILING = Tiling(128, 128, 4, 4)


@dataclass(frozen=True)
class PaddedQueries:
    """Queries for kernels, padded to whole tiles, and their bounds without padding.

    low: of shape (n_padded, width). numbers: scales, norms and errors, of shape (3, n_padded).
    """

    low: Tensor
    numbers: Tensor
    bounds: QueryBounds


class Tiles:
    """The rows of blocks in tiles, in fp16, and their products with queries."""

    def __init__(self, blocks: Blocks, tiling: Tiling | None = None) -> None:
        self.blocks = blocks
        self.tiling = tiling or TILING
        self.share = blocks_per_tile(blocks.size, self.tiling)
        self.rows = self.share * blocks.size
        self.n_tiles = divide_up(blocks.n_blocks, self.share)
        per_class = self.n_tiles / len(blocks.classes)
        stripe = self.tiling.stripe or choose_stripe(per_class, blocks.n_features)
        self.stripe = min(stripe, blocks.size)
        self.n_stripes = self.rows // self.stripe
        # Products run in steps of 64 columns, or in one step with fewer columns.
        self.step = 64 if blocks.n_features > 64 else power_of_two(max(16, blocks.n_features))
        self.width = divide_up(blocks.n_features, self.step) * self.step
        self._prepare()

    def bound_queries(self, queries: Tensor) -> PaddedQueries:
        """The numbers of float32 queries of shape (n_queries, n_features)."""
        blocks, n = self.blocks, len(queries)
        frame, n_padded = blocks.frame, divide_up(n, self.tiling.queries) * self.tiling.queries
        low = self.low.new_empty(n_padded, self.width)
        numbers = queries.new_empty(3, n_padded)
        half_norms = queries.new_empty(n, dtype=torch.float64)
        launch(
            bound_queries,
            (divide_up(n_padded, QUERIES_AT_ONCE),),
            *(queries, frame.center, self._constants, low, numbers, half_norms),
            *(n, blocks.n_features, n_padded),
            TILE_Q=QUERIES_AT_ONCE,
            STEP=self.step,
            WIDTH=self.width,
            SMALLEST=SMALLEST_FACTOR[frame.filter],
            TOP=TOP_EXPONENT,
            FAR=FAR_EXPONENT,
            TRUSTED=frame.is_trusted,
        )
        scales, norms, errors = numbers[:, :n]
        bounds = QueryBounds(frame, low[:n, : blocks.n_features], scales, norms, errors, half_norms)
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

    @property
    def have_winners(self) -> bool:
        """Whether no tile holds rows of two classes, and the last bits can name a stripe."""
        return self.blocks.together % self.share == 0 and self.n_stripes <= 1 << LAST_BITS

    @cached_property
    def class_starts(self) -> Tensor:
        """The first tile of each class with rows and, last, the number of tiles."""
        return self.blocks.class_starts // self.share

    @cached_property
    def most_tiles(self) -> int:
        """The tiles of the class that has the most."""
        return int(self.class_starts.diff().max())

    @cached_property
    def ranks(self) -> Tensor:
        """As `Blocks.ranks`, of shape (n_tiles,)."""
        return self.blocks.ranks[:: self.share].contiguous()

    @cached_property
    def leaves(self) -> Tensor:
        """The order in which to add up squares, of shape (n_leaves, 3)."""
        leaves = list_leaves(self.blocks.n_features)
        return torch.tensor(leaves, dtype=torch.int32, device=self.blocks.device)

    @cached_property
    def losses_of_tiles(self) -> Tensor:
        return self.losses.view(-1, self.share).amax(1)

    @cached_property
    def lengths_of_tiles(self) -> Tensor:
        return self.lengths.view(-1, self.share).amax(1)

    @cached_property
    def constants_of_limits(self) -> Tensor:
        numbers = self.blocks.frame.constants_of_limits
        return torch.tensor(numbers, dtype=torch.float64, device=self.blocks.device)

    @cached_property
    def _constants(self) -> Tensor:
        frame = self.blocks.frame
        numbers = frame.scale, 1 + frame.slack, frame.error
        return torch.tensor(numbers, dtype=torch.float64, device=self.blocks.device)

    def _prepare(self) -> None:
        """The numbers of all rows in tiles, and of their blocks."""
        blocks, stripe, size = self.blocks, self.stripe, self.blocks.size
        device, shape = blocks.device, (self.n_tiles, stripe, self.n_stripes)
        low = torch.zeros(*shape, self.width, dtype=torch.float16, device=device)
        half_norms = torch.full(shape, PADDING, device=device)
        self.losses = torch.zeros(self.n_tiles * self.share, device=device)
        self.lengths = torch.zeros(self.n_tiles * self.share, device=device)
        points = blocks.points.view(-1, size, blocks.n_features)
        for part in blocks.slices():
            is_row = blocks.numbers.view(-1, size)[part] != NO_ROW
            bounds = blocks.frame.bound_rows(points[part], is_row)
            self.losses[part] = bounds.losses.amax(1)
            self.lengths[part] = bounds.lengths.amax(1)
            first, end = part.start * size // stripe, part.stop * size // stripe
            number = torch.arange(first, end, device=device)
            at = number // self.n_stripes, slice(None), number % self.n_stripes
            half_norms[at] = bounds.half_norms.view(-1, stripe)
            low[*at, : blocks.n_features] = bounds.low.view(-1, stripe, blocks.n_features)
        self.low, self.half_norms = low.view(-1, self.width), half_norms.flatten()


def blocks_together(size: int, counts: Ints) -> int:
    """How many blocks each class should have a multiple of, given the rows of each class.

    Whole tiles, unless too much of them would be padding.
    """
    share = blocks_per_tile(size, TILING)
    rows = share * size
    return share if (-(-counts // rows) * rows).sum() <= MOST_PADDING * counts.sum() else 1


def choose_stripe(tiles_per_class: float, n_features: int) -> int:
    """Rows of a stripe: small ones cost minima to compare, large ones rows to measure.

    The optimum scales with the root of tiles / features; the factor is measured.
    """
    balance = np.sqrt(5 * tiles_per_class / max(1, n_features))
    return int(np.clip(2 ** round(np.log2(balance)), 4, 32))


def blocks_per_tile(size: int, tiling: Tiling) -> int:
    """How many blocks of a size make a tile."""
    return max(1, tiling.rows // size)
