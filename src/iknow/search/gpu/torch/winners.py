"""The nearest row of each class, from two numbers for each tile.

For every query, a tile has a `low`, a bound for all its rows that names one of its stripes, and a
`second`, a bound for all rows but those of that stripe (`triton.winners`). In the tile of a class
with the lowest low we measure that stripe in float64: a few rows. Let D be the distance found. No
other row of the class can be as near if

    second of that tile > limit of D    and    low of each other tile of the class > limit of D,

and then the class is settled: about 99 of 100 are. For the rest, we measure the named stripe of
each tile whose low is within the limit, and all its rows if its second is, too. A row at D exactly
counts if its number is lower, and the limit of D admits it (`bounds`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from iknow.search.gpu.torch.blocks import NO_ROW
from iknow.search.gpu.torch.launching import divide_up, launch, power_of_two
from iknow.search.gpu.torch.tiles import Tiles
from iknow.search.gpu.triton import winners as kernels

CAPACITY = 1 << 22
TILES_AT_ONCE, NUMBERS_AT_ONCE = 32, 4096
TILE_TILES, TILE_QUERIES = 16, 128
LISTED_AT_ONCE = 256
WARPS_FOR_ONE = 2  # entry of a list
ROWS_PER_PROGRAM = 128


class Winners:
    """The winners of each class for a batch of queries, of shape (n_queries, n_features).

    A pair is the number rank * n_queries + query of a class with rows and a query.
    """

    def __init__(self, tiles: Tiles, queries: Tensor) -> None:
        self.tiles, self.queries = tiles, queries.contiguous()
        padded = tiles.bound_queries(self.queries)
        self.bounds = padded.bounds
        shape = tiles.n_tiles, len(padded.low)
        self.lows, self.seconds = queries.new_empty(shape), queries.new_empty(shape)
        numbers = tiles.losses_of_tiles, tiles.lengths_of_tiles
        tiles.multiply(kernels.tile_winners, padded, *numbers, self.lows, self.seconds)
        self.shape = len(tiles.blocks.classes), len(queries)
        self.tile = torch.empty(self.shape, dtype=torch.int32, device=queries.device)
        self.low, self.other = queries.new_empty(self.shape), queries.new_empty(self.shape)
        at_once = min(TILES_AT_ONCE, power_of_two(tiles.most_tiles))
        tile_queries = NUMBERS_AT_ONCE // at_once
        launch(
            kernels.lowest_of_tiles,
            (self.shape[0], divide_up(self.shape[1], tile_queries)),
            *(self.lows, tiles.class_starts, self.tile, self.low, self.other),
            *(self.lows.stride(0), self.shape[1]),
            AT_ONCE=at_once,
            TILE_Q=tile_queries,
        )

    def settle(self, pairs: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Distance and number of the nearest row, both of shape (n_inhabited, n_queries).

        pairs: those wanted, of shape (n,); inf and NO_ROW for the others. Default: all.
        """
        nearest, number, limits = self._measure(pairs)
        self._settle_open(nearest, number, limits, 0, self.shape[1])
        return nearest.view(self.shape), number.view(self.shape)

    def settle_all_tiles(self) -> tuple[Tensor, Tensor]:
        """As `settle`, by measuring everything: slow, and the same whatever the bounds."""
        nearest, number, limits = self._measure(None)
        self._settle_open(nearest, number, limits.fill_(torch.inf), 0, self.shape[1])
        return nearest.view(self.shape), number.view(self.shape)

    def _settle_open(
        self, nearest: Tensor, number: Tensor, limits: Tensor, first: int, end: int
    ) -> None:
        """Measure all that lies within limits, for queries `first` to `end`, and correct the rest.

        nearest, number, limits: of all pairs, of shape (n_pairs,).
        """
        tiles, (_, n_queries), device = self.tiles, self.shape, limits.device
        capacity = min(self.lows.numel(), max(CAPACITY, tiles.n_tiles))
        tile, query = torch.empty(2, capacity, dtype=torch.int32, device=device)
        count = torch.zeros(1, dtype=torch.int64, device=device)
        launch(
            kernels.list_open,
            (divide_up(tiles.n_tiles, TILE_TILES), divide_up(end - first, TILE_QUERIES)),
            *(self.lows, limits, tiles.ranks, tile, query, count, capacity),
            *(self.lows.stride(0), tiles.n_tiles, n_queries, first, end),
            TILE_T=TILE_TILES,
            TILE_Q=TILE_QUERIES,
        )
        n = int(count)
        if n > capacity:  # never with a single query
            middle = (first + end) // 2
            self._settle_open(nearest, number, limits, first, middle)
            self._settle_open(nearest, number, limits, middle, end)
            return
        if n == 0:
            return
        distance = nearest.new_empty(n)
        row = number.new_empty(n)
        launch(
            kernels.measure_open,
            (n,),
            *(tiles.blocks.points, tiles.blocks.numbers, self.queries, tiles.leaves),
            *(self.lows.view(torch.int32), self.seconds, limits, tiles.ranks, tile, query),
            *(self.lows.stride(0), n_queries, distance, row, nearest.view(torch.int64), number),
            STRIPES=tiles.n_stripes,
            SIZE=tiles.stripe,
            WIDTH=tiles.blocks.n_features,
            N_LEAVES=len(tiles.leaves),
            num_warps=WARPS_FOR_ONE,
            enable_fp_fusion=False,
        )
        launch(
            kernels.name_nearest,
            (divide_up(n, LISTED_AT_ONCE),),
            *(tiles.ranks, tile, query, distance, row, n, n_queries, nearest, number),
            AT_ONCE=LISTED_AT_ONCE,
        )

    def _measure(self, pairs: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Distance, number and limit of the winners, -inf where settled: (n_pairs,) of all."""
        tiles, n_all = self.tiles, self.tile.numel()
        n = n_all if pairs is None else len(pairs)
        kinds = (torch.float64, torch.inf), (torch.int64, NO_ROW), (torch.float32, -torch.inf)
        found = [self.queries.new_empty(n_all, dtype=dtype) for dtype, _ in kinds]
        if pairs is not None:
            for each, (_, none) in zip(found, kinds, strict=True):
                each.fill_(none)
        if n:
            at_once = max(1, ROWS_PER_PROGRAM // tiles.stripe)
            launch(
                kernels.measure_winners,
                (divide_up(n, at_once),),
                *(tiles.blocks.points, tiles.blocks.numbers, self.queries, tiles.leaves),
                *(self.bounds.half_norms, self.bounds.scales, tiles.constants_of_limits),
                *(self.lows.view(torch.int32), self.seconds, self.tile, self.other),
                *(self.tile if pairs is None else pairs, self.lows.stride(0)),
                *(self.shape[1], n, *found),
                PAIRS=at_once,
                LISTED=pairs is not None,
                STRIPES=tiles.n_stripes,
                SIZE=tiles.stripe,
                WIDTH=tiles.blocks.n_features,
                N_LEAVES=len(tiles.leaves),
                num_warps=4,
                enable_fp_fusion=False,  # a fused operation rounds once where numpy rounds twice
            )
        return found[0], found[1], found[2]
