"""lightgbm's trees, from its own dump.

It compares in double precision: x <= t goes to the left. What a node takes for missing depends on
its feature: NaN, or NaN and 0, or nothing, and then NaN counts as 0. So each feature enters the
trees with NaN for what is missing to it. A category of a node's set goes to the left, all else to
the right. The leaves have numbers of their own. If training stopped early, the rounds up to the
best one answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from iknow.errors import ExportError
from iknow.metrics.metric import LEAVES
from iknow.models.export.categories import as_codes, split_by_sets
from iknow.models.export.onnx.answers import both_columns, sigmoid
from iknow.models.export.onnx.builder import Builder, Tensor
from iknow.models.export.onnx.trees import (
    NO_CHILD,
    Tree,
    add_up_by_class,
    find_leaves,
    leaf_numbers,
)
from iknow.models.export.parts import Answer, Part

NO_NUMBER, ZERO, GAP = "None", "Zero", "NaN"
NEAR_ZERO = float(np.float32(1e-35))  # lightgbm's own bound for 0
NUMERIC = "<="


def read_classifier(part: Part) -> Answer:
    """An LGBMClassifier."""
    return _read(part, part.estimator.booster_)


def read_booster(part: Part) -> Answer:
    """Lightgbm's own Booster."""
    return _read(part, part.estimator.model)


def _read(part: Part, booster: Any) -> Answer:
    b, dump = part.b, booster.dump_model()
    objective, *settings = str(dump.get("objective", "")).split(" ")
    if objective not in ("binary", "multiclass", "multiclassova"):
        raise ExportError(f"lightgbm with objective {objective!r} cannot become ONNX")
    walked = [list(_walk(each["tree_structure"])) for each in dump["tree_info"]]
    if any("leaf_coeff" in node for tree in walked for node in tree):
        raise ExportError("lightgbm's linear trees cannot become ONNX: use linear_tree=False")
    x = as_codes(part, _categories(part, dump), unknown=np.nan)
    if isinstance(part.sample, np.ndarray) and part.sample.dtype.kind not in "f":
        x = b.cast(b.cast(x, "float32"), "float64")  # as lightgbm does with whole numbers
    trees, sets = map(list, zip(*map(_as_tree, walked), strict=True))
    x, trees = _mark_missing(b, x, trees, walked)
    x, trees = split_by_sets(b, x, trees, sets, right=False)
    found = find_leaves(b, trees, x, "BRANCH_LEQ")
    held = [node["leaf_value"] for tree in walked for node in tree if "leaf_value" in node]
    n = dump["num_tree_per_iteration"]
    total = add_up_by_class(b, found, np.array(held), [i % n for i in range(len(trees))])
    is_forest = dump["average_output"]  # whose decision function is the sum nevertheless
    mean = b.op("Div", total, np.array(float(len(trees) // n))) if is_forest else total
    layers = {LEAVES: leaf_numbers(b, found, trees)}
    return Answer(_chances(b, mean, objective, _slope(settings)), total, layers=layers)


def _chances(b: Builder, margin: Tensor, objective: str, slope: float) -> Tensor:
    if objective == "multiclass":
        return b.op("Softmax", margin, axis=1)
    chances = sigmoid(b, b.op("Mul", margin, np.array(slope)))
    return both_columns(b, chances) if margin.width == 1 else chances


def _slope(settings: Sequence[str]) -> float:
    """The factor in lightgbm's sigmoid."""
    found = [each.partition(":")[2] for each in settings if each.startswith("sigmoid:")]
    return float(found[0]) if found else 1.0


def _categories(part: Part, dump: Mapping[str, Any]) -> list[Any]:
    """The labels of each column's categories, in the order in which lightgbm saw them."""
    if not hasattr(part.sample, "dtypes"):
        return []
    learned = iter(dump["pandas_categorical"] or [])
    return [next(learned, None) if hasattr(d, "categories") else None for d in part.sample.dtypes]


def _walk(root: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """All nodes, each with the positions of its children; a node comes before its children."""
    waiting, n = [dict(root)], 1
    while waiting:
        node = waiting.pop(0)
        if "split_feature" in node:
            children = [dict(node.pop("left_child")), dict(node.pop("right_child"))]
            node["left"], node["right"] = n, n + 1
            n += 2
            waiting += children
        yield node


def _as_tree(nodes: Sequence[Mapping[str, Any]]) -> tuple[Tree, dict[int, tuple[int, ...]]]:
    """A tree, and the categories of the nodes that split by them."""
    sets = {
        i: tuple(int(each) for each in node["threshold"].split("||"))
        for i, node in enumerate(nodes)
        if node.get("decision_type") == "=="
    }
    is_number = [node.get("decision_type") == NUMERIC for node in nodes]
    if any("left" in node and not (is_number[i] or i in sets) for i, node in enumerate(nodes)):
        raise ExportError("a tree of lightgbm splits in a way that is not known here")
    tree = Tree(
        np.array([node.get("split_feature", 0) for node in nodes]),
        np.array([node["threshold"] if known else 0.0
                  for node, known in zip(nodes, is_number, strict=True)], np.float64),
        np.array([node.get("left", NO_CHILD) for node in nodes]),
        np.array([node.get("right", NO_CHILD) for node in nodes]),
        np.array([bool(node.get("default_left", False)) for node in nodes]),
        np.array([node.get("leaf_index", 0) for node in nodes]),
    )  # fmt: skip
    return tree, sets


def _mark_missing(
    b: Builder, x: Tensor, trees: Sequence[Tree], walked: Sequence[Sequence[Mapping[str, Any]]]
) -> tuple[Tensor, list[Tree]]:
    """The columns with NaN for what is missing to the nodes, and the trees that look at them."""
    n = x.width or 0
    zero_for_gap = b.op("Where", b.op("IsNaN", x, kind="bool"), np.array(0.0), x,
                        kind="float64", width=n)  # fmt: skip
    near = b.op("LessOrEqual", b.op("Abs", zero_for_gap), np.array(NEAR_ZERO), kind="bool")
    gap_for_zero = b.op("Where", near, np.array(np.nan), zero_for_gap, kind="float64", width=n)
    shifts = {GAP: 0, NO_NUMBER: n, ZERO: 2 * n}
    moved = []
    for tree, nodes in zip(trees, walked, strict=True):
        is_number = [node.get("decision_type") == NUMERIC for node in nodes]
        by = [shifts[node["missing_type"]] if known else 0
              for node, known in zip(nodes, is_number, strict=True)]  # fmt: skip
        moved.append(replace(tree, feature=tree.feature + np.array(by)))
    return b.concat([x, zero_for_gap, gap_for_zero]), moved
