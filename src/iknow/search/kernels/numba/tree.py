"""Rows sorted into a tree of balls, compiled: bounds on the distances from 16 rows or more at once.

The rows of a class are sorted so that each panel of 16 lies close together: a cell. A ball around a
cell has a center ĉ and a radius R, in the units of `products`; 16 cells lie in a ball of the next
level, and so on. A row within ρ' of a query lies in balls with |q̂ - ĉ| - R <= ρ'. The centers are
packed in panels like rows, so that one instruction works on 16 balls, and h - ĉ·q̂ bounds |q̂ - ĉ| as
it does for a row: it is at most |q̂ - ĉ|²/2 + offset, with the query's offset from `limit_terms`.
Subtracting one float32 from another and a square root err by 2^-24 of their results, which the
factor 1 - 2^-20 in `scan_balls` covers. The offset is rounded up, R by `_reach_of`, and the reach
in `walk`, which also adds what rounding moved the query by.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from iknow.core.arrays import Floats, Floats32, Ints
from iknow.search.kernels.numba.compile import compiled_freely
from iknow.search.kernels.numba.products import Pack
from iknow.search.kernels.numba.vectors import LANES
from iknow.search.threads import share

SAMPLE = 256  # rows to sample for the direction of a split
TURNS = 4  # steps of the power method toward the direction of largest spread
MOST_WAITING = 128  # parts waiting to be split: at most one for each halving of a class
DRAWS = 40  # steps toward the smallest ball around 16 members


class BallTree(NamedTuple):
    """Balls around the panels of each class, in panels of 16 themselves, level upon level."""

    nodes: Floats32  # flat; a panel of balls is h, -ĉ_1 … -ĉ_d and R, 16 numbers each
    firsts: Ints  # the first panel of each class at each level, of shape (n_classes, n_levels)
    counts: Ints  # how many panels there are, of the same shape; level 0 are the rows
    top: Ints  # each class's first level of a single panel of balls, of shape (n_classes,)


def sort_rows(coordinates: Floats32, class_starts: Ints) -> Ints:
    """Positions of rows, class by class, so that each run of 16 lies close together."""
    order = np.arange(len(coordinates))
    parts = [order[first:last] for first, last in pairwise(class_starts)]
    share(lambda part: sort_into_cells(coordinates, part), parts)
    return order


def plant(pack: Pack, class_panels: Ints, n_terms: int) -> BallTree:
    """The tree of packed rows: enough levels that each class ends in a single panel."""
    counts = [np.diff(class_panels), -(-np.diff(class_panels) // LANES)]
    while counts[-1].max(initial=0) > 1:
        counts.append(-(-counts[-1] // LANES))
    count = np.stack(counts, axis=1).astype(np.int64)
    top = (count[:, 1:] <= 1).argmax(axis=1).astype(np.int64) + 1
    stored = np.where(np.arange(count.shape[1]) <= top[:, None], count, 0)
    stored[:, 0] = 0  # the rows are stored elsewhere
    first = (np.cumsum(stored.T).reshape(stored.shape[::-1]).T - stored).astype(np.int64)
    first[:, 0] = class_panels[:-1]
    nodes = np.empty(int(stored.sum()) * (n_terms + 2) * LANES, dtype=np.float32)
    tree = BallTree(nodes, np.ascontiguousarray(first), count, top)
    share(lambda code: _make_balls(pack, tree, n_terms, code), range(len(top)))
    return tree


@compiled_freely
def sort_into_cells(points: Floats32, order: Ints) -> None:
    """Sort the row numbers in `order`, in place, so that each run of 16 rows lies close together.

    The rows are halved repeatedly, across the direction in which they spread most. The first half
    is a power of two of panels, so runs of 16 panels lie close together, too.
    """
    n_features = points.shape[1]
    keys = np.empty(len(order))
    starts = np.empty(MOST_WAITING, dtype=np.int64)
    ends = np.empty(MOST_WAITING, dtype=np.int64)
    starts[0], ends[0], n_waiting = 0, len(order), 1
    while n_waiting:
        n_waiting -= 1
        start, end = starts[n_waiting], ends[n_waiting]
        n_panels = -(-(end - start) // LANES)
        if n_panels <= 1:
            continue
        half = 1
        while 2 * half < n_panels:
            half *= 2
        middle = start + half * LANES
        mean, direction = _find_direction(points, order[start:end])
        for i in range(start, end):
            row = points[order[i]]
            total = 0.0
            for j in range(n_features):
                total += (row[j] - mean[j]) * direction[j]
            keys[i] = total
        part = order[start:end]
        part[:] = part[np.argpartition(keys[start:end], middle - start)]
        starts[n_waiting], ends[n_waiting] = start, middle
        starts[n_waiting + 1], ends[n_waiting + 1] = middle, end
        n_waiting += 2


@compiled_freely
def _find_direction(points: Floats32, rows: Ints) -> Any:
    """The mean of a sample of rows and, roughly, the direction of its largest spread."""
    sample = points[rows[:: max(1, len(rows) // SAMPLE)]].astype(np.float64)
    mean, farthest, largest = np.zeros(points.shape[1]), 0, -1.0
    for i in range(len(sample)):  # loops are much faster than sums along an axis
        for j in range(len(mean)):
            mean[j] += sample[i, j]
    mean /= len(sample)
    for i in range(len(sample)):
        squared = 0.0
        for j in range(len(mean)):
            sample[i, j] -= mean[j]
            squared += sample[i, j] ** 2
        if squared > largest:
            farthest, largest = i, squared
    direction = sample[farthest]
    for _ in range(TURNS):
        length = np.sqrt((direction * direction).sum())
        # If the rows are equal, any order will do.
        scaled = direction * (1 / length if 0 < length < np.inf else 0.0)
        direction = np.zeros_like(mean)
        for i in range(len(sample)):
            along = 0.0
            for j in range(len(mean)):
                along += sample[i, j] * scaled[j]
            for j in range(len(mean)):
                direction[j] += along * sample[i, j]
    return mean, direction


@compiled_freely
def _make_balls(pack: Pack, tree: BallTree, n_terms: int, code: int) -> None:
    """Fill in the balls of one class, each around all rows below it."""
    panels, slots, nodes = pack.panels, pack.slots, tree.nodes
    row_size, node_size = (n_terms + 1) * LANES, (n_terms + 2) * LANES
    members, reaches = np.empty((LANES, n_terms)), np.empty(LANES)
    center = np.empty(n_terms)
    end = tree.firsts[code, 0] + tree.counts[code, 0]
    width = 1  # panels of rows below a ball
    for level in range(1, tree.top[code] + 1):
        for ball in range(tree.counts[code, level] * LANES):
            place = (tree.firsts[code, level] + ball // LANES) * node_size + ball % LANES
            nodes[place : place + node_size : LANES] = 0
            nodes[place] = np.inf
            first = tree.firsts[code, 0] + ball * width
            last = min(end, first + width)
            if first >= last:
                continue
            # The members of the ball: 16 rows, or 16 balls of the level below.
            below = tree.firsts[code, level - 1] + ball
            n_members = 0
            for slot in range(LANES):
                if level == 1:
                    source, start = panels, below * row_size + slot
                    exists = slots[below * LANES + slot] >= 0
                else:
                    source, start = nodes, below * node_size + slot
                    exists = ball * LANES + slot < tree.counts[code, level - 2]
                if exists:
                    for j in range(n_terms):
                        members[n_members, j] = -source[start + (j + 1) * LANES]
                    reaches[n_members] = 0 if level == 1 else nodes[start + (n_terms + 1) * LANES]
                    n_members += 1
            _find_center(members[:n_members], reaches[:n_members], center)
            nodes[place + LANES : place + row_size : LANES] = -center
            bound = np.square(center).sum() * (0.5 - 2 * pack.error)
            nodes[place] = np.float32(bound - 2.0**-22 * bound)
            nodes[place + (n_terms + 1) * LANES] = _reach_of(panels, slots, first, last, center)
        width *= LANES


@compiled_freely
def _find_center(members: Floats, reaches: Floats, center: Floats) -> None:
    """The float32 center of a small ball around the members, balls of given reach.

    By Bădoiu and Clarkson's method it moves from the mean toward the farthest member in ever
    smaller steps. The radius is often a tenth smaller than from the mean, which in many dimensions
    halves the cells that cannot be ruled out.
    """
    n_members, n_features = members.shape
    center[:] = members.sum(axis=0) / n_members
    best, smallest = np.empty(n_features), np.inf
    for draw in range(DRAWS):
        farthest, radius = 0, -1.0
        for i in range(n_members):
            apart = 0.0
            for j in range(n_features):
                apart += (members[i, j] - center[j]) ** 2
            apart = np.sqrt(apart) + reaches[i]
            if apart > radius:
                farthest, radius = i, apart
        if radius < smallest:
            smallest, best[:] = radius, center
        for j in range(n_features):
            center[j] += (members[farthest, j] - center[j]) / (draw + 6)
    center[:] = best.astype(np.float32)


@compiled_freely
def _reach_of(panels: Floats32, slots: Ints, first: int, last: int, center: Floats) -> Any:
    """A float32 radius that reaches all rows in panels first..last-1, despite their rounding."""
    size, shape = (len(center) + 1) * LANES, (len(center), LANES)
    radius = 0.0
    for panel in range(first, last):
        rows = panels[panel * size + LANES : (panel + 1) * size].reshape(shape).astype(np.float64)
        apart = np.sqrt(np.square(rows + center.reshape(-1, 1)).sum(axis=0))
        apart += 2.0**-22 * np.sqrt(np.square(rows).sum(axis=0))
        for slot in range(LANES):
            if slots[panel * LANES + slot] >= 0:
                radius = max(radius, apart[slot])
    return np.float64(np.float32(radius * (1 + 2.0**-22) + 2.0**-120))
