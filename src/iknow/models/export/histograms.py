"""scikit-learn's gradient boosting on histograms.

Its trees compare in double precision. Categories come first, as their positions among those that
were seen; a split sends a set of them to the left, and one that was never seen is missing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.models.export.categories import split_by_sets
from iknow.models.export.columns import select
from iknow.models.export.encoders import encode_ordinal
from iknow.models.export.gradients import chances_of
from iknow.models.export.onnx.answers import answer_of_decision
from iknow.models.export.onnx.builder import Tensor
from iknow.models.export.onnx.inputs import as_numbers
from iknow.models.export.onnx.trees import NO_CHILD, Tree, add_up_by_class, find_leaves
from iknow.models.export.parts import Answer, Part

BITS = 32  # of each number that holds a part of a set


def read_histograms(part: Part) -> Answer:
    """A HistGradientBoostingClassifier."""
    b, boosted = part.b, part.estimator
    rounds = boosted._predictors
    predictors = [predictor for each in rounds for predictor in each]
    x, trees = _entering(part), [_as_tree(each.nodes) for each in predictors]
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
