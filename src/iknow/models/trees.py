"""Trees: classifiers made of them, their leaves, and trained models of the boosting packages.

A tree gives all samples in a leaf the same answer, so two samples that share the leaves of most
trees are alike to the model, however far apart their features are. The distance is the number of
trees that tell them apart (`iknow.metrics.Hamming`). Beyond the training data all samples fall into
the outermost leaves, so leaves alone cannot see how far away a sample is.

The leaves are those that answer: boosting that stopped early uses its best iteration, and one with
trees for each class gives a column for every one of them.

A `Booster` puts a trained model of xgboost, lightgbm or catboost itself behind scikit-learn's
interface. Its classes are the numbers of its columns unless it knows better, as catboost does.

lightgbm goes by the position of columns and could take one feature for another, so we compare their
names. catboost finds them by name in any order, but distances need one order: that of its training.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, softmax

from iknow.core.arrays import Floats, Labels
from iknow.core.text import names
from iknow.errors import InputError, LayerError
from iknow.metrics.metric import LEAVES
from iknow.models.adapt import has_base, is_catboost
from iknow.models.inputs import count_samples
from iknow.models.numbers import is_sparse

SINGLE = ("BaseDecisionTree", "BaseForest", "BaseGradientBoosting")
SEVERAL = ("BaseBagging", "BaseWeightBoosting")  # of any classifiers
MOST_LEAVES = 1 << 24  # activations are float32, which holds all integers up to here

CONTAINERS = ("DMatrix", "QuantileDMatrix", "Dataset", "Pool")
"""Classes in which the packages keep data to train with; their rows cannot be taken again."""
OBJECTIVES = {
    "xgboost": ("binary:logistic", "binary:logitraw", "multi:softmax", "multi:softprob"),
    "lightgbm": ("binary", "multiclass", "multiclassova"),
}
"""The objectives of classifiers."""


class Booster(ABC):
    """A trained model of a package itself, with scikit-learn's interface."""

    has_leaves = True

    def __init__(self, model: Any, classes: Labels, feature_names: Sequence[str] | None) -> None:
        self.model, self.classes_, self.feature_names = model, classes, feature_names

    @abstractmethod
    def ask(self, inputs: Any, *, leaves: bool) -> Any:
        """Return the numbers of leaves, of shape (n, n_trees), or else probabilities, of shape
        (n, n_classes), or (n,) for the second of two classes.
        """

    def predict_proba(self, inputs: Any) -> Floats:
        given = np.asarray(self.ask(inputs, leaves=False), dtype=np.float64)
        return np.column_stack([1 - given, given]) if given.ndim == 1 else given

    def predict(self, inputs: Any) -> Labels:
        labels: Labels = self.classes_[self.predict_proba(inputs).argmax(axis=1)]
        return labels


class XgboostBooster(Booster):
    def __init__(self, model: Any) -> None:
        import xgboost

        try:
            learner = json.loads(model.save_config())["learner"]
        except xgboost.core.XGBoostError as error:
            raise InputError("the Booster is not trained: train it first, or load one") from error
        _check_objective("xgboost", learner["objective"]["name"])
        n_classes = max(2, int(learner["learner_model_param"]["num_class"]))
        super().__init__(model, np.arange(n_classes), model.feature_names)
        self.has_leaves = learner["gradient_booster"]["name"] != "gblinear"

    def ask(self, inputs: Any, *, leaves: bool) -> Any:
        import xgboost

        stopped = self.model.attr("best_iteration")
        rounds = (0, 0) if stopped is None or not self.has_leaves else (0, int(stopped) + 1)
        data = xgboost.DMatrix(inputs, enable_categorical=True)
        if leaves:
            return self.model.predict(data, iteration_range=rounds, pred_leaf=True)
        # With multi:softmax a booster returns labels alone: probabilities come from the margins.
        margins = self.model.predict(data, iteration_range=rounds, output_margin=True)
        exact = np.asarray(margins, dtype=np.float64)
        return expit(exact) if exact.ndim == 1 else softmax(exact, axis=1)


class LightgbmBooster(Booster):
    def __init__(self, model: Any) -> None:
        objective = str(model.dump_model(num_iteration=1).get("objective", "your own function"))
        _check_objective("lightgbm", objective)
        n_classes = max(2, model.num_model_per_iteration())
        super().__init__(model, np.arange(n_classes), model.feature_name())

    def ask(self, inputs: Any, *, leaves: bool) -> Any:
        return self.model.predict(inputs, pred_leaf=leaves)


