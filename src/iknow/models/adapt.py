"""Find the adapter for the model the user already has.

Each kind of model is recognized by the names of its classes, so that no framework is imported for
users of another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator

from iknow.core.text import shown
from iknow.errors import InputError, MissingExtraError
from iknow.locking import unforked
from iknow.models.inputs import own_copy, take_rows
from iknow.models.model import Model
from iknow.models.numbers import as_dense

OPTIONS = ("pool", "scores", "embed")
"""How to read a model, as `EpistemicClassifier` takes it; see `as_model`."""


@dataclass(frozen=True)
class Kind:
    """A kind of model: what it is called in errors, how to recognize one, and its adapter.

    adapter: in `iknow.models`. takes: the names of the options that the adapter takes. extra: what
    to install for it.
    """

    name: str
    recognizes: Callable[[Any], bool]
    adapter: str
    takes: tuple[str, ...] = ()
    extra: str | None = None

    def adapt(self, model: Any, options: Mapping[str, Any]) -> Model:
        if refused := [name for name in OPTIONS if name in options and name not in self.takes]:
            raise InputError(f"{refused[0]}= says nothing about {self.name}: leave it out")
        module, _, name = self.adapter.partition(".")
        try:
            with unforked():  # only users of a framework load it
                adapter = getattr(import_module(f"iknow.models.{module}"), name)
        except ImportError as error:
            if self.extra is None:
                raise
            raise MissingExtraError(f"reading {self.name}", self.extra) from error
        chosen = {name: value for name, value in options.items() if name in self.takes}
        found: Model = adapter(model, **chosen)
        return found


def has_base(model: Any, name: str, *packages: str) -> bool:
    """Whether a class of this name from one of these packages is among the classes of a model."""
    return any(
        base.__name__ == name and base.__module__.partition(".")[0] in packages
        for base in type(model).__mro__
    )


def is_torch_module(model: Any) -> bool:
    return has_base(model, "Module", "torch")


def is_estimator(model: Any) -> bool:
    """Whether a model is an instance of a scikit-learn classifier."""
    is_instance = not isinstance(model, type) and not is_catboost(model)
    return is_instance and hasattr(model, "predict") and hasattr(model, "get_params")


def is_catboost(model: Any) -> bool:
    """Whether a model is catboost's own, which has methods like scikit-learn's but no labels."""
    own = has_base(model, "CatBoost", "catboost")
    return own and not has_base(model, "CatBoostClassifier", "catboost")


def is_onnx(model: Any) -> bool:
    """Whether a model is the path of an .onnx file, or such a file in memory."""
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model).lower().endswith(".onnx")
    return has_base(model, "ModelProto", "onnx")


def is_function(model: Any) -> bool:
    return callable(model) and not hasattr(model, "observe")


def _is_a(name: str, *packages: str) -> Callable[[Any], bool]:
    return lambda model: has_base(model, name, *packages)


READ = ("pool", "scores")
KINDS = (
    # A Keras model on torch is a torch module too.
    Kind("a Keras model", _is_a("Model", "keras"), "keras.KerasModel", READ, "keras"),
    Kind("a torch module", is_torch_module, "torch.TorchModel", READ, "torch"),
    Kind(
        "a torch.export program",
        _is_a("ExportedProgram", "torch"),
        "torch.GraphModel",
        READ,
        "torch",
    ),
    Kind("an ONNX model", is_onnx, "onnx.OnnxModel", (*READ, "device"), "onnx"),
    Kind("a booster", _is_a("Booster", "xgboost", "lightgbm"), "sklearn.read_booster"),
    Kind("a catboost model", is_catboost, "sklearn.read_booster"),
    Kind("a scikit-learn classifier", is_estimator, "sklearn.SklearnModel"),
    Kind("a function", is_function, "function.FunctionModel", ("embed",)),
)
"""All kinds, in the order in which they are tried."""


def as_model(model: Any, *, device: str | None = None, **options: Any) -> Model:
    """The adapter for the user's model; a `Model` as it is.

    Args:
        model: A model of any kind in `KINDS`.
        device: Where a model runs that can run anywhere.
        **options: Those of `OPTIONS` that were given, None for those that were not. pool: how to
            turn the activations of a layer into one vector per sample. scores: where a model's
            scores are. embed: a function of a batch that gives the activations of a plain function.

    Examples:
        >>> type(as_model(trained)).__name__
        'SklearnModel'
    """
    given = {name: value for name, value in options.items() if value is not None}
    if unknown := set(given) - set(OPTIONS):
        raise TypeError(f"as_model() got an unexpected keyword argument {unknown.pop()!r}")
    if isinstance(model, Model):
        if given:
            raise InputError(f"{next(iter(given))}= says nothing about a Model: it reads itself")
        return model
    is_instance = not isinstance(model, type)
    if kind := next((each for each in KINDS if is_instance and each.recognizes(model)), None):
        return kind.adapt(model, given if device is None else given | {"device": device})
    if is_instance and hasattr(model, "observe"):
        raise InputError(
            f"{type(model).__name__} has a method observe but is no Model: let it inherit from "
            "iknow.models.Model, which fills in the rest"
        )
    raise InputError(
        "a model must be a torch.nn.Module, a Keras model, a scikit-learn, xgboost, lightgbm or "
        "catboost classifier, the path of an .onnx file, a function that returns scores, or an "
        "iknow Model (iknow.models.PrecomputedModel takes the outputs of any other framework); "
        f"got {shown(model)} of type {type(model).__name__}"
    )


def is_to_be_trained(model: Any, inputs: Any) -> bool:
    """Whether `fit` trains a model: a scikit-learn classifier, neither frozen nor fitted.

    A fitted one knows its classes and answers the first input. Attributes alone do not tell: an
    earlier step of a pipeline may be unfitted, and some transformers learn nothing.
    """
    if not is_estimator(model) or isinstance(model, FrozenEstimator) or not hasattr(model, "fit"):
        return False
    labels = getattr(model, "classes_", None)
    if labels is None or np.size(labels) == 0:
        return True
    try:
        model.predict(own_copy(take_rows(as_dense(inputs), slice(0, 1))))
    except Exception as error:  # the adapter will report any other
        return isinstance(error, NotFittedError)
    return False
