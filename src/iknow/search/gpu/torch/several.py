"""The m nearest rows of each class, for m > 1.

The m nearest rows of a class usually lie in the m blocks with the lowest bounds. We measure these,
and the m-th smallest distance D found reaches at least m rows: what is farther is not among the m
nearest. So we measure every other block whose bound admits a row at D, and no more. A row at D
exactly counts if its number is lower, and the limit of D admits it (`bounds`). As one block may
hold several of the m, all its m nearest are candidates.
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
    ranks, shape = operations.blocks.ranks, (m, len(operations.blocks.classes), len(queries))
    nearest, number = _several_of_promising(operations, queries, minima, m)
    # While a class has too few rows, all its blocks are open, but not those measured already.
    largest = torch.finfo(torch.float32).max
    limits = bounds.to_limits(nearest[-1].view(shape[1:])).clamp(max=largest)
    at_once = max(1, BYTES_OF_CANDIDATES // (64 * operations.count_candidates(m)))
    for block, query in operations.within(minima, limits, ranks, at_once):
        distance, row = operations.candidates(queries, query, block, m)
        column = (ranks[block] * len(queries) + query).expand_as(distance)
        last, last_number = nearest[-1][column], number[-1][column]
        is_lower = (distance < last) | ((distance == last) & (row < last_number))
        listed = distance[is_lower], row[is_lower], column[is_lower]
        lower, lower_number = lowest_of_list(*listed, m, nearest.shape[1])
        candidates = torch.cat([nearest, lower]), torch.cat([number, lower_number])
        nearest, number = lowest_of_stack(*candidates, m)
    return nearest.view(shape), number.view(shape)


def _several_of_promising(
    operations: Operations, queries: Tensor, minima: Tensor, m: int
) -> tuple[Tensor, Tensor]:
    """The m nearest rows in the m blocks of each class with the lowest bounds.

    Both of shape (m, n_inhabited * n_queries).
    """
    starts = operations.blocks.class_starts
    segments = Segments(starts[:-1], starts[1:], 1)
    lows, blocks = [], []
    for _ in range(min(m, int(starts.diff().max()))):
        low, block = operations.lowest(minima, segments)
        minima.scatter_(0, block, torch.inf)
        lows.append(low)
        blocks.append(block)
    promising = torch.stack(blocks)
    every_query = torch.arange(len(queries), device=queries.device).expand_as(promising)
    asked = every_query.flatten(), promising.flatten()
    distances, numbers = operations.candidates(queries, *asked, m)
    is_again = torch.stack(lows).flatten() == torch.inf  # a class with fewer blocks
    distances.masked_fill_(is_again, torch.inf)
    numbers.masked_fill_(is_again, NO_ROW)
    # The candidates of all blocks of a class become one stack.
    shape = -1, promising[0].numel()
    return lowest_of_stack(distances.view(shape), numbers.view(shape), m)
