"""Sweep: the deepest point of rectangles, proven, in n log n steps whatever they look like.

A line sweeps along the first axis. On the second a rectangle is two changes of the depth: its
weight at its low end, minus its weight at its high end; the depth at a place is the sum of all
changes up to it. A segment tree keeps, for each of its ranges of places, the sum of the changes in
it and the largest of its partial sums:

    sum  = sum_left + sum_right          top = max(top_left, sum_left + top_right)

When the line reaches a rectangle's low side we make its two changes, at its high side we undo them,
and the top of the whole axis is the depth of the best point on the line.

Making one change after the other would be slow in Python, so we make all at once, level by level. A
node's state alters only at the changes inside its range, so the histories of a level are together
as long as all changes. A parent's history follows from its children's: at each change one child has
a new state and the other its last one. As in a wavelet tree, the changes of a node, in order of
time, split into those of the left and of the right child, again in order of time; so counting finds
"its last one".
"""

from __future__ import annotations

import numpy as np

from iknow.core.arrays import Floats, Ints


def deepest_of_intervals(low: Ints, high: Ints, weight: Floats, size: int) -> tuple[int, float]:
    """The place of largest depth, the first of equals, and that depth.

    low, high: intervals [low, high) of the places 0, 1, ..., size - 1, of shape (n,). weight: (n,).
    """
    begun, ended = (np.bincount(ends, weight, size + 1) for ends in (low, high))
    depth = np.cumsum(begun - ended)[:size]
    best = int(depth.argmax())
    return best, float(depth[best])


def deepest_of_rectangles(
    low: Ints, high: Ints, weight: Floats, size: Ints
) -> tuple[tuple[int, int], float]:
    """The point of largest depth, the first of equals, and that depth.

    low, high: rectangles [low, high) in whole numbers, of shape (n, 2). weight: of shape (n,).
    size: points have coordinates from 0 to below these two.
    """
    # The first change does nothing but include the origin, even if no rectangle begins there.
    times = np.concatenate([[0], low[:, 0], low[:, 0], high[:, 0], high[:, 0]])
    places = np.concatenate([[0], low[:, 1], high[:, 1], low[:, 1], high[:, 1]])
    changes = np.concatenate([[0.0], weight, -weight, -weight, weight])
    inside = np.flatnonzero((times < size[0]) & (places < size[1]))
    order = inside[np.argsort(times[inside], kind="stable")]
    times, tops = times[order], _history_of_tops(places[order], changes[order])
    last = np.flatnonzero(np.append(times[1:] != times[:-1], True))  # all changes of a time made
    x = int(times[last[tops[last].argmax()]])
    crossed = (low[:, 0] <= x) & (x < high[:, 0])
    ends = low[crossed, 1], high[crossed, 1]
    y, depth = deepest_of_intervals(*ends, weight[crossed], int(size[1]))
    return (x, y), depth


def _history_of_tops(places: Ints, changes: Floats) -> Floats:
    """After each change, the largest partial sum by place of all changes so far.

    places: whole numbers from 0, of shape (m,). changes: of shape (m,), in order of time.
    """
    m = len(places)
    n_levels = int(places.max()).bit_length()
    begin = np.zeros((1 << n_levels) + 1, dtype=np.int64)
    np.cumsum(np.bincount(places, minlength=1 << n_levels), out=begin[1:])
    # Down the tree: the positions of the last states of a node's children at each of its changes.
    # Position m is the state before any change.
    children = []
    start, place, count = np.zeros(m, dtype=np.int64), places, np.arange(1, m + 1)
    for level in range(n_levels - 1, -1, -1):
        is_right = (place >> level & 1).astype(bool)
        lefts = np.cumsum(~is_right)
        lefts -= (lefts - ~is_right)[start]  # only those of the same node count
        middle = begin[(place >> level | 1) << level]
        rights = count - start - lefts
        left, right = start + lefts - 1, middle + rights - 1
        own = np.where(is_right, right, left)
        left[lefts == 0], right[rights == 0] = m, m
        children.append((left, right))
        start, place = _scatter(np.where(is_right, middle, start), own), _scatter(place, own)
    # At the leaves changes are in order of place, then of time.
    sorted_changes = changes[np.argsort(places, kind="stable")]
    sums = np.cumsum(sorted_changes)
    sums = np.append(sums - (sums - sorted_changes)[start], 0.0)
    tops = sums.copy()
    for left, right in reversed(children):
        left_sums = sums[left]
        tops[:m] = np.maximum(tops[left], left_sums + tops[right])
        sums[:m] = left_sums + sums[right]
    return tops[:m]


def _scatter(values: Ints, to: Ints) -> Ints:
    moved = np.empty_like(values)
    moved[to] = values
    return moved
