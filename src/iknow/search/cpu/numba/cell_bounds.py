"""Balls around cells, compiled: bounds on the distances from 16 rows at once.

The ball around the 16 rows of a panel has a center ĉ and a radius R. A row within ρ' of a query
lies in a cell with |q̂ - ĉ| - R <= ρ'. The centers are packed in panels like rows, so that one
instruction works on 16 cells, and h - ĉ·q̂ bounds |q̂ - ĉ| as it does for a row (see `packed`): it is
at most |q̂ - ĉ|²/2 + offset, with the query's offset from `limit_terms`. Subtracting one float32
from another and a square root err by 2^-24 of their results, which the factor 1 - 2^-20 in
`turn_into_distances` covers. The offset is rounded up, R by `reach_of`, and the reach by
`cell_limit`, which also adds what rounding moved the query by.

Where rows fill their space evenly, balls around 16 of them rule out little. Then we take the lowest
bound of the 16 rows themselves in place of the ball's (`is_flat`), with a radius of 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from iknow.core.arrays import Floats32, Ints
from iknow.search.cpu.numba.cell_vectors import bounds_for_one, bounds_for_six
from iknow.search.cpu.numba.compile import compiled
from iknow.search.cpu.numba.tree import find_center, reach_of
from iknow.search.cpu.numba.vectors import QUERIES_AT_ONCE
from iknow.search.cpu.packed import LANES

ALONE = 2  # up to so many queries are faster one by one


class Cells(NamedTuple):
    """Balls around the panels of each class, in panels of 16 themselves; the last may have fewer.

    centers: flat, float32. radii: of shape (n_cells,); 0 where there is no cell. firsts: the first
    panel of cells of each class and, last, their number, of shape (n_classes + 1,). rows: the first
    panel of rows of each class and, last, their number, of shape (n_classes + 1,).
    """

    centers: Floats32
    radii: Floats32
    firsts: Ints
    rows: Ints


@compiled
def surround(
    panels: Floats32, slots: Ints, n_features: int, error: float, cells: Cells, code: int
) -> None:
    """Fill in the balls around the panels of rows of one class."""
    members, reaches = np.empty((LANES, n_features)), np.zeros(LANES)
    center = np.empty(n_features)
    size = (n_features + 1) * LANES
    for cell in range(cells.firsts[code] * LANES, cells.firsts[code + 1] * LANES):
        panel = cells.rows[code] + cell - cells.firsts[code] * LANES
        place = cell // LANES * size + cell % LANES
        cells.centers[place], cells.radii[cell] = np.inf, 0
        for j in range(n_features):
            cells.centers[place + (j + 1) * LANES] = 0
        if panel >= cells.rows[code + 1]:
            continue
        n_members = 0
        for slot in range(LANES):
            if slots[panel * LANES + slot] >= 0:
                for j in range(n_features):
                    members[n_members, j] = -panels[panel * size + (j + 1) * LANES + slot]
                n_members += 1
        find_center(members[:n_members], reaches[:n_members], center)
        cells.radii[cell] = reach_of(panels, slots, panel, panel + 1, center)
        squared = 0.0
        for j in range(n_features):
            cells.centers[place + (j + 1) * LANES] = -center[j]
            squared += center[j] * center[j]
        bound = squared * (0.5 - 2 * error)
        cells.centers[place] = np.float32(bound - 2.0**-22 * bound)


@compiled
def bound_cells(
    panels: Floats32, cells: Cells, placed: Floats32, is_flat: bool, bounds: Floats32
) -> None:
    """The bounds of all cells for a few queries, `placed`, written into `bounds`.

    bounds: flat, of n_queries times n_cells numbers, padded to a multiple of QUERIES_AT_ONCE.
    """
    n_queries, n_terms = placed.shape
    n_cells, size = len(cells.radii), (n_terms + 1) * LANES
    if is_flat:
        bounds[: n_queries * n_cells] = np.inf
    if n_queries <= ALONE:
        for i in range(n_queries):
            if not is_flat:
                n_panels = n_cells // LANES
                bounds_for_one(
                    cells.centers, 0, n_panels, n_terms, placed, i, False, bounds, i * n_cells
                )
                continue
            for code in range(len(cells.rows) - 1):
                first, n_panels = cells.rows[code], cells.rows[code + 1] - cells.rows[code]
                start = i * n_cells + cells.firsts[code] * LANES
                bounds_for_one(
                    panels, first * size, n_panels, n_terms, placed, i, True, bounds, start
                )
        return
    grouped = group_queries(placed)
    group_size = n_terms * QUERIES_AT_ONCE
    for code in range(len(cells.rows) - 1):
        first, last = cells.firsts[code], cells.firsts[code + 1]
        if is_flat:
            first, last = cells.rows[code], cells.rows[code + 1]
        for panel in range(first, last):
            start = panel * LANES
            if is_flat:
                start = cells.firsts[code] * LANES + panel - first
            for group in range(len(grouped) // group_size):
                bounds_for_six(
                    panels if is_flat else cells.centers, panel * size, n_terms, grouped,
                    group * group_size, is_flat, bounds,
                    start + group * QUERIES_AT_ONCE * n_cells, n_cells,
                )  # fmt: skip


@compiled
def group_queries(placed: Floats32) -> Any:
    """Queries in groups of QUERIES_AT_ONCE, each feature by feature, flat; the last one padded."""
    n_queries, n_terms = placed.shape
    n_groups = -(-n_queries // QUERIES_AT_ONCE)
    grouped = np.zeros((n_groups, n_terms, QUERIES_AT_ONCE), dtype=np.float32)
    for i in range(n_queries):
        for j in range(n_terms):
            grouped[i // QUERIES_AT_ONCE, j, i % QUERIES_AT_ONCE] = placed[i, j]
    return grouped.reshape(-1)
