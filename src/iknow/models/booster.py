"""Boosters: trained models of xgboost, lightgbm and catboost themselves, read as classifiers are.

Such a model is not one of scikit-learn's, but says the same: probabilities, and leaves. A `Booster`
puts it behind scikit-learn's interface, and `SklearnModel` reads that. Its classes are the numbers
of its columns unless it knows better, as catboost does; `EpistemicClassifier(classes=...)` names
them. If training stopped early the best iteration answers, as in `XGBClassifier`.

lightgbm goes by the position of columns, so we compare their names. catboost finds them by name in
any order, but distances between inputs need one order: that of its training.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from iknow.core.arrays import Floats, Labels
from iknow.errors import InputError
from iknow.models.adapt import has_base

CONTAINERS = ("DMatrix", "QuantileDMatrix", "Dataset", "Pool")
"""Classes in which the packages keep data to train with; their rows cannot be taken again."""

ERRORS = ("XGBoostError", "LightGBMError", "CatBoostError")
"""What the packages raise about data, by name; not all are ValueErrors."""

XGBOOST = ("binary:logistic", "binary:logitraw", "multi:softmax", "multi:softprob")
LIGHTGBM = ("binary", "multiclass", "multiclassova")
"""The objectives of classifiers."""


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


class XgboostBooster(Booster):
    """A trained `xgboost.Booster`."""

    def __init__(self, model: Any) -> None:
        import xgboost

        try:
            learner = json.loads(model.save_config())["learner"]
        except xgboost.core.XGBoostError as error:
            raise InputError("the Booster is not trained: train it first, or load one") from error
        objective = learner["objective"]["name"]
        if objective not in XGBOOST:
            raise no_classifier("xgboost", objective)
        n_classes = max(2, int(learner["learner_model_param"]["num_class"]))
        self.model, self.classes_ = model, np.arange(n_classes)
        self.feature_names = model.feature_names
        self.has_leaves = learner["gradient_booster"]["name"] != "gblinear"

    def predict_proba(self, inputs: Any) -> Floats:
        # With multi:softmax a booster returns labels alone: probabilities come from the margins.
        margins = np.asarray(self._ask(inputs, output_margin=True), dtype=np.float64)
        return two_columns(expit(margins) if margins.ndim == 1 else softmax(margins, axis=1))

    def find_leaves(self, inputs: Any) -> NDArray[Any]:
        return np.asarray(self._ask(inputs, pred_leaf=True))

    def _ask(self, inputs: Any, **wanted: bool) -> Any:
        import xgboost

        stopped = self.model.attr("best_iteration")
        rounds = (0, 0) if stopped is None or not self.has_leaves else (0, int(stopped) + 1)
        data = xgboost.DMatrix(inputs, enable_categorical=True)
        return self.model.predict(data, iteration_range=rounds, **wanted)


class LightgbmBooster(Booster):
    """A trained `lightgbm.Booster`."""

    def __init__(self, model: Any) -> None:
        described = str(model.dump_model(num_iteration=1).get("objective", "your own function"))
        if described.split(" ")[0] not in LIGHTGBM:
            raise no_classifier("lightgbm", described)
        self.model, self.classes_ = model, np.arange(max(2, model.num_model_per_iteration()))
        self.feature_names = model.feature_name()

    def predict_proba(self, inputs: Any) -> Floats:
        return two_columns(self.model.predict(inputs))

    def find_leaves(self, inputs: Any) -> NDArray[Any]:
        return np.asarray(self.model.predict(inputs, pred_leaf=True))


class CatboostBooster(Booster):
    """A trained `catboost.CatBoost`."""

    def __init__(self, model: Any) -> None:
        if not model.is_fitted():
            raise InputError("the CatBoost model is not trained: train it first, or load one")
        labels = np.asarray(model.classes_)
        if labels.ndim != 1 or len(labels) < 2:
            raise no_classifier("catboost", model.get_all_params().get("loss_function"))
        self.model, self.classes_ = model, labels
        self.feature_names = model.feature_names_

    def predict_proba(self, inputs: Any) -> Floats:
        return two_columns(self.model.predict(inputs, prediction_type="Probability"))

    def find_leaves(self, inputs: Any) -> NDArray[Any]:
        return np.asarray(self.model.calc_leaf_indexes(inputs))


def as_classifier(model: Any) -> Booster:
    """A trained model of one of the packages, with scikit-learn's interface."""
    if has_base(model, "Booster", "xgboost"):
        return XgboostBooster(model)
    return (
        LightgbmBooster(model) if has_base(model, "Booster", "lightgbm") else CatboostBooster(model)
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
