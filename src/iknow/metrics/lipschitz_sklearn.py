"""Lipschitz constants of scikit-learn's multilayer perceptron, and of the scalers before it.

`SklearnModel` names the layers: "input", each step of a pipeline, "hidden1", ..., "logits". Each
becomes a node to propagate over (`lipschitz`).

Steps are affine maps, for the types listed here and no others. A subclass, or an instance with its
own `transform`, may compute anything, and a parameter may change the map after fitting. So we match
types exactly, check parameters, and refuse all others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from iknow.core.arrays import Floats
from iknow.core.robustness import Sensitivity
from iknow.core.rule import replaced_methods
from iknow.errors import InputError, LayerError
from iknow.metrics.lipschitz import (
    FLOAT32_ROUNDING,
    FLOAT64_ROUNDING,
    SMALLEST,
    Node,
    Noise,
    Propagation,
    as_matrix,
    spectral_norm,
)
from iknow.metrics.sklearn_parts import ACTIVATIONS, unwrap

ACTIVATION_LIPSCHITZ = {"identity": 1.0, "relu": 1.0, "tanh": 1.0, "logistic": 0.25}
"""The steepest slope of each activation function, by its name in scikit-learn."""
KNOWN = {
    StandardScaler: {"copy", "with_mean", "with_std"},
    MinMaxScaler: {"clip", "copy", "feature_range"},
    MaxAbsScaler: {"clip", "copy"},
    RobustScaler: {"copy", "quantile_range", "unit_variance", "with_centering", "with_scaling"},
    PCA: {
        "copy", "iterated_power", "n_components", "n_oversamples", "power_iteration_normalizer",
        "random_state", "svd_solver", "tol", "whiten",
    },
}  # fmt: skip
"""The known transformers, with all parameters they may have."""
NAMES = ", ".join(kind.__name__ for kind in KNOWN)
USUAL = 1e-20, 1e20  # with parameters in this range float32 inputs up to 1e15 cannot overflow
LARGEST = 4e150  # far from where squares of float64 overflow
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
        _place(name, names)
    first = _place(start, names)
    early = [name for name in layers or () if _place(name, names) < first]
    if early:
        raise LayerError(f"layer {early[0]!r} comes before {start!r}: distances go forward")
    places = range(first + 1, len(names))
    taken = [(names[place], _step(steps, classifier, place, FLOAT64)) for place in places]
    nodes, along = _nodes(taken), Propagation(_norm)
    found = dict(zip(names[first:], nodes, strict=True))
    return {name: along.constant(found[name]) for name in found if name in (layers or found)}


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
    places = range(1, _place(layer, names) + 1)
    taken = [(names[place], _step(steps, classifier, place, dtype)) for place in places]
    along = Propagation(
        _norm, stored=lambda node: Noise(FLOAT32_ROUNDING, SMALLEST * math.sqrt(node.n_values))
    )
    return along.sensitivity(_nodes(taken, n_features)[-1])


def _norm(run: tuple[Floats, ...]) -> float:
    return spectral_norm(reduce(np.matmul, run))


def _place(name: str, names: Sequence[str]) -> int:
    if names.count(name) != 1:
        raise LayerError(f"{name!r} must name one layer; the layers are {', '.join(names)}")
    return names.index(name)


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


@dataclass(frozen=True, eq=False)
class Step:
    """x → function(x @ matrix + offset), computed with some noise.

    matrix: of shape (n_inputs, n_outputs). slope: the Lipschitz constant of the function. The
    computed value is off by at most noise · |x|₂ + fixed before the function, which adds
    function_noise.
    """

    matrix: Floats
    offset: Floats
    noise: float
    fixed: float
    function: Callable[[Floats], Floats] | None = None
    slope: float = 1.0
    function_noise: float = 0.0


def _nodes(steps: Sequence[tuple[str, Step | None]], n_features: int = 0) -> list[Node]:
    """The input and the layer after each step; n_features: of the input, if no step says so."""
    known = [step for _, step in steps if step is not None]
    value = np.zeros(len(known[0].matrix) if known else n_features)
    nodes = [Node("the input", "input", (), len(value), lambda: 0.0)]

    def add(name: str, kind: Any, noise: Noise, **facts: Any) -> Node:
        n_values, center = len(value), _length(value)
        inputs = (nodes[-1],) if kind == "affine" else (linear,)
        return Node(repr(name), kind, inputs, n_values, lambda: center, lambda: noise, **facts)

    for name, step in steps:
        if step is None:
            nodes.append(nodes[-1])
            continue
        peak, peak_fixed = _length(step.matrix), _length(step.offset)
        if not max(peak, peak_fixed) < 1e100:
            raise LayerError(f"layer {name!r} has weights so large that float64 may overflow")
        value = value @ step.matrix + step.offset
        noise = Noise(step.noise, step.fixed, peak, peak_fixed)
        node = linear = add(name, "affine", noise, linear=step.matrix)
        if step.function is not None:
            value, constant = step.function(value), partial(float, step.slope)
            noise = Noise(0.0, step.function_noise, largest=LARGEST)
            node = add(name, "function", noise, lipschitz=constant)
        nodes.append(node)
    return nodes


def check_network(network: Any) -> None:
    """Refuse anything but scikit-learn's own MLPClassifier, fitted."""
    if type(network) is not MLPClassifier or not hasattr(network, "coefs_"):
        raise InputError(
            "expected a fitted MLPClassifier or a pipeline that ends in one; got "
            f"{type(network).__name__}"
        )
    if network.activation not in ACTIVATION_LIPSCHITZ:
        raise InputError(f"the activation function {network.activation!r} is not known")


