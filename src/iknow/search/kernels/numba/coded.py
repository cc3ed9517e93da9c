"""Bounds on the distances to coded rows, compiled; see `iknow.search.disk.coding` for the proof.

If several queries look at a block, it pays to look at its cells first, runs of 16 close rows. Let w
be any point, such as the mean of the codes of a cell, and r the largest |z - w| there. A row with
|v - z| <= ρ has |v - w| <= ρ + r, so a cell whose S, with w in place of z, exceeds (ρ + r)² (1 + g)
holds none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.core.arrays import Floats, Floats32, Ints
from iknow.search.kernels.numba.compile import compiled, inlined
from iknow.search.kernels.numba.walk import compare

CELL = 16  # rows
WORTH_CELLS = 3  # queries of a block for which its cells are worthwhile


@compiled
def scan_pairs(
    codes: Any,
    places: Ints,
    slots: Ints,
    classes: Ints,
    centers: Floats32,
    units: Floats,
    errors: Floats,
    radii: Floats,
    queries: Floats32,
    pairs: Ints,
    first: int,
    looseness: float,
    slack: float,
    far: float,
    round_up: float,
    limits: Floats,
    within: Floats,
    others: Floats,
    upper: Floats,
    upper_any: Floats,
    found: Ints,
    bounds: Floats,
    count: Ints,
) -> Any:
    """Compare pairs of a block and a query, from the `first` on; returns where it stopped.

    codes: of the blocks, of shape (n, n_features). places: the first row of each block in codes
    and, last, their end. slots: the first slot of each block. pairs: of shape (n_pairs, 2). The
    others are those of `Hunt` and `Finds`, and this changes them.
    """
    n_features = queries.shape[1]
    placed = np.empty((1, n_features), dtype=np.float32)
    largest = 0
    for block in range(len(slots)):
        largest = max(largest, places[block + 1] - places[block])
    n_cells = -(-largest // CELL)
    means = np.empty((n_cells, n_features), dtype=np.float32)
    widths = np.empty(n_cells)
    known = -1  # the block whose cells these are
    for at in range(first, len(pairs)):
        block, query = pairs[at, 0], pairs[at, 1]
        start, end = places[block], places[block + 1]
        if count[0] + end - start > len(bounds):
            return at
        length = _place(queries, query, centers, block, units[block], far, placed)
        blur, is_far = length * 2.0**-23 + slack, not length < far
        if is_far:
            away = units[block] * length
            low, high = away / round_up - radii[block], away * round_up + radii[block]
            if low > _limit(limits, within, others, upper_any, query, classes[block]):
                continue
            for row in range(start, end):
                _keep(
                    low, high, query, classes[block], slots[block] + row - start,
                    limits, others, upper, upper_any, found, bounds, count,
                )  # fmt: skip
            continue
        ahead = at + WORTH_CELLS - 1
        if known != block and ahead < len(pairs) and pairs[ahead, 0] == block:
            _find_cells(codes, start, end, means, widths)
            known = block
        for cell in range(start, end, CELL):
            last = min(cell + CELL, end)
            if known == block:
                number = (cell - start) // CELL
                limit = _limit(limits, within, others, upper_any, query, classes[block])
                reach = _reach(limit, units[block], errors[block], blur, round_up)
                reach += widths[number]
                if compare(placed, 0, means, number) > reach * reach * looseness * round_up:
                    continue
            _scan_rows(
                codes, cell, last, slots[block] - start, classes[block], units[block],
                errors[block], blur, query, placed, looseness, round_up,
                limits, within, others, upper, upper_any, found, bounds, count,
            )  # fmt: skip
    return len(pairs)


@compiled
def _place(
    queries: Floats32,
    query: int,
    centers: Floats32,
    block: int,
    unit: float,
    far: float,
    placed: Floats32,
) -> Any:
    """A query in the units of a block, as float32; returns its length there."""
    squared = 0.0
    for j in range(queries.shape[1]):
        each = (np.float64(queries[query, j]) - np.float64(centers[block, j])) / unit
        squared += each * each
        placed[0, j] = np.float32(each) if abs(each) < far else np.float32(0)
    return np.sqrt(squared)


@compiled
def _find_cells(codes: Any, start: int, end: int, means: Floats32, widths: Floats) -> None:
    """The mean of each cell of a block, and how far from it a row's codes may be, rounded up."""
    n_features = codes.shape[1]
    for cell in range(start, end, CELL):
        number, last = (cell - start) // CELL, min(cell + CELL, end)
        for j in range(n_features):
            total = 0
            for row in range(cell, last):
                total += codes[row, j]
            means[number, j] = np.float32(total / (last - cell))
        widest = 0.0
        for row in range(cell, last):
            squared = 0.0
            for j in range(n_features):
                each = np.float64(codes[row, j]) - np.float64(means[number, j])
                squared += each * each
            widest = max(widest, squared)
        widths[number] = np.sqrt(widest) * (1 + 2.0**-30)


