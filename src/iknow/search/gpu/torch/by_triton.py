"""The operations of a search with Triton kernels: no matrix of distances is ever written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from iknow.search.gpu.torch.blocks import Blocks
from iknow.search.gpu.torch.bounds import QueryBounds
from iknow.search.gpu.torch.launching import divide_up, launch
from iknow.search.gpu.torch.operations import Segments, bytes_by_blocks
from iknow.search.gpu.torch.tiles import Tiles, Tiling
from iknow.search.gpu.torch.winners import Winners
from iknow.search.gpu.triton import measuring
from iknow.search.gpu.triton import minima as kernels

ROWS_PER_PROGRAM = 128
TILE_BLOCKS, TILE_QUERIES = 16, 128
BLOCKS_AT_ONCE = 32


class TritonOperations:
    """The operations on a GPU or, for tests, on the CPU in Triton's interpreter."""

    def __init__(self, blocks: Blocks, tiling: Tiling | None = None) -> None:
        self.tiles = Tiles(blocks, tiling)

    @property
    def blocks(self) -> Blocks:
        return self.tiles.blocks

    @property
    def have_winners(self) -> bool:
        return self.tiles.have_winners

    def bytes_per_query(self, k: int, per_class: int) -> int:
        if (k, per_class) != (0, 1) or not self.have_winners:
            return bytes_by_blocks(self, k, per_class)
        per_class_and_tile = 40 * len(self.blocks.classes) + 8 * self.tiles.n_tiles
        return per_class_and_tile + 16 * self.tiles.width

    def warm_up(self, queries: Tensor) -> None:
        """Compile the kernels that only some searches need."""
        winners = Winners(self.tiles, queries)
        winners.settle(torch.zeros(1, dtype=torch.int64, device=queries.device))
        winners.settle_all_tiles()

    def find_winners(self, queries: Tensor) -> Winners | None:
        return Winners(self.tiles, queries) if self.tiles.have_winners else None

    def block_minima(self, queries: Tensor) -> tuple[Tensor, QueryBounds]:
        tiles, padded = self.tiles, self.tiles.bound_queries(queries)
        minima = queries.new_empty(tiles.n_tiles * tiles.share, len(padded.low))
        tiles.multiply(
            kernels.block_minima, padded, tiles.losses, tiles.lengths, minima, SHARE=tiles.share
        )
        return minima[: self.blocks.n_blocks, : len(queries)], padded.bounds

    def lowest(self, minima: Tensor, segments: Segments) -> tuple[Tensor, Tensor]:
        n_segments, n_queries = len(segments.starts), minima.shape[1]
        low = minima.new_empty(n_segments, n_queries)
        block = torch.empty_like(low, dtype=torch.int64)
        launch(
            kernels.lowest_of_segments,
            (n_segments, divide_up(n_queries, TILE_QUERIES)),
            *(minima, segments.starts, segments.ends, segments.step, low, block),
            *(minima.stride(0), n_queries),
            AT_ONCE=BLOCKS_AT_ONCE,
            TILE_Q=TILE_QUERIES,
        )
        return low, block

    def within(
        self, minima: Tensor, limits: Tensor, ranks: Tensor, at_once: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        n_blocks, n_queries = minima.shape
        grid = divide_up(n_blocks, TILE_BLOCKS), divide_up(n_queries, TILE_QUERIES)
        counts = torch.empty(grid, dtype=torch.int32, device=minima.device).flatten()
        sizes = minima.stride(0), n_blocks, n_queries
        tiles = {"TILE_B": TILE_BLOCKS, "TILE_Q": TILE_QUERIES}
        limits = limits.contiguous()
        launch(kernels.count_within, grid, minima, limits, ranks, counts, *sizes, **tiles)
        ends = counts.cumsum(0, dtype=torch.int64)
        offsets = ends - counts
        total = int(ends[-1])
        for first in range(0, total, at_once):
            n = min(at_once, total - first)
            block, query = torch.empty(2, n, dtype=torch.int64, device=minima.device)
            launch(
                kernels.list_within,
                grid,
                *(minima, limits, ranks, counts, offsets, first, block, query, n),
                *sizes,
                **tiles,
            )
            yield block, query

    def nearest(self, queries: Tensor, query: Tensor, block: Tensor) -> tuple[Tensor, Tensor]:
        distance = queries.new_empty(len(query), dtype=torch.float64)
        number = torch.empty_like(query)
        self._measure(measuring.nearest_of_pairs, queries, query, block, distance, number, FEW=1)
        return distance, number

    def candidates(
        self, queries: Tensor, query: Tensor, block: Tensor, m: int
    ) -> tuple[Tensor, Tensor]:
        few = self.count_candidates(m)
        distance = queries.new_empty(few, len(query), dtype=torch.float64)
        number = torch.empty_like(distance, dtype=torch.int64)
        self._measure(measuring.nearest_of_pairs, queries, query, block, distance, number, FEW=few)
        return distance, number

    def count_candidates(self, m: int) -> int:
        return min(m, self.blocks.size)

    def distances(self, queries: Tensor, query: Tensor, block: Tensor) -> Tensor:
        distance = queries.new_empty(len(query), self.blocks.size, dtype=torch.float64)
        self._measure(measuring.distances_of_pairs, queries, query, block, distance)
        return distance

    def _measure(
        self,
        kernel: Any,
        queries: Tensor,
        query: Tensor,
        block: Tensor,
        *out: Tensor,
        **options: int,
    ) -> None:
        if len(query) == 0:
            return
        blocks = self.blocks
        pairs = max(1, ROWS_PER_PROGRAM // blocks.size)
        launch(
            kernel,
            (divide_up(len(query), pairs),),
            *(blocks.points, blocks.numbers, queries.contiguous(), self.tiles.leaves),
            *(query.contiguous(), block.contiguous(), len(query), *out),
            PAIRS=pairs,
            SIZE=blocks.size,
            WIDTH=blocks.n_features,
            N_LEAVES=len(self.tiles.leaves),
            **options,
            num_warps=4,
            enable_fp_fusion=False,  # a fused operation rounds once where numpy rounds twice
        )
