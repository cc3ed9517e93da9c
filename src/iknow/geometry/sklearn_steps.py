"""Steps of a scikit-learn model as affine maps: of exactly the types known here, and no others.

A subclass may do anything in its `transform`, and so may an instance with a `transform` of its own;
a parameter may change the map after fitting. So types are matched exactly, parameters that matter
are looked at, and whatever is not known is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from iknow.core.arrays import Floats
from iknow.core.overriding import replaced_methods
from iknow.errors import InputError, LayerError
from iknow.geometry.lipschitz import (
    ACTIVATION_LIPSCHITZ,
    FLOAT32_ROUNDING,
    FLOAT64_ROUNDING,
    as_matrix,
)
from iknow.geometry.sklearn_parts import ACTIVATIONS

ELEMENTWISE = {
    StandardScaler: {"copy", "with_mean", "with_std"},
    MinMaxScaler: {"clip", "copy", "feature_range"},
    MaxAbsScaler: {"clip", "copy"},
    RobustScaler: {"copy", "quantile_range", "unit_variance", "with_centering", "with_scaling"},
}
PROJECTION = {
    PCA: {
        "copy", "iterated_power", "n_components", "n_oversamples", "power_iteration_normalizer",
        "random_state", "svd_solver", "tol", "whiten",
    }
}  # fmt: skip
"""The transformers that are known, with all parameters they may have."""

KNOWN = ELEMENTWISE | PROJECTION
NAMES = ", ".join(kind.__name__ for kind in KNOWN)

USUAL = 1e-20, 1e20
"""Sizes that parameters may have where float32 is kept: for inputs up to 1e15 none overflows."""


@dataclass(frozen=True, eq=False)
class Step:
    """x → function(x @ matrix + offset), computed with some noise.

    matrix: of shape (n_inputs, n_outputs); scale: its diagonal, where it is one. function: None for
    none, else of Lipschitz constant `slope`. noise, fixed: what is computed, without the function,
    is off by at most noise · |x|₂ + fixed; function_noise: by what more, with it.
    """

    matrix: Floats
    offset: Floats
    noise: float
    fixed: float
    scale: Floats | None = None
    function: Callable[[Floats], Floats] | None = None
    slope: float = 1.0
    function_noise: float = 0.0


def check_network(network: Any) -> None:
    """A fitted MLPClassifier as scikit-learn has it."""
    if type(network) is not MLPClassifier or not hasattr(network, "coefs_"):
        raise InputError(
            "expected a fitted MLPClassifier or a pipeline that ends in one; got "
            f"{type(network).__name__}"
        )
    if network.activation not in ACTIVATION_LIPSCHITZ:
        raise InputError(f"the activation function {network.activation!r} is not known")


def dense_step(network: Any, i: int) -> Step:
    """Layer i of a network, in float64; the last one, the logits, has no activation function."""
    matrix, offset = as_matrix(network.coefs_[i]), _vector(network.intercepts_[i])
    unit = 2 * (len(matrix) + 2) * FLOAT64_ROUNDING
    step = Step(matrix, offset, unit * _frobenius(matrix), unit * _length(offset))
    if i == len(network.coefs_) - 1 or network.activation == "identity":
        return step
    # numpy's tanh and scipy's expit are off by a few units in the last place of numbers below 1.
    exact = network.activation == "relu"
    noise = 0.0 if exact else 32 * FLOAT64_ROUNDING * math.sqrt(len(offset))
    return Step(
        matrix, offset, step.noise, step.fixed,
        function=ACTIVATIONS[network.activation],
        slope=ACTIVATION_LIPSCHITZ[network.activation],
        function_noise=noise,
    )  # fmt: skip


def transformer_step(name: str, transformer: Any, dtype: np.dtype[Any]) -> Step | None:
    """The step of a pipeline by this name, for inputs of a dtype; None if it does nothing."""
    if isinstance(transformer, str):  # "passthrough"
        return None
    if type(transformer) is FrozenEstimator:
        _check_methods(name, transformer)
        transformer = transformer.estimator
    kind = type(transformer)
    if kind not in KNOWN:
        raise LayerError(
            f"step {name!r} ({kind.__name__}) cannot be bounded: {NAMES} and passthrough can, "
            "themselves and not as subclasses; start after it, or bound it yourself and multiply"
        )
    _check_methods(name, transformer)
    _check_parameters(name, transformer)
    unit = _unit_of(name, dtype)
    return _projection(transformer, unit) if kind is PCA else _scaler(name, transformer, unit)


def _scaler(name: str, scaler: Any, unit: float) -> Step:
    """Feature by feature x · scale + offset, then perhaps clipped."""
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
    # Parameters and results are rounded, some twice: 4 units of (|x · scale| + |offset|), and what
    # is lost below the smallest normal number.
    lost = math.sqrt(len(scale)) * (1 + largest) * 1e-44
    step = Step(
        np.diag(scale), offset, 8 * unit * largest, 8 * unit * _length(offset) + lost, scale
    )
    if limits is None:
        return step
    low, high = limits
    return Step(
        step.matrix, offset, step.noise, step.fixed, scale,
        function=lambda values: np.clip(values, low, high),
        function_noise=2 * unit * max(abs(low), abs(high)) * math.sqrt(len(scale)),
    )  # fmt: skip


def _projection(pca: Any, unit: float) -> Step:
    matrix = as_matrix(pca.components_).T
    if pca.whiten:
        # PCA.transform keeps its divisors from 0 in this way.
        smallest = np.finfo(pca.explained_variance_.dtype).eps
        matrix = matrix / np.maximum(np.sqrt(pca.explained_variance_), smallest)
    mean = _vector(pca.mean_)
    noise = 2 * (len(matrix) + 8) * unit * _frobenius(matrix)
    lost = (len(matrix) + 2) * math.sqrt(matrix.shape[1]) * 1e-44 * (1 + np.abs(matrix).max())
    # The mean is projected by itself and taken off afterwards, with noise of its own.
    return Step(matrix, -(mean @ matrix), noise, 2 * noise * _length(mean) + float(lost))


def _check_methods(name: str, thing: Any) -> None:
    replaced = replaced_methods(thing)
    if replaced:
        raise LayerError(
            f"step {name!r} ({type(thing).__name__}) cannot be bounded: it has a "
            f"{replaced[0]!r} of its own in place of its type's"
        )


def _check_parameters(name: str, transformer: Any) -> None:
    parameters = transformer.get_params(deep=False)
    unknown = sorted(set(parameters) - KNOWN[type(transformer)])
    if unknown:
        raise LayerError(
            f"step {name!r} ({type(transformer).__name__}) cannot be bounded: it has a parameter "
            f"{unknown[0]!r} that is not known here"
        )
    if type(transformer) in ELEMENTWISE and not parameters["copy"]:
        raise LayerError(
            f"step {name!r} ({type(transformer).__name__}) cannot be bounded: with copy=False it "
            "changes its input in place, which other layers read"
        )


def _unit_of(name: str, dtype: np.dtype[Any]) -> float:
    """By how much numbers are rounded where the transformers work: they keep float32."""
    if dtype.kind in "iub" or (dtype.kind == "f" and dtype.itemsize >= 8):
        return FLOAT64_ROUNDING
    if dtype == np.float32:
        return FLOAT32_ROUNDING
    raise LayerError(
        f"step {name!r} cannot be bounded for inputs of dtype {dtype}: convert them to float32 or "
        "float64"
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
    return float(np.linalg.norm(values))


def _frobenius(matrix: Floats) -> float:
    """It bounds the norm of |matrix| too, which sums of absolute values need."""
    return float(np.linalg.norm(matrix))
