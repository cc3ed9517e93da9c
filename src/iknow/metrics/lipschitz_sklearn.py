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
from functools import reduce
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
    names = _layer_names(steps, classifier)
    for name in (*names, start, *(layers or ())):
        _place(name, names)
    first = _place(start, names)
    early = [name for name in layers or () if _place(name, names) < first]
    if early:
        raise LayerError(f"layer {early[0]!r} comes before {start!r}: distances go forward")
    nodes = _nodes(steps, classifier, names, first, FLOAT64)
    found, along = dict(zip(names[first:], nodes, strict=True)), Propagation(_norm)
    return {name: along.constant(found[name]) for name in found if name in (layers or found)}


def sensitivity_of(
    estimator: Any, layer: str, dtype: np.dtype[Any], n_features: int
) -> Sensitivity:
    """Bound how far a layer of a fitted estimator, whose steps up to it are known, can move.

    Args:
        estimator: The fitted estimator.
        layer: The name of the layer.
        dtype: That of the inputs, which transformers compute in.
        n_features: Of the inputs.

    Examples:
        >>> sensitivity_of(network, "input", np.dtype(np.float64), 4).lipschitz
        1.0
    """
    steps, classifier = unwrap(estimator)
    names = ["input", *(name for name, _ in steps)]
    if layer not in names:
        names = _layer_names(steps, classifier)
    along = Propagation(
        _norm, stored=lambda node: Noise(FLOAT32_ROUNDING, SMALLEST * math.sqrt(node.n_values))
    )
    taken = names[: _place(layer, names) + 1]
    return along.sensitivity(_nodes(steps, classifier, taken, 0, dtype, n_features)[-1])


def _norm(run: tuple[Floats, ...]) -> float:
    return spectral_norm(reduce(np.matmul, run))


def _place(name: str, names: Sequence[str]) -> int:
    if names.count(name) != 1:
        raise LayerError(f"{name!r} must name one layer; the layers are {', '.join(names)}")
    return names.index(name)


def _layer_names(steps: Sequence[tuple[str, Any]], network: Any) -> list[str]:
    """The layers of a pipeline that ends in scikit-learn's own MLPClassifier, fitted."""
    if type(network) is not MLPClassifier or not hasattr(network, "coefs_"):
        raise InputError(
            "expected a fitted MLPClassifier or a pipeline that ends in one; got "
            f"{type(network).__name__}"
        )
    if network.activation not in ACTIVATION_LIPSCHITZ:
        raise InputError(f"the activation function {network.activation!r} is not known")
    hidden = [f"hidden{i + 1}" for i in range(len(network.coefs_) - 1)]
    return ["input", *(name for name, _ in steps), *hidden, "logits"]


def _nodes(
    steps: Sequence[tuple[str, Any]],
    network: Any,
    names: Sequence[str],
    first: int,
    dtype: np.dtype[Any],
    n_features: int = 0,
) -> list[Node]:
    """The named layers from the first wanted one on, which counts as the input."""
    layers = Layers(n_features)
    nodes = [layers.last]
    for place in range(first, len(names) - 1):
        layers.name = names[place + 1]
        if place < len(steps):
            add_transformer(layers, steps[place][1], dtype)
        else:
            add_dense(layers, network, place - len(steps))
        nodes.append(layers.last)
    return nodes


class Layers:
    """Nodes, each made from the last; name: of the layer under way, in errors.

    Matrices have the shape (n_inputs, n_outputs).
    """

    def __init__(self, n_features: int) -> None:
        self.name = ""
        self._value: Floats | None = None
        self.last = Node("the input", "input", (), n_features, lambda: 0.0)

    def affine(self, matrix: Floats, offset: Floats, noise: float, fixed: float) -> None:
        """X → x @ matrix + offset, off by at most noise · |x|₂ + fixed."""
        peak, peak_fixed = _length(matrix), _length(offset)
        if not max(peak, peak_fixed) < 1e100:
            raise LayerError(f"layer {self.name!r} has weights so large that float64 may overflow")
        value = offset if self._value is None else self._value @ matrix + offset
        noises = Noise(noise, fixed, peak, peak_fixed)
        self._add("affine", value, noises, linear=matrix)

    def function(self, function: Callable[[Floats], Floats], slope: float, noise: float) -> None:
        """A function of a Lipschitz constant, off by at most the noise."""
        assert self._value is not None
        noises = Noise(0.0, noise, largest=LARGEST)
        self._add("function", function(self._value), noises, lipschitz=lambda: slope)

    def _add(self, kind: Any, value: Floats, noise: Noise, **facts: Any) -> None:
        what, center, self._value = repr(self.name), _length(value), value
        self.last = Node(
            what, kind, (self.last,), len(value), lambda: center, lambda: noise, **facts
        )


