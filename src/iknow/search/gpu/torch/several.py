"""The m nearest rows of each class, for m > 1.

The m nearest rows of a class usually lie in the m blocks with the lowest bounds. We measure these,
and the m-th smallest distance D found reaches at least m rows: what is farther is not among the m
nearest. So we measure every other block whose bound admits a row at D, and no more. A row at D
exactly counts if its number is lower, and the limit of D admits it (`bounds`). As one block may
hold several of the m, each gives its own m nearest.
"""

from __future__ import annotations

import torch
from torch import Tensor

from iknow.search.gpu.torch.blocks import NO_ROW
from iknow.search.gpu.torch.bounds import QueryBounds
from iknow.search.gpu.torch.operations import Operations, Segments
from iknow.search.gpu.torch.ranking import lowest_of_list, lowest_of_stack

BYTES_OF_CANDIDATES = 256 << 20


def several_of_each_class(
    operations: Operations, queries: Tensor, minima: Tensor, bounds: QueryBounds, m: int
) -> tuple[Tensor, Tensor]:
    """Distances and numbers of the m nearest rows: both of shape (m, n_inhabited, n_queries).

    Overwrites the minima of measured blocks with inf.
    """
    ranks, n_queries = operations.blocks.ranks, len(queries)
    nearest, number = _several_of_promising(operations, queries, minima, m)
    # Where a class has too few rows so far, all blocks are open but those measured already.
    limits = bounds.to_limits(nearest[-1]).clamp(max=torch.finfo(torch.float32).max)
    shape = nearest.shape
    nearest, number = nearest.flatten(1), number.flatten(1)
    at_once = max(1, BYTES_OF_CANDIDATES // (64 * m))
    for block, query in operations.within(minima, limits, ranks, at_once):
        distance, row = operations.nearest_few(queries, query, block, m)
        column = (ranks[block] * n_queries + query).expand_as(distance)
        last, last_number = nearest[-1][column], number[-1][column]
        is_open = (distance < last) | ((distance == last) & (row < last_number))
        found = distance[is_open], row[is_open], column[is_open]
        lower, lower_number = lowest_of_list(*found, m, nearest.shape[1])
        nearest, number = lowest_of_stack(
            torch.cat([nearest, lower]), torch.cat([number, lower_number]), m
        )
    return nearest.view(shape), number.view(shape)


def _several_of_promising(
    operations: Operations, queries: Tensor, minima: Tensor, m: int
) -> tuple[Tensor, Tensor]:
    """The m nearest rows in the m blocks of each class with the lowest bounds."""
    starts = operations.blocks.class_starts
    segments = Segments(starts[:-1], starts[1:], 1)
    found = []
    for _ in range(min(m, int(starts.diff().max()))):
        found.append(operations.lowest(minima, segments))
        minima.scatter_(0, found[-1][1], torch.inf)
    low, promising = (torch.stack(each) for each in zip(*found, strict=True))
    every_query = torch.arange(len(queries), device=queries.device).expand_as(promising)
    nearest, number = operations.nearest_few(queries, every_query.flatten(), promising.flatten(), m)
    is_again = (low == torch.inf).flatten()  # a class with fewer blocks
    nearest.masked_fill_(is_again, torch.inf)
    number.masked_fill_(is_again, NO_ROW)
    # The rows of each block and the blocks of each class become one stack of candidates.
    shape = (-1, *promising.shape[1:])
    return lowest_of_stack(nearest.view(shape), number.view(shape), m)
