"""The operations of a search with Triton kernels: no matrix of distances is ever written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from iknow.search.gpu import triton as kernels
from iknow.search.gpu.torch.blocks import NO_ROW, Blocks
from iknow.search.gpu.torch.bounds import QueryBounds
from iknow.search.gpu.torch.operations import Segments

ROWS_PER_PROGRAM = 128
TILE_BLOCKS, TILE_QUERIES = 16, 128
BLOCKS_AT_ONCE = 32
PROGRAMS_WANTED = 2048


@dataclass(frozen=True)
class Tiling:
    """How the products are tiled: queries and rows of a tile, warps and stages of a program."""

    queries: int
    rows: int
    warps: int
    stages: int


# Measured on an H200 by `benchmarks/gpu.py --tune`.
TILINGS = {
    "fp16": Tiling(128, 128, 4, 4),
    "bf16": Tiling(128, 128, 4, 4),
    "tf32": Tiling(256, 64, 8, 3),
    "float32": Tiling(64, 128, 4, 2),
}


class TritonOperations:
    """The operations on a GPU or, for tests, on the CPU in Triton's interpreter."""

    def __init__(self, blocks: Blocks, tiling: Tiling | None = None) -> None:
        self._blocks = blocks
        self._tiling = tiling or TILINGS[blocks.frame.filter]
        self._share = max(1, self._tiling.rows // blocks.size)
        self._tile_rows = self._share * blocks.size
        # Products run in steps of 64 columns, or in one step with fewer columns.
        self._step = 64 if blocks.n_features > 64 else _power_of_two(max(16, blocks.n_features))
        self._width = _divide_up(blocks.n_features, self._step) * self._step
        self._n_tiles = _divide_up(blocks.n_blocks, self._share)
        self._prepare()

    @property
    def blocks(self) -> Blocks:
        return self._blocks

    def block_minima(self, queries: Tensor) -> tuple[Tensor, QueryBounds]:
        blocks, tiling = self._blocks, self._tiling
        bounds = blocks.frame.bound_queries(queries)
        n_query_tiles = _divide_up(len(queries), tiling.queries)
        n_padded = n_query_tiles * tiling.queries
        low = bounds.low.new_zeros(n_padded, self._width)
        low[: len(queries), : blocks.n_features] = bounds.low
        numbers = queries.new_ones(3, n_padded)
        numbers[:, : len(queries)] = torch.stack([bounds.scales, bounds.norms, bounds.errors])
        minima = queries.new_empty(self._n_tiles * self._share, n_padded)
        n_parts = min(self._n_tiles, _divide_up(PROGRAMS_WANTED, n_query_tiles))
        tiles_each = _divide_up(self._n_tiles, n_parts)
        _launch(
            kernels.block_minima,
            (n_query_tiles, _divide_up(self._n_tiles, tiles_each)),
            *(self._low, self._half_norms, self._losses, self._lengths),
            *(low, numbers[0], numbers[1], numbers[2]),
            *(minima, n_padded, self._n_tiles, tiles_each),
            STEP=self._step,
            N_STEPS=self._width // self._step,
            TILE_Q=tiling.queries,
            TILE_R=self._tile_rows,
            SHARE=self._share,
            PRECISION="ieee" if blocks.frame.filter == "float32" else "tf32",
            WIDEN=kernels.is_interpreted,
            num_warps=tiling.warps,
            num_stages=tiling.stages,
        )
        return minima[: blocks.n_blocks, : len(queries)], bounds

    def lowest(self, minima: Tensor, segments: Segments) -> tuple[Tensor, Tensor]:
        n_segments, n_queries = len(segments.starts), minima.shape[1]
        low = minima.new_empty(n_segments, n_queries)
        block = torch.empty_like(low, dtype=torch.int64)
        _launch(
            kernels.lowest_of_segments,
            (n_segments, _divide_up(n_queries, TILE_QUERIES)),
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
        grid = _divide_up(n_blocks, TILE_BLOCKS), _divide_up(n_queries, TILE_QUERIES)
        counts = torch.empty(grid, dtype=torch.int32, device=minima.device).flatten()
        sizes = minima.stride(0), n_blocks, n_queries
        tiles = {"TILE_B": TILE_BLOCKS, "TILE_Q": TILE_QUERIES}
        limits = limits.contiguous()
        _launch(kernels.count_within, grid, minima, limits, ranks, counts, *sizes, **tiles)
        ends = counts.cumsum(0, dtype=torch.int64)
        offsets = ends - counts
        total = int(ends[-1])
        for first in range(0, total, at_once):
            n = min(at_once, total - first)
            block, query = torch.empty(2, n, dtype=torch.int64, device=minima.device)
            _launch(
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
        self._measure(kernels.nearest_of_pairs, queries, query, block, distance, number, FEW=1)
        return distance, number

    def candidates(
        self, queries: Tensor, query: Tensor, block: Tensor, m: int
    ) -> tuple[Tensor, Tensor]:
        few = self.count_candidates(m)
        distance = queries.new_empty(few, len(query), dtype=torch.float64)
        number = torch.empty_like(distance, dtype=torch.int64)
        self._measure(kernels.nearest_of_pairs, queries, query, block, distance, number, FEW=few)
        return distance, number

    def count_candidates(self, m: int) -> int:
        return min(m, self._blocks.size)

    def distances(self, queries: Tensor, query: Tensor, block: Tensor) -> Tensor:
        distance = queries.new_empty(len(query), self._blocks.size, dtype=torch.float64)
        self._measure(kernels.distances_of_pairs, queries, query, block, distance)
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
        blocks = self._blocks
        pairs = max(1, ROWS_PER_PROGRAM // blocks.size)
        _launch(
            kernel,
            (_divide_up(len(query), pairs),),
            *(blocks.points, blocks.numbers, queries.contiguous()),
            *(query.contiguous(), block.contiguous(), len(query), *out),
            PAIRS=pairs,
            SIZE=blocks.size,
            WIDTH=blocks.n_features,
            **options,
            num_warps=4,
            enable_fp_fusion=False,  # a fused operation rounds once where numpy rounds twice
        )

    def _prepare(self) -> None:
        """The numbers of all rows, with the blocks of a tile interleaved so lanes share no work."""
        blocks, share, size = self._blocks, self._share, self._blocks.size
        n_padded = self._n_tiles * share
        device = blocks.device
        self._half_norms = torch.full((n_padded, size), torch.inf, device=device)
        self._losses = torch.zeros(n_padded, device=device)
        self._lengths = torch.zeros(n_padded, device=device)
        kinds = {"fp16": torch.float16, "bf16": torch.bfloat16}
        dtype = kinds.get(blocks.frame.filter, torch.float32)
        low = torch.zeros(self._n_tiles, size, share, self._width, dtype=dtype, device=device)
        points = blocks.points.view(-1, size, blocks.n_features)
        for part in blocks.slices():
            is_row = blocks.numbers.view(-1, size)[part] != NO_ROW
            bounds = blocks.frame.bound_rows(points[part], is_row)
            self._half_norms[part] = bounds.half_norms
            self._losses[part] = bounds.losses.amax(1)
            self._lengths[part] = bounds.lengths.amax(1)
            block = torch.arange(part.start, part.stop, device=device)
            low[block // share, :, block % share, : blocks.n_features] = bounds.low
        self._low = low.view(-1, self._width)
        interleaved = self._half_norms.view(self._n_tiles, share, size).transpose(1, 2)
        self._half_norms = interleaved.contiguous().flatten()


def _launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Run a kernel on the device of its tensors, whichever device is current."""
    device = next(argument.device for argument in arguments if isinstance(argument, Tensor))
    if device.type == "cuda":
        with torch.cuda.device(device):
            kernel[grid](*arguments, **options)
    else:
        kernel[grid](*arguments, **options)


def _divide_up(a: int, b: int) -> int:
    return -(-a // b)


def _power_of_two(n: int) -> int:
    """The lowest power of two that is at least n."""
    return 1 << (n - 1).bit_length()