def add_dense(layers: Layers, network: Any, i: int) -> None:
    """Layer i of a network, in float64; the last one, the logits, has no activation."""
    matrix, offset = as_matrix(network.coefs_[i]), _vector(network.intercepts_[i])
    unit = 2 * (len(matrix) + 2) * FLOAT64_ROUNDING
    layers.affine(matrix, offset, unit * _length(matrix), unit * _length(offset))
    name = network.activation
    if i < len(network.coefs_) - 1 and name != "identity":
        # relu is exact; tanh and expit are off by a few units in the last place of numbers below 1.
        noise = 0.0 if name == "relu" else 32 * FLOAT64_ROUNDING * math.sqrt(len(offset))
        layers.function(ACTIVATIONS[name], ACTIVATION_LIPSCHITZ[name], noise)


def add_transformer(layers: Layers, transformer: Any, dtype: np.dtype[Any]) -> None:
    """A step of a pipeline, for inputs of a dtype."""
    if isinstance(transformer, str):  # "passthrough"
        return
    if type(transformer) is FrozenEstimator:
        _check_methods(layers.name, transformer)
        transformer = transformer.estimator
    kind = type(transformer)
    what = f"step {layers.name!r} ({kind.__name__}) cannot be bounded"
    if kind not in KNOWN:
        raise LayerError(
            f"{what}: {', '.join(each.__name__ for each in KNOWN)} and passthrough can, but "
            "not their subclasses; start after it, or bound it yourself and multiply"
        )
    _check_methods(layers.name, transformer)
    parameters = transformer.get_params(deep=False)
    unknown = sorted(set(parameters) - KNOWN[kind])
    if unknown:
        raise LayerError(f"{what}: its parameter {unknown[0]!r} is unknown")
    if kind is not PCA and not parameters["copy"]:
        raise LayerError(
            f"{what}: with copy=False it changes its input in place, which other layers read"
        )
    if dtype.kind in "iub" or (dtype.kind == "f" and dtype.itemsize >= 8):
        unit = FLOAT64_ROUNDING
    elif dtype == np.float32:  # which transformers keep
        unit = FLOAT32_ROUNDING
    else:
        raise LayerError(
            f"step {layers.name!r} cannot be bounded for {dtype} inputs: convert them to float64"
        )
    (_add_projection if kind is PCA else _add_scaler)(layers, transformer, unit)


def _add_scaler(layers: Layers, scaler: Any, unit: float) -> None:
    """Each feature times its scale plus its offset, then perhaps clipped."""
    kind, ones = type(scaler), np.ones(scaler.n_features_in_)
    offset, limits = 0 * ones, None
    if kind is MinMaxScaler:
        scale, offset = _vector(scaler.scale_), _vector(scaler.min_)
        limits = tuple(map(float, scaler.feature_range)) if scaler.clip else None
    elif kind is MaxAbsScaler:
        scale = 1 / _vector(scaler.scale_)
        limits = (-1.0, 1.0) if getattr(scaler, "clip", False) else None
    else:
        scaled, centered, center = (
            (scaler.with_std, scaler.with_mean, scaler.mean_)
            if kind is StandardScaler
            else (scaler.with_scaling, scaler.with_centering, scaler.center_)
        )
        scale = 1 / _vector(scaler.scale_) if scaled else ones
        offset = -_vector(center) * scale if centered else offset
    if unit > FLOAT64_ROUNDING:
        _check_sizes(layers.name, scale, offset)
    largest = float(np.abs(scale).max(initial=0.0))
    # Parameters and results are rounded, some twice: 4 units of (|x · scale| + |offset|), plus
    # the loss below the smallest normal number.
    lost = math.sqrt(len(scale)) * (1 + largest) * 1e-44
    fixed = 8 * unit * _length(offset) + lost
    layers.affine(np.diag(scale), offset, 8 * unit * largest, fixed)
    if limits is not None:
        low, high = limits
        noise = 2 * unit * max(abs(low), abs(high)) * math.sqrt(len(scale))
        layers.function(lambda x: np.clip(x, low, high), 1.0, noise)


def _add_projection(layers: Layers, pca: Any, unit: float) -> None:
    matrix = as_matrix(pca.components_).T
    if pca.whiten:
        # PCA.transform keeps its divisors above 0 this way.
        smallest = np.finfo(pca.explained_variance_.dtype).eps
        matrix = matrix / np.maximum(np.sqrt(pca.explained_variance_), smallest)
    mean = _vector(pca.mean_)
    noise = 2 * (len(matrix) + 8) * unit * _length(matrix)
    lost = (len(matrix) + 2) * math.sqrt(matrix.shape[1]) * 1e-44 * (1 + np.abs(matrix).max())
    # PCA projects the mean by itself and subtracts it afterwards, with its own noise.
    layers.affine(matrix, -(mean @ matrix), noise, 2 * noise * _length(mean) + float(lost))


def _check_methods(name: str, thing: Any) -> None:
    replaced = replaced_methods(thing)
    if replaced:
        raise LayerError(
            f"step {name!r} ({type(thing).__name__}) cannot be bounded: the instance replaces its "
            f"method {replaced[0]!r}"
        )


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
