"""DecidingSearch: decisions by truncated distances, compiled, with bounds from projections."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from iknow.core.arrays import Bools, Floats, Floats32, Ints
from iknow.core.evidence import NO_EXEMPLAR
from iknow.core.horizon import Horizon
from iknow.core.quorum import Quorum
from iknow.search.cpu.numba.cell_bounds import Cells, surround
from iknow.search.cpu.numba.class_search import Far
from iknow.search.cpu.numba.deciding import Answer, Question, decide_batch
from iknow.search.cpu.numba.limits import Lens
from iknow.search.cpu.numba.records import Pack, Queries
from iknow.search.cpu.numba.tree import sort_into_cells
from iknow.search.cpu.packed import LANES, PackedRows
from iknow.search.cpu.panels import QUERIES_PER_BATCH, cut_evenly, read_only
from iknow.search.cpu.projection import Projection, Shadows
from iknow.search.cpu.worth import Effort, Sizes
from iknow.search.index import RowIndex
from iknow.search.threads import share

FEWEST_TO_SORT = 48


class Truncated(NamedTuple):
    """Distances as a quorum counts them, inf beyond all that matters, of shape (n, n_classes).

    exemplars: the nearest row of the believed class, of shape (n,). neighbors: distances to the k
    nearest rows, of shape (n, k). given_up: a mask of shape (n,) of the queries that ran out of
    patience, whose distances mean nothing. cost: the panels, shadows and rows looked at.
    """

    distances: Floats
    exemplars: Ints
    neighbors: Floats
    given_up: Bools
    cost: Ints


class DecidingSearch:
    """The shadows of stored rows, in cells, packed for compiled search."""

    def __init__(
        self, stored: RowIndex, n_near: int | None = None, n_far: int | None = None
    ) -> None:
        usual = choose_directions(stored.n_features)
        n_near, n_far = n_near or usual[0], n_far or usual[1]
        points, rows = np.ascontiguousarray(stored.points), np.asarray(stored.rows)
        starts, self.n_classes = stored.class_starts, stored.n_classes
        self.projection = projection = Projection(points, n_near, n_far)
        self.is_safe = projection.is_safe
        if not self.is_safe:
            return
        near, far = projection.show_rows(points)
        order = np.arange(len(points))
        share(
            lambda code: sort_into_cells(near, order[starts[code] : starts[code + 1]]),
            range(stored.n_classes),
        )
        self.packed = packed = PackedRows(near, starts, order)
        arrays = packed.panels.reshape(-1), packed.slots, read_only(points), read_only(rows)
        self.pack = Pack(*arrays, packed.scale, packed.error, packed.underflow)
        self.cells = self._surround()
        # By slot, so that the rows of a cell lie side by side.
        width = far.shape[1] if n_far > n_near else 0
        self.far = read_only(np.ascontiguousarray(far[np.maximum(packed.slots, 0), :width]))
        self.lens = Lens(projection.stretch, 1 / projection.unit, projection.blur)
        self.sizes = Sizes(len(packed.panels), near.shape[1], self.far.shape[1], stored.n_features)

    def decide(
        self, queries: Floats32, belief: Ints, quorum: Quorum, horizon: Horizon, effort: Effort
    ) -> Truncated:
        """The truncated distances of queries of shape (n, n_features) with a belief, (n,)."""
        if len(queries) >= FEWEST_TO_SORT:
            return self._decide_sorted(queries, belief, quorum, horizon, effort)
        return self._decide(queries, belief, quorum, horizon, self.projection.show(queries), effort)

    def _decide_sorted(
        self, queries: Floats32, belief: Ints, quorum: Quorum, horizon: Horizon, effort: Effort
    ) -> Truncated:
        """Queries that visit the same cells one after the other find these in the cache."""
        shadows = self.projection.show(queries)
        order = np.lexsort((shadows.near[:, 0], belief))
        shown = Shadows(shadows.near[order], shadows.far[order], shadows.lengths[order])
        found = self._decide(queries[order], belief[order], quorum, horizon, shown, effort)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        return Truncated._make([*(column[place] for column in found[:-1]), found.cost])

    def _decide(
        self,
        queries: Floats32,
        belief: Ints,
        quorum: Quorum,
        horizon: Horizon,
        shadows: Shadows,
        effort: Effort,
    ) -> Truncated:
        n, beliefs = len(queries), read_only(belief)
        near, far, lengths = shadows
        answer = Answer(
            np.full((n, self.n_classes), np.inf),
            np.full(n, NO_EXEMPLAR, dtype=np.int64),
            np.full((n, horizon.k), np.inf),
            np.zeros(n, dtype=np.bool_),
        )
        question = Question(*quorum, horizon.fixed, horizon.ratio, *effort)
        slack = self.projection.widen(lengths)
        costs = []

        def work(part: slice) -> None:
            points, squared = self.packed.place(near[part])
            asked = Queries(read_only(queries[part]), points, squared)
            closer = Far(self.far, far[part], slack[part])
            own = Answer._make(column[part] for column in answer)
            arguments = self.pack, self.cells, closer, self.lens, asked, beliefs[part], question
            costs.append(decide_batch(*arguments, own))

        share(work, list(cut_evenly(n, QUERIES_PER_BATCH)))
        answer.given_up[~self.projection.are_safe(lengths)] = True
        return Truncated(*answer, np.sum(costs, axis=0))

    def warm_up(self) -> None:
        """Compile everything, by asking about a stored row."""
        belief = np.zeros(1, dtype=np.int64)
        self.decide(self.pack.points[:1], belief, (1, 1), Horizon(), Effort(1))

    def _surround(self) -> Cells:
        """The balls around the panels."""
        packed = self.packed
        firsts = np.concatenate([[0], np.cumsum(-(-np.diff(packed.class_panels) // LANES))])
        n_panels, width = int(firsts[-1]), packed.n_features + 1
        centers = np.empty(n_panels * width * LANES, dtype=np.float32)
        radii = np.empty(n_panels * LANES, dtype=np.float32)
        cells = Cells(centers, radii, firsts.astype(np.int64), packed.class_panels)
        arguments = self.pack.panels, packed.slots, packed.n_features, packed.error, cells
        share(lambda code: surround(*arguments, code), range(self.n_classes))
        return cells


def choose_directions(n_features: int) -> tuple[int, int]:
    """How many directions to compare with all rows, and how many with those left after that.

    They cost 4 and 2 bytes each for every row: together about 23 percent of the 4 for each feature,
    or 44 bytes if features are few.
    """
    near = min(n_features, max(10, min(64, n_features // 12)))
    far = min(224, 2 * n_features // 7)
    return near, far if far >= near + 8 else near
