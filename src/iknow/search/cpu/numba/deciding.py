"""The classes that matter to a decision, compiled: the believed one, and those that lie in reach.

First the nearest rows of the believed class, then one class after the other, those that seem
nearest first. What is found bounds what else can matter, max(ρ, d_¬g): most classes have no block
with a bound that low. In the others we measure the rows that no bound rules out. The bounds are
those of a `projection`: of panels with few features, then of some more, row by row.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from iknow.core.arrays import Bools, Floats, Floats32, Ints
from iknow.search.cpu.numba.compile import compiled, compiled_freely, inlined
from iknow.search.cpu.numba.few import precedes
from iknow.search.cpu.numba.kernels import find_block_minima
from iknow.search.cpu.numba.measure import measure
from iknow.search.cpu.numba.records import Blocks, Pack, Queries, limit_for, limit_terms
from iknow.search.cpu.numba.vectors import (
    QUERIES_AT_ONCE,
    lowest_bit,
    minima_for_one,
    scan_panel,
)
from iknow.search.cpu.packed import LANES


ALONE = 2  # up to so many queries are faster one by one


class Far(NamedTuple):
    """Shadows by more directions, to compare row by row, in units.

    rows: integers of shape (n_slots, n_far + 1), by slot; no columns to leave this out. queries: of shape (n_queries, n_far + 1).
    slack: what to add to a distance to have one among shadows, of shape (n_queries,).
    """

    rows: Any
    queries: Floats32
    slack: Floats


class Lens(NamedTuple):
    """How a projection shows distances: see `iknow.search.cpu.projection`.

    stretch: by how much it may stretch them. units: the units in 1. blur: of rows, in units.
    """

    stretch: float
    units: float
    blur: float


class Question(NamedTuple):
    """What is asked: the quorum, and the horizon of the rule.

    patience: how many rows to measure for one query before giving up.
    """

    needed: int
    against: int
    fixed: float
    ratio: float
    patience: int


@compiled
def decide_batch(
    pack: Pack,
    blocks: Blocks,
    far: Far,
    lens: Lens,
    queries: Queries,
    belief: Ints,
    question: Question,
    distances: Floats,
    exemplars: Ints,
    given_up: Bools,
) -> Any:
    """Truncated distances of a batch of queries as a quorum counts them, and what they cost.

    distances: of shape (n_queries, n_classes), filled with inf. exemplars: of shape (n_queries,),
    filled with -1. given_up: of shape (n_queries,), filled with False; marks queries that ran out
    of patience, whose distances mean nothing. Returns the panels, shadows and rows looked at.
    """
    panels, slots, points, rows = pack.panels, pack.slots, pack.points, pack.rows
    placed, given, squared = queries.points, queries.given, queries.squared
    far_rows, far_queries, slacks = far.rows, far.queries, far.slack
    starts, classes = blocks.starts, blocks.classes
    groups = len(given) if len(given) > ALONE else 0
    minima = find_block_minima(panels, starts, placed[:groups])
    m = max(question.needed, question.against)
    near, found, lowest = np.empty(m), np.empty(m, dtype=np.int64), np.empty(m, dtype=np.float32)
    values = np.empty(LANES, dtype=np.float32)
    bounds = np.empty(len(starts) - 1, dtype=np.float32)
    of_panels = np.empty(starts[-1], dtype=np.float32)
    n_classes = distances.shape[1]
    least = np.empty(n_classes, dtype=np.float32)
    costs = np.zeros(3, dtype=np.int64)
    for i in range(len(given)):
        if groups:
            for block in range(len(bounds)):
                bounds[block] = minima[i // QUERIES_AT_ONCE, block, i % QUERIES_AT_ONCE]
        else:
            _find_minima(panels, starts, placed, i, of_panels, bounds)
        find_least(bounds, classes, least)
        factor, offset = limit_terms(pack.scale, pack.error, pack.underflow, squared[i])
        most, slack = costs[2] + question.patience, slacks[i]
        horizon, other = question.fixed, np.inf
        code, is_own = belief[i], belief[i] >= 0
        if is_own and least[code] == np.inf:  # it has no rows
            is_own = False
        for _ in range(n_classes):
            cap, rank = np.inf, question.needed
            if not is_own:
                code, cap, rank = np.argmin(least), max(horizon, other), question.against
            # All classes that are left are as far, have no rows, or were searched.
            if least[code] == np.inf or least[code] > _limit(
                cap, lens.stretch, slack, factor, offset
            ):
                break
            _find_class(
                panels, slots, points, placed, given, far_rows, far_queries, lens.stretch,
                lens.units, lens.blur, slack, i, factor, offset, values, bounds, lowest, starts,
                classes[code], classes[code + 1], cap, rank, near, found, costs, most,
            )  # fmt: skip
            least[code] = np.inf
            distances[i, code] = near[rank - 1]
            if not is_own:
                other = min(other, near[rank - 1])
            elif near[rank - 1] < np.inf:
                horizon = max(horizon, question.ratio * near[rank - 1])
            if is_own and found[0] >= 0:
                exemplars[i] = rows[found[0]]
            is_own = False
        for code in range(n_classes):
            if code != belief[i] and distances[i, code] > max(horizon, other):
                distances[i, code] = np.inf
        given_up[i] = costs[2] > most
    return costs


@compiled
def _find_minima(
    panels: Floats32, starts: Ints, placed: Floats32, i: int, minima: Floats32, bounds: Floats32
) -> None:
    """The lowest bound in each block for one query. minima: memory for that of each panel."""
    minima_for_one(panels, 0, len(minima), placed.shape[1], placed, i, minima)
    for block in range(len(bounds)):
        low = np.float32(np.inf)
        for panel in range(starts[block], starts[block + 1]):
            low = min(low, minima[panel])
        bounds[block] = low


@compiled_freely
def find_least(bounds: Floats32, classes: Ints, least: Floats32) -> None:
    """The lowest bound of each class; inf if it has no rows."""
    for code in range(len(least)):
        low = np.float32(np.inf)
        for block in range(classes[code], classes[code + 1]):
            low = min(low, bounds[block])
        least[code] = low


@compiled
def _find_class(
    panels: Floats32,
    slots: Ints,
    points: Floats32,
    placed: Floats32,
    given: Floats32,
    far: Any,
    far_queries: Floats32,
    stretch: float,
    units: float,
    blur: float,
    slack: float,
    i: int,
    factor: float,
    offset: float,
    values: Floats32,
    bounds: Floats32,
    lowest: Floats32,
    starts: Ints,
    first: int,
    last: int,
    cap: float,
    m: int,
    near: Floats,
    found: Ints,
    costs: Ints,
    most: int,
) -> None:
    """The m nearest rows of a class, whose blocks are first..last-1, as far as they are within cap.

    near, found: their distances and rows, by distance and then by row, padded with inf and -1.
    """
    for place in range(m):
        near[place], found[place], lowest[place] = np.inf, -1, np.inf
    # The m lowest blocks hold m rows with bounds up to the m-th: these are measured first.
    for block in range(first, last):
        bound = bounds[block]
        if bound < lowest[m - 1]:
            place = m - 1
            while place > 0 and bound < lowest[place - 1]:
                lowest[place] = lowest[place - 1]
                place -= 1
            lowest[place] = bound
    capped = _limit(cap, stretch, slack, factor, offset)
    limit = min(capped, lowest[m - 1])
    for again in range(2):
        if again:
            before, limit = limit, capped
            if found[m - 1] >= 0:
                limit = min(capped, _limit(near[m - 1], stretch, slack, factor, offset))
            if limit <= before:
                return
        for block in range(first, last):
            if bounds[block] > limit:
                continue
            for panel in range(starts[block], starts[block + 1]):
                limit = _insert(
                    panels, slots, points, placed, given, far, far_queries, stretch, units, blur,
                    slack, i, factor, offset, values, panel, limit, cap, m, near, found, costs,
                )  # fmt: skip
            if costs[2] > most:
                return


@inlined
def _insert(
    panels: Floats32,
    slots: Ints,
    points: Floats32,
    placed: Floats32,
    given: Floats32,
    far: Any,
    far_queries: Floats32,
    stretch: float,
    units: float,
    blur: float,
    slack: float,
    i: int,
    factor: float,
    offset: float,
    values: Floats32,
    panel: int,
    limit: Any,
    cap: float,
    m: int,
    near: Floats,
    found: Ints,
    costs: Ints,
) -> Any:
    """Insert the rows of a panel that no bound rules out; returns the limit that remains."""
    n_terms = placed.shape[1]
    costs[0] += 1
    bits = scan_panel(panels, panel * (n_terms + 1) * LANES, n_terms, placed, i, limit, values)
    while bits:
        slot = lowest_bit(bits)
        bits &= bits - np.uint64(1)
        row = slots[panel * LANES + slot]
        if row < 0 or values[slot] > limit or _is_found(found, m, row):
            continue
        if far.shape[1]:
            costs[1] += 1
            reach = (min(cap, near[m - 1]) * stretch + slack) * units + blur
            # Rounding, relative to the sum: less than 2^-22 for each term.
            reach *= reach * (1 + (far.shape[1] + 8) * 2.0**-22)
            if compare(far_queries, i, far, panel * LANES + slot) > reach:
                continue
        costs[2] += 1
        distance = measure(given, i, points, row)
        if not precedes(distance, row, near[m - 1], found[m - 1]):
            continue
        place = m - 1
        while place > 0 and precedes(distance, row, near[place - 1], found[place - 1]):
            near[place], found[place] = near[place - 1], found[place - 1]
            place -= 1
        near[place], found[place] = distance, row
        if found[m - 1] >= 0:
            limit = min(limit, _limit(near[m - 1], stretch, slack, factor, offset))
    return limit


@compiled_freely
def compare(queries: Floats32, query: int, rows: Any, row: int) -> Any:
    """The squared distance between two shadows in float32, summed in any order."""
    total = np.float32(0)
    for j in range(queries.shape[1]):
        difference = queries[query, j] - np.float32(rows[row, j])
        total += difference * difference
    return total


@inlined
def _limit(distance: float, stretch: float, slack: float, factor: float, offset: float) -> Any:
    """The largest bound that the shadow of a row within a distance can have."""
    if distance == np.inf:
        return np.float32(np.inf)
    return limit_for(distance * stretch + slack, factor, offset)


@inlined
def _is_found(found: Ints, m: int, row: int) -> Any:
    for place in range(m):  # noqa: SIM110  (numba compiles no generators)
        if found[place] == row:
            return True
    return False
