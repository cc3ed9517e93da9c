"""catboost's symmetric trees, from its own ONNX and the values of its leaves.

All nodes on one level of such a tree ask the same question, x > t in single precision. So a tree of
depth d has 2**d leaves, and the answers, from the root down, are the bits of the leaf's number. Its
own ONNX holds the questions, but rounds what is in the leaves to single precision.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from catboost.utils import convert_to_onnx_object

from iknow.errors import ExportError
from iknow.metrics.metric import LEAVES
from iknow.models.export.onnx.answers import both_columns, sigmoid
from iknow.models.export.onnx.builder import attributes_of
from iknow.models.export.onnx.inputs import as_numbers
from iknow.models.export.onnx.trees import NO_CHILD, Tree, add_up, find_leaves, leaf_numbers
from iknow.models.export.parts import Answer, Part

BINARY, SOFTMAX, APART = ("Logloss", "CrossEntropy"), ("MultiClass",), ("MultiClassOneVsAll",)
"""Losses by what they make of the sums."""


def read_classifier(part: Part) -> Answer:
    """A CatBoostClassifier."""
    return _read(part, part.estimator)


def read_booster(part: Part) -> Answer:
    """Catboost's own CatBoost."""
    return _read(part, part.estimator.model)


def _read(part: Part, model: Any) -> Answer:
    b, loss = part.b, _loss(model)
    trees = _find_trees(model)
    found = find_leaves(b, trees, b.cast(as_numbers(b, part.value), "float32"), "BRANCH_LEQ")
    counts = np.asarray(model.get_tree_leaf_counts())
    values = np.asarray(model.get_leaf_values(), np.float64).reshape(int(counts.sum()), -1)
    scale, bias = model.get_scale_and_bias()
    total = b.op("Mul", add_up(b, found, values), np.array(float(scale)))
    margin = b.op("Add", total, np.atleast_2d(np.asarray(bias, np.float64)))
    layers = {LEAVES: leaf_numbers(b, found, trees)}
    if loss in SOFTMAX:
        return Answer(b.op("Softmax", margin, axis=1), layers=layers)
    chances = sigmoid(b, margin)
    return Answer(chances if loss in APART else both_columns(b, chances), layers=layers)


def _loss(model: Any) -> str:
    loss = str(model.get_all_params().get("loss_function", ""))
    if loss.partition(":")[0] not in (*BINARY, *SOFTMAX, *APART):
        raise ExportError(f"catboost with loss_function={loss!r} cannot become ONNX")
    threshold = model.get_probability_threshold() if loss in BINARY else 0.5
    if threshold not in (None, 0.5):
        raise ExportError(
            f"catboost with a probability threshold of {threshold} cannot become ONNX: set it back "
            "by set_probability_threshold(0.5)"
        )
    return loss.partition(":")[0]


def _find_trees(model: Any) -> list[Tree]:
    try:
        node = convert_to_onnx_object(model).graph.node[0]
    except Exception as error:  # catboost's own, or Python's
        raise ExportError(
            f"catboost cannot write this model as ONNX: {error}. It writes symmetric trees "
            "(grow_policy='SymmetricTree') on features that are numbers"
        ) from error
    held = attributes_of(node)
    owners = np.array(held["nodes_treeids"])
    return [_as_tree(held, owners == i) for i in range(int(owners.max()) + 1)]


def _as_tree(held: dict[str, Any], own: Any) -> Tree:
    """A tree whose nodes are listed level by level."""
    is_leaf = np.array([mode == b"LEAF" for mode in held["nodes_modes"]])[own]
    others = set(held["nodes_modes"]) - {b"LEAF", b"BRANCH_GT"}
    if others:
        raise ExportError(f"catboost wrote nodes of an unknown kind, {others}")
    more, fewer = (np.array(held[f"nodes_{side}nodeids"])[own] for side in ("true", "false"))
    n_inner = int((~is_leaf).sum())
    return Tree(
        np.array(held["nodes_featureids"])[own],
        np.array(held["nodes_values"], np.float32)[own],
        np.where(is_leaf, NO_CHILD, fewer),
        np.where(is_leaf, NO_CHILD, more),
        np.array(held["nodes_missing_value_tracks_true"])[own] == 0,
        np.arange(len(is_leaf)) - n_inner,
    )
