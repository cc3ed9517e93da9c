"""Boosters: the trees of xgboost, lightgbm and catboost, from their own dumps.

xgboost compares in single precision: x < t goes to the left, what is missing where the tree
learned, a category of a node's set to the right. The leaves are numbered as nodes. It adds up in
single precision and we in double, which differs in the last places of the probabilities. In a
sparse matrix, as OneHotEncoder makes it, what is not stored is missing to xgboost, not 0.

lightgbm compares in double precision: x <= t goes to the left. What a node takes for missing
depends on its feature: NaN, or NaN and 0, or nothing, and then NaN counts as 0. So each feature
enters the trees with NaN for what is missing to it. A category of a node's set goes to the left,
all else to the right. The leaves have numbers of their own.

catboost's trees are symmetric: all nodes on one level ask the same question, x > t in single
precision. So a tree of depth d has 2**d leaves, and the answers, from the root down, are the bits
of the leaf's number. Its own ONNX holds the questions, but rounds what is in the leaves to single
precision.

If training stopped early, the rounds up to the best one answer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from onnx.helper import get_attribute_value

from iknow.errors import ExportError
from iknow.models.export.graph import TEXT, Builder, Tensor
from iknow.models.export.sklearn import Answer, Part
from iknow.models.export.trees import NO_CHILD, Tree, find_leaves
from iknow.models.numbers import is_sparse
from iknow.models.trees import OBJECTIVES, Booster


def find_categories(part: Part, known: Sequence[Any], *, refuses: bool) -> Tensor:
    """All columns as numbers in double precision, categories by their positions.

    known: the labels that the library learned, by column, as far as it did; else the data frame's
    own count. refuses: whether a label that is none of them is refused; else it is missing.
    """
    if isinstance(part.value, Tensor):
        return part.numbers
    b, found = part.b, []
    for i, (column, dtype) in enumerate(zip(part.columns, part.sample.dtypes, strict=True)):
        labels = known[i] if i < len(known) else None
        if labels is None and hasattr(dtype, "categories"):
            labels = dtype.categories.tolist()
        if labels is None and column.kind == TEXT:
            raise ExportError("a column of text without categories cannot become numbers")
        if labels is not None:  # a gap is known
            codes = b.codes(column, [*labels, np.nan], refuses=refuses)
            column = b.look_up(np.array([*range(len(labels)), np.nan, np.nan])[:, None], codes)
        found.append(column)
    return b.concat(found)


def _cut_categories(b: Builder, x: Tensor, trees: Sequence[Tree], *, to_zero: bool) -> Tensor:
    """Columns that trees split by categories as whole numbers; to_zero: -0.5 as 0, else as -1."""
    split = [tree.feature[i] for tree in trees for i in tree.sets]
    if not split:
        return x
    is_category = np.isin(np.arange(x.width or 0), split)[None]
    whole = b.op("Floor", x)
    if to_zero:
        whole = b.where(b.op("Less", x, 0.0), b.op("Ceil", x), whole)
    return b.where(is_category, whole, x)


def read_xgboost(part: Part) -> Answer:
    """An XGBClassifier, or xgboost's own Booster; what it takes for missing becomes NaN."""
    b, model = part.b, part.estimator
    booster = model.model if isinstance(model, Booster) else model.get_booster()
    learner = json.loads(booster.save_raw("json"))["learner"]
    objective, grown = learner["objective"]["name"], learner["gradient_booster"]
    if objective not in OBJECTIVES["xgboost"]:
        raise ExportError(f"xgboost with objective {objective!r} cannot become ONNX")
    if grown["name"] == "gblinear":
        raise ExportError("xgboost's gblinear cannot become ONNX: use booster='gbtree'")
    held = grown.get("gbtree", grown)["model"]  # dart has it a level deeper
    stopped, ends = booster.attr("best_iteration"), held.get("iteration_indptr")
    n_trees = None if stopped is None or ends is None else int(ends[int(stopped) + 1])
    dumped = held["trees"][:n_trees]
    if any(int(tree["tree_param"]["size_leaf_vector"]) > 1 for tree in dumped):
        raise ExportError(
            "xgboost's trees with a vector in each leaf cannot become ONNX: train with "
            "multi_strategy='one_output_per_tree'"
        )
    x = b.cast(find_categories(part, _xgboost_labels(held), refuses=True), "float32")
    missing = getattr(model, "missing", None)
    if missing is not None and not np.isnan(missing):
        x = b.where(b.op("Equal", x, float(missing)), np.nan, x)
    if is_sparse(part.sample):
        x = b.where(b.op("Equal", x, 0.0), np.nan, x)
    trees = [_as_xgboost_tree(each) for each in dumped]
    leaves = find_leaves(b, trees, _cut_categories(b, x, trees, to_zero=False), "<")
    weights = np.array(grown.get("weight_drop", np.ones(len(held["trees"]))), np.float32)
    pairs = zip(trees, weights, strict=False)
    total = leaves.add_up([tree.threshold * w for tree, w in pairs], held["tree_info"][:n_trees])
    said = json.loads(learner["learner_model_param"]["base_score"])
    base = np.atleast_2d(np.array(said, np.float32)).astype(np.float64)
    start = np.log(base / (1 - base)) if objective.startswith("binary:") else base
    return Answer(b.chances(b.op("Add", total, start)), layers=leaves.layers)


