"""Find the adapter for the model the user already has.

Each kind of model is recognized by the names of its classes, so that no framework is imported for
users of another.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.utils import get_tags

from iknow.core.text import shown
from iknow.errors import InputError, MissingExtraError
from iknow.locking import unforked
from iknow.models.inputs import as_dense, own_copy, take_rows
from iknow.models.model import Model
from iknow.models.views import read_views, with_views

OPTIONS = ("pool", "scores", "embed", "views")
"""How to read a model; see `as_model`."""


class Kind(NamedTuple):
    """A kind of model, as errors name it; `takes`: the options that its adapter takes."""

    name: str
    recognizes: Callable[[Any], bool]
    adapter: str
    takes: tuple[str, ...] = ()
    extra: str | None = None


def has_base(model: Any, name: str, *packages: str) -> bool:
    """Whether a class of this name from one of these packages is among the classes of a model."""
    bases = type(model).__mro__
    return any(b.__name__ == name and b.__module__.partition(".")[0] in packages for b in bases)


def is_estimator(model: Any) -> bool:
    """Whether a model is an instance of a scikit-learn classifier."""
    is_instance = not isinstance(model, type) and not is_catboost(model)
    return is_instance and hasattr(model, "predict") and hasattr(model, "get_params")


def check_classifier(model: Any) -> None:
    """Refuse an estimator that says itself that it is something else, such as a regressor."""
    tags = get_tags(model) if hasattr(model, "__sklearn_tags__") else None
    kind = getattr(tags, "estimator_type", None) or getattr(model, "_estimator_type", None)
    if kind not in (None, "classifier"):
        raise InputError(
            f"{type(model).__name__} is no classifier (its type is {kind!r}), and IK is said about "
            "classes: pass a classifier, for example of ranges of the number to predict"
        )


def is_catboost(model: Any) -> bool:
    """Whether a model is catboost's own, which has methods like scikit-learn's but no labels."""
    own = has_base(model, "CatBoost", "catboost")
    return own and not has_base(model, "CatBoostClassifier", "catboost")


def is_onnx(model: Any) -> bool:
    """Whether a model is the path of an .onnx file, or such a file in memory."""
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model).lower().endswith(".onnx")
    return has_base(model, "ModelProto", "onnx")


def _is_function(model: Any) -> bool:
    return callable(model) and not isinstance(model, type) and not hasattr(model, "observe")


def _is_a(name: str, *packages: str) -> Callable[[Any], bool]:
    return lambda model: has_base(model, name, *packages)


is_torch_module = _is_a("Module", "torch")
READ = ("pool", "scores")
KINDS = (
    Kind("a Model, which reads itself", lambda model: isinstance(model, Model), ""),
    # A Keras model on torch is a torch module too.
    Kind("a Keras model", _is_a("Model", "keras"), "keras.KerasModel", READ, "keras"),
    Kind("a torch module", is_torch_module, "torch.TorchModel", READ, "torch"),
    Kind("a torch program", _is_a("ExportedProgram", "torch"), "torch.GraphModel", READ, "torch"),
    Kind("an ONNX model", is_onnx, "onnx.OnnxModel", (*READ, "device"), "onnx"),
    Kind("a booster", _is_a("Booster", "xgboost", "lightgbm"), "sklearn.SklearnModel"),
    Kind("a catboost model", is_catboost, "sklearn.SklearnModel"),
    Kind("a scikit-learn classifier", is_estimator, "sklearn.SklearnModel"),
    Kind("a function", _is_function, "function.FunctionModel", ("embed",)),
)
"""All kinds, in the order in which they are tried."""


def as_model(
    model: Any,
    *,
    pool: Any = None,
    scores: Any = None,
    embed: Any = None,
    views: Any = None,
    device: Any = None,
) -> Model:
    """The adapter for the user's model; a `Model` as it is.

    Args:
        model: A model of any kind in `KINDS`.
        pool: How to turn the activations of a network's layer, of shape (n, tokens, features) or
            (n, channels, height, width), into one vector per sample: "mean", "cls" (the first
            token), "last" (the last one) or a function of the activations, for all layers but input
            and output, or in a mapping. Padding that an `attention_mask` hides never counts.
            Default: the activations as they are.
        scores: Where the scores are in what a network returns: the name of an output, a position,
            or a function of all that it returns. Default: the only output, or the one named
            `logits`. "logit" or "probability" says what a single number per sample is, of the
            second class, alone or with its output, ("risk", "logit").
        embed: For a plain function: a function of the same batch that returns the activations to
            find support in, of shape (n, n_features), or several in a dict by name.
        views: For images: changes that leave an image what it is, over which the confidence is
            averaged (`iknow.models.views`): "shift", four passes of the model more for each sample,
            "mirror", one more, or functions of a batch that return a changed one.
        device: Where an ONNX model runs: "cuda", "cuda:1", "mps" or "cpu".

    Examples:
        >>> type(as_model(trained)).__name__
        'SklearnModel'
    """
    named = zip((*OPTIONS, "device"), (pool, scores, embed, views or None, device), strict=True)
    given = {name: value for name, value in named if value is not None}
    kind = next((each for each in KINDS if each.recognizes(model)), None)
    if kind is None and hasattr(model, "observe") and not isinstance(model, type):
        raise InputError(
            f"{type(model).__name__} has a method observe but is no Model: let it inherit from "
            "iknow.models.Model, which fills in the rest"
        )
    if kind is None:
        raise InputError(
            "a model must be a torch.nn.Module, a Keras model, a scikit-learn, xgboost, lightgbm "
            "or catboost classifier, the path of an .onnx file, a function that returns scores, or "
            "an iknow Model (iknow.models.PrecomputedModel takes the outputs of any other "
            f"framework); got {shown(model)} of type {type(model).__name__}"
        )
    takes = (*kind.takes, "views")
    if refused := [name for name in OPTIONS if name in given and name not in takes]:
        raise InputError(f"{refused[0]}= does not apply to {kind.name}: leave it out")
    if isinstance(model, Model):
        if not views:
            return model
        viewed = with_views(model, views)
        viewed.options = {**model.options, "views": views}
        return viewed
    module, _, name = kind.adapter.partition(".")
    try:
        with unforked():  # only users of a framework load it
            adapter = getattr(import_module(f"iknow.models.{module}"), name)
    except ImportError as error:
        if kind.extra is None:
            raise
        raise MissingExtraError(f"reading {kind.name}", kind.extra) from error
    found: Model = adapter(model, **{name: given[name] for name in kind.takes if name in given})
    found.source, found.knows_columns = model, is_estimator(model)
    found.views = read_views(views or ())
    found.options = {name: given[name] for name in OPTIONS if name in given}
    return found


def is_to_be_trained(model: Any, inputs: Any) -> bool:
    """Whether `fit` trains a model: a scikit-learn classifier, neither frozen nor fitted.

    A fitted one knows its classes and answers the first input. Attributes alone do not tell: an
    earlier step of a pipeline may be unfitted, and some transformers learn nothing.
    """
    if not is_estimator(model) or isinstance(model, FrozenEstimator) or not hasattr(model, "fit"):
        return False
    check_classifier(model)
    labels = getattr(model, "classes_", None)
    if labels is None or np.size(labels) == 0:
        return True
    try:
        model.predict(own_copy(take_rows(as_dense(inputs), slice(0, 1))))
    except Exception as error:  # the adapter will report any other
        return isinstance(error, NotFittedError)
    return False
