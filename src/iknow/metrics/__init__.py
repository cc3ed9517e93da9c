"""The metric of a layer: how to measure distances in it, and how far an input change reaches."""

from iknow.core.robustness import Sensitivity
from iknow.metrics.lipschitz import spectral_norm
from iknow.metrics.metric import (
    Cosine,
    Euclidean,
    Hamming,
    Metric,
    Minkowski,
    metric_from_dict,
    metric_to_dict,
    register_metric,
)
from iknow.metrics.table import Scaled, Table, Weighted, Whitened, weighted_metric

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
    "metric_from_dict",
    "metric_to_dict",
    "register_metric",
    "spectral_norm",
    "weighted_metric",
]
