"""Cells: bounding the depth of boxes on a grid, all cells at once.

Boxes and cells are ranges of whole numbers, [low, high) on every axis. The value of a point is the
total weight of the boxes around it; weights may be negative. For a cell

    the value at its low corner is what some point has: a lower bound on the best
    the positive weights that meet it, and the negative ones that cover all of it, are the most that
    any point in it can have: an upper bound in it

Both are sums over ranges of cells, so a difference array with a cumulative sum along every axis
gives them for a whole grid at the cost of the boxes' corners plus the grid.
"""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import dataclass, replace

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.text import as_real

GRID_SIZE = 1 << 19  # about the most cells to cut a set of cells into
CORNERS_AT_ONCE = 1 << 20  # corners of boxes to count in one go, which bounds the memory
MOST_PARTS = 1 << 21  # boxes that the cells made in one go may have in part, in total


@dataclass(frozen=True, eq=False)
class Boxes:
    """Boxes [low, high): whole numbers of shape (n_boxes, n_axes), and weights (n_boxes,)."""

    low: Ints
    high: Ints
    weight: Floats

    @property
    def n_axes(self) -> int:
        return int(self.low.shape[1])


@dataclass(frozen=True, eq=False)
class Cells:
    """Parts of space that may hold the best point."""

    low: Ints  # of shape (n_cells, n_axes), as is high
    high: Ints
    bound: Floats  # the most that a point in each cell can have
    inside: Floats  # the total weight of the boxes that cover all of a cell
    starts: Ints  # boxes[starts[i] : starts[i + 1]] cover a part of cell i
    boxes: Ints

    def __len__(self) -> int:
        return len(self.bound)

    def take(self, cells: Ints) -> Cells:
        counts = np.diff(self.starts)[cells]
        starts, boxes = np.append(0, np.cumsum(counts)), _ranges(self.starts[cells], counts)
        own = self.low[cells], self.high[cells], self.bound[cells], self.inside[cells]
        return Cells(*own, starts, self.boxes[boxes])

    def join(self, other: Cells) -> Cells:
        other = replace(other, starts=self.starts[-1] + other.starts[1:])
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Cells(*map(np.concatenate, pairs))


def whole_space(boxes: Boxes, size: Ints) -> Cells:
    """One cell from 0 to `size`, of shape (n_axes,), that every box covers a part of."""
    n = len(boxes.weight)
    low, bound = np.zeros((1, boxes.n_axes), dtype=np.int64), np.maximum(boxes.weight, 0).sum()
    return Cells(low, size[None], np.array([bound]), np.zeros(1), np.array([0, n]), np.arange(n))


def refine(
    cells: Cells, boxes: Boxes, best: float, deadline: Deadline
) -> tuple[float, Ints, Cells]:
    """Cut every cell into smaller ones: the best corner's value and place, and what may be better.

    best: the value to beat; cells whose bound is no higher are dropped. If the rest would share too
    many boxes, the cells are cut into fewer. Raises TimeoutError.
    """
    n_cells, n_axes = cells.low.shape
    width = cells.high - cells.low
    most = max(2, int((GRID_SIZE / n_cells) ** (1 / n_axes) - 1))
    pieces = np.minimum(most, width.max(axis=0))
    while True:
        cuts = [
            cells.low[:, axis, None] + width[:, axis, None] * np.arange(n + 1) // n
            for axis, n in enumerate(pieces.tolist())
        ]  # of shape (n_cells, n_pieces + 1) on each axis
        values, bounds = _bound_pieces(cells, boxes, width, pieces, deadline)
        for axis, cut in enumerate(cuts, start=1):
            # A cell narrower than the number of pieces has some of no width.
            empty = np.diff(cut, axis=1) == 0
            for each in (values, bounds):
                np.moveaxis(each, axis, 1)[empty] = -np.inf
        cell, *top = np.unravel_index(int(values.argmax()), values.shape)
        corner = np.array([cut[cell, piece] for cut, piece in zip(cuts, top, strict=True)])
        value = float(values.max())
        kept = np.nonzero(bounds > max(best, value))
        children = _children(cells, boxes, kept, bounds[kept], cuts, deadline)
        if children is not None:
            return value, corner, children
        pieces = _fewer(pieces, width)


