"""Metrics: how distance is measured in a layer.

Every metric is a transformation followed by an ℓp norm: activations and queries go through
`transform`, and the search after it is plain ℓp. So an index needs to know only p: a number from 1
to inf, or 0 to count the features that differ. Certificates rest on what a metric promises about
its transformation, in real arithmetic (`expansion`) and as computed (`rounding`).

**Cosine**: distances between the directions of activations, whatever their lengths.

Each activation is divided by its ℓ2 norm, n(a) = a / |a|, and the search is ℓ2, so

    d(a, b) = |n(a) - n(b)|₂ = √(2 - 2 cos(a, b)),

from 0 for the same direction over √2 for a right angle to 2 for opposite ones: the same order as
the cosine distance 1 - cos(a, b), which is d² / 2. Hidden layers of networks tell classes apart by
direction; the length says more about contrast or brightness. A zero vector, such as a text without
a known word, has no direction, and is like nothing but other zero vectors: it is put `BEYOND` all
directions, 9 away from each at least.

No constant bounds how far n can move: near 0 the slightest change turns any direction into any
other. But for each a and every b but zero,

    |n(a) - n(b)|  <=  2 |a - b| / (|a| + |b|)  <=  (2 / |a|) · |a - b|,

so a change shorter than a certain share of |a| cannot turn it far. No smaller factor holds for all
b: just beyond 0, at b = -ε a, the distance is 2 and |a - b| is (1 + ε) |a|. At 0 itself the point
jumps. To get there takes a change of |a|, which that factor counts as a movement of 2: so a proof
by movement holds for less than that (`jumps_at`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.rule import promise_of, replaced_methods, speaks_for
from iknow.core.text import as_real, shown
from iknow.errors import InputError, LayerError
from iknow.metrics.lipschitz import FLOAT32_ROUNDING, FLOAT64_ROUNDING, ROUND_UP, as_matrix

METRICS: dict[str, type[Metric]] = {}  # those that bundles can name, by the names of their types
LEAVES = "leaves"  # the layer that holds the numbers of leaves
BEYOND = 10.0  # how far out a vector without a direction is put
NUMBERS_AT_ONCE = 1 << 22  # how many to hold in float64 at a time


class Metric(ABC):
    """A distance between activations: `transform` them, then search with the ℓp norm.

    A subclass that is a dataclass can be stored: its fields are the arguments to make it again.
    """

    p: float
    jumps_at: float = math.inf
    """A point that moves may jump once `expansion_at` times the change is as long as this."""

    @property
    def width(self) -> int | None:
        """The number of features of the points, if the metric fixes it; 0 before `fit`."""
        return None

    def fit(self, activations: Any, labels: Any) -> Metric:
        """Return the metric fitted to `activations` (n, n_features) and class codes `labels` (n,).

        One that needs no data returns itself. A fitted one is fitted anew, to other data.
        """
        return self

    @abstractmethod
    def transform(self, activations: Any) -> Any:
        """Map `activations` of shape (n, n_features) to points of shape (n, m) to search among."""

    def restore(self, points: Any) -> Any:
        """Return the activations behind `points` as far as rounding allows; None if unknown."""
        return None

    def features_of(self, width: int) -> Ints | None:
        """Return the feature behind each coordinate of points of this `width`; None if it mixes."""
        return None

    def unseen(self, activations: Any) -> list[dict[int, str]]:
        """Return for each of `activations` what training never had, in words by feature."""
        return [{} for _ in activations]

    @abstractmethod
    def expansion(self, n_features: int) -> float:
        """Return the smallest c such that d(a, b) <= c · |a - b|₂ in `n_features`; inf if none."""

    def expansion_at(self, activations: Any) -> Floats:
        """Return for each of `activations` the smallest such c, for all b, of shape (n,)."""
        n, n_features = np.shape(activations)
        return np.full(n, self.expansion(n_features))

    def rounding(self, n_features: int) -> float:
        """Return the τ such that `transform`, rounded to float32, is off by at most τ · |a|₂.

        In ℓp, for float32 activations a with `n_features`; inf, if unknown, certifies nothing.
        """
        return math.inf

    def relative_rounding(self, n_features: int) -> float:
        """Return how far it may be off beyond that, per ℓp length of a point of `n_features`."""
        return 0.0

    def __repr__(self) -> str:
        record = {name: value for name, value in self.to_dict().items() if value is not None}
        given = [f"{name}={value!r}" for name, value in record.items() if name != "metric"]
        given += [f"{self.width} features"] if self.width else []
        return f"{type(self).__name__}({', '.join(given)})"

    def to_dict(self) -> dict[str, Any]:
        """Return "metric", the name of the type, and the arguments that are JSON values."""
        arguments = _arguments(self).items()
        others = {name: value for name, value in arguments if not isinstance(value, np.ndarray)}
        return {"metric": type(self).__name__, **others}

    def arrays(self) -> dict[str, Floats]:
        """Return the arguments that are arrays, by name; none of a metric that is not fitted."""
        arguments = _arguments(self).items()
        return {name: a for name, a in arguments if isinstance(a, np.ndarray) and a.size}

    def distances(self, a: Any, b: Any) -> Floats:
        """Return the float64 distances (n, m) of `a` (n, n_features) and `b` (m, n_features)."""
        left, right = (as_matrix(self.transform(as_matrix(each))) for each in (a, b))
        return np.stack([lp_norms(right - row, self.p) for row in left]).reshape(-1, len(right))


def _arguments(metric: Any) -> dict[str, Any]:
    names = [each.name for each in fields(metric) if each.init] if is_dataclass(metric) else []
    return {name: getattr(metric, name) for name in names}


Kind = TypeVar("Kind", bound=type[Metric])


def register_metric(kind: Kind) -> Kind:
    """Let classifiers with your own metric be saved, and loaded where it is registered too.

    Args:
        kind: A subclass of `Metric`, returned as it is. Bundles store its name, and call it with
            the arguments that `to_dict` and `arrays` return.

    Examples:
        >>> @register_metric
        ... @dataclass(frozen=True)
        ... class Halved(Minkowski):
        ...     def transform(self, activations):
        ...         return np.asarray(activations) / 2
        ...     def expansion(self, n_features):
        ...         return super().expansion(n_features) / 2
        ...     def rounding(self, n_features):
        ...         return 2.0**-24
        >>> Halved(1).distances([[0, 0]], [[3, 4]])
        array([[3.5]])
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
    arguments = {name: value for name, value in record.items() if name != "metric"}
    try:
        return kind(**arguments, **(arrays or {}))
    except InputError:
        raise
    except Exception as error:  # the user's code may raise anything
        raise InputError(f"a {name} metric cannot be made of {shown(record)}: {error}") from error


