"""Which few are lowest: of the numbers in a row, or of the bounds of blocks."""

from __future__ import annotations

import numpy as np

from iknow.core.arrays import Bools, Floats, Floats32, Ints


def lowest_few(table: Floats, m: int) -> tuple[Floats, Ints]:
    """The m lowest numbers of each row, ascending, and their columns: both of shape (n, m).

    table: of shape (n, n_columns), n_columns >= m. Of equal numbers the first columns count.
    """
    limit = np.partition(table, m - 1, axis=1)[:, m - 1 :]
    row, column = np.nonzero(table <= limit[:, :1])  # m in each row, and those tied with the m-th
    number = table[row, column]
    order = np.lexsort((number, row))  # stable: equals stay in the order of their columns
    first = np.searchsorted(row, np.arange(len(table)))
    chosen = order[first[:, None] + np.arange(m)]
    return number[chosen], column[chosen]


def positions(marked: Bools) -> tuple[Ints, Ints]:
    """Row and column numbers of the marks; much faster than nonzero in two dimensions."""
    row, column = np.divmod(np.flatnonzero(marked), marked.shape[1])
    return row, column


def choose_blocks(minima: Floats32, k: int) -> Ints:
    """Promising blocks for each query, k or all if there are fewer: (k or n_blocks, n_queries).

    minima: of shape (n_blocks, n_queries). Each block has the lowest bound of its group, so that
    only the groups need to be ranked.
    """
    n_blocks, n_queries = minima.shape
    if n_blocks <= k:
        return np.tile(np.arange(n_blocks)[:, None], n_queries)
    group = max(1, min(16, n_blocks // (4 * k)))
    n_groups = n_blocks // group
    groups = minima[: n_groups * group].reshape(n_groups, group, n_queries)
    ranked = np.argpartition(groups.min(axis=1), k - 1, axis=0)[:k]
    best = groups[ranked, :, np.arange(n_queries)].argmin(axis=2)
    chosen: Ints = ranked * group + best
    return chosen
