"""Whether no other class has samples within a radius, by walking down the tree of cells, compiled.

As in `cells.walk`, the queries walk down a class together. But each has a radius of its own, does
not walk down the class that it believes in, and stops at the first class that has as many samples
within the radius as it takes to contradict.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.core.arrays import Bools, Floats, Floats32, Ints
from iknow.search.cpu.numba.cells import DEEPEST, _existing, _mark_balls, _reach_and_limit
from iknow.search.cpu.numba.compile import compiled, inlined
from iknow.search.cpu.numba.measure import measure
from iknow.search.cpu.numba.records import Pack, Queries, limit_for, limit_terms
from iknow.search.cpu.numba.tree import Tree
from iknow.search.cpu.numba.vectors import lowest_bit, scan_panel
from iknow.search.cpu.packed import LANES

NONE, UNKNOWN = -1, -2  # instead of a class


@compiled
def find_contradictions(
    pack: Pack,
    tree: Tree,
    queries: Queries,
    belief: Ints,
    radii: Floats,
    against: int,
    patience: int,
    found: Ints,
) -> None:
    """Find for each query a class other than its belief with `against` rows within its radius.

    belief, radii: of shape (n_queries,). patience: how many panels to visit for a query. found: of
    shape (n_queries,), filled with `NONE`; gets the class, or `UNKNOWN` for a query that runs out
    of patience.
    """
    n_queries, n_features = queries.points.shape
    extended = np.empty((n_queries, n_features + 1), dtype=np.float32)
    row_limits = np.empty(n_queries, dtype=np.float32)
    ball_limits = np.empty(n_queries, dtype=np.float32)
    for i in range(n_queries):
        for j in range(n_features):
            extended[i, j] = queries.points[i, j]
        squared = queries.squared[i]
        factor, offset = limit_terms(pack.scale, pack.error, pack.underflow, squared)
        row_limits[i] = limit_for(radii[i], factor, offset)
        extended[i, n_features], ball_limits[i] = _reach_and_limit(
            pack.scale, pack.error, pack.underflow, squared, radii[i]
        )
    settled = np.zeros((n_queries, 1), dtype=np.bool_)  # as a support of one class
    chosen = np.empty(n_queries, dtype=np.int64)
    visits = np.zeros(n_queries, dtype=np.int64)
    for code in range(len(tree.top)):
        if tree.counts[code, 0] == 0:
            continue
        n_chosen = 0
        for i in range(n_queries):
            if belief[i] != code and not settled[i, 0]:
                chosen[n_chosen] = i
                n_chosen += 1
        _walk_down(
            pack.panels, pack.slots, pack.points, tree.nodes, tree.firsts, tree.counts,
            tree.top[code], code, extended, queries.given, radii, row_limits, ball_limits,
            chosen[:n_chosen], against, patience, visits, settled, found,
        )  # fmt: skip


@compiled
def _walk_down(
    panels: Floats32,
    slots: Ints,
    points: Floats32,
    nodes: Floats32,
    firsts: Ints,
    counts: Ints,
    top: int,
    code: int,
    extended: Floats32,
    given: Floats32,
    radii: Floats,
    row_limits: Floats32,
    ball_limits: Floats32,
    chosen: Ints,
    against: int,
    patience: int,
    visits: Ints,
    settled: Bools,
    found: Ints,
) -> None:
    """Settle the chosen queries that a class contradicts. Panels wait as in `cells`."""
    values = np.empty(LANES, dtype=np.float32)
    lists = np.empty(len(chosen) * (1 + LANES * top), dtype=np.int64)
    marks = np.empty(len(chosen), dtype=np.uint64)
    waiting = np.empty((LANES * DEEPEST, 4), dtype=np.int64)  # level, place, begin and end
    next_of = np.empty(LANES, dtype=np.int64)
    seen = np.zeros(len(given), dtype=np.int64)  # rows of the class within the radius
    for at in range(len(chosen)):
        lists[at] = chosen[at]
    waiting[0, 0], waiting[0, 1], waiting[0, 2], waiting[0, 3] = top, 0, 0, len(chosen)
    n_waiting = 1
    while n_waiting:
        n_waiting -= 1
        level, place = waiting[n_waiting, 0], waiting[n_waiting, 1]
        start, end = waiting[n_waiting, 2], waiting[n_waiting, 3]
        panel = firsts[code, level] + place
        for at in range(start, end):
            i = lists[at]
            visits[i] += 1
            if settled[i, 0]:
                continue
            if visits[i] > patience:
                settled[i, 0], found[i] = True, UNKNOWN
            elif level == 0:
                seen[i] += _count_within(
                    panels, slots, points, panel, extended, given, i, radii[i], row_limits[i],
                    values,
                )  # fmt: skip
                if seen[i] >= against:
                    settled[i, 0], found[i] = True, code
        if level == 0:
            continue
        asked = lists[start:end]
        _mark_balls(
            nodes, panel, _existing(counts[code, level - 1] - place * LANES), extended,
            ball_limits, asked, settled, 0, values, marks, next_of,
        )  # fmt: skip
        free = end
        for slot in range(LANES):
            n_queries = next_of[slot]
            next_of[slot] = free
            if n_queries:
                waiting[n_waiting, 0], waiting[n_waiting, 1] = level - 1, place * LANES + slot
                waiting[n_waiting, 2], waiting[n_waiting, 3] = free, free + n_queries
                n_waiting += 1
                free += n_queries
        for at in range(len(asked)):
            bits = marks[at]
            while bits:
                slot = lowest_bit(bits)
                bits &= bits - np.uint64(1)
                lists[next_of[slot]] = asked[at]
                next_of[slot] += 1


@inlined
def _count_within(
    panels: Floats32,
    slots: Ints,
    points: Floats32,
    panel: int,
    placed: Floats32,
    given: Floats32,
    i: int,
    radius: float,
    limit: Any,
    values: Floats32,
) -> Any:
    """How many rows of a panel are within the radius; measures those whose bound allows it."""
    n_features = given.shape[1]
    count = 0
    bits = scan_panel(
        panels, panel * (n_features + 1) * LANES, n_features, placed, i, limit, values
    )
    while bits:
        row = slots[panel * LANES + lowest_bit(bits)]
        bits &= bits - np.uint64(1)
        if row >= 0 and measure(given, i, points, row) <= radius:
            count += 1
    return count
