"""scikit-learn's trees and forests.

Their features are single precision, their thresholds double. A leaf holds the share of each class;
a forest takes the mean over its trees. We add up first and divide then, as scikit-learn does, so
that forests whose leaves are pure come to the same ties.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from iknow.core.arrays import Floats
from iknow.geometry.hamming import LEAVES
from iknow.models.export.onnx.builder import Builder, Tensor
from iknow.models.export.onnx.inputs import as_numbers
from iknow.models.export.onnx.trees import Tree, add_up, find_leaves, leaf_numbers, round_down
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
