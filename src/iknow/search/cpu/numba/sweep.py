"""Supports within fixed radii by bounds on all rows, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.core.arrays import Bools, Floats, Floats32, Ints
from iknow.search.cpu.numba.compile import compiled, inlined
from iknow.search.cpu.numba.kernels import find_block_minima
from iknow.search.cpu.numba.measure import measure
from iknow.search.cpu.numba.records import Blocks, Pack, Queries, limit_for, limit_terms
from iknow.search.cpu.numba.vectors import QUERIES_AT_ONCE, lowest_bit, scan_panel
from iknow.search.cpu.packed import LANES


@inlined
def has_row_within(
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
    """Whether a row of a panel is within the radius; measures rows whose bound allows it."""
    n_features = given.shape[1]
    start = panel * (n_features + 1) * LANES
    bits = scan_panel(panels, start, n_features, placed, i, limit, values)
    while bits:
        row = slots[panel * LANES + lowest_bit(bits)]
        bits &= bits - np.uint64(1)
        if row >= 0 and measure(given, i, points, row) <= radius:
            return True
    return False


@compiled
def sweep(pack: Pack, blocks: Blocks, queries: Queries, radii: Floats, support: Bools) -> None:
    """Like `cells.walk`, by bounds on all rows, for when no ball can be ruled out."""
    minima = find_block_minima(pack.panels, blocks.starts, queries.points)
    panels, slots, points, starts = pack.panels, pack.slots, pack.points, blocks.starts
    placed, given = queries.points, queries.given
    values = np.empty(LANES, dtype=np.float32)
    for code in range(len(radii)):
        for i in range(len(given)):
            bounds = minima[i // QUERIES_AT_ONCE, :, i % QUERIES_AT_ONCE]
            factor, offset = limit_terms(pack.scale, pack.error, pack.underflow, queries.squared[i])
            limit = limit_for(radii[code], factor, offset)
            for block in range(blocks.classes[code], blocks.classes[code + 1]):
                if bounds[block] > limit:
                    continue
                for panel in range(starts[block], starts[block + 1]):
                    if not support[i, code]:
                        support[i, code] = has_row_within(
                            panels, slots, points, panel, placed, given, i, radii[code],
                            limit, values,
                        )  # fmt: skip
