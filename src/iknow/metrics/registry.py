"""The metrics that bundles can name: those of iknow, and those you register."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from iknow.core.text import shown
from iknow.errors import InputError
from iknow.metrics.cosine import Cosine
from iknow.metrics.gapped import Gapped
from iknow.metrics.hamming import Hamming
from iknow.metrics.metric import Euclidean, Metric, Minkowski, Weighted
from iknow.metrics.scaled import Scaled
from iknow.metrics.whitened import Whitened

METRICS: dict[str, type[Metric]] = {}  # by the names of their types
SHORT_NAMES: dict[str, Metric] = {
    "cosine": Cosine(),
    "euclidean": Euclidean,
    "hamming": Hamming(),
    "scaled": Scaled(),
    "whitened": Whitened(),
}
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
    known = METRICS.setdefault(kind.__name__, kind)
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


for own in (Minkowski, Weighted, Cosine, Scaled, Whitened, Hamming, Gapped):
    register_metric(own)
