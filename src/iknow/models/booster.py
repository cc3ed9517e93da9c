"""Boosters: trained models of xgboost, lightgbm and catboost themselves, read as classifiers are.

Such a model is not one of scikit-learn's, but says the same: probabilities, and leaves. A `Booster`
puts it behind scikit-learn's interface, and `SklearnModel` reads that. Its classes are the numbers
of its columns unless it knows better; `EpistemicClassifier(classes=...)` names them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Floats, Labels
from iknow.errors import InputError
from iknow.models.adapt import has_base

CONTAINERS = ("DMatrix", "QuantileDMatrix", "Dataset", "Pool")
"""Classes in which the packages keep data to train with; their rows cannot be taken again."""


ERRORS = ("XGBoostError", "LightGBMError", "CatBoostError")
"""What the packages raise about data, by name; not all are ValueErrors."""


def is_refusal(error: Exception) -> bool:
    """Whether an error says that a classifier does not take its inputs.

    A missing text has no method `lower`: that is an AttributeError.
    """
    known = isinstance(error, (ValueError, TypeError, ArithmeticError, AttributeError))
    return known or any(kind.__name__ in ERRORS for kind in type(error).__mro__)


class Booster(ABC):
    """A trained model with scikit-learn's interface."""

    model: Any
    classes_: Labels
    has_leaves: bool = True
    feature_names: Sequence[str] | None = None

    @abstractmethod
    def predict_proba(self, inputs: Any) -> Floats:
        """Return probabilities of shape (n, n_classes)."""

    @abstractmethod
    def find_leaves(self, inputs: Any) -> NDArray[Any]:
        """Return the numbers of leaves, of shape (n, n_trees)."""

    def predict(self, inputs: Any) -> Labels:
        labels: Labels = self.classes_[self.predict_proba(inputs).argmax(axis=1)]
        return labels


def two_columns(chances: Any) -> Floats:
    """Probabilities of shape (n, n_classes), also of two classes where only one is given."""
    given = np.asarray(chances, dtype=np.float64)
    return np.column_stack([1 - given, given]) if given.ndim == 1 else given


def no_classifier(package: str, objective: Any) -> InputError:
    """The error of a model that was trained for something else."""
    return InputError(
        f"this model of {package} is no classifier, or not of one label per sample: its objective "
        f"is {objective!r}"
    )


def check_names(inputs: Any, trained: Sequence[str] | None) -> None:
    """Refuse a data frame whose columns are not in the order in which a model was trained.

    Some packages go by position and would take one feature for another. trained: the names, if the
    model knows them.
    """
    if not hasattr(inputs, "columns") or not trained or _are_made_up(list(trained)):
        return
    # lightgbm writes underscores for spaces.
    found = [str(name).replace(" ", "_") for name in inputs.columns]
    wanted = [str(name).replace(" ", "_") for name in trained]
    if found != wanted:
        raise InputError(
            "the columns of X must be those that the model was trained with, in the same order: "
            f"expected {_some(wanted)}; got {_some(found)}. Select them by name, X[[...]]"
        )


def _are_made_up(names: list[str]) -> bool:
    """Whether a package named the columns of an array."""
    return any(names == [f"{stem}{i}" for i in range(len(names))] for stem in ("", "Column_"))


def _some(names: list[str]) -> str:
    return ", ".join(map(repr, names[:10])) + (", ..." if len(names) > 10 else "")


def check_boosted(classifier: Any, inputs: Any) -> None:
    """Refuse the packages' own containers of data, and columns that a model would mistake.

    classifier: what reads the inputs as they are, if nothing comes before it.
    """
    kind = type(inputs)
    package = kind.__module__.partition(".")[0]
    if kind.__name__ in CONTAINERS and package in ("xgboost", "lightgbm", "catboost"):
        raise InputError(
            f"X must be an array or a data frame; got a {kind.__name__} of {package}: pass the "
            "data that it was made of"
        )
    if isinstance(classifier, Booster):
        check_names(inputs, classifier.feature_names)
    elif has_base(classifier, "LGBMModel", "lightgbm"):  # other classifiers compare names
        check_names(inputs, classifier.feature_name_)
