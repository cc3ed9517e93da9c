"""Decisions with a finite horizon, compiled: what lies beyond is ruled out by ever closer bounds.

The nearest rows of the believed class come first, then one class after the other, those that seem
nearest first. What is found bounds what else can matter: with ρ the horizon of the rule, that is
max(ρ, d_¬g). Most classes have nothing with a bound that low.

A row within a distance ρ of the query lies in balls within `_ball_limit`, the bound of its
coordinates is within `_row_limit`, and its shadow by more directions within `_far_limit`. What none
of these rules out is measured. There are two ways to the panels of rows: down the tree, the nearest
ball first; or, where balls rule out little, by the lowest bound of each panel, the lowest panel
first. Either way ρ is small from the start.

For the k nearest of all classes, the rows found are kept in one list, whose last distance only
shrinks, from inf while there are fewer than k, to r_k. A row within it matters, whatever its class.
When no class is left within cap = max(ρ, d_¬g, r_k), the list is complete. A distance to another
class beyond that may be that of a wrong row, and is put at inf in the end.

See `iknow.search.projection` for coordinates and shadows. All limits are rounded up.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from iknow.core.arrays import Bools, Floats, Floats32, Ints
from iknow.search.kernels.numba import products, vectors
from iknow.search.kernels.numba.compile import compiled, compiled_bare, compiled_freely, inlined
from iknow.search.kernels.numba.products import Pack, Queries, limit_for, limit_terms, precedes
from iknow.search.kernels.numba.tree import BallTree
from iknow.search.kernels.numba.vectors import LANES, QUERIES_AT_ONCE, lowest_bit, prefetch

ALONE = 2  # up to so many queries are faster one by one
MOST_SWEPT = 1 << 13  # panels up to which the balls around all of them are bounded at once
GROUPS_AT_ONCE = 8
BOUNDS_AT_ONCE = 1 << 18  # of several queries, kept in the cache while they are used
ENOUGH = 32  # rows waiting, to be looked at together: their numbers are on the way from memory
MOST_WAITING = ENOUGH + LANES * LANES  # after one more group of panels
DEEPEST = 16  # levels of a tree: 16 to this power exceeds any number of rows
PANEL_BYTES, ROW_BYTES = 256, 512  # to prefetch; the processor fetches the rest ahead by itself


class Shadows(NamedTuple):
    """How coordinates show distances, and shadows by more directions, to compare row by row."""

    rows: Any  # integers of shape (n_slots, n_far + 1), by slot; no columns to leave this out
    queries: Floats32  # of shape (n_queries, n_far + 1)
    slack: Floats  # what to add to a distance to have one among coordinates, (n_queries,)
    stretch: float  # by how much these stretch it
    units: float  # the integers in 1
    blur: float  # of rows, in integers


class Coarse(NamedTuple):
    """Panels in integers of 8 bits, so that a query alone reads few bytes.

    A row has integers i, -x̂_j ≈ i_j s_j, and a query k, s_j q̂_j ≈ u k_j, off by u/2 at most. So
    -x̂·q̂ >= u Σ i_j k_j - 64 d u - error |q̂|, where no row is further than `error` from what its
    integers say. As |x̂_j| <= 1, rounding to float32 costs less than 2^-20 d (1 + |q̂|) besides.
    """

    panels: Any  # flat, int8; 16 pairs for every two terms; empty where there are no shadows
    steps: Floats  # s, of shape (d,)
    error: float


class Question(NamedTuple):
    """What a walk looks for: as `Scope`, in plain numbers."""

    own: int  # how many rows of the believed class
    other: int  # how many of each other class
    fixed: float  # of the horizon, as is the next; its k is that of the answer
    ratio: float
    patience: int  # how many rows to measure for one query before giving up
    is_flat: bool  # whether to bound all panels rather than walk down the tree


class FoundRows(NamedTuple):
    """What is found about a batch of n queries; at first inf, -1 and False."""

    distances: Floats  # to the nearest rows of each class, of shape (n, n_classes, m)
    rows: Ints  # which these are, of the same shape
    neighbors: Floats  # distances to the k nearest rows, of shape (n, k)
    complete: Floats  # how far all is known, as evidence has it, of shape (n, 3)
    given_up: Bools  # queries that ran out of patience: nothing is known about them, (n,)


class Scratch(NamedTuple):
    """What the functions write to, some of it for a moment only."""

    bounds: Floats32  # of all panels, for some queries
    least: Floats32  # of each class
    near: Floats  # distances to the nearest rows of a class, padded with inf
    found: Ints  # which these are, padded with -1
    nearest: Ints  # rows of all classes
    costs: Ints  # the panels, shadows and rows looked at
    values: Floats32
    places: Ints  # slots of rows that wait to be looked at
    shown: Floats32  # their bounds
    levels: Ints  # of the balls to visit
    nodes: Ints  # their numbers
    apart: Floats32  # their distances
    pieces: Ints
    sums: Floats


class Walk(NamedTuple):
    """All that the functions share."""

    pack: Pack
    tree: BallTree
    shadows: Shadows
    queries: Queries
    question: Question
    answer: FoundRows
    memory: Scratch


class Limits(NamedTuple):
    """What turns a distance from one query into limits of its bounds."""

    stretch: float
    slack: float
    units: float
    blur: float
    factor: float
    offset: float
    scale: float
    margin: float


class Task(NamedTuple):
    """What is sought: the `rank` nearest rows of a class, to query i.

    Of them, those matter that lie within `floor`, or within the lower of `best` and the distance of
    the class's own row number `counted`.
    """

    i: int
    code: int
    rank: int
    counted: int
    floor: float
    best: float
    most: int  # rows that may be measured by then


@compiled
def walk_batch(
    pack: Pack, coarse: Coarse, tree: BallTree, shadows: Shadows, queries: Queries, belief: Ints,
    order: Ints, question: Question, answer: FoundRows,
) -> Any:  # fmt: skip
    """Fill in the answer about a batch; returns the panels, shadows and rows looked at.

    order: in which to answer the queries, of shape (n_queries,).
    """
    n_queries, n_classes, m = answer.distances.shape
    n_panels, n_groups = len(pack.slots) // LANES, -(-n_queries // QUERIES_AT_ONCE)
    affordable = max(1, min(GROUPS_AT_ONCE, BOUNDS_AT_ONCE // (n_panels * QUERIES_AT_ONCE)))
    n_passes = -(-n_groups // affordable)
    at_once = -(-n_groups // n_passes) * QUERIES_AT_ONCE
    sweeps_balls = not question.is_flat and n_queries > ALONE and n_panels <= MOST_SWEPT
    # The balls of a class start a panel of their own; one more vector may be read at the end.
    stride = n_panels if question.is_flat else int(tree.counts[:, 1].sum()) * LANES
    memory = Scratch(
        np.empty(at_once * stride + LANES if question.is_flat or sweeps_balls else 0, np.float32),
        np.empty(n_classes, dtype=np.float32), np.empty(m), np.empty(m, dtype=np.int64),
        np.empty(answer.neighbors.shape[1], dtype=np.int64),
        np.zeros(3, dtype=np.int64), np.empty(LANES, dtype=np.float32),
        np.empty(MOST_WAITING, dtype=np.int64), np.empty(MOST_WAITING, dtype=np.float32),
        np.empty(LANES * DEEPEST, dtype=np.int64), np.empty(LANES * DEEPEST, dtype=np.int64),
        np.empty(LANES * DEEPEST, dtype=np.float32), np.empty(products.MOST_PIECES, dtype=np.int64),
        np.empty(products.MOST_PIECES),
    )  # fmt: skip
    walk = Walk(pack, tree, shadows, queries, question, answer, memory)
    for start in range(0, n_queries, at_once):
        some = order[start : start + at_once]
        if question.is_flat:
            _bound_panels(pack.panels, coarse, n_panels, queries.points[some], memory.bounds)
        elif sweeps_balls:
            _measure_balls(walk, stride // LANES, some)
        for at in range(len(some)):
            if not answer.given_up[some[at]]:
                _search(walk, some[at], belief[some[at]], at * stride)
    return memory.costs


@compiled
def _bound_panels(
    panels: Floats32, coarse: Coarse, n_panels: int, placed: Floats32, bounds: Floats32
) -> None:
    """The lowest bound of each panel for a few queries, one query after the other."""
    n_queries, n_terms = placed.shape
    if n_queries <= ALONE:
        values, none = np.empty(LANES, dtype=np.float32), np.float32(-np.inf)
        for i in range(n_queries):
            if len(coarse.panels):
                _bound_coarsely(panels, coarse, n_panels, placed[i], bounds, i * n_panels)
                continue
            for panel in range(n_panels):
                start = panel * (n_terms + 1) * LANES
                vectors.scan_panel(panels, start, n_terms, placed, i, none, values)
                bounds[i * n_panels + panel] = vectors.lowest_of(values, 0, LANES)
        return
    grouped, size = products.group_queries(placed), n_terms * QUERIES_AT_ONCE
    for panel in range(n_panels):
        for group in range(len(grouped) // size):
            vectors.minima_for_six(
                panels, panel * (n_terms + 1) * LANES, 1, n_terms, grouped, group * size, bounds,
                group * QUERIES_AT_ONCE * n_panels + panel, n_panels,
            )  # fmt: skip


@compiled
def _bound_coarsely(
    panels: Floats32, coarse: Coarse, n_panels: int, query: Floats32, bounds: Floats32, at: int
) -> None:
    """The lowest bound of each panel for one query, from integers."""
    n_terms, weighted = len(query), query * coarse.steps
    norm = np.sqrt(np.square(query.astype(np.float64)).sum())
    unit = np.float32(max(np.abs(weighted).max() / 32000, 2.0**-60))
    numbers = np.zeros(n_terms + n_terms % 2, dtype=np.int16)
    for j in range(n_terms):
        numbers[j] = np.rint(weighted[j] / unit)
    margin = coarse.error * norm + n_terms * (64 * unit + 2.0**-20 * (1 + norm))
    vectors.coarse_minima(
        coarse.panels, len(numbers) // 2, numbers, unit, margin * (1 + 2.0**-20), panels,
        (n_terms + 1) * LANES, n_panels, bounds, at,
    )  # fmt: skip


@compiled
def _measure_balls(walk: Walk, n_panels: int, some: Ints) -> None:
    """The distances of all cells from a few queries, one query after the other."""
    placed, bounds = walk.queries.points[some], walk.memory.bounds
    grouped, n_terms, stride = products.group_queries(placed), placed.shape[1], n_panels * LANES
    offsets = np.zeros(len(grouped) // n_terms, dtype=np.float32)
    for at in range(len(some)):
        offsets[at] = _ball_offset(_limits_of(walk, some[at]))
    for panel in range(n_panels):  # those of the lowest level come first, class by class
        for at in range(0, len(offsets), QUERIES_AT_ONCE):
            vectors.balls_for_six(
                walk.tree.nodes, panel * (n_terms + 2) * LANES, n_terms, grouped, at * n_terms,
                offsets, at, bounds, at * stride + panel * LANES, stride,
            )  # fmt: skip


@compiled_bare
def _search(walk: Walk, i: int, own: int, at: int) -> None:
    """Fill in the answer about query i with a belief, `own`. at: where its bounds start."""
    answer, question, memory, tree = walk.answer, walk.question, walk.memory, walk.tree
    neighbors, least, near = answer.neighbors, memory.least, memory.near
    limits = _limits_of(walk, i)
    _find_least(walk, i, limits, at)
    most = memory.costs[2] + question.patience
    horizon, other, m = question.fixed, np.inf, len(near)
    is_own = own >= 0 and tree.counts[own, 0] > 0
    for _ in range(len(least)):
        task = Task(i, own, question.own, question.own, np.inf, np.inf, most)
        if not is_own:
            code, cap = int(np.argmin(least)), _cap(horizon, other, neighbors, i)
            limit = _row_limit(cap, limits) if question.is_flat else _ball_limit(cap, limits)
            # All classes that are left are as far, have no rows, or were searched.
            if least[code] == np.inf or least[code] > limit:
                break
            task = Task(i, code, m, question.other, horizon, other, most)
        for place in range(task.rank):
            near[place], memory.found[place] = np.inf, -1
        if len(memory.bounds):
            _sweep(walk, limits, task, at)
        else:
            _descend(walk, limits, task)
        least[task.code] = np.inf
        for place in range(task.rank):
            if memory.found[place] >= 0:
                answer.distances[i, task.code, place] = near[place]
                answer.rows[i, task.code, place] = walk.pack.rows[memory.found[place]]
        if memory.costs[2] > most:
            answer.given_up[i] = True
            return
        if not is_own:
            other = min(other, near[question.other - 1])
        elif near[question.own - 1] < np.inf:
            horizon = max(horizon, question.ratio * near[question.own - 1])
        is_own = False
    cap = _cap(horizon, other, neighbors, i)
    answer.complete[i, 1] = np.nextafter(cap, np.inf)
    for code in range(len(least)):
        for place in range(m):
            if code != own and answer.distances[i, code, place] > cap:
                answer.distances[i, code, place], answer.rows[i, code, place] = np.inf, -1


@inlined
def _cap(horizon: float, other: float, neighbors: Floats, i: int) -> Any:
    cap = max(horizon, other)
    return max(cap, neighbors[i, -1]) if neighbors.shape[1] else cap


@inlined
def _find_least(walk: Walk, i: int, limits: Limits, at: int) -> None:
    """The lowest bound of a panel of each class, or the distance of its nearest ball: of those
    around cells if these are swept, else at the top.
    """
    tree, memory, placed = walk.tree, walk.memory, walk.queries.points
    for code in range(len(memory.least)):
        values, first, n = memory.values, 0, LANES
        if len(memory.bounds):
            values, first, n = memory.bounds, at + _first_bound(walk, code), tree.counts[code, 0]
            if not walk.question.is_flat:
                memory.costs[0] += tree.counts[code, 1] // 4  # together they cost less than alone
        elif tree.counts[code, 0]:
            start = tree.firsts[code, tree.top[code]] * (placed.shape[1] + 2) * LANES
            offset, none = _ball_offset(limits), np.float32(-np.inf)
            vectors.scan_balls(tree.nodes, start, placed.shape[1], placed, i, offset, none, values)
        else:
            n = 0
        memory.least[code] = vectors.lowest_of(values, first, n)


@inlined
def _first_bound(walk: Walk, code: int) -> Any:
    """Where the bounds of a class start: one for each panel, or for each ball around one."""
    firsts = walk.tree.firsts
    return firsts[code, 0] if walk.question.is_flat else firsts[code, 1] * LANES


@inlined
def _sweep(walk: Walk, limits: Limits, task: Task, at: int) -> None:
    """Find the nearest rows of a class by the bounds of its panels; the query's start at `at`."""
    memory, bounds, tree = walk.memory, walk.memory.bounds, walk.tree
    first, n_panels = tree.firsts[task.code, 0], tree.counts[task.code, 0]
    start = at + _first_bound(walk, task.code)
    size = (walk.queries.points.shape[1] + 1) * LANES
    best, n_waiting, is_flat = 0, 0, walk.question.is_flat
    bits = vectors.lanes_within(bounds, start, memory.least[task.code])
    while not bits:
        best += LANES
        bits = vectors.lanes_within(bounds, start + best, memory.least[task.code])
    best += lowest_bit(bits)
    # The best panel comes first.
    n_waiting = _collect(walk, task.i, _row_limit(_reach(walk, task), limits), first + best, 0)
    group = 0
    while True:
        if n_waiting > ENOUGH or group == 0 or group >= n_panels:
            _settle(walk, limits, task, n_waiting)
            n_waiting, reach = 0, _reach(walk, task)
            limit = _row_limit(reach, limits)
            most = limit if is_flat else _ball_limit(reach, limits)
        if group >= n_panels or memory.costs[2] > task.most:
            break
        bits = vectors.lanes_within(bounds, start + group, most) & _existing(n_panels - group)
        ahead = bits
        while ahead:
            prefetch(walk.pack.panels, (first + group + lowest_bit(ahead)) * size, PANEL_BYTES)
            ahead &= ahead - np.uint64(1)
        while bits:
            panel = group + lowest_bit(bits)
            bits &= bits - np.uint64(1)
            if panel != best:
                n_waiting = _collect(walk, task.i, limit, first + panel, n_waiting)
        group += LANES


