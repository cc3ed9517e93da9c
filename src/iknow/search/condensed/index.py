"""CondensedIndex: some rows in full, and for each of the others a short code.

Distances to the rows that are kept are exact; those to the others lie between bounds (`codes`).
Bounds merge as evidence does, so the index gathers evidence up to bounds, and every rule decides by
it what is sure (`iknow.core.surely`): the answers are those of all rows, or IDK.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from iknow.core.arrays import Floats, Floats32, Ints
from iknow.core.evidence import Bounded, Evidence, bounded, merge_evidence
from iknow.locking import cached_property
from iknow.search.condensed.codes import Codes
from iknow.search.index import check_k, check_per_class
from iknow.search.stored import StoredRows


class CondensedIndex(StoredRows):
    """Rows in full, as for any `StoredRows`, and the codes of further ones.

    make: makes the index of the rows, and that of the codes. Search is Euclidean.
    """

    def __init__(
        self,
        activations: Any,
        labels: Any,
        n_classes: int,
        rows: Ints | None = None,
        *,
        codes: Codes,
        make: Callable[..., StoredRows],
    ) -> None:
        super().__init__(activations, labels, n_classes, rows)
        self.codes = codes
        self._make = make

    def gather(self, queries: Any, k: int = 0, per_class: int = 1) -> Bounded:
        """Evidence about queries of shape (n_queries, n_features), up to bounds.

        Its exemplars are the rows with the least upper bounds, in full or not.
        """
        points = self._check(queries)
        check_k(k, self.n_rows + len(self.codes))
        asked = k, check_per_class(per_class)
        exact = _gather(self._kept, points, *asked)
        seen = self.codes.see(points)
        near = _gather(self._coded, seen.near, *asked)
        far = _gather(self._coded, seen.far, *asked)
        least = _with_distances(near, lambda found: self.codes.at_least(found, seen))
        most = _with_distances(far, lambda found: self.codes.at_most(found, seen))
        return bounded(merge_evidence([exact, least]), merge_evidence([exact, most]))

    def warm_up(self) -> None:
        """Prepare and compile everything that searching needs, by searching for a stored row."""
        for index in (self._kept, self._coded):
            if index.n_rows:
                index.warm_up()

    @cached_property
    def _kept(self) -> StoredRows:
        return self._make(self.points, self.labels, self.n_classes, rows=self.rows)

    @cached_property
    def _coded(self) -> StoredRows:
        codes = self.codes
        values = codes.values.astype(np.float32)
        return self._make(values, codes.labels, self.n_classes, rows=codes.rows)


def _gather(index: StoredRows, queries: Floats32, k: int, per_class: int) -> Evidence:
    """The evidence of an index, its neighbors padded with inf if it has fewer than k."""
    found = index.gather(queries, min(k, index.n_rows), per_class)
    missing = np.full((len(found), k - found.n_neighbors), np.inf)
    padded = np.concatenate([found.neighbor_distances, missing], axis=1)
    return replace(found, neighbor_distances=padded)


def _with_distances(evidence: Evidence, change: Callable[[Floats], Floats]) -> Evidence:
    """The evidence with each distance replaced by what a monotone function makes of it."""
    return replace(
        evidence,
        class_distances=change(evidence.class_distances),
        neighbor_distances=change(evidence.neighbor_distances),
        further_distances=change(evidence.further_distances),
    )
