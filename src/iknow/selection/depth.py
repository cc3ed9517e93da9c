"""Depth: the point that lies in the most boxes, exactly, in one and two dimensions.

One dimension: the depth changes only at endpoints, so sorting them is enough. Two: a line sweeps
over the first axis while a segment tree over the second keeps the depth of every point on the line,
adding a box where it begins and taking it away where it ends; O(n log n) in all.
"""

from __future__ import annotations

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.errors import SelectionError


def deepest_point(lows: Floats, highs: Floats, weights: Ints) -> Floats:
    """A point of largest total weight, of shape (n_axes,), in the middle of its plateau.

    lows, highs: corners of half-open boxes [low, high), of shape (n_boxes, n_axes). weights: of
    shape (n_boxes,), positive. The plateau is the intersection of all boxes around the point; it
    does not depend on the order of the boxes, and its middle is the choice least easily upset.
    """
    inhabited = (lows < highs).all(axis=1)
    lows, highs, weights = lows[inhabited], highs[inhabited], weights[inhabited]
    if len(lows) == 0:
        raise SelectionError("there is no box to be inside of")
    n_axes = lows.shape[1]
    if n_axes == 1:
        corner = np.array([_deepest_on_line(lows[:, 0], highs[:, 0], weights)])
    elif n_axes == 2:
        corner = _deepest_in_plane(lows, highs, weights)
    else:
        raise SelectionError(f"the exact optimum is known for one and two layers; got {n_axes}")
    around = ((lows <= corner) & (corner < highs)).all(axis=1)
    return _middle(lows[around].max(axis=0), highs[around].min(axis=0))


def _deepest_on_line(low: Floats, high: Floats, weights: Ints) -> float:
    """The lowest number in intervals of the largest total weight."""
    numbers = np.unique(low)
    begun = np.cumsum(np.bincount(np.searchsorted(numbers, low), weights, len(numbers)))
    # An interval is over at the first number that is not below its high end.
    over = np.bincount(np.searchsorted(numbers, high), weights, len(numbers) + 1)[:-1]
    return float(numbers[np.argmax(begun - np.cumsum(over))])


def _deepest_in_plane(lows: Floats, highs: Floats, weights: Ints) -> Floats:
    """The corner of largest depth whose first coordinate is lowest."""
    heights = np.unique(lows[:, 1])
    first = np.searchsorted(heights, lows[:, 1]).tolist()
    last = np.searchsorted(heights, highs[:, 1]).tolist()
    # All events along the first axis; at equal places ends come before beginnings, as boxes are
    # half-open, and the depth is looked at once all events of a place are done.
    n = len(lows)
    places = np.concatenate([highs[:, 0], lows[:, 0]])
    order = np.argsort(places, kind="stable")
    sorted_places = places[order]
    is_last_of_place = np.append(sorted_places[1:] != sorted_places[:-1], True).tolist()
    tree = _SegmentTree(len(heights))
    deepest, best_place = 0, places[order[0]]
    for event, settled in zip(order.tolist(), is_last_of_place, strict=True):
        box = event % n
        weight = int(weights[box])
        tree.add(first[box], last[box], weight if event >= n else -weight)
        if settled and tree.deepest > deepest:
            deepest, best_place = tree.deepest, places[event]
    active = (lows[:, 0] <= best_place) & (best_place < highs[:, 0])
    height = _deepest_on_line(lows[active, 1], highs[active, 1], weights[active])
    return np.array([best_place, height])


class _SegmentTree:
    """Weights on positions 0..n-1: add to a range, read the largest, both in O(log n)."""

    def __init__(self, n: int) -> None:
        self._n = n
        self._deepest = [0] * (2 * n)  # the largest sum within a node, its own additions included
        self._added = [0] * n  # what was added to all of an inner node

    @property
    def deepest(self) -> int:
        return self._deepest[1]

    def add(self, start: int, stop: int, weight: int) -> None:
        """Add `weight` to the positions from `start` up to, not including, `stop`."""
        deepest, added, n = self._deepest, self._added, self._n
        left, right = start + n, stop + n
        while left < right:
            if left & 1:
                deepest[left] += weight
                if left < n:
                    added[left] += weight
                left += 1
            if right & 1:
                right -= 1
                deepest[right] += weight
                if right < n:
                    added[right] += weight
            left >>= 1
            right >>= 1
        for leaf in (start + n, stop + n - 1):
            node = leaf >> 1
            while node:
                a, b = deepest[2 * node], deepest[2 * node + 1]
                deepest[node] = (a if a > b else b) + added[node]
                node >>= 1


def _middle(low: Floats, high: Floats) -> Floats:
    """The middle of half-open intervals, never outside them for lack of numbers in between."""
    with np.errstate(invalid="ignore"):
        middle = low + (high - low) / 2
    return np.where(middle < high, middle, low)
