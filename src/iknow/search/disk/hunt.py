"""Hunt: what a search looks for, how far it still has to look, and what it found.

Coded rows give a lower and an upper bound on each distance. The m-th smallest upper bound of a
class limits where its m nearest rows can be: a row whose lower bound is beyond it cannot be one of
them, nor tie with them. The rows that are left are read and measured. Each comes once, so m bounds
stand for m rows.
"""

from __future__ import annotations

import numpy as np

from iknow.core.arrays import Bools, Floats, Floats32, Ints
from iknow.core.evidence import NO_EXEMPLAR, Evidence, from_ranked
from iknow.pages import cut, release
from iknow.search.index import RowIndex
from iknow.search.kernels.numpy import measure_pairs

UNWANTED = -np.inf


class Hunt:
    """A search for the m nearest rows of some classes, and the k nearest of all.

    Attributes:
        limits: How far a row of each class may be to matter, of shape (n, n_classes); `UNWANTED`
            for classes that nobody asks about.
        within: All rows within this are wanted; no row beyond both this and the nearest of `others`
            is. Of shape (n,).
        others: The lowest of the limits so far, of shape (n,).
        upper: The m lowest upper bounds of each class, ascending, of shape (n, n_classes, m).
        upper_any: The k lowest of all, of shape (n, k).
    """

    def __init__(self, wanted: Bools, m: int, k: int = 0, within: Floats | None = None) -> None:
        n, n_classes = wanted.shape
        self.limits: Floats = np.where(wanted, np.inf, UNWANTED)
        self.within: Floats = np.full(n, np.inf) if within is None else within
        self.others: Floats = np.full(n, np.inf)
        self.upper: Floats = np.full((n, n_classes, m), np.inf)
        self.upper_any: Floats = np.full((n, k), np.inf)
        self.distances: Floats = np.full((n, n_classes, m), np.inf)
        self.rows: Ints = np.full((n, n_classes, m), NO_EXEMPLAR, dtype=np.int64)
        self.neighbors: Floats = np.full((n, k), np.inf)

    def __len__(self) -> int:
        return len(self.within)

    def part(self, queries: slice) -> Hunt:
        """The same hunt for some of the queries: its arrays are views."""
        part = object.__new__(Hunt)
        part.__dict__.update({name: array[queries] for name, array in vars(self).items()})
        return part

    def reach(self, code: int) -> Floats:
        """How far a row of a class may be to matter now, of shape (n,)."""
        cap = np.maximum(self.within, self.others)
        reach = np.minimum(self.limits[:, code], cap)
        if self.upper_any.shape[1]:
            reach = np.maximum(reach, self.upper_any[:, -1])
        return reach

    def measure(
        self, stored: RowIndex, queries: Floats32, query: Ints, position: Ints, low: Floats
    ) -> None:
        """Measure the rows that may still matter, and keep the nearest.

        query, position, low: of pairs of a query and a stored row, with the lower bound on their
        distance, of shape (n_pairs,).
        """
        codes = stored.labels[position]
        cap = np.maximum(self.within, self.others)[query]
        reach = np.minimum(self.limits[query, codes], cap)
        if self.upper_any.shape[1]:
            reach = np.maximum(reach, self.upper_any[query, -1])
        left = np.flatnonzero(low <= reach)
        left = left[np.argsort(position[left], kind="stable")]  # from the front to the end
        query, position, codes = query[left], position[left], codes[left]
        distance = np.empty(len(query))
        for part in cut(stored.points, position):
            distance[part] = measure_pairs(stored.points, queries, query[part], position[part])
            release(stored.points)
        self._keep(query, codes, distance, np.asarray(stored.rows[position], dtype=np.int64))
        self._keep_neighbors(query, distance)

    def _keep(self, query: Ints, code: Ints, distance: Floats, row: Ints) -> None:
        _, n_classes, m = self.distances.shape
        group = query * n_classes + code
        known = self.distances.reshape(-1, m), self.rows.reshape(-1, m)
        changed = np.unique(group)
        groups = np.concatenate([np.repeat(changed, m), group])
        distances = np.concatenate([known[0][changed].ravel(), distance])
        rows = np.concatenate([known[1][changed].ravel(), row])
        order = np.lexsort((rows, distances, groups))
        kept, place = _first_of_each(groups[order], m)
        order = order[kept]
        known[0][groups[order], place] = distances[order]
        known[1][groups[order], place] = rows[order]
        at = np.divmod(changed, n_classes)
        self.limits[at] = np.minimum(self.limits[at], known[0][changed, m - 1])
        np.minimum.at(self.others, at[0], self.limits[at])

    def _keep_neighbors(self, query: Ints, distance: Floats) -> None:
        k = self.neighbors.shape[1]
        if not k:
            return
        changed = np.unique(query)
        queries = np.concatenate([np.repeat(changed, k), query])
        distances = np.concatenate([self.neighbors[changed].ravel(), distance])
        order = np.lexsort((distances, queries))
        kept, place = _first_of_each(queries[order], k)
        self.neighbors[queries[order[kept]], place] = distances[order[kept]]

    def evidence(self) -> Evidence:
        """What was found."""
        rows = np.where(np.isinf(self.distances), NO_EXEMPLAR, self.rows)
        return from_ranked(self.distances, self.neighbors, rows)


def _first_of_each(groups: Ints, m: int) -> tuple[Ints, Ints]:
    """Positions of the first m members of each group, and their places; groups are ascending."""
    place = np.arange(len(groups)) - np.searchsorted(groups, groups)
    kept = np.flatnonzero(place < m)
    return kept, place[kept]
