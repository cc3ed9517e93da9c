"""Trees: which leaf of each tree a sample falls into, in scikit-learn, xgboost, lightgbm, catboost.

ONNX has a node for ensembles of trees, which adds up what the leaves hold, but does not say which
leaves they are. So every tree gets an output of its own, and a leaf holds its position among the
leaves of its tree: a whole number, which single precision keeps exactly below 2**24. All else
follows from the positions by looking them up in tables: the library's own numbers of the leaves,
and what they add to the scores, in double precision.

A tree compares numbers as its library does:

scikit-learn  x <= t, features single and thresholds double. In single precision that is x <= the
              largest single number that is not above t (`round_down`). Histograms are double.
xgboost       x < t in single precision; a category of a node's set goes to the right. It adds up in
              single precision and we in double, which differs in the last places. In a sparse
              matrix, as OneHotEncoder makes it, what is not stored is missing to xgboost, not 0.
lightgbm      x <= t in double precision; a category of a node's set goes to the left. What a node
              takes for missing depends on its feature: NaN, or NaN and 0, or nothing, and then NaN
              counts as 0. So each feature enters the trees with NaN for what is missing to it.
catboost      x > t in single precision, one question for all nodes of a level: a tree of depth d
              has 2**d leaves, whose numbers are the answers as bits, from the root down. Its own
              ONNX holds the questions, but rounds what is in the leaves to single precision.

If training stopped early, the rounds up to the best one answer.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from onnx import numpy_helper
from onnx.helper import get_attribute_value

from iknow.core.arrays import Floats, Floats32
from iknow.errors import ExportError
from iknow.metrics.metric import LEAVES
from iknow.models.export.graph import TEXT, TREES, Builder, Tensor
from iknow.models.export.sklearn import Outputs, Part, transform
from iknow.models.inputs import is_sparse
from iknow.models.sklearn import MOST_LEAVES, OBJECTIVES, Booster

NO_CHILD = -1
COMPARE, IN = {"<=": 0, "<": 1}, 6  # ONNX's numbers for what a node asks
SUM, AS_IT_IS = 1, 0  # and for what is made of the leaves


class Tree(NamedTuple):
    """A tree of n nodes, each of whose arrays has shape (n,); node 0 is the root.

    sets: by node the categories that go to the left; their columns hold whole numbers.
    """

    feature: NDArray[Any]  # the column that a node looks at
    threshold: NDArray[Any]  # what it compares with
    left: NDArray[Any]  # the node for those that are smaller; `NO_CHILD` in leaves
    right: NDArray[Any]
    missing_left: NDArray[Any]  # whether missing values go to the left
    numbers: NDArray[Any]  # what the library calls each leaf
    sets: Mapping[int, Collection[int]] = MappingProxyType({})

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


def find_leaves(b: Builder, trees: Sequence[Tree], x: Tensor, compare: str = "<=") -> Leaves:
    """The leaves of some trees; x: the columns, in the precision in which the library compares."""
    counts, sizes = [len(tree.leaves) for tree in trees], [len(tree.left) for tree in trees]
    if max(counts) >= MOST_LEAVES:
        raise ExportError(f"a tree has {max(counts):,} leaves, and ONNX counts up to {MOST_LEAVES}")
    columns = [*zip(*trees, strict=True)][:5]
    feature, threshold, left, right, missing_left = map(np.concatenate, columns)
    roots, every = np.cumsum([0, *sizes[:-1]]), np.arange(sum(sizes))
    first, is_leaf = np.repeat(roots, sizes), left == NO_CHILD
    asks = ~is_leaf
    asks[roots] = True  # ONNX wants one node in every tree, so a root that is a leaf asks as well
    place = np.where(is_leaf, np.cumsum(is_leaf), np.cumsum(asks)) - 1  # among all of its kind
    left, right = (np.where(is_leaf, every, side + first)[asks] for side in (left, right))
    pairs = zip(trees, roots, strict=True)
    sets = {root + i: members for tree, root in pairs for i, members in tree.sets.items()}
    by_set = np.isin(every, list(sets))
    tensors = {
        "nodes_modes": np.where(by_set, IN, COMPARE[compare])[asks].astype(np.uint8),
        "nodes_splits": np.where(by_set, 0, threshold)[asks].astype(x.kind),
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
        nodes_featureids=feature[asks],
        nodes_missing_value_tracks_true=missing_left[asks].astype(int),
        nodes_truenodeids=place[left],
        nodes_trueleafs=is_leaf[left].astype(int),
        nodes_falsenodeids=place[right],
        nodes_falseleafs=is_leaf[right].astype(int),
        leaf_targetids=np.repeat(np.arange(len(trees)), counts),
        **{name: numpy_helper.from_array(each) for name, each in tensors.items()},
    )
    return Leaves(b, trees, b.op("Add", b.cast(found, "int64"), np.cumsum([0, *counts[:-1]])))


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


def read_forest(part: Part) -> Outputs:
    """A tree, or the mean of a forest's."""
    members = getattr(part.estimator, "estimators_", [part.estimator])
    leaves = find_sklearn_leaves(part, members)
    total = leaves.add_up([member.tree_.value[:, 0] for member in members])
    return Outputs(part.b.mean([total], len(members)), layers=leaves.layers)


def read_gradient_boosting(part: Part) -> Outputs:
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
    return Outputs(chances, raw, belief, leaves.layers)


def read_histograms(part: Part) -> Outputs:
    """A HistGradientBoostingClassifier, whose trees compare in double precision.

    Categories come first, as their positions among those that were seen; a split sends a set of
    them to the left, and one that was never seen is missing.
    """
    b, boosted, x = part.b, part.estimator, part.value
    if boosted._preprocessor is not None:
        is_category = np.asarray(boosted.is_categorical_)
        encoder = boosted._preprocessor.named_transformers_["encoder"]
        codes = transform(part.select(np.flatnonzero(is_category)).of(encoder))
        others = np.flatnonzero(~is_category)
        x = b.concat([codes, *([part.select(others).numbers] if len(others) else [])])
    members = [member for each in boosted._predictors for member in each]
    leaves = find_leaves(b, [_as_tree(each) for each in members], replace(part, value=x).numbers)
    owners = [k for each in boosted._predictors for k in range(len(each))]
    total = leaves.add_up([member.nodes["value"] for member in members], owners)
    raw = b.op("Add", total, np.asarray(boosted._baseline_prediction, np.float64).reshape(1, -1))
    return Outputs(b.chances(raw), raw, b.answer(raw))


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


def read_xgboost(part: Part) -> Outputs:
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
    return Outputs(b.chances(b.op("Add", total, start)), layers=leaves.layers)


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


def read_lightgbm(part: Part) -> Outputs:
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
    return Outputs(chances, total, layers=leaves.layers)


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


def read_catboost(part: Part) -> Outputs:
    """A CatBoostClassifier, or catboost's own CatBoost."""
    b = part.b
    model = part.estimator.model if isinstance(part.estimator, Booster) else part.estimator
    described = str(model.get_all_params().get("loss_function", ""))
    loss = described.partition(":")[0]
    if loss not in ("Logloss", "CrossEntropy", "MultiClass", "MultiClassOneVsAll"):
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
    return Outputs(b.chances(margin, apart=loss == "MultiClassOneVsAll"), layers=leaves.layers)


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
