"""Cells compiled: rows sorted into a tree of balls, and supports found by walking down it."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from iknow.core.arrays import Bools, Floats, Floats32, Ints
from iknow.search.numba import (
    Blocks,
    Pack,
    Queries,
    compiled,
    find_block_minima,
    limit_for,
    limit_terms,
    measure,
)
from iknow.search.numba_vectors import QUERIES_AT_ONCE, lowest_bit, scan_panel
from iknow.search.packed import LANES

SAMPLE = 256
"""Rows that a direction to split in is found from."""
TURNS = 4
"""Steps of the power method towards the direction of largest spread."""


class Tree(NamedTuple):
    """Balls around the panels of each class, in panels of 16 themselves, level upon level.

    nodes: flat, float32; a panel of balls is h, -ĉ_1 … -ĉ_d and -R, 16 numbers each. firsts and
    counts: the first panel and the number of panels of each class at each level, of shape
    (n_classes, n_levels); level 0 are the rows. top: each class's level of a single panel.
    """

    nodes: Floats32
    firsts: Ints
    counts: Ints
    top: Ints


@compiled
def sort_into_cells(points: Floats32, order: Ints) -> None:
    """Sort the row numbers in `order`, in place, so that each 16 in a row lie close together.

    The rows are halved across the direction in which they spread most, again and again. The first
    half is a power of two of panels, so that 16 panels in a row are close to each other, too.
    """
    n_features = points.shape[1]
    keys = np.empty(len(order))
    mean, direction = np.empty(n_features), np.empty(n_features)
    stack = [(0, len(order))]
    while len(stack):
        start, end = stack.pop()
        n_panels = -(-(end - start) // LANES)
        if n_panels <= 1:
            continue
        half = 1
        while 2 * half < n_panels:
            half *= 2
        middle = start + half * LANES
        _find_direction(points, order[start:end], mean, direction)
        for i in range(start, end):
            row = points[order[i]]
            total = 0.0
            for j in range(n_features):
                total += (row[j] - mean[j]) * direction[j]
            keys[i] = total
        _partition(keys, order, start, end, middle)
        stack.append((start, middle))
        stack.append((middle, end))


@compiled
def _find_direction(points: Floats32, rows: Ints, mean: Floats, direction: Floats) -> None:
    """The mean of a sample of rows and, roughly, the direction in which it spreads most."""
    step = max(1, len(rows) // SAMPLE)
    chosen = rows[::step]
    n_features = len(mean)
    mean[:] = 0
    for row in chosen:
        for j in range(n_features):
            mean[j] += points[row, j] / len(chosen)
    farthest = -1.0
    for row in chosen:
        squared = 0.0
        for j in range(n_features):
            squared += (points[row, j] - mean[j]) ** 2
        if squared > farthest:
            farthest = squared
            for j in range(n_features):
                direction[j] = points[row, j] - mean[j]
    turned = np.empty(n_features)
    for _ in range(TURNS):
        norm = np.sqrt((direction * direction).sum())
        if not 0 < norm < np.inf:
            direction[:] = 0  # the rows are equal: any order will do
            return
        direction /= norm
        turned[:] = 0
        for row in chosen:
            along = 0.0
            for j in range(n_features):
                along += (points[row, j] - mean[j]) * direction[j]
            for j in range(n_features):
                turned[j] += along * (points[row, j] - mean[j])
        direction[:] = turned
    direction /= max(np.sqrt((direction * direction).sum()), 1e-300)


@compiled
def _partition(keys: Floats, order: Ints, start: int, end: int, middle: int) -> None:
    """Bring the smallest keys of start..end-1, and their rows, before `middle` (quickselect)."""
    low, high = start, end - 1
    while low < high:
        pivot = keys[(low + high) // 2]
        left, right = low, high
        while left <= right:
            while keys[left] < pivot:
                left += 1
            while keys[right] > pivot:
                right -= 1
            if left <= right:
                keys[left], keys[right] = keys[right], keys[left]
                order[left], order[right] = order[right], order[left]
                left += 1
                right -= 1
        if middle <= right:
            high = right
        elif middle >= left:
            low = left
        else:
            return


@compiled
def make_balls(pack: Pack, tree: Tree, code: int, level: int) -> None:
    """Fill the panels of balls of one class at one level, each around all rows below it.

    R is at least the distance from ĉ to every row, rounding of the rows included.
    """
    n_features = pack.points.shape[1]
    row_size, node_size = (n_features + 1) * LANES, (n_features + 2) * LANES
    panels, slots, nodes = pack.panels, pack.slots, tree.nodes
    width = LANES ** (level - 1)  # panels of rows below one ball
    n_panels = tree.counts[code, 0]
    mean, center = np.empty(n_features), np.empty(n_features, dtype=np.float32)
    for ball in range(tree.counts[code, level] * LANES):
        place = (tree.firsts[code, level] + ball // LANES) * node_size + ball % LANES
        first = tree.firsts[code, 0] + ball * width
        last = tree.firsts[code, 0] + min(n_panels, (ball + 1) * width)
        nodes[place] = np.inf
        for j in range(n_features + 1):
            nodes[place + (j + 1) * LANES] = 0
        if first >= last:
            continue
        mean[:] = 0
        n_rows = 0
        for panel in range(first, last):
            for slot in range(LANES):
                n_rows += slots[panel * LANES + slot] >= 0
            for j in range(n_features):
                for slot in range(LANES):  # empty slots hold a row that is a copy of another
                    if slots[panel * LANES + slot] >= 0:
                        mean[j] -= panels[panel * row_size + (j + 1) * LANES + slot]
        for j in range(n_features):
            center[j] = np.float32(mean[j] / n_rows)
            nodes[place + (j + 1) * LANES] = -center[j]
        radius = 0.0
        for panel in range(first, last):
            for slot in range(LANES):
                if slots[panel * LANES + slot] >= 0:
                    apart, norm = 0.0, 0.0
                    for j in range(n_features):
                        value = np.float64(panels[panel * row_size + (j + 1) * LANES + slot])
                        apart += (value + center[j]) ** 2
                        norm += value * value
                    radius = max(radius, np.sqrt(apart) + 2.0**-22 * np.sqrt(norm))
        radius = np.float64(np.float32(radius * (1 + 2.0**-22) + 2.0**-120))
        squared = 0.0
        for j in range(n_features):
            squared += np.float64(center[j]) ** 2
        bound = 0.5 * (squared - radius * radius) - 2 * pack.error * (squared + radius * radius)
        nodes[place] = np.float32(bound - 2.0**-22 * abs(bound) - 2.0**-120)
        nodes[place + (n_features + 1) * LANES] = -radius


@compiled
def walk(pack: Pack, tree: Tree, queries: Queries, radii: Floats, support: Bools) -> Any:
    """The support of a batch of queries by walking down the tree; returns the panels looked at.

    radii: the reach for each class, of shape (n_classes,). support: of shape (n_queries,
    n_classes), filled with False.
    """
    panels, slots, points, nodes = pack.panels, pack.slots, pack.points, tree.nodes
    n_queries, n_features = queries.points.shape
    row_size, node_size = (n_features + 1) * LANES, (n_features + 2) * LANES
    values = np.empty(LANES, dtype=np.float32)
    levels = np.empty(LANES * 16, dtype=np.int64)
    places = np.empty(LANES * 16, dtype=np.int64)
    extended = np.empty((n_queries, n_features + 1), dtype=np.float32)
    extended[:, :n_features] = queries.points
    looked_at = 0
    for code in range(len(radii)):
        if tree.counts[code, 0] == 0:
            continue
        for i in range(n_queries):
            query, given, squared = extended[i], queries.given[i], queries.squared[i]
            factor, offset = limit_terms(pack.scale, pack.error, pack.underflow, squared)
            limit = limit_for(radii[code], factor, offset)
            reach, ball_limit = _reach_and_limit(pack, squared, radii[code])
            query[n_features] = reach
            levels[0], places[0] = tree.top[code], 0
            top = 1
            while top:
                top -= 1
                level, place = levels[top], places[top]
                looked_at += 1
                panel = tree.firsts[code, level] + place
                if level == 0:
                    bits = scan_panel(panels, panel * row_size, n_features, query, limit, values)
                    while bits:
                        row = slots[panel * LANES + lowest_bit(bits)]
                        bits &= bits - np.uint64(1)
                        if row >= 0 and measure(given, points[row]) <= radii[code]:
                            support[i, code] = True
                            top, bits = 0, np.uint64(0)
                    continue
                bits = scan_panel(
                    nodes, panel * node_size, n_features + 1, query, ball_limit, values
                )
                n_below = tree.counts[code, level - 1] - place * LANES
                if n_below < LANES:
                    bits &= (np.uint64(1) << np.uint64(n_below)) - np.uint64(1)
                # The nearest ball goes on top: where anything is within reach, it is found soon.
                bottom, best = top, top
                while bits:
                    slot = lowest_bit(bits)
                    bits &= bits - np.uint64(1)
                    levels[top], places[top] = level - 1, place * LANES + slot
                    if values[slot] < values[places[best] - place * LANES]:
                        best = top
                    top += 1
                if top > bottom:
                    places[best], places[top - 1] = places[top - 1], places[best]
    return looked_at


@compiled
def _reach_and_limit(pack: Pack, squared: float, radius: float) -> Any:
    """The reach ρ' in scaled units, rounded up, and what no bound of a ball within it exceeds."""
    if not np.isfinite(squared):
        return np.float32(0), np.float32(np.inf)
    norm = np.sqrt(squared)
    reach = pack.scale * radius + 2.0**-23 * norm + pack.underflow
    reach = np.float64(np.float32(reach * (1 + 2.0**-22) + 2.0**-120))
    limit = 0.5 * (reach * reach - squared) + 2 * pack.error * (squared + reach * reach)
    limit += pack.underflow * (1 + norm + reach)
    return np.float32(reach), np.float32(limit + 2.0**-22 * abs(limit) + 2.0**-120)


