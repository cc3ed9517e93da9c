"""CellIndex: decisions without distances.

Within a fixed radius, a support asks of each class only whether any row lies there. The rows of a
class are sorted into a tree of cells, 16 close rows to a cell, 16 cells to the next; each is a ball
with a centre and a radius. By the triangle inequality a cell whose ball ends beyond the reach holds
no row within it, and all that is below it is ruled out; the rest is looked at, the nearest cell
first, and a class is settled by its first hit.

With ĉ, R the centre and radius of a cell, in the units of `packed`, and ρ' the reach there, a cell
with a row within it has |q̂ - ĉ| <= ρ' + R. Squared and halved that is

    (|ĉ|² - R²)/2 - ĉ·q̂ - R ρ'  <=  (ρ'² - |q̂|²)/2

whose left side is again a sum of products, of d + 1 terms: the same instruction that bounds the
distances to 16 rows rules out 16 cells. Its terms add up to at most |ĉ|² + R² + (|q̂|² + ρ'²)/2 in
size, so rounding costs at most 2c times that, with c from `lower_bounds`: a cell's part is taken
off its first number, the query's part is added to its limit, and R and ρ' are rounded up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from iknow.core.arrays import Bools, Floats, Floats32
from iknow.core.neighborhood import Neighborhood, Radius
from iknow.core.overriding import said
from iknow.locking import cached_property
from iknow.search.cpu.dense_index import DenseIndex, Search, is_compiled

if TYPE_CHECKING:
    from iknow.search.cpu.cell_tree import CellTree

TRIAL = 48
"""Queries that walk the tree before it is decided how the rest are answered."""


def cost_of_a_step(n_features: int) -> float:
    """What looking at a panel costs in a walk, in panels of a sweep over all rows.

    In a walk it comes from far in memory, for a query at a time, and what to look at next must be
    noted; in a sweep it serves several queries at once. Measured on MNIST's layers: about 8 at 10
    features and 4 at 32, towards 2 where the arithmetic outweighs the rest.
    """
    return 2.2 + 60 / n_features


class CellIndex(DenseIndex):
    """A `DenseIndex` that finds supports within fixed radii without measuring distances.

    It takes `activations`, `labels`, `n_classes` and `rows` as a `DenseIndex` does. It finds a
    support by walking the tree or by a sweep over all rows, depending on how many cells the first
    queries could not rule out.

    Examples:
        >>> CellIndex(rows, labels, n_classes=2).find_support([[4.0]], Ball(2.0))
        array([[False,  True]])
    """

    def find_support(self, queries: Any, neighborhood: Neighborhood) -> Bools:
        """Find the classes in `neighborhood`: a mask (n_queries, n_classes) for `queries`."""
        radius = said(neighborhood, "decided_within")
        if radius is None or not is_compiled() or self.n_rows == 0 or len(self._parts) > 1:
            return super().find_support(queries, neighborhood)
        neighborhood.check_classes(self.n_classes)
        points = self._check(queries)
        support = self._within(points, self._radii(radius))
        if said(neighborhood, "empty_beyond") != radius:  # without any sample there may be some
            empty = ~support.any(axis=1)
            support[empty] = super().find_support(points[empty], neighborhood)
        return support

    def warm_up(self) -> None:
        """Prepare and compile everything that searching needs, whichever way finds a support."""
        super().warm_up()
        if self.n_rows and is_compiled() and len(self._parts) == 1:
            points, radii = self._check(self.points[:1]), self._radii(0.0)
            for find in (self._tree.walk, self._tree.sweep):
                find(points, radii, np.zeros((1, self.n_classes), dtype=np.bool_))

    def _radii(self, radius: Radius) -> Floats:
        # A copy: what is compiled for arrays that can be written is not for those that cannot.
        return np.array(np.broadcast_to(radius, (self.n_classes,)), dtype=np.float64)

    def _within(self, points: Floats32, radii: Floats) -> Bools:
        """Which classes have a row within their radius, of shape (n_queries, n_classes)."""
        support: Bools = np.zeros((len(points), self.n_classes), dtype=np.bool_)
        trial = slice(0, min(TRIAL, len(points)))
        steps = self._tree.walk(points[trial], radii, support[trial])
        rest = slice(trial.stop, len(points))
        if rest.start < rest.stop:
            cost = cost_of_a_step(self.n_features) * steps / trial.stop
            walks = cost < self._tree.n_panels
            find = self._tree.walk if walks else self._tree.sweep
            find(points[rest], radii, support[rest])
        return support

    @cached_property
    def _tree(self) -> CellTree:
        from iknow.search.cpu.cell_tree import CellTree

        return CellTree(self)

    def _make_search(self) -> Search:
        if is_compiled():
            return self._tree.search
        return super()._make_search()
