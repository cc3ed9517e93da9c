"""An index from elsewhere, plugged in: scipy's trees, one for each class."""

import pickle

import numpy as np
import pytest
from scipy.spatial import cKDTree
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from iknow import Ball, EpistemicClassifier, Nearest, RelativeBall
from iknow.core.evidence import NO_EXEMPLAR, Evidence
from iknow.core.text import as_whole
from iknow.errors import InputError
from iknow.metrics import Minkowski, Weighted
from iknow.models import PrecomputedModel
from iknow.search.index import CheckedIndex, check_activations, check_k, check_labels
from iknow.testing import IndexContract, assert_same_evidence


class TreeIndex:
    """scipy finds what may be nearest; numpy measures it in float64."""

    def __init__(self, activations, labels, n_classes, rows=None):
        self.points = check_activations(activations).astype(np.float64)
        self.labels = check_labels(labels, len(self.points), n_classes)
        self.rows = np.arange(len(self.points)) if rows is None else np.asarray(rows)
        self.n_rows, self.n_features = self.points.shape
        self.n_classes = n_classes
        # Its squares overflow and vanish where those of float64 on float32 points would not.
        self.scale = float(np.abs(self.points).max(initial=0.0)) or 1.0
        self.members = {
            code: np.flatnonzero(self.labels == code) for code in np.unique(self.labels)
        }
        self.trees = {
            code: cKDTree(self.points[members] / self.scale)
            for code, members in self.members.items()
        }
        self.tree = cKDTree(self.points / self.scale)

    def gather(self, queries, k=0, per_class=1):
        places = check_activations(queries, "queries", self.n_features)
        check_k(k, self.n_rows)
        as_whole(per_class, "per_class", "be a whole number >= 1", 1)
        distances = np.full((len(places), self.n_classes, per_class), np.inf)
        exemplars = np.full(distances.shape, NO_EXEMPLAR)
        neighbors = np.empty((len(places), k))
        for i, place in enumerate(places.astype(np.float64)):
            for code, tree in self.trees.items():
                n = min(per_class, tree.n)
                found = self.members[code][self._near(tree, place, n)]
                sizes = self._measure(place, found)
                order = np.lexsort((self.rows[found], sizes))[:n]
                distances[i, code, :n] = sizes[order]
                exemplars[i, code, :n] = self.rows[found[order]]
            if k:
                neighbors[i] = np.sort(self._measure(place, self._near(self.tree, place, k)))[:k]
        return Evidence(distances, neighbors, exemplars)

    def _near(self, tree, place, k):
        """All rows of a tree that may be among the k nearest, a little more for rounding."""
        place = place / self.scale
        furthest = np.max(tree.query(place, [k])[0])
        return np.array(tree.query_ball_point(place, furthest * (1 + 1e-9) + 1e-30))

    def _measure(self, place, rows):
        return np.sqrt(np.square(self.points[rows] - place).sum(axis=1))


class TestTreeIndex(IndexContract):
    seeds_per_kind = 8

    def make_index(self, activations, labels, n_classes, rows=None):
        return TreeIndex(activations, labels, n_classes, rows=rows)


@pytest.fixture(scope="module")
def digits():
    x, y = load_digits(return_X_y=True)
    x = x.astype(np.float32)
    network = MLPClassifier((16,), max_iter=60, random_state=0)
    model = make_pipeline(MinMaxScaler(), network)
    with pytest.warns(UserWarning, match="Maximum iterations"):
        model.fit(x[:500], y[:500])
    return FrozenEstimator(model), x, y


def assert_same_assessments(one, other, x):
    left, right = one.assess(x), other.assess(x)
    for name in ("belief_codes", "assertion", "reason", "justification", "margin"):
        np.testing.assert_array_equal(getattr(left, name), getattr(right, name))
    np.testing.assert_array_equal(left.robust_radius, right.robust_radius)
    for layer in one.layers_:
        assert_same_evidence(left.evidence[layer], right.evidence[layer])
    for row in (0, 7):
        assert left.explain(row) == right.explain(row)


