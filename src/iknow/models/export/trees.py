"""Trees: which leaf of each tree a sample falls into, and scikit-learn's models of trees.

ONNX has a node for ensembles of trees, which adds up what the leaves hold, but does not say which
leaves they are. So every tree gets an output of its own, and a leaf holds its position among the
leaves of its tree: a whole number, which single precision keeps exactly below 2**24. All else
follows from the positions by looking them up in tables: the library's own numbers of the leaves,
and what they add to the scores, in double precision.

A tree compares numbers as its library does. In single precision, x <= t for a t in double precision
means x <= the largest single number that is not above t (`round_down`). So a sample that lies on a
threshold falls into the same leaf as in the library.

A split may ask whether a category is in a set. onnxruntime holds the categories up to 23 as bits,
but compares with all others one by one, which takes twice as long with 200 of them. So these are
looked up in a table, unless they have numbers so high that it would be large.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from onnx import numpy_helper

from iknow.core.arrays import Floats, Floats32
from iknow.errors import ExportError
from iknow.metrics.metric import LEAVES
from iknow.models.export.graph import TREES, Builder, Tensor
from iknow.models.export.sklearn import Answer, Part
from iknow.models.export.steps import encode_ordinal, select
from iknow.models.trees import MOST_LEAVES

NO_CHILD = -1
TABLES = range(24, 1024)  # the largest category of sets that are looked up in a table
COMPARE, IN = {"<=": 0, "<": 1}, 6  # ONNX's numbers for what a node asks
SUM, AS_IT_IS = 1, 0  # and for what is made of the leaves


@dataclass(frozen=True, eq=False)
class Tree:
    """A tree of n nodes, each of whose arrays has shape (n,); node 0 is the root.

    sets: by node the categories that go to the left; their columns hold whole numbers.
    """

    feature: NDArray[Any]  # the column that a node looks at
    threshold: NDArray[Any]  # what it compares with
    left: NDArray[Any]  # the node for those that are smaller; `NO_CHILD` in leaves
    right: NDArray[Any]
    missing_left: NDArray[Any]  # whether missing values go to the left
    numbers: NDArray[Any]  # what the library calls each leaf
    sets: Mapping[int, Collection[int]] = field(default_factory=dict)

    @property
    def leaves(self) -> NDArray[np.int64]:
        """The nodes that are leaves, in order."""
        return np.flatnonzero(np.asarray(self.left) == NO_CHILD)


@dataclass(frozen=True, eq=False)
class Leaves:
    """The leaves that samples fall into."""

    b: Builder
    trees: Sequence[Tree]
    found: Tensor  # positions among all leaves of all trees, of shape (n, n_trees)

    @property
    def layers(self) -> dict[str, Tensor]:
        """The leaves as the library numbers them, of shape (n, n_trees), by their layer's name."""
        return {LEAVES: self._look_up([tree.numbers for tree in self.trees], np.float32)}

    def add_up(self, values: Sequence[Any], classes: Sequence[int] | None = None) -> Tensor:
        """Return the sums of what the leaves hold, of shape (n, n_values).

        values: of each tree, by node, of shape (n_nodes, n_values); or of shape (n_nodes,) if each
        tree is for one of the classes, whose sums have shape (n, n_classes).
        """
        held = self._look_up(values, np.float64)
        if classes is None:
            return self.b.op("ReduceSum", held, np.array([1]), keepdims=0)
        owners = np.eye(max(classes) + 1)[np.asarray(classes)]
        return self.b.op("MatMul", held, owners, width=owners.shape[1])

    def _look_up(self, values: Sequence[Any], kind: type) -> Tensor:
        held = [np.asarray(v)[tree.leaves] for v, tree in zip(values, self.trees, strict=True)]
        return self.b.look_up(np.concatenate(held).astype(kind), self.found)