@compiled
def sweep(pack: Pack, blocks: Blocks, queries: Queries, radii: Floats, support: Bools) -> None:
    """The support of a batch of queries by bounds on all rows: for where no ball is ruled out.

    The arguments are those of `walk`.
    """
    minima = find_block_minima(pack.panels, blocks.starts, queries.points)
    panels, slots, points, starts = pack.panels, pack.slots, pack.points, blocks.starts
    n_queries, n_features = queries.points.shape
    row_size = (n_features + 1) * LANES
    values = np.empty(LANES, dtype=np.float32)
    for code in range(len(radii)):
        for i in range(n_queries):
            bounds = minima[i // QUERIES_AT_ONCE, :, i % QUERIES_AT_ONCE]
            squared = queries.squared[i]
            factor, offset = limit_terms(pack.scale, pack.error, pack.underflow, squared)
            limit = limit_for(radii[code], factor, offset)
            query, given = queries.points[i], queries.given[i]
            for block in range(blocks.classes[code], blocks.classes[code + 1]):
                if bounds[block] > limit or support[i, code]:
                    continue
                for panel in range(starts[block], starts[block + 1]):
                    bits = scan_panel(panels, panel * row_size, n_features, query, limit, values)
                    while bits:
                        row = slots[panel * LANES + lowest_bit(bits)]
                        bits &= bits - np.uint64(1)
                        if row >= 0 and measure(given, points[row]) <= radii[code]:
                            support[i, code] = True
                            bits = np.uint64(0)
