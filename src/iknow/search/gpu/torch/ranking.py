"""Ranking rows by distance and, among equals, by number.

A stack holds candidates along its first axis, and all its columns are ranked at once: the lowest
goes, then the lowest of the rest. A list holds candidates of many columns in any order.
"""

from __future__ import annotations

import torch
from torch import Tensor

from iknow.search.gpu.torch.blocks import NO_ROW


def lowest_of_stack(distances: Tensor, numbers: Tensor, m: int) -> tuple[Tensor, Tensor]:
    """The m lowest of each column, ascending, of shape (m, ...); inf and NO_ROW past the last.

    distances, numbers: of shape (n, ...), n >= 1; no row twice in a column. Overwrites distances.
    """
    lowest = distances.new_empty(m, *distances.shape[1:])
    number = torch.empty_like(lowest, dtype=torch.int64)
    for i in range(m):
        lowest[i] = distances.amin(0)
        number[i] = torch.where(distances == lowest[i], numbers, NO_ROW).amin(0)
        if i + 1 < m:
            distances.masked_fill_(numbers == number[i], torch.inf)
    return lowest, number.masked_fill_(lowest == torch.inf, NO_ROW)


def lowest_of_list(
    distances: Tensor, numbers: Tensor, column: Tensor, m: int, n_columns: int
) -> tuple[Tensor, Tensor]:
    """The m lowest of each column, as above, from a list of shape (n,) with the column of each."""
    order = numbers.argsort()
    order = order[distances[order].argsort(stable=True)]
    order = order[column[order].argsort(stable=True)]
    rank = rank_in_column(column[order], n_columns)
    order, rank = order[rank < m], rank[rank < m]
    lowest = distances.new_full((m, n_columns), torch.inf)
    number = numbers.new_full((m, n_columns), NO_ROW)
    lowest[rank, column[order]] = distances[order]
    number[rank, column[order]] = numbers[order]
    return lowest, number


def rank_in_column(column: Tensor, n_columns: int) -> Tensor:
    """The place of each entry among those of its column; the columns of the list ascend."""
    counts = torch.bincount(column, minlength=n_columns)
    places = torch.arange(len(column), device=column.device)
    return places - (counts.cumsum(0) - counts)[column]