def _as_xgboost_tree(tree: Mapping[str, Any]) -> Tree:
    """A tree in which the categories that went to the right go to the left."""
    spans = zip(tree["categories_segments"], tree["categories_sizes"], strict=True)
    members = [tree["categories"][start : start + size] for start, size in spans]
    sets = dict(zip(tree["categories_nodes"], members, strict=True))
    left, right = np.array(tree["left_children"]), np.array(tree["right_children"])
    turned = np.isin(np.arange(len(left)), list(sets))
    return Tree(
        np.array(tree["split_indices"]),
        np.array(tree["split_conditions"], np.float32),
        np.where(turned, right, left),
        np.where(turned, left, right),
        np.array(tree["default_left"], bool) != turned,
        np.arange(len(left)),
        sets,
    )


def _xgboost_labels(model: Mapping[str, Any]) -> list[list[str] | None]:
    """The labels of each feature's categories, None where they are numbers."""
    found: list[list[str] | None] = []
    for each in model.get("cats", {}).get("enc", []):
        ends = each.get("offsets") or []
        raw = bytes(value % 256 for value in each["values"]) if len(ends) > 1 else b""
        found.append([raw[i:j].decode() for i, j in pairwise(ends)] if raw else None)
    return found


def read_lightgbm(part: Part) -> Answer:
    """An LGBMClassifier, or lightgbm's own Booster."""
    b, model = part.b, part.estimator
    dump = (model.model if isinstance(model, Booster) else model.booster_).dump_model()
    objective, *settings = str(dump.get("objective", "")).split(" ")
    if objective not in OBJECTIVES["lightgbm"]:
        raise ExportError(f"lightgbm with objective {objective!r} cannot become ONNX")
    walked = [list(_walk(each["tree_structure"])) for each in dump["tree_info"]]
    if any("leaf_coeff" in node for tree in walked for node in tree):
        raise ExportError("lightgbm's linear trees cannot become ONNX: use linear_tree=False")
    learned = iter(dump["pandas_categorical"] or [])  # in the order in which lightgbm saw them
    kinds = getattr(part.sample, "dtypes", ())
    labels = [next(learned, None) if hasattr(each, "categories") else None for each in kinds]
    x = find_categories(part, labels, refuses=False)
    if isinstance(part.sample, np.ndarray) and part.sample.dtype.kind not in "f":
        x = b.cast(b.cast(x, "float32"), "float64")  # as lightgbm does with whole numbers
    trees = [_as_lightgbm_tree(nodes, x.width or 0) for nodes in walked]
    leaves = find_leaves(b, trees, _views(b, x, trees))
    values = [[node.get("leaf_value", 0.0) for node in nodes] for nodes in walked]
    n = dump["num_tree_per_iteration"]
    total = leaves.add_up(values, [i % n for i in range(len(trees))])
    is_forest = dump["average_output"]  # whose decision function is the sum nevertheless
    mean = b.op("Div", total, float(len(trees) // n)) if is_forest else total
    slopes = [float(each.partition(":")[2]) for each in settings if each.startswith("sigmoid:")]
    margin = b.op("Mul", mean, slopes[0]) if slopes else mean
    chances = b.chances(margin, apart=objective == "multiclassova")
    return Answer(chances, total, layers=leaves.layers)


def _walk(root: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All nodes, each with the positions of its children; a node comes before its children."""
    waiting, n = [dict(root)], 1
    while waiting:
        node = waiting.pop(0)
        if "split_feature" in node:
            waiting += [dict(node.pop("left_child")), dict(node.pop("right_child"))]
            node["left"], node["right"] = n, n + 1
            n += 2
        yield node


def _as_lightgbm_tree(nodes: Sequence[Mapping[str, Any]], width: int) -> Tree:
    """A tree that looks at the three views of each column; width: the number of columns."""

    def read(name: str, otherwise: Any) -> Any:
        return np.array([node.get(name, otherwise) for node in nodes])

    kinds = read("decision_type", "")
    if not {*kinds.tolist()} <= {"<=", "==", ""}:
        raise ExportError("a tree of lightgbm splits in a way that is not known here")
    compares, views = kinds == "<=", {"NaN": 0, "None": width, "Zero": 2 * width}
    view = [views[each] for each in read("missing_type", "NaN").tolist()]  # by what is missing
    bounds: list[Any] = [node.get("threshold") for node in nodes]
    sets = {int(i): [*map(int, bounds[i].split("||"))] for i in np.flatnonzero(kinds == "==")}
    return Tree(
        read("split_feature", 0) + np.where(compares, view, 0),
        np.array([bounds[i] if compares[i] else 0.0 for i in range(len(nodes))]),
        read("left", NO_CHILD),
        read("right", NO_CHILD),
        compares & read("default_left", False),
        read("leaf_index", 0),
        sets,
    )


def _views(b: Builder, x: Tensor, trees: Sequence[Tree]) -> Tensor:
    """Each column thrice: as it is, with 0 for NaN, and with NaN for 0."""
    zero_for_gap = b.where(b.op("IsNaN", x), 0.0, x)
    near = b.op("LessOrEqual", b.op("Abs", zero_for_gap), float(np.float32(1e-35)))  # its own bound
    gap_for_zero = b.where(near, np.nan, zero_for_gap)
    return b.concat([_cut_categories(b, x, trees, to_zero=True), zero_for_gap, gap_for_zero])


APART = "MultiClassOneVsAll"
LOSSES = ("Logloss", "CrossEntropy", "MultiClass", APART)


def read_catboost(part: Part) -> Answer:
    """A CatBoostClassifier, or catboost's own CatBoost."""
    b = part.b
    model = part.estimator.model if isinstance(part.estimator, Booster) else part.estimator
    described = str(model.get_all_params().get("loss_function", ""))
    loss = described.partition(":")[0]
    if loss not in LOSSES:
        raise ExportError(f"catboost with loss_function={described!r} cannot become ONNX")
    threshold = None if loss.startswith("Multi") else model.get_probability_threshold()
    if threshold not in (None, 0.5):
        raise ExportError(
            f"catboost with a probability threshold of {threshold} cannot become ONNX: set it back "
            "by set_probability_threshold(0.5)"
        )
    trees = _find_catboost_trees(model)
    leaves = find_leaves(b, trees, b.cast(part.numbers, "float32"))
    n_leaves = model.get_tree_leaf_counts()
    held = np.asarray(model.get_leaf_values(), np.float64).reshape(int(np.sum(n_leaves)), -1)
    of_trees = np.split(held, np.cumsum(n_leaves)[:-1])
    values = [each[np.maximum(t.numbers, 0)] for each, t in zip(of_trees, trees, strict=True)]
    scale, bias = model.get_scale_and_bias()
    total = b.op("Mul", leaves.add_up(values), float(scale))
    margin = b.op("Add", total, np.atleast_2d(np.asarray(bias, np.float64)))
    return Answer(b.chances(margin, apart=loss == APART), layers=leaves.layers)


def _find_catboost_trees(model: Any) -> list[Tree]:
    """Its trees, whose nodes are listed level by level."""
    from catboost.utils import convert_to_onnx_object

    try:
        node = convert_to_onnx_object(model).graph.node[0]
    except Exception as error:  # catboost's own, or Python's
        raise ExportError(
            f"catboost cannot write this model as ONNX: {error}. It writes symmetric trees "
            "(grow_policy='SymmetricTree') on features that are numbers"
        ) from error
    held = {each.name: np.array(get_attribute_value(each)) for each in node.attribute}
    if others := {*held["nodes_modes"].tolist()} - {b"LEAF", b"BRANCH_GT"}:
        raise ExportError(f"catboost wrote nodes of an unknown kind, {others}")
    owners, is_leaf = held["nodes_treeids"], held["nodes_modes"] == b"LEAF"
    columns: dict[str, Any] = {
        "feature": held["nodes_featureids"],
        "threshold": held["nodes_values"].astype(np.float32),
        "left": np.where(is_leaf, NO_CHILD, held["nodes_falsenodeids"]),
        "right": np.where(is_leaf, NO_CHILD, held["nodes_truenodeids"]),
        "missing_left": held["nodes_missing_value_tracks_true"] == 0,
    }
    found = []
    for own in (owners == i for i in range(int(owners.max()) + 1)):
        numbers = np.arange(own.sum()) - (own & ~is_leaf).sum()
        found.append(Tree(numbers=numbers, **{name: columns[name][own] for name in columns}))
    return found
