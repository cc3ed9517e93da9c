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
from functools import cache, reduce
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.frozen import FrozenEstimator

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
    as_matrix,
    propagate,
    spectral_norm,
)

ACTIVATIONS: dict[str, Callable[[Floats], Floats]] = {
    "identity": lambda z: z,
    "logistic": expit,
    "tanh": np.tanh,
    "relu": lambda z: np.maximum(z, 0),
}
ACTIVATION_LIPSCHITZ = {"identity": 1.0, "relu": 1.0, "tanh": 1.0, "logistic": 0.25}
"""The steepest slope of each activation function, by its name in scikit-learn."""
USUAL = 1e-20, 1e20  # with parameters in this range float32 inputs up to 1e15 cannot overflow
LARGEST = 4e150  # far from where squares of float64 overflow
Steps = Sequence[tuple[str, Any]]
Part = tuple[Callable[[Floats], Floats], dict[str, Any]]
"""An operation: what it computes, and what a `Node` has of it."""


def unwrap(estimator: Any) -> tuple[list[tuple[str, Any]], Any]:
    """The transformers of a pipeline and the classifier at its end, unwrapped."""
    steps: list[tuple[str, Any]] = []
    while True:
        if hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif isinstance(estimator, FrozenEstimator):
            estimator = estimator.estimator
        elif hasattr(estimator, "steps"):
            steps += [(name, "passthrough" if s is None else s) for name, s in estimator.steps[:-1]]
            estimator = estimator.steps[-1][1]
        else:
            return steps, estimator


@cache
def known_transformers() -> dict[type, set[str]]:
    """The known transformers, with all parameters they may have; they load on first use."""
    from sklearn.decomposition import PCA
    from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

    return {
        StandardScaler: {"copy", "with_mean", "with_std"},
        MinMaxScaler: {"clip", "copy", "feature_range"},
        MaxAbsScaler: {"clip", "copy"},
        RobustScaler: {"copy", "quantile_range", "unit_variance", "with_centering", "with_scaling"},
        PCA: {
            "copy", "iterated_power", "n_components", "n_oversamples", "power_iteration_normalizer",
            "random_state", "svd_solver", "tol", "whiten",
        },
    }  # fmt: skip


def sensitivity_of(
    estimator: Any, layer: str, dtype: np.dtype[Any], n_features: int
) -> Sensitivity:
    """How far a layer can move, for inputs of a dtype, which transformers compute in."""
    steps, classifier = unwrap(estimator)
    names = ["input", *(name for name, _ in steps)]
    if layer not in names:
        names = _layer_names(steps, classifier)
    if names.count(layer) != 1:
        raise LayerError(f"{layer!r} must name one layer; the layers are {', '.join(names)}")
    nodes, value = [Node("the input", "input")], np.zeros(n_features)
    for place, name in enumerate(names[1 : names.index(layer) + 1]):
        what = f"layer {name!r}"
        try:
            if place < len(steps):
                what = f"step {name!r} ({type(steps[place][1]).__name__})"
                parts = _transform(steps[place][1], dtype)
            else:
                parts = _dense(classifier, place - len(steps))
        except LayerError as error:
            raise LayerError(f"{what} cannot be bounded: {error}") from error
        for function, facts in parts:
            value = function(value)
            nodes.append(Node(repr(name), inputs=(nodes[-1],), center=_length(value), **facts))
    found = propagate(nodes, lambda run: spectral_norm(reduce(np.matmul, run)))
    return found[nodes[-1]].sensitivity(Noise(FLOAT32_ROUNDING, SMALLEST * math.sqrt(value.size)))


def _layer_names(steps: Steps, network: Any) -> list[str]:
    """The layers of a pipeline that ends in scikit-learn's own MLPClassifier, fitted."""
    from sklearn.neural_network import MLPClassifier

    if type(network) is not MLPClassifier or not hasattr(network, "coefs_"):
        raise InputError(
            "expected a fitted MLPClassifier or a pipeline that ends in one; got "
            f"{type(network).__name__}"
        )
    if network.activation not in ACTIVATION_LIPSCHITZ:
        raise InputError(f"the activation function {network.activation!r} is not known")
    hidden = [f"hidden{i + 1}" for i in range(len(network.coefs_) - 1)]
    return ["input", *(name for name, _ in steps), *hidden, "logits"]


def _affine(matrix: Floats, offset: Floats, noise: float, fixed: float) -> Part:
    """X → x @ matrix + offset, off by at most noise · |x|₂ + fixed."""
    noises = Noise(noise, fixed, _length(matrix), _length(offset))
    if not max(noises.peak, noises.peak_fixed) < 1e100:
        raise LayerError("its weights are so large that float64 may overflow")
    return lambda x: x @ matrix + offset, {"kind": "affine", "noise": noises, "linear": matrix}


def _function(function: Callable[[Floats], Floats], slope: float, noise: float) -> Part:
    """A function of a Lipschitz constant, off by at most the noise."""
    noises = Noise(0.0, noise, largest=LARGEST)
    return function, {"kind": "function", "noise": noises, "lipschitz": slope}


