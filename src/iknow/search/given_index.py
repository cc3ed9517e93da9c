"""GivenIndex: the user's own index, with cheap checks of its answers.

They cover shapes, types and NaN, which would contradict nothing. `iknow.testing.IndexContract`
tests the rest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.core.arrays import Bools, Ints
from iknow.core.evidence import Evidence
from iknow.core.neighborhood import Neighborhood
from iknow.errors import IknowError, InputError
from iknow.search.index import Index, IndexFactory, check_k
from iknow.search.stored import StoredRows


class GivenIndex(StoredRows):
    """What `make` returns for activations that `StoredRows` has checked and sorted."""

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
        try:
            self._given = make(self.points, self.labels, n_classes, rows=self.rows)
        except IknowError:
            raise
        except Exception as error:
            raise InputError(
                "index could not be made: index(activations, labels, n_classes, rows=rows) raised "
                f"{type(error).__name__}: {error}"
            ) from error
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
                f"{n_classes} classes; it reports {sizes}"
            )

    def gather(self, queries: Any, k: int = 0) -> Evidence:
        """Evidence about queries of shape (n_queries, n_features), with k neighbor distances."""
        points = self._check(queries)
        found = self._given.gather(points, check_k(k, self.n_rows))
        if not isinstance(found, Evidence):
            raise InputError(f"gather of {self._name} must return Evidence; got {type(found)}")
        shapes = found.class_distances.shape, found.neighbor_distances.shape
        expected = (len(points), self.n_classes), (len(points), k)
        if shapes != expected:
            raise InputError(
                f"gather of {self._name} must return class_distances and neighbor_distances of "
                f"shapes {expected[0]} and {expected[1]}; got {shapes[0]} and {shapes[1]}"
            )
        for distances in (found.class_distances, found.neighbor_distances):
            if distances.dtype != np.float64 or np.isnan(distances).any():
                raise InputError(f"distances of {self._name} must be float64 and never NaN")
        return found

    def find_support(self, queries: Any, neighborhood: Neighborhood) -> Bools:
        """The classes within reach, a mask of shape (n_queries, n_classes)."""
        points = self._check(queries)
        found = np.asarray(self._given.find_support(points, neighborhood))
        if found.dtype != bool or found.shape != (len(points), self.n_classes):
            raise InputError(
                f"find_support of {self._name} must return a mask of shape "
                f"{(len(points), self.n_classes)}; got {found.dtype} of shape {found.shape}"
            )
        return found
