"""Bounds on the distances to coded rows, compiled; see `iknow.search.disk.coding` for the proof."""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.core.arrays import Floats, Floats32, Ints
from iknow.search.cpu.numba.compile import compiled, inlined
from iknow.search.cpu.numba.deciding import compare


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
    n_features, m, k = queries.shape[1], upper.shape[2], upper_any.shape[1]
    placed = np.empty((1, n_features), dtype=np.float32)
    for at in range(first, len(pairs)):
        block, query = pairs[at, 0], pairs[at, 1]
        start, end = places[block], places[block + 1]
        if count[0] + end - start > len(bounds):
            return at
        unit, error, code = units[block], errors[block], classes[block]
        squared = 0.0
        for j in range(n_features):
            each = (np.float64(queries[query, j]) - np.float64(centers[block, j])) / unit
            squared += each * each
            placed[0, j] = np.float32(each) if abs(each) < far else np.float32(0)
        length = np.sqrt(squared)
        blur = length * 2.0**-23 + slack
        is_far = not length < far
        limit = _limit(limits, within, others, upper_any, query, code, k)
        most = _most(limit, unit, error, blur, looseness, round_up)
        for row in range(start, end):
            if is_far:
                low = unit * length / round_up - radii[block]
                high = unit * length * round_up + radii[block]
                if low > limit:
                    break
            else:
                total = np.float64(compare(placed, 0, codes, row))
                if total > most:
                    continue
                low = unit * (np.sqrt(total / looseness) - blur) - error
                low -= abs(low) * (round_up - 1)
                high = (unit * (np.sqrt(total * looseness) + blur) + error) * round_up
            found[count[0], 0], found[count[0], 1] = query, slots[block] + row - start
            bounds[count[0]] = low
            count[0] += 1
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
            if better:
                limit = _limit(limits, within, others, upper_any, query, code, k)
                most = _most(limit, unit, error, blur, looseness, round_up)
    return len(pairs)


@inlined
def _limit(
    limits: Floats, within: Floats, others: Floats, upper_any: Floats, query: int, code: int, k: int
) -> Any:
    """How far from a query a row of a class may be to matter."""
    limit = min(limits[query, code], max(within[query], others[query]))
    if k:
        limit = max(limit, upper_any[query, k - 1])
    return limit


@inlined
def _most(
    limit: float, unit: float, error: float, blur: float, looseness: float, round_up: float
) -> Any:
    """The largest S of a row within the limit."""
    reach = (limit * round_up + error) / unit + blur
    return reach * reach * looseness * round_up


@compiled
def _insert(ascending: Floats, value: float) -> None:
    """Put a value into its place among ascending ones; the last one falls out."""
    place = len(ascending) - 1
    while place > 0 and value < ascending[place - 1]:
        ascending[place] = ascending[place - 1]
        place -= 1
    ascending[place] = value
