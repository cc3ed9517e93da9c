"""Bounds on the distances to coded rows, compiled; see `iknow.search.disk` for the proof.

If several queries look at a block, it pays to look at its cells first, runs of 16 close rows. Let w
be any point, such as the mean of the codes of a cell, and r the largest |z - w| there. A row with
|v - z| <= ρ has |v - w| <= ρ + r, so a cell whose S, with w in place of z, exceeds (ρ + r)² (1 + g)
holds none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.core.arrays import Floats, Floats32, Ints
from iknow.search.disk import FAR, LEAST_SLACK, ROUND_UP
from iknow.search.kernels.numba.compile import compiled, inlined
from iknow.search.kernels.numba.walk import compare

CELL = 16  # rows
WORTH_CELLS = 3  # queries of a block for which its cells are worthwhile


@compiled
def scan_pairs(
    table: Any, codes: Any, queries: Floats32, pairs: Ints, first: int, limits: Any
) -> Any:
    """Compare pairs of a block and a query, from the `first` on; returns where it stopped.

    The arguments are those of `iknow.search.disk.scan`, and this changes `limits`.
    """
    n_features, n_cells = queries.shape[1], -(-table.size // CELL)
    loose = 1 + (n_features + 8) * 2.0**-23
    placed = np.empty((1, n_features), dtype=np.float32)
    means = np.empty((n_cells, n_features), dtype=np.float32)
    widths = np.empty(n_cells)
    known = -1  # the block whose cells these are
    for at in range(first, len(pairs)):
        block, query = pairs[at, 0], pairs[at, 1]
        start, end = table.starts[block], table.starts[block + 1]
        if limits.n_found[0] + end - start > len(limits.low):
            return at
        code, unit, error = table.classes[block], table.units[block], table.errors[block]
        length = _place(queries[query], table.centers[block], unit, placed[0])
        if not length < FAR:
            away, radius = unit * length, table.radii[block]
            low, high = away / ROUND_UP - radius, away * ROUND_UP + radius
            if low <= _reach(limits, query, code):
                for slot in range(start, end):
                    _keep(limits, query, code, slot, low, high)
            continue
        blur = length * 2.0**-23 + LEAST_SLACK
        ahead = at + WORTH_CELLS - 1
        if known != block and ahead < len(pairs) and pairs[ahead, 0] == block:
            _find_cells(codes, start, end, means, widths)
            known = block
        reach = _in_units(_reach(limits, query, code), unit, error, blur)
        for cell in range(start, end, CELL):
            if known == block:
                number = (cell - start) // CELL
                furthest = reach + widths[number]
                if compare(placed, 0, means, number) > furthest * furthest * loose * ROUND_UP:
                    continue
            most = reach * reach * loose * ROUND_UP
            for slot in range(cell, min(cell + CELL, end)):
                total = np.float64(compare(placed, 0, codes, slot))
                if total > most:
                    continue
                low = unit * (np.sqrt(total / loose) - blur) - error
                low -= abs(low) * (ROUND_UP - 1)
                high = (unit * (np.sqrt(total * loose) + blur) + error) * ROUND_UP
                if _keep(limits, query, code, slot, low, high):
                    reach = _in_units(_reach(limits, query, code), unit, error, blur)
                    most = reach * reach * loose * ROUND_UP
    return len(pairs)


@compiled
def _place(query: Floats32, center: Floats32, unit: float, placed: Floats32) -> Any:
    """A query in the units of a block, as float32; returns its length there."""
    squared = 0.0
    for j in range(len(query)):
        each = (np.float64(query[j]) - np.float64(center[j])) / unit
        squared += each * each
        placed[j] = np.float32(each) if abs(each) < FAR else np.float32(0)
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
        widths[number] = np.sqrt(widest) * ROUND_UP


@compiled
def _keep(limits: Any, query: int, code: int, slot: int, low: float, high: float) -> Any:
    """Note a row that may matter; returns whether its upper bound limits the search further."""
    n, m, k = limits.n_found[0], limits.upper.shape[2], limits.any.shape[1]
    limits.found[n, 0], limits.found[n, 1], limits.low[n] = query, slot, low
    limits.n_found[0] = n + 1
    better = False
    if high < limits.upper[query, code, m - 1]:
        _insert(limits.upper[query, code], high)
        if code != limits.belief[query]:
            last = limits.upper[query, code, limits.other - 1]
            limits.nearest[query] = min(limits.nearest[query], last)
        better = True
    if k and high < limits.any[query, k - 1]:
        _insert(limits.any[query], high)
        better = True
    return better


@inlined
def _reach(limits: Any, query: int, code: int) -> Any:
    """How far from a query a row of a class may be to matter."""
    if code == limits.belief[query]:
        reach = limits.upper[query, code, limits.own - 1]
    else:
        cap = max(limits.within[query], limits.nearest[query])
        reach = min(limits.upper[query, code, limits.other - 1], cap)
    if limits.any.shape[1]:
        reach = max(reach, limits.any[query, limits.any.shape[1] - 1])
    return reach


@inlined
def _in_units(limit: float, unit: float, error: float, blur: float) -> Any:
    """The largest |v - z| of a row within the limit, in units."""
    return ((limit * ROUND_UP + error) / unit + blur) * ROUND_UP


@compiled
def _insert(ascending: Floats, value: float) -> None:
    """Put a value into its place among ascending ones; the last one falls out."""
    place = len(ascending) - 1
    while place > 0 and value < ascending[place - 1]:
        ascending[place] = ascending[place - 1]
        place -= 1
    ascending[place] = value
