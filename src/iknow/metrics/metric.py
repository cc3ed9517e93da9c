"""Metrics: how distance is measured in a layer.

Every metric is a transformation followed by an ℓp norm: activations and queries go through
`transform`, and the search after it is plain ℓp. So an index needs to know only p: a number from 1
to inf, or 0 to count the features that differ.

Some transformations follow from the training activations: `fit` returns the metric that fits them.

Certificates rest on three promises about the transformation t. In real arithmetic |t(a) - t(b)|ₚ is
at most `expansion` · |a - b|₂ or, where no constant holds everywhere, `expansion_at(a)` · |a - b|₂
for every b. And t(a), as computed from float32 and rounded to float32, is off by at most
`rounding` · |a|₂ + `relative_rounding` · |t(a)|ₚ.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from iknow.core.arrays import Floats
from iknow.core.rule import replaced_methods, speaks_for
from iknow.core.text import as_real
from iknow.errors import InputError, LayerError
from iknow.metrics.lipschitz import (
    FLOAT32_ROUNDING,
    FLOAT64_ROUNDING,
    ROUND_UP,
    as_matrix,
    spectral_norm,
)
from iknow.metrics.rows import in_parts, lp_norms


class Metric(ABC):
    """A distance between activations: `transform` them, then search with the ℓp norm."""

    p: float

    @property
    def width(self) -> int | None:
        """The number of features of the points, if the metric fixes it."""
        return None

    def fit(self, activations: Any, labels: Any) -> Metric:
        """Return the metric fitted to a layer; one that needs no data returns itself.

        A fitted metric is fitted anew, so it may be used for another layer or other data.

        Args:
            activations: Training activations of shape (n, n_features).
            labels: Their class codes of shape (n,).
        """
        return self

    @abstractmethod
    def transform(self, activations: Any) -> Any:
        """Map `activations` of shape (n, n_features) to points of shape (n, m) to search among."""

    def restore(self, points: Any) -> Any:
        """Return the activations behind `points` as far as rounding allows; None if unknown."""
        return None

    @abstractmethod
    def expansion(self, n_features: int) -> float:
        """Return the smallest c such that d(a, b) <= c · |a - b|₂ in `n_features`; inf if none."""

    def expansion_at(self, activations: Any) -> Floats:
        """Return for each a the smallest c such that d(a, b) <= c · |a - b|₂ for all b.

        Of shape (n,) for `activations` of shape (n, n_features); inf where there is none.
        """
        n, n_features = np.shape(activations)
        return np.full(n, self.expansion(n_features))

    def rounding(self, n_features: int) -> float:
        """Return the τ such that `transform`, rounded to float32, is off by at most τ · |a|₂.

        In ℓp, for float32 activations a with `n_features`; without it nothing can be certified. To
        this is added what `relative_rounding` says.
        """
        raise LayerError(
            f"the metric {type(self).__name__} does not say how its transform rounds: give it a "
            "method rounding(n_features)"
        )

    def relative_rounding(self, n_features: int) -> float:
        """Return how far `transform` may be off, beyond `rounding`, per ℓp length of the point.

        For float32 activations with `n_features`.
        """
        return 0.0

    @abstractmethod
    def to_dict(self) -> dict[str, Any]:
        """Return the metric as JSON values: "metric", the name of its type, and its arguments."""

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], arrays: Mapping[str, Any]) -> Self:
        """Return the metric whose arguments are in `record`, from `to_dict`, and `arrays`."""
        arguments = {name: value for name, value in record.items() if name != "metric"}
        return cls(**arguments, **arrays)

    def arrays(self) -> dict[str, Floats]:
        """Return the parts of the metric to store as arrays rather than JSON, by name."""
        return {}

    def distances(self, a: Any, b: Any) -> Floats:
        """Return the float64 distances (n, m) of `a` (n, n_features) and `b` (m, n_features)."""
        left, right = (as_matrix(self.transform(as_matrix(each))) for each in (a, b))
        return np.stack([lp_norms(right - row, self.p) for row in left]).reshape(-1, len(right))


@dataclass(frozen=True)
class Minkowski(Metric):
    """The ℓp distance; the activations stay as they are.

    Attributes:
        p: The order of the norm, from 1 to inf.

    Examples:
        >>> Minkowski(1.0).distances([[0, 0]], [[3, 4]])
        array([[7.]])
    """

    p: float

    def __post_init__(self) -> None:
        p = as_real(self.p, "p", "be a number from 1 to inf", lambda number: number >= 1)
        object.__setattr__(self, "p", p)

    def transform(self, activations: Any) -> Any:
        return np.asarray(activations)

    def restore(self, points: Any) -> Any:
        return points

    def expansion(self, n_features: int) -> float:
        # For p >= 2 an axis attains it, for p < 2 the diagonal does.
        return float(max(1.0, n_features ** (1 / self.p - 1 / 2)))

    def rounding(self, n_features: int) -> float:
        return 0.0  # float32 stays as it is

    def to_dict(self) -> dict[str, Any]:
        return {"metric": type(self).__name__, "p": "inf" if math.isinf(self.p) else self.p}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], arrays: Mapping[str, Any]) -> Self:
        p = math.inf if record["p"] == "inf" else record["p"]
        return super().from_dict({**record, "p": p}, arrays)


Euclidean = Minkowski(2.0)


@dataclass(frozen=True, eq=False)
class Weighted(Metric):
    """The distance |(a - b) @ map|₂, so D = map mapᵀ.

    Attributes:
        map: Of shape (n_features, m).

    Examples:
        >>> Weighted(np.diag([1.0, 2.0])).distances([[0, 0]], [[0, 3]])
        array([[6.]])
    """

    map: Floats

    def __post_init__(self) -> None:
        values = as_matrix(self.map, "the map of a weighted metric")
        values.flags.writeable = False
        object.__setattr__(self, "map", values)

    @property
    def p(self) -> float:  # type: ignore[override]
        return 2.0

    @property
    def width(self) -> int:
        return int(self.map.shape[1])

    def transform(self, activations: Any) -> Any:
        return in_parts(lambda values: values @ self.map, activations, len(self.map))

    def expansion(self, n_features: int) -> float:
        return spectral_norm(self.map)

    def rounding(self, n_features: int) -> float:
        # |a| @ |map| bounds the sums in any order, and is at most |a|₂ times this norm.
        size = float(np.linalg.norm(self.map))
        return (FLOAT32_ROUNDING + 2 * (len(self.map) + 1) * FLOAT64_ROUNDING) * size * ROUND_UP

    def to_dict(self) -> dict[str, Any]:
        return {"metric": type(self).__name__}

    def arrays(self) -> dict[str, Floats]:
        return {"map": self.map}


def not_fitted(metric: Metric) -> InputError:
    """The error of using a metric before its `fit`."""
    return InputError(
        f"the metric {type(metric).__name__} is not fitted: use what its "
        "fit(activations, labels) returns, or give it to EpistemicClassifier, which fits it"
    )


def check_promises(metric: Metric) -> None:
    """Refuse a metric with its own `transform` but inherited `expansion` or `rounding`."""
    replaced = replaced_methods(metric)
    if replaced:
        raise LayerError(
            f"an instance of {type(metric).__name__} replaces its method {replaced[0]!r}: make "
            "the metric a subclass"
        )
    for promise in ("expansion", "rounding"):
        if not speaks_for(type(metric), promise, "transform"):
            raise LayerError(
                f"the metric {type(metric).__name__} changes transform but not {promise}, which "
                f"depends on it: define {promise}(n_features) too"
            )
