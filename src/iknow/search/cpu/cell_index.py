"""CellIndex: decisions without distances.

Within a fixed radius, a support only asks whether each class has any row. The rows of a class form
a tree of cells, balls around 16 close rows or 16 cells each. By the triangle inequality, a ball
that is out of reach rules out everything below it. We visit the rest, the nearest cell first, and
the first hit settles a class.

Let ĉ and R be the center and radius of a cell, in the units of `packed`, and ρ' the reach there. A
cell with a row within reach has |q̂ - ĉ| <= ρ' + R. Squared and halved that is

    (|ĉ|² - R²)/2 - ĉ·q̂ - R ρ'  <=  (ρ'² - |q̂|²)/2

whose left side is again a sum of products, of d + 1 terms: the same instruction that bounds the
distances to 16 rows rules out 16 cells. Its terms add up to at most |ĉ|² + R² + (|q̂|² + ρ'²)/2 in
size, so rounding costs at most 2c times that, with c from `bounds`: we subtract a cell's part
from its first number, add the query's part to its limit, and round R and ρ' up.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from iknow.core.arrays import Floats32, Ints
from iknow.core.decision import Decision, decide_weighed, replace_decisions, stack_decisions
from iknow.core.overriding import promise_of
from iknow.core.quorum import truncated_evidence
from iknow.core.rule import Rule
from iknow.locking import cached_property
from iknow.search.cpu.dense_index import DenseIndex, Search, is_compiled
from iknow.search.cpu.worth import Effort, Worth

if TYPE_CHECKING:
    from iknow.search.cpu.cell_tree import CellTree
    from iknow.search.cpu.deciding import DecidingSearch

FEWEST_ROWS = 2048
"""With fewer rows, measuring all classes takes no longer than what surrounds it."""
TRIED = 12
"""Queries that are decided by bounds before we know whether these are worthwhile."""
MOST_NEIGHBORS = 64
"""Of more neighbors, most rows would be measured anyway."""
TRIAL = 48
"""Queries that walk the tree before we decide how to answer the rest."""


def cost_of_a_step(n_features: int) -> float:
    """The cost of a panel in a walk, in panels of a sweep, which serve several queries at once.

    Measured on MNIST's layers: about 8 with 10 features and 4 with 32, approaching 2 where
    arithmetic outweighs memory.
    """
    return 2.2 + 60 / n_features


class CellIndex(DenseIndex):
    """A `DenseIndex` that finds supports within fixed radii without measuring distances.

    It takes `activations`, `labels`, `n_classes` and `rows` as a `DenseIndex` does. It walks the
    tree or sweeps over all rows, depending on how many cells the first queries could not rule out.

    Examples:
        >>> CellIndex(rows, labels, n_classes=2).find_support([[4.0]], Ball(2.0))
        array([[False,  True]])
    """

    def warm_up(self) -> None:
        """Prepare and compile everything that search needs, both ways."""
        super().warm_up()
        if self._has_tree and self.n_rows >= FEWEST_ROWS and self._deciding.is_safe:
            self._deciding.warm_up()

    def decides(self, rule: Rule) -> bool:
        """Whether `decide` is faster than `gather` for a `rule`, as far as it is known."""
        return self._can_decide(rule) and self._worth.allows_a_try()

    def decide(self, queries: Any, rule: Rule, belief: Ints) -> Decision:
        """Decide by a `rule` about `queries`, (n, n_features), and their `belief`, (n,).

        A few queries show first whether bounds rule out most rows.
        """
        points, codes = self._check(queries), np.ascontiguousarray(belief, dtype=np.int64)
        if len(points) == 0 or not self._can_decide(rule):
            return super().decide(points, rule, codes)
        if self._worth.is_proven:
            return self._decide_in_time(points, rule, codes)
        n = min(TRIED, len(points))
        first = self._decide(points[:n], rule, codes[:n])
        if n == len(points):
            return first
        rest = points[n:], rule, codes[n:]
        proven = self._worth.is_proven
        found = self._decide_in_time(*rest) if proven else super().decide(*rest)
        return stack_decisions([first, found])

    def _decide_in_time(self, points: Floats32, rule: Rule, belief: Ints) -> Decision:
        """Decide in the way that the clock prefers, and let it learn."""
        by_bounds, start = self._worth.pays(len(points)), time.perf_counter()
        decide = self._decide if by_bounds else super().decide
        decision = decide(points, rule, belief)
        if (times := self._worth.times(len(points))) is not None:
            times.note(by_bounds, len(points), time.perf_counter() - start)
        return decision

    def _can_decide(self, rule: Rule) -> bool:
        horizon = promise_of(rule, "horizon")
        if horizon is None or not horizon.is_finite or self.n_rows < FEWEST_ROWS:
            return False
        if horizon.k > min(self.n_rows, MOST_NEIGHBORS):
            return False
        return self._has_tree and self._deciding.is_safe

    def _decide(self, points: Floats32, rule: Rule, belief: Ints) -> Decision:
        """Decide by truncated distances; by all of them for queries that run out of patience."""
        effort = Effort(self._worth.patience, self._worth.prefers_rows(len(points)))
        asked = rule.quorum, promise_of(rule, "horizon"), effort
        found = self._deciding.decide(points, belief, *asked)
        self._worth.learn(len(points), effort.is_flat, found.cost)
        distances = found.distances, found.neighbors
        weighed = truncated_evidence(*distances, belief, rule.quorum)
        decision = decide_weighed(weighed, rule, found.exemplars)
        if not found.given_up.any():
            return decision
        rest = np.flatnonzero(found.given_up)
        return replace_decisions(decision, rest, super().decide(points[rest], rule, belief[rest]))

    @property
    def _has_tree(self) -> bool:
        one_part = self.n_rows > 0 and len(self._parts) == 1
        return one_part and is_compiled() and not self._is_sparse

    @cached_property
    def _deciding(self) -> DecidingSearch:
        from iknow.search.cpu.deciding import DecidingSearch

        return DecidingSearch(self)

    @cached_property
    def _worth(self) -> Worth:
        return Worth(self._deciding.sizes)

    @cached_property
    def _tree(self) -> CellTree:
        from iknow.search.cpu.cell_tree import CellTree

        return CellTree(self)

    def _make_search(self) -> Search:
        return self._tree.search if is_compiled() else super()._make_search()
