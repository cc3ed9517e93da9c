"""scikit-learn's trees: forests, and gradient boosting with and without histograms.

Features of forests are single precision, thresholds double. A
leaf holds the share of each class; a forest takes the mean over its trees. We add up first and
divide then, as scikit-learn does, so that forests whose leaves are pure come to the same ties.

Of gradient boosting the trees add up to raw predictions, of which the loss makes
probabilities. Of two classes there is one column, whose sign is the answer; 0 is the second class,
other than on histograms.

On histograms the trees compare in double precision. Categories
come first, as their positions among those that were seen; a split sends a set of them to the left,
and one that was never seen is missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from iknow.core.arrays import Floats
from iknow.errors import ExportError
from iknow.metrics.metric import LEAVES
from iknow.models.export.categories import split_by_sets
from iknow.models.export.columns import select
from iknow.models.export.encoders import encode_ordinal
from iknow.models.export.onnx.answers import answer_of_decision, both_columns, is_above, sigmoid
from iknow.models.export.onnx.builder import Builder, Tensor
from iknow.models.export.onnx.inputs import as_numbers
from iknow.models.export.onnx.trees import (
    NO_CHILD,
    Tree,
    add_up,
    add_up_by_class,
    find_leaves,
    leaf_numbers,
    round_down,
)
from iknow.models.export.parts import Answer, Part


def read_tree(part: Part) -> Answer:
    """A single tree."""
    return _mean_of_trees(part, [part.estimator])


def read_forest(part: Part) -> Answer:
    """A forest: the mean of its trees."""
    return _mean_of_trees(part, part.estimator.estimators_)


def _mean_of_trees(part: Part, members: Sequence[Any]) -> Answer:
    trees = [as_tree(member.tree_) for member in members]
    found = find_in_single(part.b, trees, as_numbers(part.b, part.value))
    shares = np.concatenate(
        [shares_of(m)[tree.leaves] for m, tree in zip(members, trees, strict=True)]
    )
    chances = add_up(part.b, found, shares)
    if len(members) > 1:
        chances = part.b.op("Div", chances, np.array(float(len(members))))
    return Answer(chances, layers={LEAVES: leaf_numbers(part.b, found, trees)})


def as_tree(tree: Any, columns: Any = None) -> Tree:
    """One of scikit-learn's trees; columns: which of the table's it sees, None for all."""
    feature = np.maximum(tree.feature, 0)
    return Tree(
        feature if columns is None else np.asarray(columns)[feature],
        round_down(tree.threshold),
        tree.children_left,
        tree.children_right,
        tree.missing_go_to_left.astype(bool),
        np.arange(tree.node_count),
    )


def shares_of(member: Any) -> Floats:
    """The share of each class in each node of a tree, of shape (n_nodes, n_classes)."""
    shares: Floats = member.tree_.value[:, 0, :]
    return shares


def find_in_single(b: Builder, trees: Sequence[Tree], x: Tensor) -> Tensor:
    """The leaves that scikit-learn finds."""
    return find_leaves(b, trees, b.cast(x, "float32"), "BRANCH_LEQ")


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
    return Answer(chances_of(b, boosted.loss, raw), raw, belief, layers)


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


def chances_of(b: Builder, loss: str, raw: Tensor) -> Tensor:
    """The probabilities that a loss makes of raw predictions, of shape (n, n_classes)."""
    if raw.width != 1:
        return b.op("Softmax", raw, axis=1)
    if loss == "exponential":
        raw = b.op("Mul", raw, np.array(2.0))
    return both_columns(b, sigmoid(b, raw))


BITS = 32  # of each number that holds a part of a set


def read_histograms(part: Part) -> Answer:
    """A HistGradientBoostingClassifier."""
    b, boosted = part.b, part.estimator
    rounds = boosted._predictors
    predictors = [predictor for each in rounds for predictor in each]
    x, trees = _entering(part), [_as_binned_tree(each.nodes) for each in predictors]
    x, trees = split_by_sets(b, x, trees, [_sets(part, each) for each in predictors])
    found = find_leaves(b, trees, x, "BRANCH_LEQ")
    held = [p.nodes["value"][t.leaves] for p, t in zip(predictors, trees, strict=True)]
    owners = [k for each in rounds for k in range(len(each))]
    total = add_up_by_class(b, found, np.concatenate(held), owners)
    raw = b.op("Add", total, np.asarray(boosted._baseline_prediction, np.float64).reshape(1, -1))
    return Answer(chances_of(b, boosted.loss, raw), raw, answer_of_decision(b, raw))


def _entering(part: Part) -> Tensor:
    """What the trees see."""
    boosted = part.estimator
    if boosted._preprocessor is None:
        return as_numbers(part.b, part.value)
    is_category = np.asarray(boosted.is_categorical_)
    categories = select(part, np.flatnonzero(is_category))
    encoder = boosted._preprocessor.named_transformers_["encoder"]
    found = [encode_ordinal(categories.of(encoder))]
    if not is_category.all():
        found.append(as_numbers(part.b, select(part, np.flatnonzero(~is_category)).value))
    return part.b.concat(found)


def _as_binned_tree(nodes: Any) -> Tree:
    is_leaf = nodes["is_leaf"].astype(bool)
    return Tree(
        nodes["feature_idx"],
        nodes["num_threshold"],
        np.where(is_leaf, NO_CHILD, nodes["left"].astype(np.int64)),
        np.where(is_leaf, NO_CHILD, nodes["right"].astype(np.int64)),
        nodes["missing_go_to_left"].astype(bool),
        np.arange(len(nodes)),
    )


def _sets(part: Part, predictor: Any) -> dict[int, tuple[int, ...]]:
    """The categories that go to the right, by node."""
    nodes = predictor.nodes
    found = {}
    for i in np.flatnonzero((nodes["is_categorical"] == 1) & (nodes["is_leaf"] == 0)):
        bitset = predictor.raw_left_cat_bitsets[nodes["bitset_idx"][i]]
        encoder = part.estimator._preprocessor.named_transformers_["encoder"]
        n = len(encoder.categories_[nodes["feature_idx"][i]])
        found[int(i)] = tuple(c for c in range(n) if not bitset[c // BITS] >> (c % BITS) & 1)
    return found
