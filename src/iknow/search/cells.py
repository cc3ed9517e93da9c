"""CpuIndex: exact search on all cores, by bounds that rule out nearly all rows.

One float32 product bounds a distance from below, with a proven allowance for rounding; we measure
only the rows that may be nearest by their bound, in float64. With the extra `fast`, search is
compiled: by products with all rows (`products`) or, if a rule's horizon allows an early stop, by a
walk (`walk`) that bounds whole cells of rows, or their few leading coordinates, and looks closer
where these do not suffice. Without it, numpy computes the products (`engine`), to the same bits.
Rows that are mostly zeros have products of their own (`measured`).

Which way is faster depends on the rows, the queries and the machine. We learn that from the queries
answered; it changes no answer. Where rows have no structure, as random points of many features,
walks rule out nothing, and what they cost is lost. So we count what a walk costs in steps, each the
work for one feature of 16 rows in a search by products. Steps leave out the waiting for memory, so
where they favor a walk, measured times decide.
"""

from __future__ import annotations

import time
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from iknow.core.arrays import Floats32, Ints
from iknow.core.decision import Scope, scope_of
from iknow.core.evidence import Evidence, merge_evidence, stack_evidence
from iknow.core.rule import Horizon, Rule
from iknow.locking import cached_property
from iknow.pages import slices_that_fit
from iknow.search.index import RowIndex
from iknow.search.kernels.numba import is_compiled
from iknow.search.kernels.numpy import NumpyBlocks
from iknow.search.measured import SparseRows
from iknow.search.projection import FEW_FEATURES, Coordinates, Projection, choose_coordinates

if TYPE_CHECKING:
    from iknow.search.kernels.numba.search import ProductSearch, WalkSearch

COPY_BYTES = 5  # per feature to prepare a row for search: its float32 copy and a little more
TRIED = 12  # queries that walk before we know whether that is worthwhile
PER_PANEL, PER_SHADOW, PER_ROW = 3.3, 0.8, 1.8
"""The costs per feature of looking at a panel alone, a shadow and a row, in steps; measured."""
PAYS, PAYS_ALONE = 0.8, 2.0
"""The share of steps at which walks pay, among many queries and for a few: products cost a few
nearly as much as a full group."""
MEMORY = 64  # queries over which costs are averaged
TRY_AGAIN = 32  # every so many calls, in case queries have changed
TREE, FLAT, PRODUCTS = WAYS = range(3)
"""Walking down the tree of cells, walking by the bounds of all panels, and products."""
FEW, MANY = 2, 64  # queries in a batch whose time tells what one of them costs
SHARE_OF_TRIALS = 0.01  # of the time that may be spent on trying the slower way
FORGETTING = 0.05  # weight of the latest time, if it is longer
ENOUGH_TIMES = 3


class Clock:
    """Seconds that a query takes each way; None while unknown."""

    def __init__(self) -> None:
        self.seconds: list[float | None] = [None] * len(WAYS)
        self.seen = [0] * len(WAYS)
        self._since = [0.0] * len(WAYS)  # seconds since each way was tried

    def choose(self, ways: list[int], n: int) -> int:
        """The fastest way for n queries, or a slower one that is due; all must be known."""
        best = min(ways, key=lambda way: self.seconds[way] or 0.0)
        for way in ways:
            cost = n * (self.seconds[way] or 0.0)
            if way != best and self._since[way] * SHARE_OF_TRIALS > cost:
                return way
        return best

    def note(self, way: int, n: int, seconds: float) -> None:
        """Learn how long n queries took; the first time may have compiled something."""
        self._since = [each + seconds for each in self._since]
        self._since[way] = 0.0
        self.seen[way] += 1
        before, latest = self.seconds[way], seconds / n
        if self.seen[way] > 1 and (before is None or latest < before):
            self.seconds[way] = latest
        elif before is not None:  # a busy machine makes some times longer, and none shorter
            self.seconds[way] = before + FORGETTING * (latest - before)