def find_leaves(
    b: Builder, trees: Sequence[Tree], x: Tensor, compare: Literal["<=", "<"] = "<="
) -> Leaves:
    """The leaves of some trees; x: the columns, in the precision in which the library compares."""
    x, trees = _look_up_sets(b, x, trees)
    counts, sizes = [len(tree.leaves) for tree in trees], [len(tree.left) for tree in trees]
    if max(counts) >= MOST_LEAVES:
        raise ExportError(f"a tree has {max(counts):,} leaves, and ONNX counts up to {MOST_LEAVES}")
    roots, every = np.cumsum([0, *sizes[:-1]]), np.arange(sum(sizes))

    def joined(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(tree, name) for tree in trees])

    is_leaf = joined("left") == NO_CHILD
    asks = ~is_leaf
    asks[roots] = True  # ONNX wants one node in every tree, so a root that is a leaf asks as well
    place = np.where(is_leaf, np.cumsum(is_leaf), np.cumsum(asks)) - 1  # among all of its kind
    left, right = (
        np.where(is_leaf, every, joined(side) + np.repeat(roots, sizes))[asks]
        for side in ("left", "right")
    )
    sets = {
        root + i: tree.sets[i] for tree, root in zip(trees, roots, strict=True) for i in tree.sets
    }
    by_set = np.isin(every, list(sets))
    tensors = {
        "nodes_modes": np.where(by_set, IN, COMPARE[compare])[asks].astype(np.uint8),
        "nodes_splits": np.where(by_set, 0, joined("threshold"))[asks].astype(x.kind),
        "leaf_weights": np.concatenate([np.arange(n) for n in counts]).astype(x.kind),
    }
    if sets:  # in the order of nodes, each ended by NaN
        members = [each for node in sorted(sets) for each in (*sets[node], np.nan)]
        tensors["membership_values"] = np.array(members, x.kind)
    found = b.op(
        TREES,
        x,
        width=len(trees),
        n_targets=len(trees),
        aggregate_function=SUM,
        post_transform=AS_IT_IS,
        tree_roots=(np.cumsum(asks) - 1)[roots],
        nodes_featureids=joined("feature")[asks],
        nodes_missing_value_tracks_true=joined("missing_left")[asks].astype(int),
        nodes_truenodeids=place[left],
        nodes_trueleafs=is_leaf[left].astype(int),
        nodes_falsenodeids=place[right],
        nodes_falseleafs=is_leaf[right].astype(int),
        leaf_targetids=np.repeat(np.arange(len(trees)), counts),
        **{name: numpy_helper.from_array(each) for name, each in tensors.items()},
    )
    return Leaves(b, trees, b.op("Add", b.cast(found, "int64"), np.cumsum([0, *counts[:-1]])))


def _look_up_sets(b: Builder, x: Tensor, trees: Sequence[Tree]) -> tuple[Tensor, list[Tree]]:
    """The columns with one more for each of the sets in `TABLES`, and trees that compare with it.

    It holds 0 for what goes to the left, 1 for all else, and NaN for what is missing.
    """
    by_node = [
        {
            i: (int(tree.feature[i]), *of)
            for i, of in tree.sets.items()
            if max(of, default=0) in TABLES
        }
        for tree in trees
    ]
    sets = sorted({each for nodes in by_node for each in nodes.values()})
    places = {each: (x.width or 0) + i for i, each in enumerate(sets)}
    columns, changed = [x], []
    for feature, group in groupby(sets, key=itemgetter(0)):
        members = [each[1:] for each in group]
        n = 1 + max(map(max, members))
        table = np.ones((n + 2, len(members)), x.kind)
        table[-1] = np.nan
        for j, of in enumerate(members):
            table[list(of), j] = 0
        codes = b.columns(x, [feature])
        known = b.op("And", b.op("GreaterOrEqual", codes, 0.0), b.op("Less", codes, float(n)))
        rows = b.where(b.op("IsNaN", codes), n + 1.0, b.where(known, codes, float(n)))
        columns.append(b.look_up(table, b.flat(b.cast(rows, "int64"))))
    for tree, nodes in zip(trees, by_node, strict=True):
        feature, threshold = np.array(tree.feature), np.array(tree.threshold)
        feature[[*nodes]], threshold[[*nodes]] = [places[each] for each in nodes.values()], 0.5
        others = {i: tree.sets[i] for i in tree.sets if i not in nodes}
        changed.append(replace(tree, feature=feature, threshold=threshold, sets=others))
    return b.concat(columns), changed


def round_down(thresholds: Floats) -> Floats32:
    """The largest numbers in single precision that are not above these."""
    with np.errstate(over="ignore"):
        single = np.asarray(thresholds, np.float64).astype(np.float32)
        lower = np.nextafter(single, np.float32(-np.inf))
    return np.where(single > thresholds, lower, single).astype(np.float32)


