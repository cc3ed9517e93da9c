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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np

from iknow.core.arrays import Floats, Floats32
from iknow.core.rule import replaced_methods, speaks_for
from iknow.core.text import as_real, shown
from iknow.errors import InputError, LayerError
from iknow.metrics.lipschitz import as_matrix

METRICS: dict[str, type[Metric]] = {}  # those that bundles can name, by the names of their types
LEAVES = "leaves"  # the layer that holds the numbers of leaves
NUMBERS_AT_ONCE = 1 << 22  # how many to hold in float64 at a time


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

    def to_dict(self) -> dict[str, Any]:
        """Return the metric as JSON values: "metric", the name of its type, and its arguments.

        Override it if there are arguments that `arrays` does not hold.
        """
        return {"metric": type(self).__name__}

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


Kind = TypeVar("Kind", bound=type[Metric])


def register_metric(kind: Kind) -> Kind:
    """Let classifiers with your own metric be saved, and loaded where it is registered too.

    Args:
        kind: A subclass of `Metric`; bundles store its name. `from_dict` calls it with the
            arguments that `to_dict` and `arrays` return.

    Returns:
        The same type, so that this works as a decorator.

    Examples:
        >>> from dataclasses import dataclass
        >>> import numpy as np
        >>> from iknow.metrics import Minkowski, register_metric
        >>> @register_metric
        ... @dataclass(frozen=True)
        ... class Halved(Minkowski):
        ...     def transform(self, activations):
        ...         return np.asarray(activations) / 2
        ...     def expansion(self, n_features):
        ...         return super().expansion(n_features) / 2
        ...     def rounding(self, n_features):
        ...         return 2.0**-24
        >>> float(Halved(1).distances([[0, 0]], [[3, 4]])[0, 0])
        3.5
    """
    if not (isinstance(kind, type) and issubclass(kind, Metric)):
        raise InputError(f"a metric to register must be a subclass of Metric; got {shown(kind)}")
    known = METRICS.get(kind.__name__, kind)
    # Running a notebook cell again redefines the same class.
    if (known.__module__, known.__qualname__) != (kind.__module__, kind.__qualname__):
        raise InputError(
            f"a metric {kind.__name__} of {known.__module__} is already registered: rename yours"
        )
    METRICS[kind.__name__] = kind
    return kind


def metric_to_dict(metric: Metric) -> dict[str, Any]:
    """Return the record of `metric`, if `metric_from_dict` can read it back."""
    kind, record = type(metric), metric.to_dict()
    if METRICS.get(kind.__name__) is not kind:
        raise InputError(
            f"the metric {kind.__name__} is not registered, so it could not be loaded: call "
            f"iknow.metrics.register_metric({kind.__name__}) before you save, and before you load"
        )
    again = metric_from_dict(record, metric.arrays())
    if type(again) is not kind or again.p != metric.p:
        raise InputError(
            f"the metric {kind.__name__} reads back as a different one: its to_dict must return "
            f"'metric': {kind.__name__!r} and, together with arrays(), all its arguments"
        )
    return record


def metric_from_dict(record: Mapping[str, Any], arrays: Mapping[str, Any] | None = None) -> Metric:
    """Return the metric whose `to_dict` gave `record` and whose `arrays` gave `arrays`."""
    name = record.get("metric")
    kind = METRICS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise InputError(
            f"no metric is registered as {shown(name)}, only {', '.join(METRICS)}: register your "
            "own with iknow.metrics.register_metric(...)"
        )
    try:
        return kind.from_dict(record, arrays or {})
    except InputError:
        raise
    except Exception as error:  # the user's code may raise anything
        raise InputError(f"a {name} metric cannot be made of {shown(record)}: {error}") from error


@register_metric
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
        return {**super().to_dict(), "p": "inf" if math.isinf(self.p) else self.p}

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], arrays: Mapping[str, Any]) -> Self:
        p = math.inf if record["p"] == "inf" else record["p"]
        return super().from_dict({**record, "p": p}, arrays)


Euclidean = Minkowski(2.0)


@register_metric
@dataclass(frozen=True)
class Hamming(Metric):
    """The number of features that differ, whatever their values are.

    For numbers that are names: the leaves in which the trees of a model put a sample (leaf 7 is no
    nearer to leaf 8 than to leaf 90), categories, flags. It is the ℓp "norm" in the limit p → 0,
    and p = 0 tells an index to count. Counts, unlike shares, are exact in float64, so equal
    distances are equal to the last bit, and a radius reads as "other leaves in at most 12 trees".

    The slightest change of a feature is a whole step, so no constant bounds how far an activation
    can move: Hamming distances certify no robust radius, and another layer has to.

    Examples:
        >>> Hamming().distances([[4, 7, 2]], [[4, 7, 2], [4, 8, 3]])
        array([[0., 2.]])
    """

    p = 0.0

    def transform(self, activations: Any) -> Any:
        return np.asarray(activations)

    def restore(self, points: Any) -> Any:
        return points

    def expansion(self, n_features: int) -> float:
        return math.inf

    def rounding(self, n_features: int) -> float:
        return 0.0  # float32 stays as it is


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


def in_parts(
    change: Callable[[Floats], Floats], activations: Any, n_features: int | None = None
) -> Floats | Floats32:
    """What `change` makes of activations in float64, of shape (n, m); of float32, in float32.

    It sees some rows at a time, so that copies in float64 stay small.
    """
    values = np.asarray(activations)
    if values.ndim != 2 or n_features not in (None, values.shape[1]):
        columns = "n_features" if n_features is None else n_features
        made_for = "" if n_features is None else " as the metric was made for"
        raise InputError(
            f"activations must have shape (n, {columns}){made_for}; got {values.shape}"
        )
    step = max(1, NUMBERS_AT_ONCE // max(1, values.shape[1]))
    first = change(values[:step].astype(np.float64))
    kind: Any = np.float32 if values.dtype == np.float32 else np.float64
    with np.errstate(over="ignore"):  # an index reports what is not finite in float32
        if len(values) <= step:
            return first.astype(kind, order="C", copy=False)
        points = np.empty((len(values), first.shape[1]), dtype=kind)
        points[:step] = first
        for start in range(step, len(values), step):
            part = slice(start, start + step)
            points[part] = change(values[part].astype(np.float64))
    return points


def lp_norms(differences: Floats, p: float) -> Floats:
    """ℓp norms of the rows, scaled by the largest entry so that no power overflows.

    For p = 0 the number of entries other than 0.
    """
    if p == 0:
        counts: Floats = np.count_nonzero(differences, axis=1).astype(np.float64)
        return counts
    sizes = np.abs(differences)
    largest: Floats = sizes.max(axis=1, initial=0.0)
    if math.isinf(p):
        return largest
    scaled = sizes / np.where(largest > 0, largest, 1.0)[:, None]
    norms: Floats = largest * np.power(scaled, p).sum(axis=1) ** (1 / p)
    return norms
