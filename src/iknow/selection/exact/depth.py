"""Depth: the point that lies in the most boxes, proven, in any number of dimensions.

The coverage of a choice of radii is the number of samples' boxes around it (`sample_boxes`), so the
best choice is the deepest point of the boxes. On one axis or two a sweep finds it (`sweep`),
whatever the boxes look like. On more, we cut space into cells (`cells`), each with the value at its
corner and the most that any point in it could have. We drop cells that cannot beat the best corner
and cut the others again, those of the highest bound first: real evidence leaves a handful after two
or three rounds. When none is left the best corner is proven to be the deepest point.

Time and memory are bounded. Some boxes (thin slabs that cross each other) let us drop hardly any
cell; then time runs out, or the cells of the lowest bounds are given up to make room. Either way
the returned bound includes theirs, so that no gap is hidden.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.errors import SelectionError
from iknow.selection.exact.boxes import around
from iknow.selection.exact.cells import (
    GRID_SIZE,
    Boxes,
    Deadline,
    refine,
    whole_space,
)
from iknow.selection.exact.sweep import deepest_of_intervals, deepest_of_rectangles

CORNERS_PER_ROUND = 1 << 23  # about how many corners of boxes to count in one round
MOST_WAITING = 1 << 23  # boxes that waiting cells may have in part, in total; 8 bytes for each
GUESSES = 64


def search_cells(boxes: Boxes, size: Ints, deadline: Deadline) -> tuple[Ints | None, float, float]:
    """The best corner of value above 0, its value, and a bound that no point exceeds.

    size: the number of places on each axis, of shape (n_axes,).
    """
    corner, best = _guess(boxes)
    waiting = whole_space(boxes, size)
    given_up = best
    while len(waiting) and deadline.left():
        order = np.argsort(-waiting.bound, kind="stable")
        work = np.cumsum(np.diff(waiting.starts)[order])
        n_cells = int(np.searchsorted(work, CORNERS_PER_ROUND >> boxes.n_axes))
        n_cells = max(1, min(n_cells, GRID_SIZE >> (2 * boxes.n_axes)))
        try:
            value, place, children = refine(waiting.take(order[:n_cells]), boxes, best, deadline)
        except TimeoutError:
            break
        if value > best:
            best, corner = value, place
        waiting = waiting.take(order[n_cells:]).join(children)
        waiting = waiting.take(np.flatnonzero(waiting.bound > best))
        sizes = np.diff(waiting.starts) + 2 * boxes.n_axes  # a cell itself takes memory too
        if sizes.sum() > MOST_WAITING:  # those of the highest bounds go on waiting
            order = np.argsort(-waiting.bound, kind="stable")
            n_kept = int(np.searchsorted(np.cumsum(sizes[order]), MOST_WAITING))
            given_up = max(given_up, float(waiting.bound[order[n_kept:]].max()))
            waiting = waiting.take(order[:n_kept])
    return corner, best, max(best, given_up, float(waiting.bound.max(initial=best)))


def _guess(boxes: Boxes) -> tuple[Ints | None, float]:
    """The best low corner of a few boxes, if its value is above 0: something to start with."""
    corner, best = None, 0.0
    ordered = np.lexsort(boxes.low.T)  # so that the order the boxes come in does not matter
    for at in ordered[:: -(-len(ordered) // GUESSES)]:
        point = boxes.low[at]
        value = float(boxes.weight[around(boxes.low, boxes.high, point)].sum())
        if value > best:
            corner, best = point, value
    return corner, best


MOST_AXES = 10  # a box has 2^axes corners to count, and a cell is cut into at least 2^axes


@dataclass(frozen=True, eq=False)
class Deepest:
    """The deepest point found, of shape (n_axes,), its value, and a bound no point exceeds.

    No point, and a value of 0, if none is found that gains more by its boxes than it loses.
    """

    point: Floats | None
    value: float
    bound: float

    @property
    def proven(self) -> bool:
        return self.bound <= self.value


def deepest_point(
    lows: Floats, highs: Floats, weights: Ints | Floats, time_limit: float = np.inf
) -> Deepest:
    """The point of largest total weight, in the middle of its plateau.

    lows, highs: corners of half-open boxes [low, high), of shape (n_boxes, n_axes), in any order.
    weights: of shape (n_boxes,), negative ones allowed; sums of whole numbers are exact.
    time_limit: seconds after which it returns the best point so far.
    """
    deadline = Deadline(time_limit)
    if lows.shape[1] > MOST_AXES:
        raise SelectionError(
            f"{lows.shape[1]} parameters are too many to choose together, at most {MOST_AXES} are "
            "possible: use fewer layers"
        )
    inhabited = (lows < highs).all(axis=1) & (weights != 0)
    lows, highs = lows[inhabited], highs[inhabited]
    weight = np.asarray(weights, dtype=np.float64)[inhabited]
    if not (weight > 0).any():
        return Deepest(None, 0.0, 0.0)
    point, bound = _search_all(lows, highs, weight, deadline)
    value = 0.0 if point is None else float(weight[around(lows, highs, point)].sum())
    if point is None or value <= 0:
        return Deepest(None, 0.0, bound)
    return Deepest(_middle_of_plateau(point, lows, highs, weight), value, max(bound, value))


def profile(low: Floats, high: Floats, weights: Ints | Floats) -> tuple[Floats, Floats]:
    """Depth along one axis: where it may change, ascending, and its value from each place on.

    low, high: ends of half-open intervals, of shape (n,). Before the first place the depth is 0.
    """
    places, ranks = np.unique(np.concatenate([low, high]), return_inverse=True)
    begun, ended = (np.bincount(each, weights, len(places)) for each in np.split(ranks, 2))
    return places, np.cumsum(begun - ended)


def _search_all(
    lows: Floats, highs: Floats, weight: Floats, deadline: Deadline
) -> tuple[Floats | None, float]:
    """The best point of value above 0, if any, and a bound that no point exceeds."""
    # Depth grows only where a box begins, or where one of negative weight ends: points with such
    # coordinates are enough, and with their ranks we compute in whole numbers from here on.
    ends = np.where(np.isinf(highs), lows, highs)[weight < 0]
    places = np.concatenate([lows, ends])
    numbers = [np.unique(column) for column in places.T]
    low, high = _ranks(numbers, lows), _ranks(numbers, highs)
    size = np.array([len(axis) for axis in numbers])
    at: Sequence[int] | Ints | None
    if len(numbers) == 1:
        place, value = deepest_of_intervals(low[:, 0], high[:, 0], weight, int(size[0]))
        at, bound = (place,), value
    elif len(numbers) == 2:
        at, value = deepest_of_rectangles(low, high, weight, size)
        bound = value
    else:
        at, value, bound = search_cells(Boxes(low, high, weight), size, deadline)
    if at is None or value <= 0:
        return None, max(0.0, bound)
    return np.array([axis[i] for axis, i in zip(numbers, at, strict=True)]), bound


def _middle_of_plateau(point: Floats, lows: Floats, highs: Floats, weights: Floats) -> Floats:
    """Move a point, axis by axis, to the middle of the equally deep stretch around it, where small
    errors matter least. If the stretch has no end, take its beginning.
    """
    middle = point.copy()
    for axis in range(len(point)):
        others = np.arange(len(point)) != axis
        active = around(lows[:, others], highs[:, others], middle[others])
        places, depth = profile(lows[active, axis], highs[active, axis], weights[active])
        at = int(np.searchsorted(places, middle[axis], side="right")) - 1
        differs = np.flatnonzero(depth != depth[at])
        first = differs[differs < at].max(initial=-1) + 1
        last = differs[differs > at].min(initial=len(places) - 1)
        middle[axis] = _between(places[first], places[last])
    return middle


def _between(low: float, high: float) -> float:
    """The middle of a half-open interval, inside it even if no number lies between its ends."""
    if np.isinf(high):
        return low
    middle = low + (high - low) / 2
    return middle if middle < high else low


def _ranks(numbers: list[Floats], places: Floats) -> Ints:
    """The number of coordinates below each place, of the shape of `places`.

    Looking places up in order is several times faster than as they come.
    """
    found = np.empty(places.shape, dtype=np.int64)
    for axis, order in enumerate(np.argsort(places, axis=0).T):
        found[order, axis] = np.searchsorted(numbers[axis], places[order, axis])
    return found