@inlined
def _descend(walk: Walk, limits: Limits, task: Task) -> None:
    """Find the nearest rows of a class down its tree, the nearest ball first."""
    memory, tree, code, placed = walk.memory, walk.tree, task.code, walk.queries.points
    levels, nodes, apart, values = memory.levels, memory.nodes, memory.apart, memory.values
    n_terms, offset = placed.shape[1], _ball_offset(limits)
    levels[0], nodes[0], apart[0] = tree.top[code], 0, memory.least[code]
    n_left, n_waiting = 1, 0
    while n_left:
        n_left -= 1
        level, node = levels[n_left], nodes[n_left]
        reach = _reach(walk, task)
        limit = _ball_limit(reach, limits)
        if not apart[n_left] > limit:
            panel = tree.firsts[code, level] + node
            if level == 0:
                n_waiting = _collect(walk, task.i, _row_limit(reach, limits), panel, n_waiting)
            else:
                memory.costs[0] += 1
                start, bottom = panel * (n_terms + 2) * LANES, n_left
                bits = vectors.scan_balls(
                    tree.nodes, start, n_terms, placed, task.i, offset, limit, values
                )
                bits &= _existing(tree.counts[code, level - 1] - node * LANES)
                while bits:  # the nearest ball goes on top
                    slot = lowest_bit(bits)
                    bits &= bits - np.uint64(1)
                    place = n_left
                    while place > bottom and apart[place - 1] < values[slot]:
                        nodes[place], apart[place] = nodes[place - 1], apart[place - 1]
                        place -= 1
                    nodes[place], apart[place] = node * LANES + slot, values[slot]
                    levels[n_left] = level - 1
                    n_left += 1
        if n_waiting and (n_waiting > ENOUGH or n_left == 0 or reach == np.inf):
            _settle(walk, limits, task, n_waiting)
            n_waiting = 0
            if memory.costs[2] > task.most:
                break


