"""Certifying: how far the layers of a wrapped model can carry two inputs apart.

What `iknow.geometry` can bound it bounds; of the input layer the constant is known to be 1. A layer
of which nothing is known has the constant inf, and certifies nothing.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from iknow.core.on_request import ConstantsOnRequest
from iknow.errors import IknowError, LayerError
from iknow.layerindex import LayerIndex
from iknow.models.adapt import is_estimator, is_torch_module
from iknow.models.model import Model

NOT_BOUNDED = (IknowError, ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)
"""What may go wrong with a stranger's model on the way to a bound."""


def lipschitz_on_request(
    model: Model, indexes: Mapping[str, LayerIndex], inputs: Any
) -> ConstantsOnRequest:
    """Lipschitz constants from the input to each layer in its metric, when they are asked for.

    inputs: what the model is asked about, prepared; only the shape of a sample is looked at.
    """
    shape = tuple(getattr(inputs, "shape", ())[1:])
    return ConstantsOnRequest(lambda: find_lipschitz(model, indexes, shape))


def find_lipschitz(
    model: Model, indexes: Mapping[str, LayerIndex], input_shape: tuple[int, ...]
) -> dict[str, float]:
    """By layer, the L with d(h(x), h(z)) <= L · |x - z|₂ in the layer's metric; inf if unknown.

    It warns if that leaves nothing to certify by.
    """
    bound = _bounds_of(model, input_shape)
    constants: dict[str, float] = {}
    reasons: list[str] = []
    for layer, index in indexes.items():
        try:
            constants[layer] = bound(layer) * index.metric.expansion(index.n_features)
        except NOT_BOUNDED as error:
            constants[layer] = math.inf
            reasons.append(f"layer {layer!r}: {error}")
    if all(math.isinf(constant) for constant in constants.values()):
        warnings.warn(
            "no layer has a known Lipschitz constant, so nothing is certified; of the layer "
            f"'input' it is always known. {'; '.join(reasons)}",
            stacklevel=2,
        )
    return constants


def _bounds_of(model: Any, input_shape: tuple[int, ...]) -> Callable[[str], float]:
    """What gives the ℓ2 constant of a layer, or raises where there is none."""
    if hasattr(model, "lipschitz"):  # a model of the user's own may know it
        return lambda layer: float(model.lipschitz(layer))
    # What is wrapped is looked at, not the adapter: its file is only loaded by those who need it.
    estimator, module = getattr(model, "estimator", None), getattr(model, "module", None)
    if is_estimator(estimator):
        return lambda layer: 1.0 if layer == "input" else _of_network(estimator, layer)
    if is_torch_module(module):
        return lambda layer: _of_module(module, layer, input_shape)
    return lambda layer: _of_nothing(type(model).__name__)


def _of_network(estimator: Any, layer: str) -> float:
    # Imported here because it loads much of scikit-learn, and only certificates need it.
    from iknow.geometry.sklearn import mlp_lipschitz

    return mlp_lipschitz(estimator, [layer])[layer]


def _of_module(module: Any, layer: str, input_shape: tuple[int, ...]) -> float:
    # Imported here because only a user of torch should pay for loading it.
    from iknow.geometry.torch import lipschitz_constants

    if layer == "input" and layer not in dict(module.named_modules()):
        return 1.0  # whatever the module does with it
    return lipschitz_constants(module, input_shape, [layer])[layer]


def _of_nothing(kind: str) -> float:
    raise LayerError(f"nothing is known about the inside of {kind}")