@compiled
def _scan_rows(
    codes: Any,
    start: int,
    end: int,
    shift: int,
    code: int,
    unit: float,
    error: float,
    blur: float,
    query: int,
    placed: Floats32,
    looseness: float,
    round_up: float,
    limits: Floats,
    within: Floats,
    others: Floats,
    upper: Floats,
    upper_any: Floats,
    found: Ints,
    bounds: Floats,
    count: Ints,
) -> None:
    """Keep the rows of a range that may lie within the limit; shift: from row to slot."""
    limit = _limit(limits, within, others, upper_any, query, code)
    reach = _reach(limit, unit, error, blur, round_up)
    most = reach * reach * looseness * round_up
    for row in range(start, end):
        total = np.float64(compare(placed, 0, codes, row))
        if total > most:
            continue
        low = unit * (np.sqrt(total / looseness) - blur) - error
        low -= abs(low) * (round_up - 1)
        high = (unit * (np.sqrt(total * looseness) + blur) + error) * round_up
        if _keep(
            low, high, query, code, row + shift,
            limits, others, upper, upper_any, found, bounds, count,
        ):  # fmt: skip
            limit = _limit(limits, within, others, upper_any, query, code)
            reach = _reach(limit, unit, error, blur, round_up)
            most = reach * reach * looseness * round_up


@compiled
def _keep(
    low: float,
    high: float,
    query: int,
    code: int,
    slot: int,
    limits: Floats,
    others: Floats,
    upper: Floats,
    upper_any: Floats,
    found: Ints,
    bounds: Floats,
    count: Ints,
) -> Any:
    """Note a row that may matter; returns whether its upper bound limits the search further."""
    found[count[0], 0], found[count[0], 1] = query, slot
    bounds[count[0]] = low
    count[0] += 1
    m, k = upper.shape[2], upper_any.shape[1]
    better = False
    if high < upper[query, code, m - 1]:
        _insert(upper[query, code], high)
        if upper[query, code, m - 1] < limits[query, code]:
            limits[query, code] = upper[query, code, m - 1]
            others[query] = min(others[query], limits[query, code])
        better = True
    if k and high < upper_any[query, k - 1]:
        _insert(upper_any[query], high)
        better = True
    return better


@inlined
def _limit(
    limits: Floats, within: Floats, others: Floats, upper_any: Floats, query: int, code: int
) -> Any:
    """How far from a query a row of a class may be to matter."""
    limit = min(limits[query, code], max(within[query], others[query]))
    if upper_any.shape[1]:
        limit = max(limit, upper_any[query, upper_any.shape[1] - 1])
    return limit


@inlined
def _reach(limit: float, unit: float, error: float, blur: float, round_up: float) -> Any:
    """The largest |v - z| of a row within the limit, in units."""
    return ((limit * round_up + error) / unit + blur) * round_up


@compiled
def _insert(ascending: Floats, value: float) -> None:
    """Put a value into its place among ascending ones; the last one falls out."""
    place = len(ascending) - 1
    while place > 0 and value < ascending[place - 1]:
        ascending[place] = ascending[place - 1]
        place -= 1
    ascending[place] = value
