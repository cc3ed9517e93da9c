"""Lipschitz constants of scikit-learn's multilayer perceptron, and of the scalers before it.

Layers are named as by `iknow.models.sklearn`: "input", each step of a pipeline, "hidden1", ...,
"logits". Everything up to the first activation function is one linear map and is bounded as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.decomposition import PCA
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from iknow.core.arrays import Floats
from iknow.errors import InputError, LayerError
from iknow.geometry.bounds import ACTIVATION_LIPSCHITZ, Growth
from iknow.models.sklearn import unwrap

SUPPORTED = "StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler, PCA and passthrough"


def mlp_lipschitz(
    network: Any, layers: Sequence[str] | None = None, start: str = "input"
) -> dict[str, float]:
    """ℓ2 Lipschitz constants from the layer `start` to every later layer, or to the named ones.

    network: a fitted MLPClassifier, or a pipeline of linear transformers that ends in one. Feed the
    result to `propagate_radius`. The ratio of two constants from the input is no bound between
    their layers; `start` gives that one.
    """
    steps, classifier = unwrap(network)
    if not isinstance(classifier, MLPClassifier) or not hasattr(classifier, "coefs_"):
        raise InputError(
            "expected a fitted MLPClassifier or a pipeline that ends in one; got "
            f"{type(classifier).__name__}"
        )
    n_weights = len(classifier.coefs_)
    names = ["input", *(name for name, _ in steps)]
    names += [f"hidden{i + 1}" for i in range(n_weights - 1)] + ["logits"]
    for name in (*names, start, *(layers or ())):
        if names.count(name) != 1:
            raise LayerError(f"{name!r} must name one layer; the layers are {', '.join(names)}")
    constants: dict[str, float] = {}
    for place, name in enumerate(names):
        if name == start:
            growth = Growth()
        elif start in names[:place] and place <= len(steps):
            growth = _through_transformer(growth, *steps[place - 1])
        elif start in names[:place]:
            growth = _through_dense(growth, classifier, place - len(steps) - 1)
        else:
            continue  # before the start
        if layers is None or name in layers:
            constants[name] = growth.lipschitz
    early = [name for name in layers or () if name not in constants]
    if early:
        raise LayerError(f"layer {early[0]!r} comes before {start!r}: distances go forward")
    return constants


def _through_dense(growth: Growth, network: Any, i: int) -> Growth:
    """Past layer i of the network; the last one, the logits, has no activation function."""
    growth = growth.through_matrix(network.coefs_[i])
    if i == len(network.coefs_) - 1 or network.activation == "identity":
        return growth
    return growth.through_function(ACTIVATION_LIPSCHITZ[network.activation])


def _through_transformer(growth: Growth, name: str, transformer: Any) -> Growth:
    if isinstance(transformer, str):  # "passthrough"
        return growth
    if isinstance(transformer, FrozenEstimator):
        transformer = transformer.estimator
    growth = growth.through_matrix(_matrix(name, transformer))
    if isinstance(transformer, MinMaxScaler) and transformer.clip:
        return growth.through_function(1.0)
    return growth


def _matrix(name: str, transformer: Any) -> Floats:
    """The linear part of a transformer, of shape (n_inputs, n_outputs)."""
    if isinstance(transformer, PCA):
        components: Floats = transformer.components_.T.astype(np.float64)
        if not transformer.whiten:
            return components
        # PCA.transform keeps its divisors from 0 in this way.
        smallest = np.finfo(transformer.explained_variance_.dtype).eps
        deviations = np.maximum(np.sqrt(transformer.explained_variance_), smallest)
        whitening: Floats = components / deviations
        return whitening
    if isinstance(transformer, MinMaxScaler):
        return np.diag(transformer.scale_)
    if isinstance(transformer, (StandardScaler, MaxAbsScaler, RobustScaler)):
        scale = transformer.scale_
        return np.eye(transformer.n_features_in_) if scale is None else np.diag(1 / scale)
    raise LayerError(
        f"step {name!r} ({type(transformer).__name__}) cannot be bounded: {SUPPORTED} can; start "
        "after it, or bound it yourself and multiply"
    )
