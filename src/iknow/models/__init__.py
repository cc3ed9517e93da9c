"""Models: inputs in, scores and activations out. `EpistemicClassifier` finds the adapter itself."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from iknow.models.adapt import as_model
from iknow.models.function import FunctionModel, PrecomputedModel
from iknow.models.inputs import Sizes, measure
from iknow.models.model import Column, Layer, Model, Observation, make_observation
from iknow.models.probe import Probe

if TYPE_CHECKING:
    from iknow.models.keras import KerasModel
    from iknow.models.onnx import OnnxModel
    from iknow.models.sklearn import SklearnModel
    from iknow.models.torch import TorchModel

LAZY = ("KerasModel", "OnnxModel", "SklearnModel", "TorchModel")

__all__ = [
    "Column",
    "FunctionModel",
    "KerasModel",
    "Layer",
    "Model",
    "Observation",
    "OnnxModel",
    "PrecomputedModel",
    "Probe",
    "Sizes",
    "SklearnModel",
    "TorchModel",
    "as_model",
    "make_observation",
    "measure",
]


def __getattr__(name: str) -> Any:
    if name in LAZY:
        return getattr(import_module(f"{__name__}.{name.removesuffix('Model').lower()}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
