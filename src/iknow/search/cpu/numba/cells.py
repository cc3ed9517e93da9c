"""Supports within fixed radii by walking down a tree of cells, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.core.arrays import Bools, Floats, Floats32, Ints
from iknow.search.cpu.numba.compile import compiled, inlined
from iknow.search.cpu.numba.records import Pack, Queries, limit_for, limit_terms
from iknow.search.cpu.numba.sweep import has_row_within
from iknow.search.cpu.numba.tree import Tree
from iknow.search.cpu.numba.vectors import lowest_bit, scan_panel
from iknow.search.cpu.packed import LANES

DEEPEST = 16
"""The most levels of a tree: 16 to this power exceeds any number of rows."""


@compiled
def walk(pack: Pack, tree: Tree, queries: Queries, radii: Floats, support: Bools) -> Any:
    """The support of a batch of queries by walking down the tree; returns the panels visited.

    radii: the reach of each class, of shape (n_classes,). support: of shape (n_queries, n_classes),
    filled with False. A query walks down its likeliest class alone, the nearest cell first, as its
    first hit settles the class. In the other classes a walk must visit all cells in reach, so the
    queries walk together, and each cell is read from memory once.
    """
    n_queries, n_features = queries.points.shape
    extended = np.empty((n_queries, n_features + 1), dtype=np.float32)
    for i in range(n_queries):
        for j in range(n_features):
            extended[i, j] = queries.points[i, j]
    row_limits = np.empty(n_queries, dtype=np.float32)
    ball_limits = np.empty(n_queries, dtype=np.float32)
    likely = np.zeros(n_queries, dtype=np.int64)
    lowest = np.full(n_queries, np.inf, dtype=np.float32)
    together = np.empty(n_queries, dtype=np.int64)
    values = np.empty(LANES, dtype=np.float32)
    waiting = np.empty((LANES * DEEPEST, 2), dtype=np.int64)
    looked_at = 0
    known = np.nan  # the radius of the current limits
    for code in range(len(radii)):
        if tree.counts[code, 0]:
            if radii[code] != known:
                known = radii[code]
                _set_limits(pack, queries.squared, known, extended, row_limits, ball_limits)
            _find_likely(pack.panels, tree, code, extended, lowest, likely)
    for code in range(len(radii)):
        if tree.counts[code, 0] == 0:
            continue
        if radii[code] != known:
            known = radii[code]
            _set_limits(pack, queries.squared, known, extended, row_limits, ball_limits)
        n_together = 0
        for i in range(n_queries):
            if likely[i] == code:
                found, steps = _walk_alone(
                    pack, tree, code, extended, queries.given, i, radii[code],
                    row_limits[i], ball_limits[i], values, waiting,
                )  # fmt: skip
                support[i, code] = found
                looked_at += steps
            else:
                together[n_together] = i
                n_together += 1
        looked_at += _walk_together(
            pack, tree, code, extended, queries.given, radii[code], row_limits, ball_limits,
            together[:n_together], support,
        )  # fmt: skip
    return looked_at


@compiled
def _set_limits(
    pack: Pack,
    squared: Floats,
    radius: float,
    extended: Floats32,
    row_limits: Floats32,
    ball_limits: Floats32,
) -> None:
    """For each query, the limit of bounds within the radius, and ρ' as its last feature."""
    for i in range(len(squared)):
        factor, offset = limit_terms(pack.scale, pack.error, pack.underflow, squared[i])
        row_limits[i] = limit_for(radius, factor, offset)
        reach, ball_limits[i] = _reach_and_limit(
            pack.scale, pack.error, pack.underflow, squared[i], radius
        )
        extended[i, -1] = reach


@compiled
def _find_likely(
    panels: Floats32, tree: Tree, code: int, extended: Floats32, lowest: Floats32, likely: Ints
) -> None:
    """Record the class for the queries that are nearer to its root than to any before."""
    values = np.empty(LANES, dtype=np.float32)
    n_terms = extended.shape[1] if tree.top[code] else extended.shape[1] - 1
    start = tree.firsts[code, tree.top[code]] * (n_terms + 1) * LANES
    roots = tree.nodes if tree.top[code] else panels
    for i in range(len(extended)):
        scan_panel(roots, start, n_terms, extended, i, np.float32(0), values)
        low = values[0]
        for slot in range(1, LANES):
            low = min(low, values[slot])
        if low < lowest[i]:
            lowest[i], likely[i] = low, code


@compiled
def _walk_alone(
    pack: Pack,
    tree: Tree,
    code: int,
    extended: Floats32,
    given: Floats32,
    i: int,
    radius: float,
    row_limit: Any,
    ball_limit: Any,
    values: Floats32,
    waiting: Ints,
) -> Any:
    """Whether query i has a row of a class within its radius, and the panels visited."""
    panels, slots, points, nodes = pack.panels, pack.slots, pack.points, tree.nodes
    n_features = given.shape[1]
    waiting[0, 0], waiting[0, 1] = tree.top[code], 0
    n_waiting, looked_at = 1, 0
    while n_waiting:
        n_waiting -= 1
        level, place = waiting[n_waiting, 0], waiting[n_waiting, 1]
        panel = tree.firsts[code, level] + place
        looked_at += 1
        if level == 0:
            if has_row_within(
                panels, slots, points, panel, extended, given, i, radius, row_limit, values
            ):
                return True, looked_at
            continue
        start = panel * (n_features + 2) * LANES
        bits = scan_panel(nodes, start, n_features + 1, extended, i, ball_limit, values)
        bits &= _existing(tree.counts[code, level - 1] - place * LANES)
        nearest, bottom = n_waiting, n_waiting
        while bits:
            slot = lowest_bit(bits)
            bits &= bits - np.uint64(1)
            waiting[n_waiting, 0], waiting[n_waiting, 1] = level - 1, place * LANES + slot
            if values[slot] < values[waiting[nearest, 1] - place * LANES]:
                nearest = n_waiting
            n_waiting += 1
        if n_waiting > bottom:  # the nearest ball goes on top
            last = waiting[n_waiting - 1, 1]
            waiting[n_waiting - 1, 1] = waiting[nearest, 1]
            waiting[nearest, 1] = last
    return False, looked_at


