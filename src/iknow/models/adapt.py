"""Find the adapter for the model the user already has."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator

from iknow.core.text import shown
from iknow.errors import InputError
from iknow.locking import unforked
from iknow.models.inputs import as_dense, own_copy, take_rows
from iknow.models.model import Model


def as_model(model: Any) -> Model:
    """The adapter for a torch module or a fitted scikit-learn classifier; a `Model` as it is."""
    if is_torch_module(model):
        with unforked():  # only users of torch load it
            from iknow.models.torch import TorchModel

        return TorchModel(model)
    if isinstance(model, Model) and not isinstance(model, type):
        return model
    if is_estimator(model):
        from iknow.models.sklearn import SklearnModel

        return SklearnModel(model)
    if hasattr(model, "observe") and not isinstance(model, type):
        raise InputError(
            f"{type(model).__name__} has a method observe but is no Model: let it inherit from "
            "iknow.models.Model, which fills in the rest"
        )
    raise InputError(
        "a model must be a torch.nn.Module, a scikit-learn classifier or an iknow Model "
        "(iknow.models.PrecomputedModel takes the outputs of any other framework); "
        f"got {shown(model)} of type {type(model).__name__}"
    )


def is_torch_module(model: Any) -> bool:
    """Whether a model is a torch.nn.Module, without importing torch."""
    return any(
        base.__module__ == "torch.nn.modules.module" and base.__name__ == "Module"
        for base in type(model).__mro__
    )


def is_estimator(model: Any) -> bool:
    """Whether a model is an instance of a scikit-learn classifier."""
    is_instance = not isinstance(model, type)
    return is_instance and hasattr(model, "predict") and hasattr(model, "get_params")


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
