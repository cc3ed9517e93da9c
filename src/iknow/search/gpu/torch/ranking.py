"""Ranking rows by distance and, among equals, by number.

A stack holds candidates along its first axis and ranks all its columns at once: the lowest goes,
then the lowest of the rest. Their distances are right whichever of equals goes first, so we look at
the numbers of the few columns with equals afterwards. A list holds candidates of many columns in
any order.
"""

from __future__ import annotations

import torch
from torch import Tensor

from iknow.search.gpu.torch.blocks import NO_ROW


def lowest_of_stack(distances: Tensor, numbers: Tensor, m: int) -> tuple[Tensor, Tensor]:
    """The m lowest of each column, ascending, of shape (m, n_columns); inf and NO_ROW for none.

    distances, numbers: of shape (n, n_columns), n >= 1; no row is twice in a column.
    """
    rest = distances.clone()
    lowest = distances.new_empty(m + 1, distances.shape[1])
    place = torch.empty_like(lowest, dtype=torch.int64)
    for i in range(m + 1):
        lowest[i], place[i] = rest.min(0)
        rest.scatter_(0, place[i : i + 1], torch.inf)
    number = numbers.gather(0, place[:m])
    # The last of the m may equal the one after it, which then belongs here if its number is lower.
    equal = (lowest[1:] == lowest[:-1]) & (lowest[1:] < torch.inf)
    column = equal.any(0).nonzero()[:, 0]
    lowest = lowest[:m]
    if len(column):
        asked = distances[:, column], numbers[:, column], lowest[:, column]
        number[:, column] = _numbers_of_equals(*asked)
    return lowest, number.masked_fill_(lowest == torch.inf, NO_ROW)


def _numbers_of_equals(distances: Tensor, numbers: Tensor, lowest: Tensor) -> Tensor:
    """The numbers of the lowest, of shape (m, n_columns), equals in the order of their numbers."""
    number = torch.empty_like(lowest, dtype=torch.int64)
    numbers = numbers.clone()
    for i in range(len(lowest)):
        number[i] = torch.where(distances == lowest[i], numbers, NO_ROW).amin(0)
        numbers.masked_fill_(numbers == number[i], NO_ROW)
    return number


def lowest_of_list(
    distances: Tensor, numbers: Tensor, column: Tensor, m: int, n_columns: int
) -> tuple[Tensor, Tensor]:
    """The m lowest of each column, as above, from a list of shape (n,) with the column of each."""
    order = numbers.argsort()
    order = order[distances[order].argsort(stable=True)]
    order = order[column[order].argsort(stable=True)]
    rank = rank_in_column(column[order], n_columns)
    is_kept = rank < m
    order, rank = order[is_kept], rank[is_kept]
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
