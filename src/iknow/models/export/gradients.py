"""scikit-learn's gradient boosting, with its trees on all values or on histograms.

The trees add up to raw predictions, of which the loss makes probabilities. Of two classes there is
one column, whose sign is the answer; at exactly 0 the two kinds disagree about it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.core.arrays import Floats
from iknow.errors import ExportError
from iknow.geometry.hamming import LEAVES
from iknow.models.export.forests import as_tree, find_in_single
from iknow.models.export.onnx.answers import answer_of_decision, both_columns, is_above, sigmoid
from iknow.models.export.onnx.builder import Builder, Tensor
from iknow.models.export.onnx.inputs import as_numbers
from iknow.models.export.onnx.trees import (
    NO_CHILD,
    Tree,
    add_up_by_class,
    find_leaves,
    leaf_numbers,
)
from iknow.models.export.parts import Answer, Part

LEAST = np.nextafter(0.0, -1.0)


def read_gradient_boosting(part: Part) -> Answer:
    """A GradientBoostingClassifier."""
    b, boosted = part.b, part.estimator
    members = boosted.estimators_
    trees = [as_tree(member.tree_) for member in members.ravel()]
    found = find_in_single(b, trees, as_numbers(b, part.value))
    held = np.concatenate(
        [m.tree_.value[t.leaves, 0, 0] for m, t in zip(members.ravel(), trees, strict=True)]
    )
    owners = [k for _ in range(len(members)) for k in range(members.shape[1])]
    total = add_up_by_class(b, found, boosted.learning_rate * held, owners)
    raw = b.op("Add", total, _start(part))
    # 0 is the second class here; the numbers above the largest negative one are 0 and more.
    belief = is_above(b, raw, LEAST) if raw.width == 1 else answer_of_decision(b, raw)
    layers = {LEAVES: leaf_numbers(b, found, trees)}
    return Answer(_chances(b, boosted.loss, raw), raw, belief, layers)


def read_histograms(part: Part) -> Answer:
    """A HistGradientBoostingClassifier of numbers; categories have another kind of split."""
    b, boosted = part.b, part.estimator
    if boosted.is_categorical_ is not None:
        raise ExportError(
            "a HistGradientBoostingClassifier with categorical features cannot become ONNX: encode "
            "them in a step before it (OneHotEncoder), and set categorical_features=None"
        )
    rounds = boosted._predictors
    nodes = [predictor.nodes for each in rounds for predictor in each]
    trees = [_as_tree(each) for each in nodes]
    found = find_leaves(b, trees, as_numbers(b, part.value), "BRANCH_LEQ")
    held = np.concatenate([n["value"][t.leaves] for n, t in zip(nodes, trees, strict=True)])
    owners = [k for each in rounds for k in range(len(each))]
    total = add_up_by_class(b, found, held, owners)
    raw = b.op("Add", total, np.asarray(boosted._baseline_prediction, np.float64).reshape(1, -1))
    return Answer(_chances(b, boosted.loss, raw), raw, answer_of_decision(b, raw))


def _as_tree(nodes: Any) -> Tree:
    is_leaf = nodes["is_leaf"].astype(bool)
    return Tree(
        nodes["feature_idx"],
        nodes["num_threshold"],
        np.where(is_leaf, NO_CHILD, nodes["left"].astype(np.int64)),
        np.where(is_leaf, NO_CHILD, nodes["right"].astype(np.int64)),
        nodes["missing_go_to_left"].astype(bool),
        np.arange(len(nodes)),
    )


def _start(part: Part) -> Floats:
    """The raw prediction before the first tree, of shape (1, n_columns)."""
    rows: Floats = np.asarray(part.estimator._raw_predict_init(part.sample), np.float64)
    known = type(part.estimator.init_).__name__ in ("DummyClassifier", "str")
    if not known:
        raise ExportError(
            f"gradient boosting that starts from {type(part.estimator.init_).__name__} cannot "
            "become ONNX: train it without init="
        )
    return rows[:1]


def _chances(b: Builder, loss: str, raw: Tensor) -> Tensor:
    if raw.width != 1:
        return b.op("Softmax", raw, axis=1)
    if loss == "exponential":
        raw = b.op("Mul", raw, np.array(2.0))
    return both_columns(b, sigmoid(b, raw))
