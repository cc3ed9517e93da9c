"""The geometry of a layer: how it measures distance, and how far an input change can move it.

This package exports only what needs numpy alone. Import `geometry.sklearn` and `geometry.torch`,
which look into networks, by name.
"""

from iknow.geometry.lipschitz import LayerBound, accumulate, propagate_radius, spectral_norm
from iknow.geometry.metric import Euclidean, Metric, Minkowski, Weighted, metric_from_dict
from iknow.geometry.weighted import weighted_metric

__all__ = [
    "Euclidean",
    "LayerBound",
    "Metric",
    "Minkowski",
    "Weighted",
    "accumulate",
    "metric_from_dict",
    "propagate_radius",
    "spectral_norm",
    "weighted_metric",
]
