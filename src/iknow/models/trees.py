"""Trees: classifiers made of them, their leaves, and trained models of the boosting packages.

A tree gives all samples in a leaf the same answer, so two samples that share the leaves of most
trees are alike to the model, however far apart their features are: a feature that no tree asks for
does not count, and one that many ask for counts often. The distance is the number of trees that
tell two samples apart (`iknow.metrics.Hamming`). Beyond the training data all samples fall into
the outermost leaves, so leaves alone cannot see how far away a sample is.

The leaves are those that answer: boosting that stopped early uses its best iteration, and one with
trees for each class gives a column for every one of them. Categories and missing values go the way
that the model learned for them.

A trained model of xgboost, lightgbm or catboost itself is not one of scikit-learn's, but says the
same: probabilities, and leaves. A `Booster` puts it behind scikit-learn's interface. Its classes
are the numbers of its columns unless it knows better, as catboost does;
`EpistemicClassifier(classes=...)` names them.

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
from iknow.core.text import names
from iknow.errors import InputError, LayerError
from iknow.metrics.metric import LEAVES
from iknow.models.adapt import has_base
from iknow.models.inputs import count_samples
from iknow.models.numbers import is_sparse

MOST_LEAVES = 1 << 24  # activations are float32, which holds all integers up to here

APPLIED = (
    ("BaseDecisionTree", "sklearn"),
    ("BaseForest", "sklearn"),
    ("BaseGradientBoosting", "sklearn"),
    ("XGBModel", "xgboost"),
)
"""Classes whose method `apply` returns leaves, with their packages."""

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
        """Return the numbers of leaves, of shape (n, n_trees), or else probabilities.

        Probabilities are of shape (n, n_classes), or (n,) for the second of two classes.
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
        described = str(model.dump_model(num_iteration=1).get("objective", "your own function"))
        _check_objective("lightgbm", described)
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
            raise _no_classifier("catboost", model.get_all_params().get("loss_function"))
        super().__init__(model, labels, model.feature_names_)

    def ask(self, inputs: Any, *, leaves: bool) -> Any:
        if leaves:
            return self.model.calc_leaf_indexes(inputs)
        return self.model.predict(inputs, prediction_type="Probability")


def as_booster(model: Any) -> Booster:
    """A trained model of one of the packages, with scikit-learn's interface."""
    if has_base(model, "Booster", "xgboost"):
        return XgboostBooster(model)
    is_lightgbm = has_base(model, "Booster", "lightgbm")
    return LightgbmBooster(model) if is_lightgbm else CatboostBooster(model)


def _check_objective(package: str, described: str) -> None:
    if described.split(" ")[0] not in OBJECTIVES[package]:
        raise _no_classifier(package, described)


def _no_classifier(package: str, objective: Any) -> InputError:
    return InputError(
        f"this model of {package} is no classifier, or not of one label per sample: its objective "
        f"is {objective!r}"
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
    if isinstance(classifier, Booster):
        _check_names(inputs, classifier.feature_names)
    elif has_base(classifier, "LGBMModel", "lightgbm"):  # other classifiers compare names
        _check_names(inputs, classifier.feature_name_)


def _check_names(inputs: Any, trained: Sequence[str] | None) -> None:
    """Refuse a data frame whose columns are not in the order in which a model was trained.

    Some packages go by position and would take one feature for another. trained: the names, if the
    model knows them.
    """
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
    if isinstance(classifier, Booster):
        return classifier.has_leaves
    if has_base(classifier, "XGBModel", "xgboost"):
        return getattr(classifier, "booster", None) != "gblinear"
    known = (*APPLIED, ("LGBMModel", "lightgbm"), ("CatBoost", "catboost"))
    return any(has_base(classifier, *each) for each in known) or bool(_members(classifier))


def find_leaves(classifier: Any, inputs: Any) -> NDArray[Any]:
    """The numbers of the leaves of n inputs, of shape (n, n_trees)."""
    if members := _members(classifier):
        values = inputs if is_sparse(inputs) else np.asarray(inputs)
        parts = [tree.apply(values if seen is None else values[:, seen]) for tree, seen in members]
        found = np.column_stack(parts)
    elif isinstance(classifier, Booster):
        found = classifier.ask(inputs, leaves=True)
    elif has_base(classifier, "LGBMModel", "lightgbm"):
        found = classifier.predict(inputs, pred_leaf=True)
    elif has_base(classifier, "CatBoost", "catboost"):
        found = classifier.calc_leaf_indexes(inputs)
    else:
        found = classifier.apply(inputs)
    return as_leaves(found, count_samples(inputs))


def as_leaves(found: Any, n_samples: int) -> NDArray[Any]:
    """The numbers of leaves as a library returns them, in a column for each tree."""
    leaves = np.asarray(found).reshape(n_samples, -1)  # boosting may have an axis for the classes
    if not leaves.shape[1]:
        raise LayerError(f"the model has no trees, so no layer {LEAVES!r}: choose another")
    if not (leaves < MOST_LEAVES).all():
        raise LayerError(
            f"a tree has leaves numbered up to {int(leaves.max())}; the layer {LEAVES!r} holds "
            f"numbers below 2**24: choose another layer"
        )
    return leaves


def _members(classifier: Any) -> list[tuple[Any, Any]]:
    """The trees of bagging or AdaBoost, each with the columns it sees, or None for all of them."""
    bases = ("BaseBagging", "BaseWeightBoosting")
    if not any(has_base(classifier, name, "sklearn") for name in bases):
        return []
    trees = list(classifier.estimators_)
    if not all(has_base(tree, "BaseDecisionTree", "sklearn") for tree in trees):
        return []
    seen = getattr(classifier, "estimators_features_", [None] * len(trees))
    return list(zip(trees, seen, strict=True))
