"""DecidingSearch: decisions by truncated distances, compiled, with bounds from projections."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from iknow.core.arrays import Bools, Floats, Floats32, Ints
from iknow.core.evidence import NO_EXEMPLAR
from iknow.core.quorum import Quorum
from iknow.search.cpu.numba.deciding import Far, Lens, Question, decide_batch
from iknow.search.cpu.numba.records import Pack, Queries
from iknow.search.cpu.numba.tree import sort_into_cells
from iknow.search.cpu.packed import PackedRows
from iknow.search.cpu.panels import batches_of, cut_blocks, read_only
from iknow.search.cpu.projection import Projection
from iknow.search.cpu.worth import Sizes
from iknow.search.stored import StoredRows
from iknow.search.threads import share


NUMBERS_PER_BLOCK = 36  # of each lane: a minimum costs about as much as comparing as many


class Truncated(NamedTuple):
    """Distances as a quorum counts them, inf beyond all that matters, of shape (n, n_classes).

    exemplars: the nearest row of the believed class, of shape (n,). given_up: a mask of shape (n,)
    of the queries that ran out of patience, whose distances mean nothing. cost: the panels, shadows
    and rows looked at.
    """

    distances: Floats
    exemplars: Ints
    given_up: Bools
    cost: Ints


class DecidingSearch:
    """The shadows of stored rows, in cells, packed for compiled search."""

    def __init__(
        self, stored: StoredRows, n_near: int | None = None, n_far: int | None = None
    ) -> None:
        usual = choose_directions(stored.n_features)
        n_near, n_far = n_near or usual[0], n_far or usual[1]
        points, rows = np.ascontiguousarray(stored.points), np.asarray(stored.rows)
        starts, self.n_classes = stored.class_starts, stored.n_classes
        self.projection = Projection(points, n_near, n_far)
        self.is_safe = self.projection.is_safe
        if not self.is_safe:
            return
        near, far = self.projection.show_rows(points)
        order = np.arange(len(points))
        share(
            lambda code: sort_into_cells(near, order[starts[code] : starts[code + 1]]),
            range(stored.n_classes),
        )
        self.packed = packed = PackedRows(near, starts, order)
        arrays = packed.panels.reshape(-1), packed.slots, read_only(points), read_only(rows)
        self.pack = Pack(*arrays, packed.scale, packed.error, packed.underflow)
        self.blocks = cut_blocks(packed.class_panels, NUMBERS_PER_BLOCK // near.shape[1])
        # By slot, so that the rows of a cell lie side by side.
        width = far.shape[1] if n_far > n_near else 0
        self.far = read_only(np.ascontiguousarray(far[np.maximum(packed.slots, 0), :width]))
        self.sizes = Sizes(len(packed.panels), near.shape[1], self.far.shape[1], stored.n_features)

    def decide(
        self,
        queries: Floats32,
        belief: Ints,
        quorum: Quorum,
        horizon: tuple[float, float],
        patience: int,
    ) -> Truncated:
        """The truncated distances of queries of shape (n, n_features) with a belief, (n,).

        horizon: of the rule. patience: how many rows to measure at most for one query.
        """
        projection, beliefs = self.projection, read_only(belief)
        near, far, lengths = projection.show(queries)
        distances = np.full((len(queries), self.n_classes), np.inf)
        exemplars = np.full(len(queries), NO_EXEMPLAR, dtype=np.int64)
        given_up = np.zeros(len(queries), dtype=np.bool_)
        question = Question(*quorum, *horizon, patience)
        lens = Lens(projection.stretch, 1 / projection.unit, projection.blur)
        slack = projection.widen(lengths)
        costs = []

        def work(part: slice) -> None:
            points, squared = self.packed.place(near[part])
            asked = Queries(read_only(queries[part]), points, squared)
            shadows = Far(self.far, far[part], slack[part])
            found = distances[part], exemplars[part], given_up[part]
            arguments = self.pack, self.blocks, shadows, lens, asked, beliefs[part], question
            costs.append(decide_batch(*arguments, *found))

        share(work, batches_of(len(queries), self.blocks))
        given_up |= ~projection.are_safe(lengths)
        return Truncated(distances, exemplars, given_up, np.sum(costs, axis=0))

    def warm_up(self) -> None:
        """Compile everything, by asking about a stored row."""
        self.decide(self.pack.points[:1], np.zeros(1, dtype=np.int64), (1, 1), (0.0, 0.0), 1)


def choose_directions(n_features: int) -> tuple[int, int]:
    """How many directions to compare with all rows, and how many with those left after that.

    They cost 4 and 2 bytes each for every row: together about 15 percent of the 4 for each feature,
    or 36 bytes if features are few.
    """
    near = min(n_features, max(8, min(48, n_features // 16)))
    far = min(128, n_features // 6)
    return near, far if far >= near + 8 else near