def dense_step(network: Any, i: int) -> Step:
    """Layer i of a network, in float64; the last one, the logits, has no activation."""
    matrix, offset = as_matrix(network.coefs_[i]), _vector(network.intercepts_[i])
    unit = 2 * (len(matrix) + 2) * FLOAT64_ROUNDING
    step = Step(matrix, offset, unit * _length(matrix), unit * _length(offset))
    if i == len(network.coefs_) - 1 or network.activation == "identity":
        return step
    # relu is exact; tanh and expit are off by a few units in the last place of numbers below 1.
    noise = 32 * FLOAT64_ROUNDING * math.sqrt(len(offset))
    return replace(
        step,
        function=ACTIVATIONS[network.activation],
        slope=ACTIVATION_LIPSCHITZ[network.activation],
        function_noise=0.0 if network.activation == "relu" else noise,
    )


def transformer_step(name: str, transformer: Any, dtype: np.dtype[Any]) -> Step | None:
    """The named step of a pipeline, for inputs of a dtype; None if it does nothing."""
    if isinstance(transformer, str):  # "passthrough"
        return None
    if type(transformer) is FrozenEstimator:
        _check_methods(name, transformer)
        transformer = transformer.estimator
    kind = type(transformer)
    if kind not in KNOWN:
        raise LayerError(
            f"step {name!r} ({kind.__name__}) cannot be bounded: {NAMES} and passthrough can, but "
            "not their subclasses; start after it, or bound it yourself and multiply"
        )
    _check_methods(name, transformer)
    parameters, what = transformer.get_params(deep=False), f"step {name!r} ({kind.__name__})"
    unknown = sorted(set(parameters) - KNOWN[kind])
    if unknown:
        raise LayerError(f"{what} cannot be bounded: its parameter {unknown[0]!r} is unknown")
    if kind is not PCA and not parameters["copy"]:
        raise LayerError(
            f"{what} cannot be bounded: with copy=False it changes its input in place, which other "
            "layers read"
        )
    unit = _unit_of(name, dtype)
    return _projection(transformer, unit) if kind is PCA else _scaler(name, transformer, unit)


