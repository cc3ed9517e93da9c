"""The distances to the k nearest rows of any class, compiled."""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.core.arrays import Floats, Floats32, Ints
from iknow.search.cpu.numba.compile import compiled
from iknow.search.cpu.numba.measure import measure
from iknow.search.cpu.numba.records import Pack, Queries, limit_for, limit_terms
from iknow.search.cpu.numba.vectors import QUERIES_AT_ONCE, lowest_bit, scan_panel
from iknow.search.cpu.packed import LANES


@compiled
def find_neighbors(
    pack: Pack, starts: Ints, queries: Queries, minima: Any, neighbors: Floats
) -> None:
    """Write the k smallest distances of each query, ascending, to `neighbors`, filled with inf.

    The k blocks with the lowest bounds come first: their distances rule out nearly all others.
    """
    panels, slots, points = pack.panels, pack.slots, pack.points
    placed, given = queries.points, queries.given
    values = np.empty(LANES, dtype=np.float32)
    n_blocks = len(starts) - 1
    k = neighbors.shape[1]
    lowest = np.empty(k, dtype=np.float32)
    chosen = np.empty(k, dtype=np.int64)
    done = np.zeros(n_blocks, dtype=np.bool_)
    for i in range(len(queries.given)):
        bounds = minima[i // QUERIES_AT_ONCE, :, i % QUERIES_AT_ONCE]
        kth = neighbors[i]
        factor, offset = limit_terms(pack.scale, pack.error, pack.underflow, queries.squared[i])
        n_chosen = 0
        for block in range(n_blocks):
            if n_chosen < k or bounds[block] < lowest[n_chosen - 1]:
                n_chosen = min(k, n_chosen + 1)
                place = n_chosen - 1
                while place > 0 and bounds[block] < lowest[place - 1]:
                    lowest[place], chosen[place] = lowest[place - 1], chosen[place - 1]
                    place -= 1
                lowest[place], chosen[place] = bounds[block], block
        for block in chosen[:n_chosen]:
            done[block] = True
            _insert(
                panels, slots, points, placed, given, i, factor, offset, values,
                starts[block], starts[block + 1], kth,
            )  # fmt: skip
        limit = limit_for(kth[k - 1], factor, offset)
        for block in range(n_blocks):
            if not bounds[block] > limit and not done[block]:
                _insert(
                    panels, slots, points, placed, given, i, factor, offset, values,
                    starts[block], starts[block + 1], kth,
                )  # fmt: skip
                limit = limit_for(kth[k - 1], factor, offset)
        for block in chosen[:n_chosen]:
            done[block] = False


@compiled
def _insert(
    panels: Floats32,
    slots: Ints,
    points: Floats32,
    placed: Floats32,
    given: Floats32,
    i: int,
    factor: float,
    offset: float,
    values: Floats32,
    first: int,
    last: int,
    kth: Floats,
) -> None:
    """Insert the distances of rows in panels first..last-1 into the k smallest."""
    n_features = placed.shape[1]
    panel_size = (n_features + 1) * LANES
    end = len(kth) - 1
    limit = limit_for(kth[end], factor, offset)
    for panel in range(first, last):
        bits = scan_panel(panels, panel * panel_size, n_features, placed, i, limit, values)
        while bits:
            slot = lowest_bit(bits)
            bits &= bits - np.uint64(1)
            row = slots[panel * LANES + slot]
            if row < 0 or values[slot] > limit:
                continue
            distance = measure(given, i, points, row)
            if distance < kth[end]:
                place = end
                while place > 0 and distance < kth[place - 1]:
                    kth[place] = kth[place - 1]
                    place -= 1
                kth[place] = distance
                limit = limit_for(kth[end], factor, offset)
