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
from iknow.search.cpu.numba.cell_vectors import lanes_within, prefetch
from iknow.search.cpu.numba.compile import compiled_freely, inlined
from iknow.search.cpu.numba.few import precedes
from iknow.search.cpu.numba.limits import View, cell_limit, far_limit, row_limit
from iknow.search.cpu.numba.measure import measure_long
from iknow.search.cpu.numba.records import Pack, Queries
from iknow.search.cpu.numba.vectors import lowest_bit, scan_panel
from iknow.search.cpu.packed import LANES

ENOUGH = 32  # rows waiting, to be looked at together: their numbers are on the way from memory
MOST_WAITING = ENOUGH + LANES * LANES  # after one more group of cells
PANEL_BYTES, ROW_BYTES = 256, 512  # to ask for in advance; the processor foresees the rest


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
    places: Ints
    shown: Floats32
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
    n_waiting, size = 0, (queries.points.shape[1] + 1) * LANES
    for group in range(-LANES, task.n, LANES):
        reach = _reach(near, neighbors, i, task)
        if group < 0:  # the best cell comes first
            first, bits = best - best % LANES, np.uint64(1) << np.uint64(best % LANES)
        else:
            first, bits = group, lanes_within(bounds, task.start + group, cell_limit(reach, view))
        ahead, limit = bits, row_limit(reach, view)
        while ahead:
            prefetch(pack.panels, (task.first + first + lowest_bit(ahead)) * size, PANEL_BYTES)
            ahead &= ahead - np.uint64(1)
        while bits:
            cell = first + lowest_bit(bits)
            bits &= bits - np.uint64(1)
            if (cell != best or group < 0) and task.first + cell < task.last:
                panel = task.first + cell
                n_waiting = _collect(pack, far, queries, i, limit, panel, memory, n_waiting)
        if group < 0 or n_waiting > ENOUGH or group + LANES >= task.n:
            _settle(pack, far, queries, i, view, task, neighbors, memory, n_waiting)
            n_waiting = 0
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
def _collect(
    pack: Pack, far: Far, queries: Queries, i: int, limit: Any, panel: int, memory: Memory, n: int
) -> Any:
    """Add the rows of a panel within a limit to the n that are waiting; returns how many are."""
    placed, n_terms, values = queries.points, queries.points.shape[1], memory.values
    memory.costs[0] += 1
    bits = scan_panel(pack.panels, panel * (n_terms + 1) * LANES, n_terms, placed, i, limit, values)
    while bits:
        slot = lowest_bit(bits)
        bits &= bits - np.uint64(1)
        place = panel * LANES + slot
        row = pack.slots[place]
        if row >= 0:
            memory.places[n], memory.shown[n] = place, values[slot]
            n += 1
            if far.rows.shape[1]:
                prefetch(far.rows, place * far.rows.shape[1], 2 * far.rows.shape[1])
            else:
                prefetch(pack.points, row * pack.points.shape[1], 4 * pack.points.shape[1])
    return n


@inlined
def _settle(
    pack: Pack, far: Far, queries: Queries, i: int, view: View, task: Task, neighbors: Floats,
    memory: Memory, n: int,
) -> None:  # fmt: skip
    """Insert the n rows that are waiting, as far as no bound rules them out."""
    near, found, places, shown = memory.near, memory.found, memory.places, memory.shown
    reach = _reach(near, neighbors, i, task)
    at, n_far, is_far = 0, far.rows.shape[1], False
    limit = np.float64(row_limit(reach, view))
    while at < n:
        if reach == np.inf:  # the lowest first, while anything would do
            lowest = at + np.argmin(shown[at:n])
            places[at], places[lowest] = places[lowest], places[at]
            shown[at], shown[lowest] = shown[lowest], shown[at]
        elif n_far and not is_far:
            is_far, most = True, far_limit(reach, view, n_far)
            n = _look_closer(pack, far, i, limit, most, memory, at, n)
            limit = most
            continue
        row = pack.slots[places[at]]
        at += 1
        if shown[at - 1] > limit:
            continue
        memory.costs[2] += 1
        distance = measure_long(queries.given, i, pack.points, row, memory.waiting, memory.sums)
        if distance <= reach:
            _insert(distance, row, task.rank, near, found)
            _insert_neighbor(distance, neighbors, i)
            reach = _reach(near, neighbors, i, task)
            limit = far_limit(reach, view, n_far) if is_far else row_limit(reach, view)


@inlined
def _look_closer(
    pack: Pack, far: Far, i: int, limit: float, most: float, memory: Memory, first: int, last: int
) -> Any:
    """Keep the rows waiting at first..last-1 whose bounds are within the limits; returns the last.

    limit: of the bounds that are known. most: of those by more directions, which replace them.
    """
    n, places, shown = first, memory.places, memory.shown
    for at in range(first, last):
        if shown[at] > limit:
            continue
        place = places[at]
        memory.costs[1] += 1
        apart = compare(far.queries, i, far.rows, place)
        if apart <= most:
            places[n], shown[n] = place, apart
            n += 1
            width = pack.points.shape[1]
            prefetch(pack.points, pack.slots[place] * width, min(4 * width, ROW_BYTES))
    return n


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
