"""HammingIndex: exact search by the number of features that differ, by counting them.

Counts are integers, so there is nothing to round and ties are exact. With the extra `fast` search
is compiled (`mismatch_search`); without it numpy compares one feature at a time, and finds the
same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from iknow.core.arrays import Floats, Floats32
from iknow.core.evidence import Evidence, empty_evidence
from iknow.locking import cached_property
from iknow.memory import slices_that_fit
from iknow.search.cpu.dense_index import is_compiled
from iknow.search.cpu.tile_index import TileIndex
from iknow.search.index import check_k, check_per_class

if TYPE_CHECKING:
    from iknow.search.cpu.mismatch_search import MismatchSearch

COPY_BYTES = 16  # per feature, to prepare a row for compiled search


class HammingIndex(TileIndex):
    """Activations of one layer with their class codes, searched by the number of differences.

    It takes `activations`, `labels`, `n_classes` and `rows` as a `DenseIndex` does.

    Examples:
        >>> index = HammingIndex([[1, 5, 3], [2, 6, 9]], [0, 1], n_classes=2)
        >>> index.gather([[1, 5, 9]]).class_distances
        array([[1., 2.]])
    """

    def gather(self, queries: Any, k: int = 0, per_class: int = 1) -> Evidence:
        """Gather evidence about `queries`, (n_queries, n_features), with `k` neighbor distances.

        It holds the `per_class` nearest rows of each class.
        """
        if self._search is None:
            return super().gather(queries, k, per_class)
        points = self._check(queries)
        sizes = check_k(k, self.n_rows), check_per_class(per_class)
        evidence = empty_evidence(len(points), self.n_classes, *sizes)
        self._search.fill(points, evidence)
        return evidence

    def _place(self, queries: Floats32) -> Floats32:
        return queries

    def _measure(self, queries: Floats32, tile: slice) -> Floats:
        counts = np.zeros((len(queries), tile.stop - tile.start))
        for values, column in zip(queries.T, self.points[tile].T, strict=True):
            counts += values[:, None] != column
        return counts

    @cached_property
    def _search(self) -> MismatchSearch | None:
        """The compiled search; None if it is not compiled, or its copies would not fit."""
        whole = len(slices_that_fit(self.n_rows, COPY_BYTES * self.n_features)) == 1
        if not (whole and is_compiled()):
            return None
        from iknow.search.cpu.mismatch_search import MismatchSearch

        return MismatchSearch(self)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle only what cannot be derived."""
        kept = ("points", "labels", "rows", "n_rows", "n_features", "n_classes")
        return {name: vars(self)[name] for name in kept}
