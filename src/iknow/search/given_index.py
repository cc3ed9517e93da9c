"""GivenIndex: an index of the user's own, the rows it was made of, and a look at its answers.

`iknow.testing.IndexContract` says what such an index must do. Here only what can be seen at little
cost is checked: shapes, types, and that no distance is NaN, which would contradict nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.core.arrays import Bools, Ints
from iknow.core.evidence import Evidence
from iknow.core.neighborhood import Neighborhood
from iknow.errors import InputError
from iknow.search.index import Index, IndexFactory, check_activations, check_k, check_width
from iknow.search.stored import StoredRows


class GivenIndex(StoredRows):
    """What `make` returns for activations that are checked and sorted, as `StoredRows` does."""

    def __init__(
        self,
        activations: Any,
        labels: Any,
        n_classes: int,
        rows: Ints | None = None,
        *,
        make: IndexFactory,
    ) -> None:
        super().__init__(activations, labels, n_classes, rows)
        self._given = make(self.points, self.labels, n_classes, rows=self.rows)
        self._name = type(self._given).__name__
        if not isinstance(self._given, Index):
            raise InputError(
                "index must make an iknow.search.index.Index, with n_rows, n_features, n_classes, "
                f"gather and find_support; it made {self._name}"
            )
        sizes = self._given.n_rows, self._given.n_features, self._given.n_classes
        if sizes != (*self.points.shape, n_classes):
            raise InputError(
                f"{self._name} must hold {self.n_rows} rows of {self.n_features} features and "
                f"{n_classes} classes; it says {sizes}"
            )

    def gather(self, queries: Any, k: int = 0) -> Evidence:
        """Evidence about queries of shape (n_queries, n_features), with k neighbor distances."""
        points = check_activations(queries, "queries")
        check_width(points, self.n_features)
        found = self._given.gather(points, check_k(k, self.n_rows))
        if not isinstance(found, Evidence):
            raise InputError(f"gather of {self._name} must return Evidence; got {type(found)}")
        shape, nearest = found.class_distances.shape, found.neighbor_distances.shape
        if (shape, nearest) != ((len(points), self.n_classes), (len(points), k)):
            raise InputError(
                f"gather of {self._name} must return class_distances of shape "
                f"{(len(points), self.n_classes)} and neighbor_distances of shape "
                f"{(len(points), k)}; got {shape} and {nearest}"
            )
        for distances in (found.class_distances, found.neighbor_distances):
            if distances.dtype != np.float64 or np.isnan(distances).any():
                raise InputError(f"distances of {self._name} must be float64 and never NaN")
        return found

    def find_support(self, queries: Any, neighborhood: Neighborhood) -> Bools:
        """Which classes are within reach, a mask of shape (n_queries, n_classes)."""
        points = check_activations(queries, "queries")
        check_width(points, self.n_features)
        found = np.asarray(self._given.find_support(points, neighborhood))
        if found.dtype != bool or found.shape != (len(points), self.n_classes):
            raise InputError(
                f"find_support of {self._name} must return a mask of shape "
                f"{(len(points), self.n_classes)}; got {found.dtype} of shape {found.shape}"
            )
        return found
