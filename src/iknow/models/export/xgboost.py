"""xgboost's trees, from its own JSON.

It compares in single precision: x < t goes to the left, what is missing where the tree learned, a
category of a node's set to the right. The leaves are numbered as nodes. It adds up in single
precision and we in double, which differs in the last places of the probabilities. If training
stopped early, the rounds up to the best one answer. In a sparse matrix, as OneHotEncoder makes it,
what is not stored is missing to xgboost, not 0.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from iknow.core.arrays import Floats, Floats32
from iknow.errors import ExportError
from iknow.metrics.metric import LEAVES
from iknow.models.export.categories import as_codes, split_by_sets
from iknow.models.export.onnx.answers import both_columns, sigmoid
from iknow.models.export.onnx.builder import Builder, Tensor
from iknow.models.export.onnx.trees import (
    Tree,
    add_up_by_class,
    find_leaves,
    leaf_numbers,
)
from iknow.models.export.parts import Answer, Part
from iknow.models.numbers import is_sparse

LOGISTIC = ("binary:logistic", "binary:logitraw")
SOFTMAX = ("multi:softmax", "multi:softprob")


def read_classifier(part: Part) -> Answer:
    """An XGBClassifier; what it takes for missing becomes NaN."""
    missing = part.estimator.missing
    return _read(part, part.estimator.get_booster(), np.nan if missing is None else missing)


def read_booster(part: Part) -> Answer:
    """Xgboost's own Booster."""
    return _read(part, part.estimator.model, np.nan)


def _read(part: Part, booster: Any, missing: float) -> Answer:
    b = part.b
    learner = json.loads(booster.save_raw("json"))["learner"]
    objective = learner["objective"]["name"]
    if objective not in (*LOGISTIC, *SOFTMAX):
        raise ExportError(f"xgboost with objective {objective!r} cannot become ONNX")
    model, weights = _find_trees(learner["gradient_booster"])
    n_trees = _count_trees(booster, model)
    dumped = model["trees"][:n_trees]
    if any(int(tree["tree_param"]["size_leaf_vector"]) > 1 for tree in dumped):
        raise ExportError(
            "xgboost's trees with a vector in each leaf cannot become ONNX: train with "
            "multi_strategy='one_output_per_tree'"
        )
    x = b.cast(as_codes(part, _categories(model)), "float32")
    if not np.isnan(missing):
        x = _without(b, x, missing)
    if is_sparse(part.sample):
        x = _without(b, x, 0.0)
    x, trees = split_by_sets(b, x, [_as_tree(each) for each in dumped], list(map(_sets, dumped)))
    found = find_leaves(b, trees, x, "BRANCH_LT")
    held = [
        np.array(tree["split_conditions"], np.float32)[own.leaves] * weight
        for tree, own, weight in zip(dumped, trees, weights, strict=False)
    ]
    total = add_up_by_class(b, found, np.concatenate(held), model["tree_info"][:n_trees])
    margin = b.op("Add", total, _start(learner, objective))
    layers = {LEAVES: leaf_numbers(b, found, trees)}
    return _answer(b, margin, layers)


def _without(b: Builder, x: Tensor, missing: float) -> Tensor:
    """The columns with NaN for a number that stands for what is missing."""
    gone = b.op("Equal", x, np.array(missing, np.float32), kind="bool")
    return b.op("Where", gone, np.array(np.nan, np.float32), x, kind="float32", width=x.width)


def _answer(b: Builder, margin: Tensor, layers: dict[str, Tensor]) -> Answer:
    if margin.width == 1:
        return Answer(both_columns(b, sigmoid(b, margin)), layers=layers)
    return Answer(b.op("Softmax", margin, axis=1), layers=layers)


def _find_trees(gradient_booster: Mapping[str, Any]) -> tuple[Any, Floats32]:
    """The trees, and what each counts."""
    if gradient_booster["name"] == "gblinear":
        raise ExportError("xgboost's gblinear cannot become ONNX: use booster='gbtree'")
    if gradient_booster["name"] == "dart":
        weights = np.array(gradient_booster["weight_drop"], np.float32)
        return gradient_booster["gbtree"]["model"], weights
    model = gradient_booster["model"]
    return model, np.ones(len(model["trees"]), np.float32)


def _count_trees(booster: Any, model: Mapping[str, Any]) -> int:
    stopped = booster.attr("best_iteration")
    n_all = len(model["trees"])
    if stopped is None:
        return n_all
    ends = model.get("iteration_indptr")
    return n_all if ends is None else int(ends[int(stopped) + 1])


def _as_tree(tree: Mapping[str, Any]) -> Tree:
    return Tree(
        np.array(tree["split_indices"]),
        np.array(tree["split_conditions"], np.float32),
        np.array(tree["left_children"]),
        np.array(tree["right_children"]),
        np.array(tree["default_left"], bool),
        np.arange(len(tree["left_children"])),
    )


def _sets(tree: Mapping[str, Any]) -> dict[int, tuple[int, ...]]:
    """The categories that go to the right, by node."""
    starts, sizes = tree["categories_segments"], tree["categories_sizes"]
    return {
        node: tuple(tree["categories"][start : start + size])
        for node, start, size in zip(tree["categories_nodes"], starts, sizes, strict=True)
    }


def _categories(model: Mapping[str, Any]) -> list[list[str] | None]:
    """The labels of each feature's categories, None where they are numbers."""
    encoded = model.get("cats", {}).get("enc", [])
    found: list[list[str] | None] = []
    for each in encoded:
        ends = each.get("offsets") or []
        raw = bytes(value % 256 for value in each["values"]) if len(ends) > 1 else b""
        found.append([raw[i:j].decode() for i, j in pairwise(ends)] if raw else None)
    return found


def _start(learner: Mapping[str, Any], objective: str) -> Floats:
    """The margins before the first tree, of shape (1, n_columns)."""
    said = json.loads(learner["learner_model_param"]["base_score"])
    base = np.atleast_1d(np.array(said, np.float32)).astype(np.float64)
    start: Floats = np.log(base / (1 - base)) if objective in LOGISTIC else base
    return start[None]
