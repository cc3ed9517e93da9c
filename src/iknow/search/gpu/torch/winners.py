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
from iknow.search.gpu.torch.by_triton import TILE_QUERIES, TritonOperations
from iknow.search.gpu.torch.launching import divide_up, launch, power_of_two
from iknow.search.gpu.triton import winners as kernels

PAIRS_AT_ONCE = 1 << 22
TILES_AT_ONCE = 32
ROWS_PER_PROGRAM = 128


class Winners:
    """The winners of each class for a batch of queries, of shape (n_queries, n_features).

    A pair is the number rank * n_queries + query of a class with rows and a query.
    """

    def __init__(self, operations: TritonOperations, queries: Tensor) -> None:
        self.operations, self.queries = operations, queries.contiguous()
        tiles = operations.tiles
        padded = tiles.bound_queries(self.queries)
        self.bounds = padded.bounds
        shape = tiles.n_tiles, len(padded.low)
        self.lows, self.seconds = queries.new_empty(shape), queries.new_empty(shape)
        numbers = tiles.losses_of_tiles, tiles.lengths_of_tiles
        tiles.multiply(kernels.tile_winners, padded, *numbers, self.lows, self.seconds)
        self.shape = len(operations.blocks.classes), len(queries)
        self.tile = torch.empty(self.shape, dtype=torch.int32, device=queries.device)
        self.low, self.other = queries.new_empty(self.shape), queries.new_empty(self.shape)
        launch(
            kernels.lowest_of_tiles,
            (self.shape[0], divide_up(self.shape[1], TILE_QUERIES)),
            *(self.lows, tiles.class_starts, self.tile, self.low, self.other),
            *(self.lows.stride(0), self.shape[1]),
            AT_ONCE=min(TILES_AT_ONCE, power_of_two(tiles.most_tiles)),
            TILE_Q=TILE_QUERIES,
        )

    def settle(self, pairs: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Distance and number of the nearest row, both of shape (n_inhabited, n_queries).

        pairs: those wanted, of shape (n,); inf and NO_ROW for the others. Default: all.
        """
        nearest, number, limits = self._measure(pairs)
        tiles, (_, n_queries) = self.operations.tiles, self.shape
        named = self.lows.view(torch.int32)
        asked = self.lows[:, :n_queries], limits.view(self.shape), tiles.ranks, PAIRS_AT_ONCE
        for tile, query in self.operations.within(*asked):
            at = tiles.ranks[tile] * n_queries + query
            stripe = tile * tiles.n_stripes + (named[tile, query] & (tiles.n_stripes - 1))
            self._lower(nearest, number, at, query, stripe, tiles.stripe)
            is_whole = self.seconds[tile, query] <= limits[at]
            whole = at[is_whole], query[is_whole], tile[is_whole]
            self._lower(nearest, number, *whole, tiles.rows)
        return nearest.view(self.shape), number.view(self.shape)

    def _lower(
        self, nearest: Tensor, number: Tensor, at: Tensor, query: Tensor, block: Tensor, size: int
    ) -> None:
        """Lower the distances of pairs to those of further blocks of a size, in place."""
        distance, row = self.operations.nearest(self.queries, query, block, size)
        before = nearest[at]
        nearest.scatter_reduce_(0, at, distance, "amin")
        now = nearest[at]
        number[at] = torch.where(now < before, NO_ROW, number[at])
        number.scatter_reduce_(0, at, torch.where(distance == now, row, NO_ROW), "amin")

    def _measure(self, pairs: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Distance, number and limit of the winners, -inf where settled: (n_pairs,) of all."""
        tiles, n_all = self.operations.tiles, self.tile.numel()
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
                *(tiles.blocks.points, tiles.blocks.numbers, self.queries),
                *(self.bounds.half_norms, self.bounds.scales, tiles.constants_of_limits),
                *(self.lows.view(torch.int32), self.seconds, self.tile, self.other),
                *(self.tile if pairs is None else pairs, self.lows.stride(0)),
                *(self.shape[1], n, *found),
                PAIRS=at_once,
                LISTED=pairs is not None,
                STRIPES=tiles.n_stripes,
                SIZE=tiles.stripe,
                WIDTH=tiles.blocks.n_features,
                num_warps=4,
                enable_fp_fusion=False,  # a fused operation rounds once where numpy rounds twice
            )
        return found[0], found[1], found[2]
