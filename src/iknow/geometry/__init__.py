"""The geometry of a layer: how distance is measured in it and how far an input change can reach.

Only what needs numpy alone is exported here; `geometry.sklearn` and `geometry.torch` look into
networks and are imported by name.
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
