"""Leaves: in which leaf each tree of a classifier puts a sample.

A tree gives all samples in a leaf the same answer, so two samples that share the leaves of most
trees are alike to the model, however far apart their features are: a feature that no tree asks for
does not count, and one that many ask for counts often. The distance is the number of trees that
tell two samples apart (`iknow.metrics.Hamming`). Beyond the training data all samples fall into
the outermost leaves, so leaves alone cannot see how far away a sample is.

The leaves are those that answer: boosting that stopped early uses its best iteration, and one with
trees for each class gives a column for every one of them. Categories and missing values go the way
that the model learned for them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.errors import LayerError
from iknow.metrics.metric import LEAVES
from iknow.models.adapt import has_base
from iknow.models.booster import Booster
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


def has_leaves(classifier: Any) -> bool:
    """Whether a fitted classifier consists of trees whose leaves can be found."""
    if isinstance(classifier, Booster):
        return classifier.has_leaves
    if has_base(classifier, "XGBModel", "xgboost"):
        return getattr(classifier, "booster", None) != "gblinear"
    known = (*APPLIED, ("LGBMModel", "lightgbm"), ("CatBoost", "catboost"))
    return any(has_base(classifier, *names) for names in known) or bool(_members(classifier))


def find_leaves(classifier: Any, inputs: Any) -> NDArray[Any]:
    """The numbers of the leaves of n inputs, of shape (n, n_trees)."""
    if members := _members(classifier):
        found = np.column_stack([_members_leaves(*member, inputs) for member in members])
    elif isinstance(classifier, Booster):
        found = classifier.find_leaves(inputs)
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
    if not (has_base(classifier, "BaseBagging", "sklearn") or _is_boosted(classifier)):
        return []
    trees = list(classifier.estimators_)
    if not all(has_base(tree, "BaseDecisionTree", "sklearn") for tree in trees):
        return []
    return list(
        zip(trees, getattr(classifier, "estimators_features_", [None] * len(trees)), strict=True)
    )


def _is_boosted(classifier: Any) -> bool:
    return has_base(classifier, "BaseWeightBoosting", "sklearn")


def _members_leaves(tree: Any, columns: Any, inputs: Any) -> NDArray[Any]:
    values = inputs if is_sparse(inputs) else np.asarray(inputs)
    return np.asarray(tree.apply(values if columns is None else values[:, columns]))