def _fewer(pieces: Ints, width: Ints) -> Ints:
    """Half as many pieces along every axis, then along fewer axes; at last 2 along the widest."""
    if (pieces > 2).any():
        return np.maximum(np.minimum(pieces, 2), pieces // 2)
    cut_axes = np.flatnonzero(pieces > 1)
    fewer = pieces.copy()
    fewer[cut_axes[width[:, cut_axes].max(axis=0).argmin()]] = 1
    return fewer


def _bound_pieces(
    cells: Cells, boxes: Boxes, width: Ints, pieces: Ints, deadline: Deadline
) -> tuple[Floats, Floats]:
    """Value at the low corner, and bound, of every piece: (n_cells, pieces, pieces, ...)."""
    owner = np.repeat(np.arange(len(cells)), np.diff(cells.starts))
    spans = width[owner]
    low = np.clip(boxes.low[cells.boxes] - cells.low[owner], 0, spans)
    high = np.clip(boxes.high[cells.boxes] - cells.low[owner], 0, spans)
    # Piece i begins at width * i // pieces. From that follow, in whole numbers, the first to begin
    # at or after a number x, and the number of pieces that begin at or before it.
    first_from_low = -(-low * pieces // spans)
    first_from_high = -(-high * pieces // spans)
    meets_from = np.minimum(((low + 1) * pieces - 1) // spans, pieces - 1)
    covers_to = np.minimum(((high + 1) * pieces - 1) // spans, pieces)
    weight = boxes.weight[cells.boxes]
    start = cells.inside.reshape([-1] + [1] * len(pieces))
    grid = owner, len(cells), pieces.tolist(), deadline
    values = _add_up(first_from_low, first_from_high, weight, *grid) + start
    bounds = _add_up(meets_from, first_from_high, np.maximum(weight, 0), *grid) + start
    if (weight < 0).any():
        bounds += _add_up(first_from_low, covers_to, np.minimum(weight, 0), *grid)
    return values, bounds


def _add_up(
    low: Ints,
    high: Ints,
    weight: Floats,
    owner: Ints,
    n_cells: int,
    pieces: list[int],
    deadline: Deadline,
) -> Floats:
    """For each piece of many cells, all weights whose range [low, high) of pieces includes it.

    low, high: of shape (n_boxes, n_axes). owner: the cell of each box, of shape (n_boxes,). pieces:
    how many along every axis. The answer has the shape (n_cells, *pieces).
    """
    inhabited = (low < high).all(axis=1) & (weight != 0)
    owner, weight = owner[inhabited], weight[inhabited]
    ends = low[inhabited], high[inhabited]
    sides = [n + 1 for n in pieces]
    size = n_cells * math.prod(sides)
    total = np.zeros(size)
    corners = list(itertools.product((0, 1), repeat=len(sides)))
    # A few corners at a time, as a box has 2^n_axes of them.
    step = max(1, CORNERS_AT_ONCE // max(1, len(owner)))
    for begin in range(0, len(corners), step):
        deadline.check()
        places, signs = [], []
        for corner in corners[begin : begin + step]:
            place = owner
            for axis, end in enumerate(corner):
                place = place * sides[axis] + ends[end][:, axis]
            places.append(place)
            signs.append(-weight if sum(corner) % 2 else weight)
        total += np.bincount(np.concatenate(places), np.concatenate(signs), size)
    total = total.reshape([n_cells, *sides])
    for axis in range(1, len(sides) + 1):
        np.cumsum(total, axis=axis, out=total)
    return total[(slice(None), *(slice(0, n) for n in pieces))]


def _children(
    cells: Cells,
    boxes: Boxes,
    kept: tuple[Ints, ...],
    bound: Floats,
    cuts: list[Ints],
    deadline: Deadline,
) -> Cells | None:
    """The kept pieces as cells, each with the boxes that cover a part of it.

    None if these may be more than `MOST_PARTS`, and fewer pieces would have fewer.
    """
    parent, n_axes = kept[0], boxes.n_axes
    low = np.stack([cuts[axis][parent, kept[1 + axis]] for axis in range(n_axes)], axis=1)
    high = np.stack([cuts[axis][parent, kept[1 + axis] + 1] for axis in range(n_axes)], axis=1)
    owner = np.repeat(np.arange(len(cells)), np.diff(cells.starts))
    joins = []
    # A box covers a part of a piece only if one of its sides runs through it, so we join pieces and
    # sides by parent and by place on the side's axis.
    for axis in range(n_axes):
        pieces = cuts[axis].shape[1] - 1
        start, span = cells.low[owner, axis], (cells.high - cells.low)[owner, axis]
        wanted = parent * pieces + kept[1 + axis]
        for side in (boxes.low, boxes.high):
            place = side[cells.boxes, axis] - start
            through = np.flatnonzero((place > 0) & (place < span))
            key = owner * pieces + ((place + 1) * pieces - 1) // span
            through = through[np.argsort(key[through], kind="stable")]
            begin = np.searchsorted(key[through], wanted)
            joins.append((through, begin, np.searchsorted(key[through], wanted, "right") - begin))
    n_cut = math.prod(cut.shape[1] - 1 for cut in cuts)
    if n_cut > 2 and sum(int(count.sum()) for *_, count in joins) > MOST_PARTS:
        return None
    pairs = []
    for through, begin, count in joins:
        deadline.check()
        child = np.repeat(np.arange(len(parent)), count)
        box = cells.boxes[through[_ranges(begin, count)]]
        ends = boxes.low[box], boxes.high[box]
        covers = np.all((ends[0] <= low[child]) & (ends[1] >= high[child]), axis=1)
        part = np.all((ends[0] < high[child]) & (ends[1] > low[child]), axis=1) & ~covers
        pairs.append((child * len(boxes.weight) + box)[part])
    deadline.check()
    child, box = np.divmod(np.unique(np.concatenate(pairs)), len(boxes.weight))
    partial = np.bincount(child, np.maximum(boxes.weight[box], 0), len(parent))
    starts = np.searchsorted(child, np.arange(len(parent) + 1))
    return Cells(low, high, bound, inside=bound - partial, starts=starts, boxes=box)


def _ranges(starts: Ints, counts: Ints) -> Ints:
    """start, start + 1, ..., as many as its count, for each start one after the other."""
    numbers: Ints = np.arange(counts.sum()) + np.repeat(starts + counts - np.cumsum(counts), counts)
    return numbers


class Deadline:
    """A moment some seconds from now; inf for never."""

    def __init__(self, time_limit: float) -> None:
        wanted = "be a number of seconds >= 0"
        self._end = time.monotonic() + as_real(time_limit, "time_limit", wanted, lambda x: x >= 0)

    def left(self) -> float:
        """Seconds until then; 0 when it is over."""
        return max(0.0, self._end - time.monotonic())

    def check(self) -> None:
        """Raise a TimeoutError when it is over."""
        if not self.left():
            raise TimeoutError
