"""Lipschitz constants of scikit-learn's multilayer perceptron, and of the scalers before it.

`SklearnModel` names the layers: "input", each step of a pipeline, "hidden1", ..., "logits".
Everything up to the first activation function is one linear map and is bounded as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from iknow.core.robustness import Sensitivity
from iknow.errors import LayerError
from iknow.geometry.lipschitz import Growth, spectral_norm
from iknow.geometry.rounding import Computed
from iknow.geometry.sklearn_parts import unwrap
from iknow.geometry.sklearn_steps import Step, check_network, dense_step, transformer_step

FLOAT64 = np.dtype(np.float64)


def mlp_lipschitz(
    network: Any, layers: Sequence[str] | None = None, start: str = "input"
) -> dict[str, float]:
    """Return the ℓ2 Lipschitz constants from the layer `start` to every later layer.

    Pass the result to `propagate_radius`.

    Args:
        network: A fitted MLPClassifier, or a pipeline of linear transformers that ends in one.
        layers: The layers to return. Default: all.
        start: The layer to measure from. The ratio of two constants from the input is no bound.

    Examples:
        >>> list(mlp_lipschitz(network))
        ['input', 'hidden1', 'logits']
    """
    steps, classifier = unwrap(network)
    check_network(classifier)
    names = _layer_names(steps, classifier)
    for name in (*names, start, *(layers or ())):
        if names.count(name) != 1:
            raise LayerError(f"{name!r} must name one layer; the layers are {', '.join(names)}")
    growth, constants = Growth(), {}
    for place in range(names.index(start), len(names)):
        if names[place] != start:
            growth = _grow(growth, _step(steps, classifier, place, FLOAT64))
        if layers is None or names[place] in layers:
            constants[names[place]] = growth.lipschitz
    early = [name for name in layers or () if name not in constants]
    if early:
        raise LayerError(f"layer {early[0]!r} comes before {start!r}: distances go forward")
    return constants


def sensitivity_of(
    estimator: Any, layer: str, dtype: np.dtype[Any], n_features: int
) -> Sensitivity:
    """Bound how far a layer of a fitted estimator, whose steps up to it are known, can move.

    Args:
        estimator: A fitted classifier or pipeline.
        layer: Name of the layer.
        dtype: Data type of the inputs, which transformers compute in.
        n_features: Number of features of the inputs.

    Examples:
        >>> sensitivity_of(network, "input", np.dtype(np.float64), 4).lipschitz
        1.0
    """
    steps, classifier = unwrap(estimator)
    names = ["input", *(name for name, _ in steps)]
    if layer not in names:
        check_network(classifier)
        names = _layer_names(steps, classifier)
    if names.count(layer) != 1:
        raise LayerError(f"{layer!r} must name one layer; the layers are {', '.join(names)}")
    growth, computed = Growth(), Computed(np.zeros(n_features))
    for place in range(1, names.index(layer) + 1):
        step = _step(steps, classifier, place, dtype)
        growth = _grow(growth, step)
        computed = _compute(computed, step, growth.lipschitz)
    return computed.stored()


def _layer_names(steps: Sequence[tuple[str, Any]], network: Any) -> list[str]:
    hidden = [f"hidden{i + 1}" for i in range(len(network.coefs_) - 1)]
    return ["input", *(name for name, _ in steps), *hidden, "logits"]


def _step(
    steps: Sequence[tuple[str, Any]], network: Any, place: int, dtype: np.dtype[Any]
) -> Step | None:
    """The step to the layer at this place from the one before it."""
    if place <= len(steps):
        return transformer_step(*steps[place - 1], dtype)
    return dense_step(network, place - len(steps) - 1)


def _grow(growth: Growth, step: Step | None) -> Growth:
    if step is None:
        return growth
    growth = growth.through_matrix(step.matrix)
    return growth if step.function is None else growth.through_function(step.slope)


def _compute(computed: Computed, step: Step | None, lipschitz: float) -> Computed:
    if step is None:
        return computed
    computed.check_range(step.matrix, step.offset)
    at_zero = computed.at_zero @ step.matrix + step.offset
    stretch = spectral_norm(step.matrix) if step.scale is None else float(np.abs(step.scale).max())
    noise, fixed = step.noise * step.slope, step.fixed * step.slope + step.function_noise
    if step.function is not None:
        at_zero = step.function(at_zero)
    return computed.through(at_zero, lipschitz, stretch * step.slope, noise, fixed)