@inlined
def _existing(n: int) -> Any:
    """A bit for each of the first n slots of a panel."""
    return (np.uint64(1) << np.uint64(min(n, LANES))) - np.uint64(1)


@inlined
def _reach(walk: Walk, task: Task) -> Any:
    """How far away a row still matters."""
    near, neighbors = walk.memory.near, walk.answer.neighbors
    reach = min(near[task.rank - 1], max(task.floor, min(task.best, near[task.counted - 1])))
    return max(reach, neighbors[task.i, -1]) if neighbors.shape[1] else reach


@inlined
def _collect(walk: Walk, i: int, limit: Any, panel: int, n: int) -> Any:
    """Add the rows of a panel within a limit to the n that are waiting; returns how many are."""
    pack, memory, placed, far = walk.pack, walk.memory, walk.queries.points, walk.shadows.rows
    n_terms, width = placed.shape[1], pack.points.shape[1]
    memory.costs[0] += 1
    start = panel * (n_terms + 1) * LANES
    bits = vectors.scan_panel(pack.panels, start, n_terms, placed, i, limit, memory.values)
    while bits:
        slot = lowest_bit(bits)
        bits &= bits - np.uint64(1)
        place = panel * LANES + slot
        row = pack.slots[place]
        if row >= 0:
            memory.places[n], memory.shown[n] = place, memory.values[slot]
            n += 1
            if far.shape[1]:
                prefetch(far, place * far.shape[1], 2 * far.shape[1])
            else:
                prefetch(pack.points, row * width, 4 * width)
    return n