def _dense(network: Any, i: int) -> list[Part]:
    """Layer i of a network, in float64; the last one, the logits, has no activation."""
    matrix, offset = as_matrix(network.coefs_[i]), _vector(network.intercepts_[i])
    unit = 2 * (len(matrix) + 2) * FLOAT64_ROUNDING
    parts = [_affine(matrix, offset, unit * _length(matrix), unit * _length(offset))]
    name = network.activation
    if i < len(network.coefs_) - 1 and name != "identity":
        # relu is exact; tanh and expit are off by some units in the last place of numbers below 1.
        noise = 0.0 if name == "relu" else 32 * FLOAT64_ROUNDING * math.sqrt(len(offset))
        parts.append(_function(ACTIVATIONS[name], ACTIVATION_LIPSCHITZ[name], noise))
    return parts


def _transform(transformer: Any, dtype: np.dtype[Any]) -> list[Part]:
    """A step of a pipeline, for inputs of a dtype."""
    if isinstance(transformer, str):  # "passthrough"
        return []
    frozen = [transformer] if type(transformer) is FrozenEstimator else []
    transformer = transformer.estimator if frozen else transformer
    known, kind = known_transformers(), type(transformer)
    if kind not in known:
        raise LayerError(
            f"{', '.join(each.__name__ for each in known)} and passthrough can, but not their "
            "subclasses; start after it, or bound it yourself and multiply"
        )
    for thing in (*frozen, transformer):
        if replaced := replaced_methods(thing):
            raise LayerError(f"the instance replaces its method {replaced[0]!r}")
    parameters = transformer.get_params(deep=False)
    if unknown := sorted(set(parameters) - known[kind]):
        raise LayerError(f"its parameter {unknown[0]!r} is unknown")
    is_projection = kind.__name__ == "PCA"
    if not (is_projection or parameters["copy"]):
        raise LayerError("with copy=False it changes its input in place, which other layers read")
    if dtype.kind in "iub" or (dtype.kind == "f" and dtype.itemsize >= 8):
        unit = FLOAT64_ROUNDING
    elif dtype == np.float32:  # which transformers keep
        unit = FLOAT32_ROUNDING
    else:
        raise LayerError(f"nothing is known about {dtype} inputs: convert them to float64")
    return (_project if is_projection else _scale)(transformer, unit)


def _scale(scaler: Any, unit: float) -> list[Part]:
    """Each feature times its scale plus its offset, then perhaps clipped."""
    scale, offset = np.ones(scaler.n_features_in_), np.zeros(scaler.n_features_in_)
    if hasattr(scaler, "min_"):  # MinMaxScaler
        scale, offset = _vector(scaler.scale_), _vector(scaler.min_)
    elif getattr(scaler, "with_std", getattr(scaler, "with_scaling", True)):
        scale = 1 / _vector(scaler.scale_)
    if getattr(scaler, "with_mean", getattr(scaler, "with_centering", False)):
        offset = -_vector(scaler.center_ if hasattr(scaler, "center_") else scaler.mean_) * scale
    sizes, (smallest, most) = np.abs(scale[scale != 0]), USUAL
    usual = ((sizes >= smallest) & (sizes <= most)).all() and (np.abs(offset) <= most).all()
    if unit > FLOAT64_ROUNDING and not usual:
        raise LayerError(
            f"its scales go from {sizes.min(initial=np.inf):.3g} to {sizes.max(initial=0):.3g}, "
            "beyond float32's range"
        )
    # Parameters and results are rounded, some twice: 4 units of (|x · scale| + |offset|), plus
    # the loss below the smallest normal number.
    largest, root = float(sizes.max(initial=0.0)), math.sqrt(len(scale))
    fixed = 8 * unit * _length(offset) + root * (1 + largest) * 1e-44
    parts = [_affine(np.diag(scale), offset, 8 * unit * largest, fixed)]
    if getattr(scaler, "clip", False):
        limits = getattr(scaler, "feature_range", (-1.0, 1.0))
        noise = 2 * unit * max(map(abs, limits)) * root
        parts.append(_function(lambda x: np.clip(x, *limits), 1.0, noise))
    return parts


def _project(pca: Any, unit: float) -> list[Part]:
    matrix = as_matrix(pca.components_).T
    if pca.whiten:
        # PCA.transform keeps its divisors above 0 this way.
        smallest = np.finfo(pca.explained_variance_.dtype).eps
        matrix = matrix / np.maximum(np.sqrt(pca.explained_variance_), smallest)
    mean = _vector(pca.mean_)
    noise = 2 * (len(matrix) + 8) * unit * _length(matrix)
    lost = (len(matrix) + 2) * math.sqrt(matrix.shape[1]) * 1e-44 * (1 + np.abs(matrix).max())
    # PCA projects the mean by itself and subtracts it afterwards, with its own noise.
    return [_affine(matrix, -(mean @ matrix), noise, 2 * noise * _length(mean) + float(lost))]


def _vector(values: Any) -> Floats:
    vector: Floats = as_matrix(np.atleast_2d(values))[0]
    return vector


def _length(values: Floats) -> float:
    """The ℓ2 or Frobenius norm, which also bounds the norm of |matrix| that rounding needs."""
    return float(np.linalg.norm(values))
