"""The protocol of every index; `iknow.testing.IndexContract` holds its tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np

from iknow.core.arrays import Bools, Floats32, Ints
from iknow.core.evidence import Evidence
from iknow.core.neighborhood import Neighborhood
from iknow.core.scalars import as_whole
from iknow.errors import InputError

VALUES_CHECKED_AT_ONCE = 1 << 20  # masks of a whole index would take too much memory


@runtime_checkable
class Index(Protocol):
    """Training activations of one layer, ready to be searched.

    Distances are computed in float64 from activations stored in float32. Queries are rounded to
    float32 too, so a training sample is at distance 0 from itself.
    """

    @property
    def n_rows(self) -> int: ...

    @property
    def n_features(self) -> int: ...

    @property
    def n_classes(self) -> int: ...

    def gather(self, queries: Any, k: int = 0, per_class: int = 1) -> Evidence:
        """Gather evidence about `queries`, (n_queries, n_features), with `k` neighbor distances.

        It holds the `per_class` nearest samples of each class, ordered by distance and then by row
        number, padded with inf and -1 where a class has fewer.
        """

    def find_support(
        self, queries: Any, neighborhood: Neighborhood, belief: Ints | None = None
    ) -> Bools:
        """Find the classes within reach of `neighborhood`: a mask of shape (n_queries, n_classes).

        The answer for `queries` of shape (n_queries, n_features) and their `belief`, class codes
        of shape (n_queries,), equals that of `iknow.core.support.find_support`, but an index may
        find it without measuring distances.
        """


IndexFactory = Callable[..., Index]
"""An index type or a function, called with (activations, labels, n_classes, rows=...)."""


def check_activations(activations: Any, what: str = "activations") -> Floats32:
    """Activations as a finite float32 array of shape (n, n_features)."""
    array = np.asarray(activations)
    if array.dtype.kind not in "fiub":
        raise InputError(f"{what} must be real numbers; got dtype {array.dtype}")
    if array.ndim != 2:
        raise InputError(f"{what} must have shape (n, n_features); got {array.shape}")
    if array.shape[1] == 0:
        raise InputError(f"{what} must have at least one feature; got shape {array.shape}")
    with np.errstate(over="ignore"):  # an overflow becomes inf and is reported below
        rounded = array.astype(np.float32, copy=False)
    step = max(1, VALUES_CHECKED_AT_ONCE // rounded.shape[1])
    parts = [rounded[start : start + step] for start in range(0, len(rounded), step)]
    if not all(np.isfinite(part).all() for part in parts):
        bad = np.concatenate([~np.isfinite(part).all(axis=1) for part in parts])
        raise InputError(
            f"{what} must be finite in float32; row {int(bad.argmax())} is not "
            f"({int(bad.sum())} such rows): remove or repair them"
        )
    return rounded


def check_labels(labels: Any, n_rows: int, n_classes: int) -> Ints:
    """Class codes as an int64 array of shape (n_rows,), each in 0..n_classes-1."""
    codes = np.asarray(labels)
    if codes.shape != (n_rows,):
        raise InputError(f"labels must have shape ({n_rows},), one per row; got {codes.shape}")
    if codes.dtype.kind not in "iu":
        raise InputError(f"labels must be integer class codes; got dtype {codes.dtype}")
    if n_rows and not (codes.min() >= 0 and codes.max() < n_classes):
        raise InputError(
            f"labels must be class codes from 0 to {n_classes - 1}; "
            f"got {codes.min()} to {codes.max()}"
        )
    return codes.astype(np.int64, copy=False)


def check_k(k: int, n_rows: int) -> int:
    """Check that the index holds k neighbors."""
    if k < 0:
        raise InputError(f"k must be >= 0; got {k}")
    if k > n_rows:
        raise InputError(f"k={k} neighbors were asked for but the index holds {n_rows} samples")
    return k


def check_per_class(per_class: int) -> int:
    """Check how many of the nearest samples of each class are asked for."""
    wanted = "be a whole number >= 1"
    number = as_whole(per_class, "per_class", wanted)
    if number < 1:
        raise InputError(f"per_class must {wanted}; got {number}")
    return number


def check_width(points: Floats32, n_features: int, what: str = "queries") -> None:
    """Check that queries, or rows to come, have as many features as the index."""
    found = points.shape[1]
    if found != n_features:
        raise InputError(f"{what} must have {n_features} features as the index has; got {found}")
