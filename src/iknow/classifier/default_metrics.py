"""The role of a layer, from which `iknow.metrics.defaults` finds its metric."""

from __future__ import annotations

from iknow.metrics.defaults import OWN_METRICS
from iknow.metrics.metric import LEAVES
from iknow.metrics.sklearn_parts import unwrap
from iknow.models.model import Model
from iknow.models.sklearn import SklearnModel


def role_of(layer: str, model: Model) -> str:
    """What a layer is to its model; what a pipeline's transformers return counts as input."""
    if isinstance(model, SklearnModel):
        steps, _ = unwrap(model.estimator)
        if layer == "input" or layer.partition(".")[0] in dict(steps):
            return "input"
        if layer in OWN_METRICS:
            return layer
        return "hidden" if layer.startswith("hidden") else "output"
    if layer in ("input", LEAVES):
        return layer
    return "output" if layer == "output" else "hidden"
