"""GivenIndex: the user's own index, with cheap checks of its answers.

They cover shapes, types and NaN, which would contradict nothing. `iknow.testing.IndexContract`
tests the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np

from iknow.core.arrays import Bools, Ints
from iknow.core.evidence import Evidence
from iknow.core.neighborhood import Neighborhood
from iknow.errors import IknowError, InputError
from iknow.search.index import Index, IndexFactory, check_k, check_per_class
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

    def gather(self, queries: Any, k: int = 0, per_class: int = 1) -> Evidence:
        """Evidence about queries of shape (n_queries, n_features); see `StoredRows.gather`."""
        points = self._check(queries)
        check_k(k, self.n_rows)
        # An index from before there was a quorum does not know of one.
        several = self._several(check_per_class(per_class))
        found = self._given.gather(points, k, **several)
        if not isinstance(found, Evidence):
            raise InputError(f"gather of {self._name} must return Evidence; got {type(found)}")
        shapes = found.class_distances.shape, found.neighbor_distances.shape
        expected = (len(points), self.n_classes), (len(points), k)
        if shapes != expected:
            raise InputError(
                f"gather of {self._name} must return class_distances and neighbor_distances of "
                f"shapes {expected[0]} and {expected[1]}; got {shapes[0]} and {shapes[1]}"
            )
        if found.per_class != per_class:
            raise InputError(
                f"gather of {self._name} must return the {per_class} nearest samples of each "
                f"class, as per_class says; got {found.per_class}"
            )
        for name in ("class_distances", "neighbor_distances", "further_distances"):
            distances = getattr(found, name)
            if distances.dtype != np.float64 or np.isnan(distances).any():
                raise InputError(f"distances of {self._name} must be float64 and never NaN")
        if several:
            self._check_order(found)
        return found

    def find_support(
        self, queries: Any, neighborhood: Neighborhood, belief: Ints | None = None
    ) -> Bools:
        """The classes within reach, a mask of shape (n_queries, n_classes)."""
        points = self._check(queries)
        self._several(max(neighborhood.quorum))
        if belief is not None and not _takes(self._given.find_support, "belief"):
            return super().find_support(points, neighborhood, belief)
        believed = {} if belief is None else {"belief": belief}
        found = np.asarray(self._given.find_support(points, neighborhood, **believed))
        if found.dtype != bool or found.shape != (len(points), self.n_classes):
            raise InputError(
                f"find_support of {self._name} must return a mask of shape "
                f"{(len(points), self.n_classes)}; got {found.dtype} of shape {found.shape}"
            )
        return found

    @property
    def lists_several(self) -> bool:
        """Whether it can tell the nearest few samples of each class."""
        return _takes(self._given.gather, "per_class")

    def _check_order(self, found: Evidence) -> None:
        ranked = found.ranked_distances()
        if found.further_exemplars.dtype.kind not in "iu":
            raise InputError(f"further_exemplars of {self._name} must be row numbers")
        if (ranked[:, :, 1:] < ranked[:, :, :-1]).any():
            raise InputError(f"further_distances of {self._name} must ascend from class_distances")

    def _several(self, per_class: int) -> dict[str, int]:
        """The argument that asks for several samples of each class; none for a single one."""
        if per_class == 1:
            return {}
        if not self.lists_several:
            raise InputError(
                f"a quorum needs the {per_class} nearest samples of each class, and gather of "
                f"{self._name} takes no per_class: let it take one, or use quorum=1"
            )
        return {"per_class": per_class}


def _takes(function: Callable[..., Any], name: str) -> bool:
    """Whether a function takes an argument of that name, as far as it can be told."""
    try:
        parameters = signature(function).parameters
    except (TypeError, ValueError):  # not written in Python
        return True
    return name in parameters or any(each.kind is each.VAR_KEYWORD for each in parameters.values())
