"""Depth: the point that lies in the most boxes, proven, in any number of dimensions.

The coverage of a choice of radii is the number of samples' boxes around it (`boxes`), so the best
choice is the deepest point of the boxes. Space is cut into a grid and every cell gets two numbers
(`cells`): what its corner really has, and the most any point in it could have. Cells that cannot
beat the best corner are dropped, the others cut again. Real evidence leaves a handful of cells
after two or three rounds; what remains when time is up is an honest gap.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from iknow.core.arrays import Bools, Floats, Ints
from iknow.errors import SelectionError
from iknow.selection.cells import GRID_SIZE, Boxes, refine, whole_space
from iknow.selection.focus import better_region

BOXES_PER_ROUND = 1 << 21
MANY_BOXES = 20_000
SAMPLE_SIZE = 4_000
MOST_AXES = 10
"""A box has 2^axes corners to count at, and a cell is cut into at least 2^axes."""


@dataclass(frozen=True, eq=False)
class Deepest:
    """The deepest point found, of shape (n_axes,), its value, and a bound no point exceeds."""

    point: Floats
    value: float
    bound: float

    @property
    def proven(self) -> bool:
        return self.bound <= self.value


def deepest_point(
    lows: Floats, highs: Floats, weights: Ints | Floats, time_limit: float = np.inf
) -> Deepest:
    """The point of largest total weight, in the middle of its plateau.

    lows, highs: corners of half-open boxes [low, high), of shape (n_boxes, n_axes). weights: of
    shape (n_boxes,), negative ones allowed; whole numbers are added exactly. time_limit: seconds
    after which the best point so far is returned. The order of the boxes does not matter.
    """
    if lows.shape[1] > MOST_AXES:
        raise SelectionError(
            f"{lows.shape[1]} parameters are too many to choose together, {MOST_AXES} is the most: "
            "use fewer layers"
        )
    inhabited = (lows < highs).all(axis=1) & (weights != 0)
    lows, highs = lows[inhabited], highs[inhabited]
    weight = np.asarray(weights, dtype=np.float64)[inhabited]
    if not (weight > 0).any():
        raise SelectionError("there is no box to be inside of")
    search = _search_many if len(weight) > MANY_BOXES else _search_all
    point, bound = search(lows, highs, weight, time_limit)
    value = 0.0 if point is None else float(weight[_around(lows, highs, point)].sum())
    if point is None or value <= 0:
        raise SelectionError("no point gains more by its boxes than it loses")
    return Deepest(_middle_of_plateau(point, lows, highs, weight), value, max(bound, value))


def profile(low: Floats, high: Floats, weights: Ints | Floats) -> tuple[Floats, Floats]:
    """Depth along one axis: the places where it may change, ascending, and its value from each on.

    low, high: ends of half-open intervals, of shape (n,). Before the first place the depth is 0.
    """
    places = np.unique(np.concatenate([low, high]))
    begun = np.bincount(_find(places, low), weights, len(places))
    ended = np.bincount(_find(places, high), weights, len(places))
    return places, np.cumsum(begun - ended)


def _search_many(
    lows: Floats, highs: Floats, weight: Floats, time_limit: float
) -> tuple[Floats | None, float]:
    """Like `_search_all`: a sample of the boxes finds a good point, all of them improve on it."""
    some = np.argsort(lows[:, 0], kind="stable")[:: len(lows) // SAMPLE_SIZE]
    point, _ = _search_all(lows[some], highs[some], weight[some], time_limit)
    if point is None:
        return _search_all(lows, highs, weight, time_limit)
    value = float(weight[_around(lows, highs, point)].sum())
    finite = np.where(np.isinf(highs[some]), lows[some], highs[some])
    region = better_region(lows, highs, weight, value, np.concatenate([lows[some], finite]))
    if region is None:
        return point, value
    low, high = region
    covers = np.all((lows <= low) & (highs >= high), axis=1)
    part = np.all((lows < high) & (highs > low), axis=1) & ~covers
    always = float(weight[covers].sum())
    if not part.any():
        return low, always
    better, bound = _search_all(
        np.maximum(lows[part], low),
        np.where(highs[part] < high, highs[part], np.inf),  # no end, so none to look at, beyond it
        weight[part],
        time_limit,
        best=value - always,
        origin=low,
    )
    return (point if better is None else better), max(value, always + bound)


def _search_all(
    lows: Floats,
    highs: Floats,
    weight: Floats,
    time_limit: float,
    best: float = 0.0,
    origin: Floats | None = None,
) -> tuple[Floats | None, float]:
    """The best point of more than a value, if there is one, and a bound that no point exceeds.

    origin: a point, below all boxes, that is looked at even if it lies in none.
    """
    # Depth grows only where a box begins, or where one of negative weight ends: points with such
    # coordinates are enough, and their ranks make all that follows whole numbers.
    ends = np.where(np.isinf(highs), lows, highs)[weight < 0]
    places = np.concatenate([lows, ends, lows[:1] if origin is None else origin[None]])
    numbers = [np.unique(column) for column in places.T]
    boxes = Boxes(low=_ranks(numbers, lows), high=_ranks(numbers, highs), weight=weight)
    size = np.array([len(axis) for axis in numbers])
    corner, bound = _search(boxes, size, time_limit, best)
    if corner is None:
        return None, max(best, bound)
    return np.array([axis[at] for axis, at in zip(numbers, corner, strict=True)]), bound


def _search(boxes: Boxes, size: Ints, time_limit: float, best: float) -> tuple[Ints | None, float]:
    """The best corner that beats a value, and the highest bound left when time or cells run out."""
    deadline = time.monotonic() + time_limit
    corner = None
    waiting = whole_space(boxes, size)
    # Until some point gains there is nothing to return, so the first is waited for.
    while len(waiting) and (corner is None or time.monotonic() < deadline):
        order = np.argsort(-waiting.bound, kind="stable")
        work = np.cumsum(np.diff(waiting.starts)[order])
        n_cells = int(np.searchsorted(work, BOXES_PER_ROUND))
        n_cells = max(1, min(n_cells, GRID_SIZE >> (2 * boxes.n_axes)))
        value, place, children = refine(waiting.take(order[:n_cells]), boxes, best)
        if value > best:
            best, corner = value, place
        waiting = waiting.take(order[n_cells:]).join(children)
        waiting = waiting.take(np.flatnonzero(waiting.bound > best))
    return corner, float(waiting.bound.max(initial=best))


def _middle_of_plateau(point: Floats, lows: Floats, highs: Floats, weights: Floats) -> Floats:
    """Move a point, axis by axis, to the middle of the stretch that is as deep as it is itself.

    It is the choice least easily upset. Where the stretch has no end, its beginning is taken.
    """
    middle = point.copy()
    for axis in range(len(point)):
        others = np.arange(len(point)) != axis
        active = _around(lows[:, others], highs[:, others], middle[others])
        places, depth = profile(lows[active, axis], highs[active, axis], weights[active])
        at = int(np.searchsorted(places, middle[axis], side="right")) - 1
        differs = np.flatnonzero(depth != depth[at])
        first = differs[differs < at].max(initial=-1) + 1
        last = differs[differs > at].min(initial=len(places) - 1)
        middle[axis] = _between(places[first], places[last])
    return middle


def _between(low: float, high: float) -> float:
    """The middle of a half-open interval, never outside it for lack of numbers in between."""
    if np.isinf(high):
        return low
    middle = low + (high - low) / 2
    return middle if middle < high else low


def _around(lows: Floats, highs: Floats, point: Floats) -> Bools:
    """Which boxes the point lies in."""
    inside: Bools = np.all((lows <= point) & (point < highs), axis=1)
    return inside


def _ranks(numbers: list[Floats], places: Floats) -> Ints:
    """The number of coordinates below each place, of the shape of `places`."""
    columns = [_find(axis, places[:, i]) for i, axis in enumerate(numbers)]
    return np.stack(columns, axis=1)


def _find(numbers: Floats, places: Floats) -> Ints:
    """What searchsorted finds; in ascending order it finds many places several times faster."""
    order = np.argsort(places)
    found = np.empty(len(places), dtype=np.int64)
    found[order] = np.searchsorted(numbers, places[order])
    return found