def contributions(metric: Metric, point: Any, others: Any) -> Floats | None:
    """What each feature adds to the p-th power of the distance from a point to m others.

    point: of shape (width,). others: of shape (m, width). Of shape (m, n_features); None if a
    coordinate mixes features, or no sum is behind the distance.
    """
    owners = promise_of(metric, "features_of", "transform")(len(point))
    if owners is None or not 0 < metric.p < math.inf:
        return None
    powers = np.abs(np.subtract(others, point, dtype=np.float64)) ** metric.p
    return np.stack([np.bincount(owners, row) for row in powers])


class _AsItIs(Metric):
    """A metric that measures the activations themselves."""

    def features_of(self, width: int) -> Ints | None:
        return np.arange(width)

    def transform(self, activations: Any) -> Any:
        return np.asarray(activations)

    def restore(self, points: Any) -> Any:
        return points

    def rounding(self, n_features: int) -> float:
        return 0.0  # float32 stays as it is


@register_metric
@dataclass(frozen=True)
class Minkowski(_AsItIs):
    """The ℓp distance, `p` from 1 to inf; the activations stay as they are.

    Examples:
        >>> Minkowski(1.0).distances([[0, 0]], [[3, 4]])
        array([[7.]])
    """

    p: float

    def __post_init__(self) -> None:
        given: Any = self.p
        if isinstance(given, str) and given == "inf":  # JSON has no infinity
            given = math.inf
        p = as_real(given, "p", "be a number from 1 to inf", lambda number: number >= 1)
        object.__setattr__(self, "p", p)

    def expansion(self, n_features: int) -> float:
        # For p >= 2 an axis attains it, for p < 2 the diagonal does.
        return float(max(1.0, n_features ** (1 / self.p - 1 / 2)))

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "p": "inf" if math.isinf(self.p) else self.p}


Euclidean = Minkowski(2.0)


