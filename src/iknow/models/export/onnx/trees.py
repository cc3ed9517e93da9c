"""Trees: which leaf of each tree a sample falls into, as ONNX.

ONNX has a node for ensembles of trees, which adds up what the leaves hold, but does not say which
leaves they are. So every tree gets an output of its own, and a leaf holds its position among the
leaves of its tree: a whole number, which single precision keeps exactly below 2**24. All else
follows from the positions by looking them up in tables: the library's own numbers of the leaves,
and what they add to the scores, in double precision.

A tree compares numbers as its library does. In single precision, x <= t for a t in double precision
means x <= the largest single number that is not above t (`round_down`). So a sample that lies on a
threshold falls into the same leaf as in the library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from onnx import numpy_helper

from iknow.core.arrays import Floats, Floats32
from iknow.errors import ExportError
from iknow.models.export.onnx.builder import Builder, Tensor

MOST_LEAVES = 1 << 24
NO_CHILD = -1


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree of n nodes; node 0 is the root.

    Attributes:
        feature: The column that a node looks at, of shape (n,).
        threshold: What it compares with, of shape (n,).
        left: The node for those that are smaller, of shape (n,); `NO_CHILD` in leaves.
        right: The node for the others, of shape (n,).
        missing_left: Whether missing values go to the left, of shape (n,).
        numbers: What the library calls each leaf, of shape (n,).
    """

    feature: NDArray[Any]
    threshold: NDArray[Any]
    left: NDArray[Any]
    right: NDArray[Any]
    missing_left: NDArray[Any]
    numbers: NDArray[Any]

    @property
    def leaves(self) -> NDArray[np.int64]:
        """The nodes that are leaves, in order."""
        return np.flatnonzero(np.asarray(self.left) == NO_CHILD)


def find_leaves(
    b: Builder, trees: Sequence[Tree], x: Tensor, mode: Literal["BRANCH_LEQ", "BRANCH_LT"]
) -> Tensor:
    """The leaf of each tree as its position among all leaves of all trees, of shape (n, n_trees).

    x: the columns, in the precision in which the library compares.
    """
    counts = [len(tree.leaves) for tree in trees]
    if max(counts) >= MOST_LEAVES:
        raise ExportError(f"a tree has {max(counts):,} leaves, and ONNX counts up to {MOST_LEAVES}")
    found = b.op(
        "TreeEnsembleRegressor",
        x,
        kind="float32",
        width=len(trees),
        domain="ai.onnx.ml",
        n_targets=len(trees),
        aggregate_function="SUM",
        post_transform="NONE",
        **_attributes(trees, mode, x.kind),
    )
    starts = np.cumsum([0, *counts[:-1]])
    return b.op("Add", b.cast(found, "int64"), starts)


def leaf_numbers(b: Builder, found: Tensor, trees: Sequence[Tree]) -> Tensor:
    """The leaves as the library numbers them, of shape (n, n_trees)."""
    numbers = np.concatenate([np.asarray(tree.numbers)[tree.leaves] for tree in trees])
    return b.op("Gather", numbers.astype(np.float32), found, kind="float32", width=found.width)


def add_up(b: Builder, found: Tensor, values: Floats) -> Tensor:
    """The sums of what the leaves hold, of shape (n, n_values).

    values: by leaf, of shape (n_leaves, n_values), or (n_leaves,) for one.
    """
    table = np.asarray(values, np.float64)
    width = 1 if table.ndim == 1 else table.shape[1]
    looked_up = b.op("Gather", table.reshape(-1, width), found, kind="float64", axis=0)
    return b.op("ReduceSum", looked_up, np.array([1]), width=width, keepdims=0)


def add_up_by_class(b: Builder, found: Tensor, values: Floats, classes: Sequence[int]) -> Tensor:
    """The sums for classes that have trees of their own, of shape (n, n_classes).

    values: by leaf, of shape (n_leaves,). classes: the class of each tree.
    """
    looked_up = b.op("Gather", np.asarray(values, np.float64), found, kind="float64")
    owners = np.eye(max(classes) + 1)[np.asarray(classes)]
    return b.op("MatMul", looked_up, owners, width=owners.shape[1])


def round_down(thresholds: Floats) -> Floats32:
    """The largest numbers in single precision that are not above these."""
    with np.errstate(over="ignore"):
        single = np.asarray(thresholds, np.float64).astype(np.float32)
        lower = np.nextafter(single, np.float32(-np.inf))
    return np.where(single > thresholds, lower, single).astype(np.float32)


def _attributes(trees: Sequence[Tree], mode: str, kind: str) -> dict[str, Any]:
    parts = [_one_tree(i, tree, mode) for i, tree in enumerate(trees)]
    found = {name: [value for part in parts for value in part[name]] for name in parts[0]}
    for name in ("nodes_values", "target_weights"):
        numbers = np.array(found.pop(name), dtype=kind)
        if kind == "float64":
            found[f"{name}_as_tensor"] = numpy_helper.from_array(numbers)
        else:
            found[name] = numbers.tolist()
    return found


def _one_tree(i: int, tree: Tree, mode: str) -> dict[str, Any]:
    """The attributes of one tree; of leaves, ONNX wants only their positions."""
    left, right = np.asarray(tree.left), np.asarray(tree.right)
    n, leaves, is_leaf = len(left), tree.leaves, left == NO_CHILD
    return {
        "nodes_treeids": [i] * n,
        "nodes_nodeids": list(range(n)),
        "nodes_featureids": np.where(is_leaf, 0, tree.feature).tolist(),
        "nodes_modes": ["LEAF" if leaf else mode for leaf in is_leaf],
        "nodes_values": np.where(is_leaf, 0, tree.threshold).tolist(),
        "nodes_truenodeids": np.where(is_leaf, 0, left).tolist(),
        "nodes_falsenodeids": np.where(is_leaf, 0, right).tolist(),
        "nodes_missing_value_tracks_true": np.where(is_leaf, 0, tree.missing_left).tolist(),
        "target_treeids": [i] * len(leaves),
        "target_nodeids": leaves.tolist(),
        "target_ids": [i] * len(leaves),
        "target_weights": list(range(len(leaves))),
    }
