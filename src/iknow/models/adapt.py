"""Finding the adapter for whatever model the user already has."""

from __future__ import annotations

from typing import Any

from sklearn.frozen import FrozenEstimator

from iknow.core.text import shown
from iknow.errors import InputError
from iknow.locking import unforked
from iknow.models.model import Model


def as_model(model: Any) -> Model:
    """The adapter for a torch module, a fitted scikit-learn classifier, or a `Model` as it is."""
    if is_torch_module(model):
        with unforked():
            # Imported here because only a user of torch should pay for loading it.
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
    """Whether a model is a torch.nn.Module, found out without importing torch."""
    return any(
        base.__module__ == "torch.nn.modules.module" and base.__name__ == "Module"
        for base in type(model).__mro__
    )


def is_estimator(model: Any) -> bool:
    """Whether a model is a scikit-learn classifier, as an instance."""
    return (
        not isinstance(model, type) and hasattr(model, "predict") and hasattr(model, "get_params")
    )


def is_to_be_trained(model: Any) -> bool:
    """Whether a model is a scikit-learn classifier that `fit` trains: it is not frozen."""
    return is_estimator(model) and not isinstance(model, FrozenEstimator)
