"""CellTree: the cells of stored rows, and two ways to find a support with them."""

from __future__ import annotations

import numpy as np

from iknow.core.arrays import Bools, Floats, Floats32, Ints
from iknow.search.cpu.numba.cells import walk
from iknow.search.cpu.numba.clearing import NONE, find_contradictions
from iknow.search.cpu.numba.sweep import sweep
from iknow.search.cpu.numba.tree import Tree, make_balls, sort_into_cells
from iknow.search.cpu.packed import LANES
from iknow.search.cpu.panels import PanelSearch, cut_evenly
from iknow.search.index import RowIndex
from iknow.search.threads import share

QUERIES_PER_WALK = 8192


class CellTree:
    """Stored rows sorted into cells, with the balls around them."""

    def __init__(self, stored: RowIndex) -> None:
        points = np.ascontiguousarray(stored.points)
        starts = stored.class_starts
        order = np.arange(len(points))
        share(
            lambda code: sort_into_cells(points, order[starts[code] : starts[code + 1]]),
            range(stored.n_classes),
        )
        self.search = PanelSearch(stored, order)
        self._tree = _plant(self.search.packed.class_panels, stored.n_features)
        share(self._fill, range(stored.n_classes))

    @property
    def n_panels(self) -> int:
        return len(self.search.packed.panels)

    def walk(self, queries: Floats32, radii: Floats, support: Bools) -> int:
        """Mark the classes within reach in `support`; returns the number of panels visited.

        queries: of shape (n_queries, n_features). radii: of shape (n_classes,). support: of shape
        (n_queries, n_classes), filled with False.
        """
        visited: list[int] = []

        def work(part: slice) -> None:
            batch = self.search.place(queries[part])
            visited.append(walk(self.search.pack, self._tree, batch, radii, support[part]))

        share(work, list(cut_evenly(len(queries), QUERIES_PER_WALK)))
        return sum(visited)

    def sweep(self, queries: Floats32, radii: Floats, support: Bools) -> None:
        """Like `walk`, but visits all rows."""

        def work(part: slice) -> None:
            batch = self.search.place(queries[part])
            sweep(self.search.pack, self.search.blocks, batch, radii, support[part])

        share(work, self.search.batches(len(queries)))

    def find_contradictions(
        self, queries: Floats32, belief: Ints, radii: Floats, against: int, patience: int
    ) -> Ints:
        """A class other than the belief with `against` rows within the radius, (n_queries,).

        -1 where there is none. belief, radii: of shape (n_queries,). patience: how many panels to
        visit for a query; -2 for one that needs more.
        """
        found = np.full(len(queries), NONE)

        def work(part: slice) -> None:
            batch = self.search.place(queries[part])
            asked = belief[part], radii[part], against, patience
            find_contradictions(self.search.pack, self._tree, batch, *asked, found[part])

        share(work, list(cut_evenly(len(queries), QUERIES_PER_WALK)))
        return found

    def _fill(self, code: int) -> None:
        for level in range(1, int(self._tree.top[code]) + 1):
            make_balls(self.search.pack, self._tree, code, level)


def _plant(class_panels: Ints, n_features: int) -> Tree:
    """The shape of the tree: enough levels that each class ends in a single panel."""
    counts = [np.diff(class_panels)]
    while counts[-1].max(initial=0) > 1:
        counts.append(-(-counts[-1] // LANES))
    count = np.stack(counts, axis=1).astype(np.int64)
    top = (count <= 1).argmax(axis=1).astype(np.int64)
    stored = np.where(np.arange(count.shape[1]) <= top[:, None], count, 0)
    stored[:, 0] = 0  # the rows are stored elsewhere
    first = (np.cumsum(stored.T).reshape(stored.shape[::-1]).T - stored).astype(np.int64)
    first[:, 0] = class_panels[:-1]
    nodes = np.empty(int(stored.sum()) * (n_features + 2) * LANES, dtype=np.float32)
    return Tree(nodes, np.ascontiguousarray(first), count, top)