@pytest.mark.parametrize("rule", [Ball, RelativeBall, Nearest])
def test_a_given_index_answers_as_the_one_that_is_chosen(rule, digits, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")  # else bundles differ by their times
    model, x, y = digits
    metric = {"hidden1": Weighted(np.diag(np.arange(1.0, 17.0)))}
    parameters = {"rule": rule, "metric": metric, "progress": False}
    plain = EpistemicClassifier(model, **parameters).fit(x[:300], y[:300])
    given = EpistemicClassifier(model, search=TreeIndex, **parameters).fit(x[:300], y[:300])
    for made in (plain, given):
        made.tune(x[300:400], y[300:400], **({} if rule is Ball else {"coverage": 0.6}))
    assert given.neighborhoods_ == plain.neighborhoods_
    assert_same_assessments(given, plain, x[400:440])
    assert {type(each._index._given) for each in given.indexes_.values()} == {TreeIndex}
    given.warm_up()

    given.save(tmp_path / "x.iknow")
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow", model, search=TreeIndex)
    assert loaded.search is TreeIndex
    assert_same_assessments(loaded, plain, x[400:440])
    assert {type(each._index._given) for each in loaded.indexes_.values()} == {TreeIndex}
    # The points are all that is kept: without index= they are searched by default.
    plain.save(tmp_path / "y.iknow")
    assert (tmp_path / "x.iknow").read_bytes() == (tmp_path / "y.iknow").read_bytes()
    assert EpistemicClassifier.load(tmp_path / "x.iknow", model).search is None


def fit(index, **parameters):
    points, labels = np.arange(12.0).reshape(6, 2), np.array([0, 1, 2, 0, 1, 2])
    outputs = np.eye(3)[labels], {"a": points}
    made = EpistemicClassifier(
        PrecomputedModel(), rule=Ball(1), search=index, progress=False, **parameters
    )
    return made.fit(outputs, labels), outputs


def test_a_given_index_is_a_parameter_like_any_other(tmp_path):
    made, outputs = fit(TreeIndex)
    assert made.get_params()["search"] is TreeIndex
    assert clone(made).search is TreeIndex
    again = pickle.loads(pickle.dumps(made))
    assert type(again.indexes_["a"]._index._given) is TreeIndex
    assert_same_evidence(again.assess(outputs).evidence["a"], made.assess(outputs).evidence["a"])
    calls = []

    def make(activations, labels, n_classes, *, rows):
        calls.append((activations.dtype, labels.tolist(), n_classes, rows.tolist()))
        return TreeIndex(activations, labels, n_classes, rows=rows)

    fit(make)
    assert calls == [(np.float32, [0, 0, 1, 1, 2, 2], 3, [0, 3, 1, 4, 2, 5])]


def changed(**methods):
    return type("Changed", (TreeIndex,), methods)


def cut(evidence, **changes):
    return Evidence(**{**vars(evidence), **changes})


WRONG = {
    "no type": (
        TreeIndex(np.eye(2), [0, 1], 2),
        "a type or a function, called as search",
    ),
    "no index": (lambda *a, rows: "faiss", "must make an .*Index, .* it made str"),
    "no evidence": (changed(gather=lambda self, q, k=0, m=1: q), "must return Evidence"),
    "no neighbors": (
        changed(gather=lambda self, q, k=0, m=1: TreeIndex.gather(self, q, 0, m)),
        r"6 queries and 3 classes with k=2 .*; got \(6, 3, 0, 1\)",
    ),
    "one query": (
        changed(gather=lambda self, q, k=0, m=1: TreeIndex.gather(self, q[:1], k, m)),
        r"6 queries and 3 classes .*; got \(1, 3, 2, 1\)",
    ),
    "float32": (
        changed(
            gather=lambda self, q, k=0, m=1: cut(
                found := TreeIndex.gather(self, q, k, m),
                distances=found.distances.astype(np.float32),
            )
        ),
        "must be float64",
    ),
    "nan": (
        changed(
            gather=lambda self, q, k=0, m=1: cut(
                found := TreeIndex.gather(self, q, k, m),
                distances=found.distances * np.array([[1], [1], [np.nan]]),
            )
        ),
        "never NaN",
    ),
    "another signature": (dict, r"index could not be made: .* raised TypeError"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_index_or_answers_in_another_shape_is_named(name):
    index, message = WRONG[name]

    def use():
        made, outputs = fit(index)
        made.assess(outputs, 2)
        made.assess(outputs)

    with pytest.raises(InputError, match=message):
        use()


def test_search_is_a_device_or_an_index_and_searches_in_l2(tmp_path):
    with pytest.raises(InputError, match=r"search must be a device .*, or an index.*; got 5"):
        fit(5)
    with pytest.raises(InputError, match=r"uses the Euclidean norm, p=2; got Minkowski\(p=1"):
        fit(TreeIndex, metric=Minkowski(1))
    fit(None)[0].save(tmp_path / "x.iknow")
    with pytest.raises(InputError, match="search must be a device"):
        EpistemicClassifier.load(tmp_path / "x.iknow", search=5)


def given(**methods):
    points, labels = np.arange(12.0).reshape(6, 2), np.array([0, 0, 0, 1, 1, 2])
    return CheckedIndex(points, labels, 3, make=changed(**methods)), points


def changed_answer(**changes):
    def gather(self, queries, k=0, per_class=1):
        found = TreeIndex.gather(self, queries, k, per_class)
        return cut(found, **{name: change(vars(found)[name]) for name, change in changes.items()})

    return gather


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"distances": lambda d: d.astype(np.float32)}, "must be float64"),
        ({"distances": lambda d: d * [1.0, np.nan, 1.0]}, "never NaN"),
        ({"distances": lambda d: d[:, :, [0, 2, 1]]}, "must ascend"),
        ({"distances": lambda d: d + np.array([100, 0, 0])}, "must ascend"),
        ({"rows": lambda rows: rows.astype(float)}, "must be row numbers"),
        (
            dict.fromkeys(("distances", "rows"), lambda a: a[:, :, 1:]),
            r"the per_class=3 nearest samples of each class; got \(6, 3, 0, 2\)",
        ),
    ],
)
def test_further_samples_in_another_shape_or_order_are_named(changes, message):
    index, points = given(gather=changed_answer(**changes))
    with pytest.raises(InputError, match=message):
        index.gather(points, per_class=3)
