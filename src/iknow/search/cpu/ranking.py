"""The few lowest numbers of each row of a table, the first of equals first."""

from __future__ import annotations

import numpy as np

from iknow.core.arrays import Floats, Ints


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