@compiled
def _walk_together(
    pack: Pack,
    tree: Tree,
    code: int,
    extended: Floats32,
    given: Floats32,
    radius: float,
    row_limits: Floats32,
    ball_limits: Floats32,
    chosen: Ints,
    support: Bools,
) -> Any:
    """Mark the chosen queries with a row of the class within the radius; returns panels visited.

    Each panel waits with its queries, those that cannot rule it out, listed one panel after the
    other in `lists`. The last panel is visited next.
    """
    panels, slots, points, nodes = pack.panels, pack.slots, pack.points, tree.nodes
    values = np.empty(LANES, dtype=np.float32)
    lists = np.empty(len(chosen) * (1 + LANES * tree.top[code]), dtype=np.int64)
    marks = np.empty(len(chosen), dtype=np.uint64)
    levels = np.empty(LANES * DEEPEST, dtype=np.int64)
    places = np.empty(LANES * DEEPEST, dtype=np.int64)
    begins = np.empty(LANES * DEEPEST, dtype=np.int64)
    ends = np.empty(LANES * DEEPEST, dtype=np.int64)
    next_of = np.empty(LANES, dtype=np.int64)
    for at in range(len(chosen)):
        lists[at] = chosen[at]
    levels[0], places[0], begins[0], ends[0] = tree.top[code], 0, 0, len(chosen)
    n_waiting, looked_at = 1, 0
    while n_waiting:
        n_waiting -= 1
        level, place = levels[n_waiting], places[n_waiting]
        start, end = begins[n_waiting], ends[n_waiting]
        panel = tree.firsts[code, level] + place
        looked_at += end - start
        if level == 0:
            for i in lists[start:end]:
                if not support[i, code]:
                    support[i, code] = has_row_within(
                        panels, slots, points, panel, extended, given, i, radius,
                        row_limits[i], values,
                    )  # fmt: skip
            continue
        asked = lists[start:end]
        _mark_balls(
            nodes, panel, _existing(tree.counts[code, level - 1] - place * LANES), extended,
            ball_limits, asked, support, code, values, marks, next_of,
        )  # fmt: skip
        free = end
        for slot in range(LANES):
            n_queries = next_of[slot]
            next_of[slot] = free
            if n_queries:
                levels[n_waiting], places[n_waiting] = level - 1, place * LANES + slot
                begins[n_waiting], ends[n_waiting] = free, free + n_queries
                n_waiting += 1
                free += n_queries
        for at in range(len(asked)):
            bits = marks[at]
            while bits:
                slot = lowest_bit(bits)
                bits &= bits - np.uint64(1)
                lists[next_of[slot]] = asked[at]
                next_of[slot] += 1
    return looked_at


@inlined
def _mark_balls(
    nodes: Floats32,
    panel: int,
    existing: Any,
    extended: Floats32,
    ball_limits: Floats32,
    asked: Ints,
    support: Bools,
    code: int,
    values: Floats32,
    marks: Any,
    counts: Ints,
) -> None:
    """The balls of a panel that open queries cannot rule out: bits per query, counts per ball.

    existing: the balls in the panel, as bits.
    """
    n_terms = extended.shape[1]
    start = panel * (n_terms + 1) * LANES
    for slot in range(LANES):
        counts[slot] = 0
    for at in range(len(asked)):
        i = asked[at]
        bits = np.uint64(0)
        if not support[i, code]:
            bits = existing & scan_panel(nodes, start, n_terms, extended, i, ball_limits[i], values)
        marks[at] = bits
        while bits:
            counts[lowest_bit(bits)] += 1
            bits &= bits - np.uint64(1)


@inlined
def _existing(n: int) -> Any:
    """A bit for each of the first n slots of a panel."""
    return (np.uint64(1) << np.uint64(min(n, LANES))) - np.uint64(1)


@compiled
def _reach_and_limit(
    scale: float, error: float, underflow: float, squared: float, radius: float
) -> Any:
    """The reach ρ' in scaled units, rounded up, and the limit of bounds of balls within it."""
    if not np.isfinite(squared):
        return np.float32(0), np.float32(np.inf)
    norm = np.sqrt(squared)
    reach = scale * radius + 2.0**-23 * norm + underflow
    reach = np.float64(np.float32(reach * (1 + 2.0**-22) + 2.0**-120))
    limit = 0.5 * (reach * reach - squared) + 2 * error * (squared + reach * reach)
    limit += underflow * (1 + norm + reach)
    return np.float32(reach), np.float32(limit + 2.0**-22 * abs(limit) + 2.0**-120)