@register_metric
@dataclass(frozen=True)
class Hamming(_AsItIs):
    """The number of features that differ, whatever their values are.

    For numbers that are names: categories, flags, the leaves in which the trees of a model put a
    sample. p = 0, the limit of ℓp, tells an index to count. Counts, unlike shares, are exact, so
    equal distances are equal to the last bit, and a radius reads as "other leaves in at most 12
    trees". As the slightest change of a feature is a whole step, no robust radius rests on it.

    Examples:
        >>> Hamming().distances([[4, 7, 2]], [[4, 7, 2], [4, 8, 3]])
        array([[0., 2.]])
    """

    p = 0.0

    def expansion(self, n_features: int) -> float:
        return math.inf


@register_metric
@dataclass(frozen=True)
class Cosine(Metric):
    """The distance between directions, √(2 - 2 cos(a, b)): activations divided by their ℓ2 norm.

    Examples:
        >>> Cosine().distances([[1, 0]], [[5, 0], [0, 3], [-2, 0], [0, 0]]).round(3)
        array([[0.   , 1.414, 2.   , 9.   ]])
    """

    p = 2.0
    jumps_at = 2.0

    def features_of(self, width: int) -> Ints | None:
        return np.arange(width)

    def transform(self, activations: Any) -> Any:
        def directions(values: Floats) -> Floats:
            scaled, largest, norms = _measure(values)
            points: Floats = np.divide(scaled, norms[:, None])
            points[largest == 0, :1] = BEYOND
            return points

        return in_parts(directions, activations)

    def expansion(self, n_features: int) -> float:
        return math.inf

    def expansion_at(self, activations: Any) -> Floats:
        _, largest, norms = _measure(np.asarray(activations, dtype=np.float64))
        with np.errstate(divide="ignore", over="ignore"):
            found = 2 / largest / norms * ROUND_UP
        # Zero vectors, and activations that are not finite.
        return np.nan_to_num(found, nan=np.inf, posinf=np.inf)

    def rounding(self, n_features: int) -> float:
        return 0.0  # the length of an activation does not matter

    def relative_rounding(self, n_features: int) -> float:
        # Two divisions and a root of a sum of n_features squares, then rounding to float32.
        return (FLOAT32_ROUNDING + (n_features + 8) * FLOAT64_ROUNDING) * ROUND_UP


def _measure(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Rows divided by their largest entry, that entry, and the norms of what is left.

    So no square overflows or underflows. Norms are at least 1, and 1 for zero vectors.
    """
    largest: Floats = np.abs(values).max(axis=1, initial=0.0)
    is_some = largest > 0
    with np.errstate(invalid="ignore"):
        scaled = values / np.where(is_some, largest, 1.0)[:, None]
    norms = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
    return scaled, largest, np.where(is_some, norms, 1.0)


def check_fitted(metric: Metric) -> None:
    """Refuse a metric that learns, before its `fit`."""
    if metric.width == 0:
        raise InputError(
            f"the metric {type(metric).__name__} is not fitted: use what its "
            "fit(activations, labels) returns, or give it to EpistemicClassifier, which fits it"
        )


def check_promises(metric: Metric) -> None:
    """Refuse a metric with its own `transform` but inherited `expansion` or `rounding`."""
    if replaced := replaced_methods(metric):
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
) -> Any:
    """What `change` makes of activations, some rows at a time in float64; float32 stays float32."""
    values = np.asarray(activations)
    if values.ndim != 2 or n_features not in (None, values.shape[1]):
        wanted = f"(n, {n_features or 'n_features'}) as the metric was made for"
        raise InputError(f"activations must have shape {wanted}; got {values.shape}")
    step = max(1, NUMBERS_AT_ONCE // max(1, values.shape[1]))
    kind: Any = np.float32 if values.dtype == np.float32 else np.float64
    points: Any = None
    with np.errstate(over="ignore"):  # an index reports what is not finite in float32
        for start in range(0, max(1, len(values)), step):
            part = change(values[start : start + step].astype(np.float64))
            if points is None:
                points = np.empty((len(values), part.shape[1]), dtype=kind)
            points[start : start + step] = part
    return points


def lp_norms(differences: Floats, p: float) -> Floats:
    """ℓp norms of the rows, scaled so that no power overflows; p = 0 counts entries but 0."""
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
