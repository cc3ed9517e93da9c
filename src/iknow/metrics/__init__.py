"""The metric of a layer: how to measure distances in it, and how far an input change reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from iknow.core.robustness import Sensitivity
from iknow.metrics.cosine import Cosine
from iknow.metrics.lipschitz import propagate_radius, spectral_norm
from iknow.metrics.lipschitz_sklearn import mlp_lipschitz
from iknow.metrics.metric import (
    Euclidean,
    Hamming,
    Metric,
    Minkowski,
    metric_from_dict,
    metric_to_dict,
    register_metric,
)
from iknow.metrics.table import Scaled, Table
from iknow.metrics.weighted import Weighted, Whitened, weighted_metric

if TYPE_CHECKING:
    from iknow.metrics.lipschitz_torch import lipschitz_constants, sensitivities

__all__ = [
    "Cosine",
    "Euclidean",
    "Hamming",
    "Metric",
    "Minkowski",
    "Scaled",
    "Sensitivity",
    "Table",
    "Weighted",
    "Whitened",
    "lipschitz_constants",
    "metric_from_dict",
    "metric_to_dict",
    "mlp_lipschitz",
    "propagate_radius",
    "register_metric",
    "sensitivities",
    "spectral_norm",
    "weighted_metric",
]


def __getattr__(name: str) -> Any:
    if name in ("lipschitz_constants", "sensitivities"):
        from iknow.metrics import lipschitz_torch  # which loads torch

        return getattr(lipschitz_torch, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