def _scaler(name: str, scaler: Any, unit: float) -> Step:
    """Each feature times its scale plus its offset, then perhaps clipped."""
    ones = np.ones(scaler.n_features_in_)
    scale, offset, limits = ones, np.zeros_like(ones), None
    if type(scaler) is StandardScaler:
        scale = 1 / _vector(scaler.scale_) if scaler.with_std else ones
        offset = -_vector(scaler.mean_) * scale if scaler.with_mean else offset
    elif type(scaler) is RobustScaler:
        scale = 1 / _vector(scaler.scale_) if scaler.with_scaling else ones
        offset = -_vector(scaler.center_) * scale if scaler.with_centering else offset
    elif type(scaler) is MaxAbsScaler:
        scale = 1 / _vector(scaler.scale_)
        limits = (-1.0, 1.0) if getattr(scaler, "clip", False) else None
    else:
        scale, offset = _vector(scaler.scale_), _vector(scaler.min_)
        low, high = scaler.feature_range
        limits = (float(low), float(high)) if scaler.clip else None
    if unit > FLOAT64_ROUNDING:
        _check_sizes(name, scale, offset)
    largest = float(np.abs(scale).max(initial=0.0))
    # Parameters and results are rounded, some twice: 4 units of (|x · scale| + |offset|), plus
    # the loss below the smallest normal number.
    lost = math.sqrt(len(scale)) * (1 + largest) * 1e-44
    fixed = 8 * unit * _length(offset) + lost
    step = Step(np.diag(scale), offset, 8 * unit * largest, fixed)
    if limits is None:
        return step
    low, high = limits
    noise = 2 * unit * max(abs(low), abs(high)) * math.sqrt(len(scale))
    return replace(step, function=lambda x: np.clip(x, low, high), function_noise=noise)


def _projection(pca: Any, unit: float) -> Step:
    matrix = as_matrix(pca.components_).T
    if pca.whiten:
        # PCA.transform keeps its divisors above 0 this way.
        smallest = np.finfo(pca.explained_variance_.dtype).eps
        matrix = matrix / np.maximum(np.sqrt(pca.explained_variance_), smallest)
    mean = _vector(pca.mean_)
    noise = 2 * (len(matrix) + 8) * unit * _length(matrix)
    lost = (len(matrix) + 2) * math.sqrt(matrix.shape[1]) * 1e-44 * (1 + np.abs(matrix).max())
    # PCA projects the mean by itself and subtracts it afterwards, with its own noise.
    return Step(matrix, -(mean @ matrix), noise, 2 * noise * _length(mean) + float(lost))


def _check_methods(name: str, thing: Any) -> None:
    replaced = replaced_methods(thing)
    if replaced:
        raise LayerError(
            f"step {name!r} ({type(thing).__name__}) cannot be bounded: the instance replaces its "
            f"method {replaced[0]!r}"
        )


def _unit_of(name: str, dtype: np.dtype[Any]) -> float:
    """The rounding of the dtype that a transformer computes in; it keeps float32."""
    if dtype.kind in "iub" or (dtype.kind == "f" and dtype.itemsize >= 8):
        return FLOAT64_ROUNDING
    if dtype == np.float32:
        return FLOAT32_ROUNDING
    raise LayerError(f"step {name!r} cannot be bounded for {dtype} inputs: convert them to float64")


def _check_sizes(name: str, scale: Floats, offset: Floats) -> None:
    smallest, largest = USUAL
    sizes = np.abs(scale[scale != 0])
    if not ((sizes >= smallest) & (sizes <= largest)).all() or (np.abs(offset) > largest).any():
        raise LayerError(
            f"step {name!r} cannot be bounded for inputs in float32: its scales go from "
            f"{sizes.min(initial=np.inf):.3g} to {sizes.max(initial=0):.3g}, beyond float32's range"
        )


def _vector(values: Any) -> Floats:
    vector: Floats = as_matrix(np.atleast_2d(values))[0]
    return vector


def _length(values: Floats) -> float:
    """The ℓ2 or Frobenius norm, which also bounds the norm of |matrix| that rounding needs."""
    return float(np.linalg.norm(values))