@inlined
def _settle(walk: Walk, limits: Limits, task: Task, n: int) -> None:
    """Insert the n rows that are waiting, as far as no bound rules them out."""
    memory, slots, points = walk.memory, walk.pack.slots, walk.pack.points
    places, shown, far = memory.places, memory.shown, walk.shadows.rows
    reach = _reach(walk, task)
    at, n_far, is_far = 0, far.shape[1], False
    limit = np.float64(_row_limit(reach, limits))
    while at < n:
        if reach == np.inf:  # the lowest first, while anything would do
            lowest = at + np.argmin(shown[at:n])
            places[at], places[lowest] = places[lowest], places[at]
            shown[at], shown[lowest] = shown[lowest], shown[at]
        elif n_far and not is_far:  # bounds by more directions replace those that are known
            is_far, most = True, _far_limit(reach, limits, n_far)
            last, n = n, at
            for each in range(at, last):
                if shown[each] > limit:
                    continue
                place = places[each]
                memory.costs[1] += 1
                apart = compare(walk.shadows.queries, task.i, far, place)
                if apart <= most:
                    places[n], shown[n] = place, apart
                    n += 1
                    width = points.shape[1]
                    prefetch(points, slots[place] * width, min(4 * width, ROW_BYTES))
            limit = most
            continue
        row = slots[places[at]]
        at += 1
        if shown[at - 1] > limit:
            continue
        memory.costs[2] += 1
        given = walk.queries.given
        distance = products.measure_long(given, task.i, points, row, memory.pieces, memory.sums)
        if distance <= reach:
            _insert(distance, row, task.rank, memory.near, memory.found)
            neighbors = walk.answer.neighbors[task.i]
            _insert(distance, row, len(neighbors), neighbors, memory.nearest)
            reach = _reach(walk, task)
            limit = _far_limit(reach, limits, n_far) if is_far else _row_limit(reach, limits)