def find_sklearn_leaves(part: Part, members: Sequence[Any], columns: Any = None) -> Leaves:
    """The leaves of scikit-learn's trees, whose features are single and thresholds double.

    columns: of each tree, which of the table's it sees; None for all.
    """
    x, trees = part.b.cast(part.numbers, "float32"), []
    for i, member in enumerate(members):
        tree, seen = member.tree_, np.arange(x.width or 0) if columns is None else columns[i]
        sides = tree.children_left, tree.children_right, tree.missing_go_to_left
        feature = np.asarray(seen)[np.maximum(tree.feature, 0)]
        trees.append(Tree(feature, round_down(tree.threshold), *sides, np.arange(tree.node_count)))
    return find_leaves(part.b, trees, x)


def read_forest(part: Part) -> Answer:
    """A tree, or the mean of a forest's."""
    members = getattr(part.estimator, "estimators_", [part.estimator])
    leaves = find_sklearn_leaves(part, members)
    total = leaves.add_up([member.tree_.value[:, 0] for member in members])
    return Answer(part.b.mean([total], len(members)), layers=leaves.layers)


def read_gradient_boosting(part: Part) -> Answer:
    """A GradientBoostingClassifier, whose trees add up to raw predictions.

    Of two classes there is one column, whose sign is the answer; 0 is the second class, but the
    first on histograms.
    """
    b, boosted = part.b, part.estimator
    if type(boosted.init_).__name__ not in ("DummyClassifier", "str"):
        raise ExportError(
            f"gradient boosting that starts from {type(boosted.init_).__name__} cannot become "
            "ONNX: train it without init="
        )
    n_rounds, n_columns = boosted.estimators_.shape
    members = boosted.estimators_.ravel()
    leaves = find_sklearn_leaves(part, members)
    held = [boosted.learning_rate * member.tree_.value[:, 0, 0] for member in members]
    start = np.asarray(boosted._raw_predict_init(part.sample), np.float64)[:1]
    raw = b.op("Add", leaves.add_up(held, [*range(n_columns)] * n_rounds), start)
    chances = b.chances(b.op("Mul", raw, 2.0) if boosted.loss == "exponential" else raw)
    belief = b.answer(raw, np.nextafter(0.0, -1.0))  # above the largest number below 0
    return Answer(chances, raw, belief, leaves.layers)


def read_histograms(part: Part) -> Answer:
    """A HistGradientBoostingClassifier, whose trees compare in double precision.

    Categories come first, as their positions among those that were seen; a split sends a set of
    them to the left, and one that was never seen is missing.
    """
    b, boosted, x = part.b, part.estimator, part.value
    if boosted._preprocessor is not None:
        is_category = np.asarray(boosted.is_categorical_)
        encoder = boosted._preprocessor.named_transformers_["encoder"]
        codes = encode_ordinal(select(part, np.flatnonzero(is_category)).of(encoder))
        others = np.flatnonzero(~is_category)
        x = b.concat([codes, *([select(part, others).numbers] if len(others) else [])])
    members = [member for each in boosted._predictors for member in each]
    leaves = find_leaves(b, [_as_tree(each) for each in members], replace(part, value=x).numbers)
    owners = [k for each in boosted._predictors for k in range(len(each))]
    total = leaves.add_up([member.nodes["value"] for member in members], owners)
    raw = b.op("Add", total, np.asarray(boosted._baseline_prediction, np.float64).reshape(1, -1))
    return Answer(b.chances(raw), raw, b.answer(raw))


def _as_tree(predictor: Any) -> Tree:
    nodes, bits = predictor.nodes, predictor.raw_left_cat_bitsets.astype("<u4").view(np.uint8)
    members = np.unpackbits(bits, axis=1, bitorder="little")
    is_leaf = nodes["is_leaf"].astype(bool)
    by_sets = np.flatnonzero((nodes["is_categorical"] == 1) & ~is_leaf)
    return Tree(
        nodes["feature_idx"],
        nodes["num_threshold"],
        np.where(is_leaf, NO_CHILD, nodes["left"].astype(np.int64)),
        np.where(is_leaf, NO_CHILD, nodes["right"].astype(np.int64)),
        nodes["missing_go_to_left"].astype(bool),
        np.arange(len(nodes)),
        {i: np.flatnonzero(members[nodes["bitset_idx"][i]]).tolist() for i in by_sets.tolist()},
    )