class CatboostBooster(Booster):
    def __init__(self, model: Any) -> None:
        if not model.is_fitted():
            raise InputError("the CatBoost model is not trained: train it first, or load one")
        labels = np.asarray(model.classes_)
        if labels.ndim != 1 or len(labels) < 2:
            _check_objective("catboost", model.get_all_params().get("loss_function"))
        super().__init__(model, labels, model.feature_names_)

    def ask(self, inputs: Any, *, leaves: bool) -> Any:
        if leaves:
            return self.model.calc_leaf_indexes(inputs)
        return self.model.predict(inputs, prediction_type="Probability")


def as_classifier(model: Any) -> Any:
    """A trained model of a package itself behind scikit-learn's interface; others as they are."""
    if has_base(model, "Booster", "xgboost"):
        return XgboostBooster(model)
    if has_base(model, "Booster", "lightgbm"):
        return LightgbmBooster(model)
    return CatboostBooster(model) if is_catboost(model) else model


def _check_objective(package: str, objective: Any) -> None:
    """Refuse a model whose objective is none of a classifier's."""
    if str(objective).split(" ")[0] not in OBJECTIVES.get(package, ()):
        raise InputError(
            f"this model of {package} is no classifier, or not of one label per sample: its "
            f"objective is {objective!r}"
        )


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
    trained = classifier.feature_names if isinstance(classifier, Booster) else None
    if has_base(classifier, "LGBMModel", "lightgbm"):  # it goes by position; others compare names
        trained = classifier.feature_name_
    if not hasattr(inputs, "columns") or not trained:
        return
    made_up = [[f"{stem}{i}" for i in range(len(trained))] for stem in ("", "Column_")]
    # lightgbm writes underscores for spaces.
    found, wanted = ([str(name).replace(" ", "_") for name in x] for x in (inputs.columns, trained))
    if list(trained) not in made_up and found != wanted:
        raise InputError(
            "the columns of X must be those that the model was trained with, in the same order: "
            f"expected {names(wanted)}; got {names(found)}. Select them by name, X[[...]]"
        )


def has_leaves(classifier: Any) -> bool:
    """Whether a fitted classifier consists of trees whose leaves can be found."""
    return _leaf_finder(classifier) is not None


def find_leaves(classifier: Any, inputs: Any) -> NDArray[Any]:
    """The numbers of the leaves of n inputs, of shape (n, n_trees), if there are any."""
    find = _leaf_finder(classifier)
    assert find is not None
    return as_leaves(find(inputs), count_samples(inputs))


def _leaf_finder(classifier: Any) -> Callable[[Any], Any] | None:
    """What gives the leaves of inputs; None if a fitted classifier has none."""
    find: Callable[[Any], Any] | None = None
    if isinstance(classifier, Booster):
        find = partial(classifier.ask, leaves=True) if classifier.has_leaves else None
    elif has_base(classifier, "LGBMModel", "lightgbm"):
        find = partial(classifier.predict, pred_leaf=True)
    elif has_base(classifier, "CatBoost", "catboost"):
        find = classifier.calc_leaf_indexes
    elif has_base(classifier, "XGBModel", "xgboost"):
        find = None if classifier.booster == "gblinear" else classifier.apply
    elif any(has_base(classifier, name, "sklearn") for name in SINGLE):
        find = classifier.apply
    elif any(has_base(classifier, name, "sklearn") for name in SEVERAL):
        trees = list(classifier.estimators_)
        columns = getattr(classifier, "estimators_features_", [slice(None)] * len(trees))

        def apply_all(inputs: Any) -> Any:
            values = inputs if is_sparse(inputs) else np.asarray(inputs)
            pairs = zip(trees, columns, strict=True)
            return np.column_stack([tree.apply(values[:, seen]) for tree, seen in pairs])

        if trees and all(has_base(tree, "BaseDecisionTree", "sklearn") for tree in trees):
            find = apply_all
    return find


def as_leaves(found: Any, n_samples: int) -> NDArray[Any]:
    """The numbers of leaves as a library returns them, in a column for each tree."""
    leaves = np.asarray(found).reshape(n_samples, -1)  # boosting may have an axis for the classes
    if not leaves.shape[1]:
        raise LayerError(f"the model has no trees, so no layer {LEAVES!r}: choose another")
    if not (leaves < MOST_LEAVES).all():
        raise LayerError(
            f"a tree has leaves numbered up to {int(leaves.max())}; the layer {LEAVES!r} holds "
            "numbers below 2**24: choose another layer"
        )
    return leaves