@inlined
def _insert(distance: float, row: int, rank: int, near: Floats, found: Ints) -> None:
    """Insert a row into the first `rank` places of a list, unless all precede it."""
    if rank and precedes(distance, row, near[rank - 1], found[rank - 1]):
        place = rank - 1
        while place > 0 and precedes(distance, row, near[place - 1], found[place - 1]):
            near[place], found[place] = near[place - 1], found[place - 1]
            place -= 1
        near[place], found[place] = distance, row


@compiled_freely
def compare(queries: Floats32, query: int, rows: Any, row: int) -> Any:
    """The squared distance between two shadows in float32, summed in any order."""
    total = np.float32(0)
    for j in range(queries.shape[1]):
        difference = queries[query, j] - np.float32(rows[row, j])
        total += difference * difference
    return total


@inlined
def _limits_of(walk: Walk, i: int) -> Any:
    """The limits of query i."""
    pack, shadows, squared = walk.pack, walk.shadows, walk.queries.squared[i]
    factor, offset = limit_terms(pack.scale, pack.error, pack.underflow, squared)
    margin = 2.0**-22 * np.sqrt(squared) + 2.0**-110
    slack, units, blur = shadows.slack[i], shadows.units, shadows.blur
    return Limits(shadows.stretch, slack, units, blur, factor, offset, pack.scale, margin)


@inlined
def _ball_offset(limits: Limits) -> Any:
    """What to subtract from the bound of a ball's center."""
    return np.float32(limits.offset + 2.0**-22 * abs(limits.offset) + 2.0**-120)


@inlined
def _ball_limit(distance: float, limits: Limits) -> Any:
    """The largest distance of a ball with a row within a distance, in the units of panels."""
    shown = (distance * limits.stretch + limits.slack) * limits.scale + limits.margin
    return np.float32(shown * (1 + 2.0**-19))


@inlined
def _row_limit(distance: float, limits: Limits) -> Any:
    """The largest bound that the coordinates of a row within a distance can have."""
    if distance == np.inf:
        return np.float32(np.inf)
    return limit_for(distance * limits.stretch + limits.slack, limits.factor, limits.offset)


@inlined
def _far_limit(distance: float, limits: Limits, n_terms: int) -> Any:
    """The largest squared distance, in units, of the shadow by more directions."""
    shown = (distance * limits.stretch + limits.slack) * limits.units + limits.blur
    # Rounding, relative to the sum: less than 2^-22 for each term.
    return shown * shown * (1 + (n_terms + 8) * 2.0**-22)
