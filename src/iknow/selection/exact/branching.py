"""Branching: the deepest point of boxes on three axes or more, by bounding cells.

Every cell has two numbers (`subdivision`): the value at its corner, and the most that any point in
it could have. We drop cells that cannot beat the best corner and cut the others again, those of the
highest bound first. When none is left the best corner is proven to be the deepest point.

Time and memory are bounded. Some boxes (thin slabs that cross each other) let us drop hardly any
cell; then time runs out, or the cells of the lowest bounds are given up to make room. Either way
the returned bound includes theirs, so that no gap is hidden.
"""

from __future__ import annotations

import numpy as np

from iknow.core.arrays import Bools, Ints
from iknow.selection.exact.deadline import Deadline, OutOfTimeError
from iknow.selection.exact.subdivision import GRID_SIZE, Boxes, Cells, refine, whole_space

CORNERS_PER_ROUND = 1 << 23  # about how many corners of boxes to count in one round
MOST_WAITING = 1 << 23  # boxes that waiting cells may have in part, in total; 8 bytes for each
GUESSES = 64


def search_cells(
    boxes: Boxes, size: Ints, deadline: Deadline, best: float
) -> tuple[Ints | None, float, float]:
    """The best corner above the value `best`, its own value, and a bound that no point exceeds.

    size: the number of places on each axis, of shape (n_axes,).
    """
    corner, best = _guess(boxes, best)
    waiting = whole_space(boxes, size)
    given_up = best
    while len(waiting) and not deadline.is_over:
        order = np.argsort(-waiting.bound, kind="stable")
        work = np.cumsum(np.diff(waiting.starts)[order])
        n_cells = int(np.searchsorted(work, CORNERS_PER_ROUND >> boxes.n_axes))
        n_cells = max(1, min(n_cells, GRID_SIZE >> (2 * boxes.n_axes)))
        try:
            value, place, children = refine(waiting.take(order[:n_cells]), boxes, best, deadline)
        except OutOfTimeError:
            break
        if value > best:
            best, corner = value, place
        waiting = waiting.take(order[n_cells:]).join(children)
        waiting = waiting.take(np.flatnonzero(waiting.bound > best))
        waiting, lost = _make_room(waiting)
        given_up = max(given_up, lost)
    return corner, best, max(best, given_up, float(waiting.bound.max(initial=best)))


def _guess(boxes: Boxes, best: float) -> tuple[Ints | None, float]:
    """The best low corner of a few boxes, if it beats a value: something to start with."""
    corner = None
    ordered = np.lexsort(boxes.low.T)  # so that the order the boxes come in does not matter
    for at in ordered[:: -(-len(ordered) // GUESSES)]:
        point = boxes.low[at]
        around: Bools = np.all((boxes.low <= point) & (point < boxes.high), axis=1)
        value = float(boxes.weight[around].sum())
        if value > best:
            corner, best = point, value
    return corner, best


def _make_room(waiting: Cells) -> tuple[Cells, float]:
    """The cells of the highest bounds, as many as may wait, and the highest bound of the rest."""
    sizes = np.diff(waiting.starts) + 2 * waiting.low.shape[1]  # a cell itself takes memory too
    if sizes.sum() <= MOST_WAITING:
        return waiting, -np.inf
    order = np.argsort(-waiting.bound, kind="stable")
    n_kept = int(np.searchsorted(np.cumsum(sizes[order]), MOST_WAITING))
    return waiting.take(order[:n_kept]), float(waiting.bound[order[n_kept:]].max())
