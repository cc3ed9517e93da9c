"""The nearest rows of one class, compiled, by ever closer bounds: cells, shadows, distances.

A row within a distance ρ of the query lies in a cell within `cell_limit`, its shadow within
`row_limit`, and its shadow by more directions within `far_limit`. What none of these rules out is
measured. The cell with the lowest bound comes first, and its lowest rows, as these are most likely
the nearest: then ρ is small from the start.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from iknow.core.arrays import Floats, Floats32, Ints
from iknow.search.cpu.numba.cell_vectors import lanes_within
from iknow.search.cpu.numba.compile import compiled_bare, compiled_freely, inlined
from iknow.search.cpu.numba.few import precedes
from iknow.search.cpu.numba.limits import View, cell_limit, far_limit, row_limit
from iknow.search.cpu.numba.measure import measure_long
from iknow.search.cpu.numba.records import Pack, Queries
from iknow.search.cpu.numba.vectors import lowest_bit, scan_panel
from iknow.search.cpu.packed import LANES


class Far(NamedTuple):
    """Shadows by more directions, to compare row by row, in units.

    rows: integers of shape (n_slots, n_far + 1), by slot; no columns to leave this out. queries: of
    shape (n_queries, n_far + 1). slack: what to add to a distance to have one among shadows, of
    shape (n_queries,).
    """

    rows: Any
    queries: Floats32
    slack: Floats


class Task(NamedTuple):
    """What is sought: the `rank` nearest rows of a class, as far as they are within `cap`.

    most: how many rows may be measured by then. first, last: the panels of the class. start, n:
    the first of its bounds, and how many. lowest: the lowest of these.
    """

    rank: int
    cap: float
    most: int
    first: int
    last: int
    start: int
    n: int
    lowest: Any


class Memory(NamedTuple):
    """What the functions write to.

    bounds: distances of cells. near, found: distances and rows of the nearest of a class, by
    distance and then by row, padded with inf and -1; those beyond all that matters mean nothing.
    costs: the panels, shadows and rows looked at. The others are for a moment only.
    """

    bounds: Floats32
    near: Floats
    found: Ints
    costs: Ints
    least: Floats32
    values: Floats32
    waiting: Ints
    sums: Floats


@inlined
def find_class(
    pack: Pack, far: Far, queries: Queries, i: int, view: View, task: Task, neighbors: Floats,
    memory: Memory,
) -> None:  # fmt: skip
    """Find the nearest rows of one class to query i, and insert them into its neighbors.

    neighbors: distances to the nearest of all classes so far, of shape (n_queries, k).
    """
    near, found, bounds = memory.near, memory.found, memory.bounds
    for place in range(task.rank):
        near[place], found[place] = np.inf, -1
    best = 0
    while not lanes_within(bounds, task.start + best, task.lowest):
        best += LANES
    best += lowest_bit(lanes_within(bounds, task.start + best, task.lowest))
    for group in range(-LANES, task.n, LANES):
        if group < 0:  # the best cell comes first
            first, bits = best - best % LANES, np.uint64(1) << np.uint64(best % LANES)
        else:
            first, limit = group, cell_limit(_reach(near, neighbors, i, task), view)
            bits = lanes_within(bounds, task.start + group, limit)
        while bits:
            cell = first + lowest_bit(bits)
            bits &= bits - np.uint64(1)
            if (cell != best or group < 0) and task.first + cell < task.last:
                _visit(pack, far, queries, i, view, task, neighbors, memory, task.first + cell)
        if memory.costs[2] > task.most:
            break


@inlined
def _reach(near: Floats, neighbors: Floats, i: int, task: Task) -> Any:
    """How far away a row still matters."""
    reach = min(near[task.rank - 1], task.cap)
    if neighbors.shape[1]:
        reach = max(reach, neighbors[i, -1])
    return reach


@inlined
def _visit(
    pack: Pack, far: Far, queries: Queries, i: int, view: View, task: Task, neighbors: Floats,
    memory: Memory, panel: int,
) -> None:  # fmt: skip
    """Insert the rows of a panel that no bound rules out."""
    near, found, values, costs = memory.near, memory.found, memory.values, memory.costs
    placed, n_terms = queries.points, queries.points.shape[1]
    costs[0] += 1
    reach = _reach(near, neighbors, i, task)
    limit = row_limit(reach, view)
    bits = scan_panel(pack.panels, panel * (n_terms + 1) * LANES, n_terms, placed, i, limit, values)
    while bits:
        # The lowest first, while anything would do.
        slot = _lowest(values, bits) if reach == np.inf else lowest_bit(bits)
        bits &= ~(np.uint64(1) << np.uint64(slot))
        place = panel * LANES + slot
        if pack.slots[place] < 0 or values[slot] > limit:
            continue
        if far.rows.shape[1] and reach < np.inf:
            costs[1] += 1
            shown = compare(far.queries, i, far.rows, place)
            if shown > far_limit(reach, view, far.rows.shape[1]):
                continue
        costs[2] += 1
        row = pack.slots[place]
        distance = measure_long(queries.given, i, pack.points, row, memory.waiting, memory.sums)
        if distance <= reach:
            _insert(distance, row, task.rank, near, found)
            _insert_neighbor(distance, neighbors, i)
            reach = _reach(near, neighbors, i, task)
            limit = row_limit(reach, view)


@compiled_bare
def _lowest(values: Floats32, bits: Any) -> Any:
    """Which of the values marked by bits is the lowest."""
    slot = lowest_bit(bits)
    while bits:
        other = lowest_bit(bits)
        bits &= bits - np.uint64(1)
        if values[other] < values[slot]:
            slot = other
    return slot


@inlined
def _insert(distance: float, row: int, rank: int, near: Floats, found: Ints) -> None:
    if precedes(distance, row, near[rank - 1], found[rank - 1]):
        place = rank - 1
        while place > 0 and precedes(distance, row, near[place - 1], found[place - 1]):
            near[place], found[place] = near[place - 1], found[place - 1]
            place -= 1
        near[place], found[place] = distance, row


@inlined
def _insert_neighbor(distance: float, neighbors: Floats, i: int) -> None:
    place = neighbors.shape[1] - 1
    if place >= 0 and distance < neighbors[i, place]:
        while place > 0 and distance < neighbors[i, place - 1]:
            neighbors[i, place] = neighbors[i, place - 1]
            place -= 1
        neighbors[i, place] = distance


@compiled_freely
def compare(queries: Floats32, query: int, rows: Any, row: int) -> Any:
    """The squared distance between two shadows in float32, summed in any order."""
    total = np.float32(0)
    for j in range(queries.shape[1]):
        difference = queries[query, j] - np.float32(rows[row, j])
        total += difference * difference
    return total
