"""Which rows lie close together: halving across the direction of the largest spread.

Rows that fit into memory are halved again and again, down to blocks (`sort_close`). Of more rows, a
sample decides where to cut (`Divider`), and each row, as it is read, goes to its part.

Nothing here need be exact: bad parts only make loose bounds, which cost time.
"""

from __future__ import annotations

import numpy as np

from iknow.core.arrays import Floats, Floats32, Ints
from iknow.search.kernels.numba import is_compiled

SAMPLE = 512  # rows that decide the direction of a cut
TURNS = 4  # of the power method


class Divider:
    """Cuts through space that divide a sample, of shape (n, n_features), into 2^depth parts.

    The cuts form a tree: those after cut i are 2i + 1 and 2i + 2.
    """

    def __init__(self, sample: Floats32, depth: int) -> None:
        self.depth, n_cuts = depth, (1 << depth) - 1
        self._directions = np.zeros((n_cuts, sample.shape[1]))
        self._cuts = np.zeros(n_cuts)
        members = [np.arange(len(sample))]
        for cut in range(n_cuts):
            mine = members[cut]
            keys = np.empty(0)
            if len(mine):
                self._directions[cut] = direction = find_direction(sample[mine])
                keys = sample[mine] @ direction
                self._cuts[cut] = np.median(keys)
            beyond = keys > self._cuts[cut]
            members += [mine[~beyond], mine[beyond]]

    def divide(self, rows: Floats32) -> Ints:
        """The part of each row, from 0 to 2^depth - 1: of shape (n,)."""
        at = np.zeros(len(rows), dtype=np.int64)
        for _ in range(self.depth):
            keys = np.einsum("ij,ij->i", rows, self._directions[at])
            at = 2 * at + 1 + (keys > self._cuts[at])
        return at - ((1 << self.depth) - 1)


def sort_close(rows: Floats32, size: int) -> Ints:
    """An order of rows in memory in which each run of `size`, a power of two, lies close."""
    order = np.arange(len(rows))
    if is_compiled() and size >= 16:
        from iknow.search.kernels.numba.tree import sort_into_cells

        sort_into_cells(rows, order)
        return order
    waiting = [(0, len(rows))]
    while waiting:
        start, end = waiting.pop()
        n_blocks = -(-(end - start) // size)
        if n_blocks <= 1:
            continue
        half = size * (n_blocks // 2)
        mine = order[start:end]
        keys = rows[mine] @ find_direction(rows[mine[:: max(1, len(mine) // SAMPLE)]])
        order[start:end] = mine[np.argpartition(keys, half)]
        waiting += [(start, start + half), (start + half, end)]
    return order


def find_direction(rows: Floats32) -> Floats:
    """Roughly the direction in which rows of shape (n, n_features) spread most."""
    some = rows[:: max(1, len(rows) // SAMPLE)].astype(np.float64)
    some -= some.mean(axis=0)
    largest = np.abs(some).max(initial=0.0)
    if largest == 0:
        return np.zeros(rows.shape[1])
    some /= largest
    direction: Floats = some[np.einsum("ij,ij->i", some, some).argmax()]
    for _ in range(TURNS):
        turned = some.T @ (some @ direction)
        length = np.sqrt(turned @ turned)
        if length == 0:
            break
        direction = turned / length
    return direction