class StepCost:
    """What walks cost on average, relative to products.

    sizes: the panels of rows, their coordinates, shadows and features.
    """

    def __init__(self, *sizes: int) -> None:
        self._sizes = sizes
        self._shares: list[float | None] = [None, None]  # down the tree, over all panels
        self._clocks = Clock(), Clock()
        self._calls = 0

    @property
    def patience(self) -> int:
        """How many rows a walk may measure before a search by products would have been faster."""
        return int(self._sizes[0] / PER_ROW) + 16

    def choose(self, n: int) -> tuple[int, int]:
        """The way to search for the next of n queries, and for how many: few if it is untried."""
        shares = [(share, way) for way, share in enumerate(self._shares)]
        for share, way in shares:
            if share is None:
                return way, TRIED
        limit = PAYS if n > FEW else PAYS_ALONE
        paying = sorted(each for each in shares if each[0] < limit)  # type: ignore[operator]
        if not paying:
            return PRODUCTS, n
        ways, clock = [way for _, way in paying] + [PRODUCTS], self._clocks[n > FEW]
        for way in ways:
            if clock.seen[way] <= ENOUGH_TIMES:
                # Enough of a large batch that starting threads does not count.
                return (way, max(MANY, n // 4)) if n <= FEW or n >= MANY else (ways[0], n)
        return clock.choose(ways, n), n

    def allows_a_try(self) -> bool:
        """Whether to walk now: it pays, or has not been tried for a while."""
        if any(share is None or share < PAYS_ALONE for share in self._shares):
            return True
        self._calls += 1
        if self._calls % TRY_AGAIN == 0:
            self._shares = [None, None]
        return self._calls % TRY_AGAIN == 0

    def learn(self, n: int, way: int, cost: Ints) -> None:
        """Count what n queries looked at: panels, shadows and rows."""
        n_panels, near, far, n_features = self._sizes
        panels, shadows, rows = cost.tolist()
        steps = PER_PANEL * panels * (near + 1) + PER_SHADOW * shadows * far
        steps += PER_ROW * rows * n_features + (n_panels * (near + 1) * n if way == FLAT else 0)
        share, before = steps / (n * n_panels * (n_features + 1)), self._shares[way]
        weight = 1.0 if before is None else min(1.0, n / MEMORY)
        self._shares[way] = (1 - weight) * (before or 0.0) + weight * share

    def note(self, n: int, way: int, seconds: float) -> None:
        """Learn how long n queries took, if that tells what one of them takes."""
        if n <= FEW or n >= MANY:
            self._clocks[n > FEW].note(way, n, seconds)


class CpuIndex(RowIndex):
    """Activations of one layer with their class codes, searched in the Euclidean norm.

    If there are too many rows to prepare for search in the free memory, such as those of a large
    memory-mapped file, they are searched part by part.

    `activations`, `labels`, `n_classes` and `rows` are those of every `RowIndex`.

    Examples:
        >>> CpuIndex(rows, labels, n_classes=2).gather([[4.0]], k=1).class_distances
        array([[3., 1.]])
    """

    FEWEST_ROWS = 2048
    """With fewer rows, measuring all of them takes no longer than the rest of a call."""
    MOST_NEIGHBORS = 64
    """To find more neighbors than this, a walk would measure most rows anyway."""

    def search(self, points: Floats32, scope: Scope) -> Evidence:
        """What `scope` asks about `points` of shape (n, n_features)."""
        if len(self._parts) > 1:  # each is freed before the next is prepared
            parts = (CpuIndex(*self.arrays(at)).search_part(points, scope) for at in self._parts)
            return reduce(lambda one, other: merge_evidence([one, other]), parts)
        if scope.horizon is None or not self._can_walk(scope):
            return self._products.search(points, scope)
        cost, found, start = self._cost, [], 0
        while start < len(points):
            way, n = cost.choose(len(points) - start)
            stop = min(start + n, len(points))
            asked, wanted = points[start:stop], scope.at(slice(start, stop))
            before = time.perf_counter()
            if way == PRODUCTS:
                found.append(self._products.search(asked, wanted))
            else:
                found.append(self._walk(asked, wanted, way))
            cost.note(len(asked), way, time.perf_counter() - before)
            start = stop
        return found[0] if len(found) == 1 else stack_evidence(found)

    def decides(self, rule: Rule) -> bool:
        """Whether `decide` is faster than `gather` for a `rule`, as far as it is known."""
        return self._has_cells and self._can_walk(scope_of(rule)) and self._cost.allows_a_try()

    def warm_up(self) -> None:
        super().warm_up()
        scope = Scope(belief=np.zeros(1, dtype=np.int64), horizon=Horizon())
        if self._can_walk(scope):
            self._walks.search(np.array(self.points[:1]), scope, 1, False)

    def _can_walk(self, scope: Scope) -> bool:
        few = scope.horizon is not None and scope.any <= self.MOST_NEIGHBORS
        return few and self._has_cells and self._coordinates.is_safe

    def _walk(self, points: Floats32, scope: Scope, way: int) -> Evidence:
        """Evidence within the horizon; all evidence for queries whose walk takes too long."""
        found, given_up, looked_at = self._walks.search(
            points, scope, self._cost.patience, is_flat=way == FLAT
        )
        self._cost.learn(len(points), way, looked_at)
        rest = np.flatnonzero(given_up)
        if len(rest):
            whole = self._products.search(points[rest], scope)
            for column, instead in zip(vars(found).values(), vars(whole).values(), strict=True):
                column[rest] = instead
        return found

    @cached_property
    def _parts(self) -> list[slice]:
        """Slices of rows to prepare for search at once; just one unless memory is short."""
        if self._is_sparse:  # what it prepares is small
            return [slice(0, self.n_rows)]
        return slices_that_fit(self.n_rows, COPY_BYTES * (self.n_features + 4))

    @cached_property
    def _is_sparse(self) -> bool:
        return SparseRows.pay_for(self.points)

    @property
    def _has_cells(self) -> bool:
        enough = self.n_rows >= self.FEWEST_ROWS and len(self._parts) == 1
        return enough and is_compiled() and not self._is_sparse

    @cached_property
    def _products(self) -> SparseRows | NumpyBlocks | ProductSearch:
        if self._is_sparse:
            return SparseRows(self)
        if not is_compiled():
            return NumpyBlocks(self)
        from iknow.search.kernels.numba.search import PackedRows, ProductSearch

        # Features that are coordinates themselves are packed once.
        few = self._has_cells and self.n_features <= FEW_FEATURES
        shared = few and not isinstance(self._coordinates, Projection)
        packed = self._walks.packed if shared else PackedRows(self, self.points)
        return ProductSearch(packed, self.n_classes)

    @cached_property
    def _coordinates(self) -> Coordinates:
        return choose_coordinates(np.ascontiguousarray(self.points))

    @cached_property
    def _walks(self) -> WalkSearch:
        from iknow.search.kernels.numba.search import WalkSearch

        return WalkSearch(self, self._coordinates)

    @cached_property
    def _cost(self) -> StepCost:
        packed = self._walks.packed
        return StepCost(packed.n_panels, packed.n_terms, self._walks.far.shape[1], self.n_features)
