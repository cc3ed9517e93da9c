"""The classes that matter to a decision, compiled: the believed one, and those that lie in reach.

First the nearest rows of the believed class, then one class after the other, those that seem
nearest first. What is found bounds what else can matter: with ρ the horizon of the rule, that is
max(ρ, d_¬g). Most classes have no cell with a bound that low.

For the k nearest of all classes, the rows found are kept in one list, whose last distance only
shrinks, from inf while there are fewer than k, to r_k. A row within it matters, whatever its class.
When no class is left within max(ρ, d_¬g, r_k), the list is complete. A distance to a class beyond
that may be that of a wrong row, and is put at inf in the end.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from iknow.core.arrays import Bools, Floats, Ints
from iknow.search.cpu.numba.cell_bounds import Cells, bound_cells
from iknow.search.cpu.numba.cell_vectors import turn_into_distances
from iknow.search.cpu.numba.class_search import MOST_WAITING, Far, Memory, Task, find_class
from iknow.search.cpu.numba.compile import compiled, compiled_bare
from iknow.search.cpu.numba.limits import Lens, View, cell_limit, cell_offset, view_from
from iknow.search.cpu.numba.measure import MOST_PIECES
from iknow.search.cpu.numba.records import Pack, Queries
from iknow.search.cpu.numba.vectors import QUERIES_AT_ONCE
from iknow.search.cpu.packed import LANES

GROUPS_AT_ONCE = 8
BOUNDS_AT_ONCE = 1 << 18  # of several queries, kept in the cache while they are used


class Question(NamedTuple):
    """What is asked: the quorum, and the horizon of the rule, apart from k.

    patience: how many rows to measure for one query before giving up. is_flat: whether to bound
    rows rather than cells.
    """

    needed: int
    against: int
    fixed: float
    ratio: float
    patience: int
    is_flat: bool


class Answer(NamedTuple):
    """What is found about a batch of queries.

    distances: as the quorum counts them, of shape (n_queries, n_classes), filled with inf.
    exemplars: of shape (n_queries,), filled with -1. neighbors: distances to the k nearest rows, of
    shape (n_queries, k), filled with inf. given_up: of shape (n_queries,), filled with False; marks
    queries that ran out of patience, whose distances mean nothing.
    """

    distances: Floats
    exemplars: Ints
    neighbors: Floats
    given_up: Bools


@compiled
def decide_batch(
    pack: Pack,
    cells: Cells,
    far: Far,
    lens: Lens,
    queries: Queries,
    belief: Ints,
    question: Question,
    answer: Answer,
) -> Any:
    """Fill in the answer about a batch; returns the panels, shadows and rows looked at."""
    n_queries, n_classes = answer.distances.shape
    n_cells, n_groups = len(cells.radii), -(-n_queries // QUERIES_AT_ONCE)
    affordable = BOUNDS_AT_ONCE // (n_cells * QUERIES_AT_ONCE)
    at_once = max(1, min(GROUPS_AT_ONCE, affordable, n_groups)) * QUERIES_AT_ONCE
    m = max(question.needed, question.against)
    memory = Memory(
        np.empty(at_once * n_cells, dtype=np.float32), np.empty(m), np.empty(m, dtype=np.int64),
        np.zeros(3, dtype=np.int64), np.empty(n_classes, dtype=np.float32),
        np.empty(LANES, dtype=np.float32), np.empty(MOST_WAITING, dtype=np.int64),
        np.empty(MOST_WAITING, dtype=np.float32), np.empty(MOST_PIECES, dtype=np.int64),
        np.empty(MOST_PIECES),
    )  # fmt: skip
    for start in range(0, n_queries, at_once):
        placed = queries.points[start : start + at_once]
        bound_cells(pack.panels, cells, placed, question.is_flat, memory.bounds)
        for i in range(start, start + len(placed)):
            squared, slack = queries.squared[i], far.slack[i]
            view = view_from(lens, slack, pack.scale, pack.error, pack.underflow, squared)
            at = (i - start) * n_cells
            _find_least(cells, question.is_flat, cell_offset(view), at, memory)
            _decide(pack, cells, far, queries, i, view, belief[i], question, answer, at, memory)
    return memory.costs


@compiled_bare
def _find_least(cells: Cells, is_flat: bool, offset: Any, at: int, memory: Memory) -> None:
    """Turn the bounds from `at` on into distances of cells, and find the least of each class."""
    for code in range(len(memory.least)):
        first, last = cells.firsts[code] * LANES, cells.firsts[code + 1] * LANES
        memory.least[code] = turn_into_distances(
            memory.bounds, at + first, last - first, offset, cells.radii, first, is_flat
        )


@compiled_bare
def _decide(
    pack: Pack, cells: Cells, far: Far, queries: Queries, i: int, view: View, own: int,
    question: Question, answer: Answer, at: int, memory: Memory,
) -> None:  # fmt: skip
    """Fill in the answer about one query with a belief, `own`, whose bounds are from `at` on."""
    distances, neighbors, least = answer.distances, answer.neighbors, memory.least
    most = memory.costs[2] + question.patience
    horizon, other = question.fixed, np.inf
    is_own = own >= 0 and least[own] < np.inf
    code, rank, cap, beyond = own, question.needed, np.inf, np.inf
    for _ in range(len(least)):
        if not is_own:
            code, rank, cap = int(np.argmin(least)), question.against, max(horizon, other)
            beyond = max(cap, neighbors[i, -1]) if neighbors.shape[1] else cap
        # All classes that are left are as far, have no rows, or were searched.
        if least[code] == np.inf or least[code] > cell_limit(beyond, view):
            break
        first = cells.firsts[code] * LANES
        n = cells.firsts[code + 1] * LANES - first
        rows = cells.rows[code], cells.rows[code + 1]
        task = Task(rank, cap, most, rows[0], rows[1], at + first, n, least[code])
        find_class(pack, far, queries, i, view, task, neighbors, memory)
        least[code] = np.inf
        distances[i, code] = memory.near[rank - 1]
        if not is_own:
            other = min(other, memory.near[rank - 1])
        elif memory.near[rank - 1] < np.inf:
            horizon = max(horizon, question.ratio * memory.near[rank - 1])
        if is_own and memory.found[0] >= 0:
            answer.exemplars[i] = pack.rows[memory.found[0]]
        is_own = False
    beyond = max(horizon, other)
    if neighbors.shape[1]:
        beyond = max(beyond, neighbors[i, -1])
    for code in range(len(least)):
        if code != own and distances[i, code] > beyond:
            distances[i, code] = np.inf
    answer.given_up[i] = memory.costs[2] > most
