"""Focus: where, among very many boxes, a point can be better than a good one.

A coarse grid bounds the value of every cell by counting all boxes once. Only boxes with a side
through the cells that may hold a better point need more work; the others cover these cells
entirely or not at all.
"""

from __future__ import annotations

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.selection.exact.deadline import Deadline
from iknow.selection.exact.subdivision import GRID_SIZE, Grid


def better_region(
    lows: Floats, highs: Floats, weight: Floats, value: float, sample: Floats, deadline: Deadline
) -> tuple[Floats, Floats] | None:
    """A box [low, high) that holds every point above a value, or None if no point is.

    lows, highs: of shape (n_boxes, n_axes). weight: of shape (n_boxes,). sample: places of shape
    (n, n_axes) whose quantiles are the grid's cuts. Raises OutOfTimeError.
    """
    n_axes = lows.shape[1]
    pieces = int(min(128, (GRID_SIZE / 8) ** (1 / n_axes)))
    shares = np.linspace(0, 1, pieces)
    cuts = [np.quantile(sample[:, axis], shares, method="lower") for axis in range(n_axes)]
    for axis in range(n_axes):
        cuts[axis][0] = lows[:, axis].min()  # no box lies before the first piece

    def count(places: Floats, side: str, first: int = 0) -> Ints:
        """How many pieces begin before each place, or, if `first` is 1, end."""
        pairs = zip(cuts, places.T, strict=True)
        found = [np.searchsorted(cut[first:], column, side) for cut, column in pairs]  # type: ignore[call-overload]
        return np.stack(found, axis=1)

    # Piece i is [cuts[i], cuts[i + 1]), the last one without an end.
    owner, each = np.zeros(len(lows), dtype=np.int64), np.full(n_axes, pieces)
    grid = Grid(owner, 1, each, np.zeros(1), deadline)
    meets_from = np.maximum(count(lows, "right") - 1, 0)
    bound = grid.add_up(meets_from, count(highs, "left"), np.maximum(weight, 0))
    if (weight < 0).any():
        covers_to = count(highs, "right", first=1) + np.isinf(highs)
        bound += grid.add_up(count(lows, "left"), covers_to, np.minimum(weight, 0))
    # Equal cuts make pieces without a point in them.
    for axis in range(n_axes):
        empty = np.diff(cuts[axis], append=np.inf) == 0
        np.moveaxis(bound[0], axis, 0)[empty] = -np.inf
    better = np.nonzero(bound[0] > value)
    if len(better[0]) == 0:
        return None
    low = [cuts[axis][better[axis].min()] for axis in range(n_axes)]
    high = [np.append(cuts[axis], np.inf)[better[axis].max() + 1] for axis in range(n_axes)]
    return np.array(low), np.array(high)
