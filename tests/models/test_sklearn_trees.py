"""The layers of trees: leaves as the libraries themselves find them, and numbers with gaps."""

from zlib import crc32

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris, make_classification
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from iknow import EpistemicClassifier
from iknow.core.assertion import Assertion, Reason
from iknow.errors import InputError, LayerError
from iknow.metrics import Euclidean, Hamming, Table
from iknow.models import SklearnModel
from iknow.models.inputs import measure
from iknow.models.sklearn import as_leaves, find_table, leaf_finder, takes_gaps
from iknow.testing import ModelContract
from tests.choosing import level_layers
from tests.models.keeping import assert_comes_back

X, Y = load_iris(return_X_y=True)
TREES = {
    "tree": DecisionTreeClassifier(max_depth=4, random_state=0),
    "forest": RandomForestClassifier(8, random_state=0),
    "extra trees": ExtraTreesClassifier(8, random_state=0),
    "boosting": GradientBoostingClassifier(n_estimators=4, random_state=0),
    "bagging": BaggingClassifier(n_estimators=6, max_features=2, random_state=0),
    "AdaBoost": AdaBoostClassifier(n_estimators=5, random_state=0),
}


@pytest.fixture(scope="module", params=TREES)
def trees(request):
    return TREES[request.param].fit(X, Y)


class TestForest(ModelContract):
    def make_model(self):
        return SklearnModel(RandomForestClassifier(8, random_state=0).fit(X, Y))

    def make_inputs(self):
        return X[::10]

    def _make(self):
        model, inputs, _ = super()._make()
        return model, inputs, level_layers(model, inputs)


def walk(tree, sample):
    """The leaf of a sample, by following the tree's arrays one node at a time."""
    node = 0
    while tree.children_left[node] != -1:
        left = np.float32(sample[tree.feature[node]]) <= tree.threshold[node]
        node = (tree.children_left if left else tree.children_right)[node]
    return node


def test_leaves_equal_those_of_walking_down_every_tree(trees):
    found = leaf_finder(trees)(X[::7]).reshape(len(X[::7]), -1)
    if isinstance(trees, DecisionTreeClassifier):
        members, columns = [trees], [slice(None)]
    else:
        members = np.ravel(trees.estimators_)
        columns = getattr(trees, "estimators_features_", [slice(None)] * len(members))
    expected = [
        [walk(tree.tree_, x[seen]) for tree, seen in zip(members, columns, strict=True)]
        for x in X[::7]
    ]
    np.testing.assert_array_equal(found, expected)


def test_samples_that_share_all_leaves_get_the_same_scores(trees):
    model = SklearnModel(trees)
    grid = np.random.default_rng(0).uniform(X.min(axis=0), X.max(axis=0), (300, 4))
    said = model.observe(grid, ("leaves",))
    _, first, group = np.unique(
        said.activations["leaves"], axis=0, return_index=True, return_inverse=True
    )
    assert len(first) < len(grid)
    np.testing.assert_allclose(said.scores, said.scores[first][group.ravel()], rtol=1e-12)


@pytest.mark.parametrize(
    "classifier",
    [
        LogisticRegression(max_iter=1000),
        KNeighborsClassifier(),
        HistGradientBoostingClassifier(max_iter=2),
        BaggingClassifier(KNeighborsClassifier(), 2),
    ],
)
def test_others_have_no_leaves(classifier):
    classifier.fit(X, Y)
    assert leaf_finder(classifier) is None
    with pytest.raises(LayerError, match="has no layer 'leaves'"):
        SklearnModel(classifier).observe(X, ("leaves",))


def test_leaf_numbers_that_float32_cannot_hold_are_refused():
    assert as_leaves(np.array([[2**24 - 1]]), 1).astype(np.float32) == 2**24 - 1
    with pytest.raises(LayerError, match=r"numbers below 2\*\*24"):
        as_leaves(np.array([[3], [2**24]]), 2)
    with pytest.raises(LayerError, match="has no trees"):
        as_leaves(np.empty((2, 0)), 2)


def test_in_a_pipeline_leaves_are_those_of_its_classifier():
    pipeline = make_pipeline(StandardScaler(), RandomForestClassifier(5, random_state=0)).fit(X, Y)
    said = SklearnModel(pipeline).observe(X, ("leaves",)).activations["leaves"]
    np.testing.assert_array_equal(said, pipeline[-1].apply(pipeline[0].transform(X)))
    assert level_layers(SklearnModel(pipeline), X) == ("standardscaler", "leaves")


def test_a_step_called_leaves_or_numbers_is_still_found():
    for name in ("leaves", "table"):
        pipeline = make_pipeline(FunctionTransformer(np.square), RandomForestClassifier(5))
        pipeline.steps[0] = (name, pipeline.steps[0][1])
        said = SklearnModel(pipeline.fit(X, Y)).observe(X, (name,)).activations[name]
        np.testing.assert_array_equal(said, np.square(X).astype(np.float32))


def test_forests_are_judged_by_input_and_leaves_and_the_paper_by_its_own_layers():
    forest = RandomForestClassifier(20, random_state=0).fit(X[::2], Y[::2])
    ec = EpistemicClassifier(forest).fit(X[::2], Y[::2]).tune(X[1::2], coverage=0.8)
    assert ec.layers_ == ("input", "leaves")
    assert isinstance(ec.indexes_["leaves"].metric, Hamming)
    paper = EpistemicClassifier.paper(forest).fit(X[::2], Y[::2])
    assert paper.layers_ == ("input", "output")
    chosen = EpistemicClassifier.paper(forest, layers=["leaves"]).fit(X[::2], Y[::2])
    assert isinstance(chosen.indexes_["leaves"].metric, Hamming)
    assert paper.indexes_["input"].metric is Euclidean


def test_far_away_all_samples_share_the_outermost_leaves_and_only_the_input_sees_it():
    forest = RandomForestClassifier(20, random_state=0).fit(X[::2], Y[::2])
    far = 50 * X[1::2]
    alone = EpistemicClassifier(forest, layers=["leaves"]).fit(X[::2], Y[::2])
    assert (alone.tune(X[1::2], coverage=0.8).assess(far).assertion == Assertion.IK).any()
    both = EpistemicClassifier(forest).fit(X[::2], Y[::2]).tune(X[1::2], coverage=0.8)
    with pytest.warns(UserWarning, match="much larger than in training"):
        assert not (both.assess(far).assertion == Assertion.IK).any()


def test_leaves_too_coarse_to_tell_classes_apart_cost_no_coverage():
    stumps = RandomForestClassifier(3, max_depth=1, max_features=1, random_state=0)
    stumps.fit(X[::2], Y[::2])
    ec = EpistemicClassifier(stumps).fit(X[::2], Y[::2]).tune(X[1::2], coverage=0.7)
    assert set(ec.neighborhoods_) == {"input", "leaves"}
    assert (ec.assess(X[1::2]).assertion == Assertion.IK).mean() > 0.6


def test_samples_that_share_a_leaf_with_training_samples_are_no_copies():
    values, labels = make_classification(400, 10, n_informative=5, random_state=0)
    tree = DecisionTreeClassifier(random_state=0).fit(values[::2], labels[::2])
    ec = EpistemicClassifier(tree, layers=["leaves"]).fit(values[::2], labels[::2])
    ec.tune(values[1::2], labels[1::2], coverage=0.7)
    both = EpistemicClassifier(tree).fit(values[::2], labels[::2])
    with pytest.raises(InputError, match="are copies of training samples"):
        both.tune(values[::2], labels[::2], coverage=0.7)


def test_leaves_and_numbers_prove_no_robust_radius_but_spoil_none():
    forest = RandomForestClassifier(20, random_state=0).fit(X[::2], Y[::2])
    model = SklearnModel(forest)
    for layer in ("leaves", "table"):
        with pytest.raises(LayerError, match="it changes in steps"):
            model.sensitivity(layer, measure(X))
    alone = EpistemicClassifier(forest, layers=["leaves"]).fit(X[::2], Y[::2])
    with pytest.warns(UserWarning, match="robust radii are 0"):
        assert not alone.tune(X[1::2], coverage=0.8).assess(X[1::2]).robust_radius.any()
    both, first = (
        EpistemicClassifier(forest, layers=layers).fit(X[::2], Y[::2]).tune(X[1::2], coverage=0.8)
        for layers in (["input", "leaves"], ["input"])
    )
    radii = both.assess(X[1::2]).robust_radius
    assert (radii > 0).any()
    # What the input proves does not depend on the leaves, given the same rule.
    kept = {"input": both.neighborhoods_["input"]}
    alike = EpistemicClassifier(
        forest, layers=["input"], rule=kept, metric=first.indexes_["input"].metric
    )
    np.testing.assert_allclose(alike.fit(X[::2], Y[::2]).assess(X[1::2]).robust_radius, radii)


def punched(share=0.15, seed=0):
    values, labels = load_breast_cancer(return_X_y=True)
    rng = np.random.default_rng(seed)
    return np.where(rng.random(values.shape) < share, np.nan, values), labels


@pytest.mark.parametrize(
    "classifier",
    [RandomForestClassifier(20, random_state=0), HistGradientBoostingClassifier(max_iter=10)],
)
def test_tables_with_gaps_work_without_choosing_layers(classifier):
    values, labels = punched()
    classifier.fit(values[::2], labels[::2])
    ec = EpistemicClassifier(classifier).fit(values[::2], labels[::2])
    assert ec.layers_[0] == "table"
    assert isinstance(ec.indexes_["table"].metric, Table)
    assessed = ec.tune(values[1::2], coverage=0.8).assess(values[1::2])
    known = assessed.assertion == Assertion.IK
    right = assessed.belief == labels[1::2]
    assert 0.7 < known.mean() < 0.9
    assert right[known].mean() > right[~known].mean()
    with pytest.warns(UserWarning, match="much larger than in training"):
        far = ec.assess(np.where(np.isnan(values), np.nan, 100 * values)[:50])
    assert not (far.assertion == Assertion.IK).any()
    infinite = values[:1].copy()
    infinite[0, 0] = np.inf
    assert ec.assess(infinite).reason[0] == Reason.INVALID


def test_a_gap_that_training_never_had_fails_closed():
    values, labels = punched()
    values[:, 7] = load_breast_cancer().data[:, 7]
    forest = RandomForestClassifier(20, random_state=0).fit(values[::2], labels[::2])
    ec = EpistemicClassifier(forest).fit(values[::2], labels[::2]).tune(values[1::2], coverage=0.9)
    strange = values[1::2].copy()
    strange[:, 7] = np.nan
    assert not (ec.assess(strange).assertion == Assertion.IK).any()


def test_gaps_in_later_batches_count_too_or_are_an_error_that_names_the_layers():
    values, labels = punched()
    values[:100] = load_breast_cancer().data[:100]
    forest = RandomForestClassifier(5, random_state=0).fit(values, labels)
    chosen = EpistemicClassifier(forest, batch_size=50).fit(values, labels)
    assert chosen.layers_ == ("table", "leaves")
    batches = [(values[i : i + 50], labels[i : i + 50]) for i in range(0, len(values), 50)]
    with pytest.raises(InputError, match=r"layers=\['table'\], with 'leaves'"):
        EpistemicClassifier(forest).fit(iter(batches))
    named = EpistemicClassifier(forest, layers=["table", "leaves"]).fit(iter(batches))
    assert named.layers_ == ("table", "leaves")


def test_a_table_holds_numbers_codes_of_categories_and_gaps():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {
            "a": [1.5, np.nan],
            "b": ["x", "y"],
            "c": pd.array([None, 3], dtype="Int64"),
            "d": pd.Categorical(["u", None]),
            "e": [True, False],
        }
    )
    x, y, u = (crc32(text) % 2**24 for text in (b"x", b"y", b"u"))
    expected = [[1.5, x, 0, u, 1, 0, 2, 1, 2, 0], [0, y, 3, 0, 0, 1, 2, 0, 1, 0]]
    np.testing.assert_array_equal(find_table(frame), expected)
    with pytest.raises(LayerError, match="there are no columns"):
        find_table(frame[[]])


def test_what_takes_gaps_is_known_and_anything_has_a_table():
    assert takes_gaps(HistGradientBoostingClassifier(max_iter=2).fit(X, Y))
    assert not takes_gaps(LogisticRegression(max_iter=1000).fit(X, Y))
    said = SklearnModel(LogisticRegression(max_iter=1000).fit(X, Y)).observe(X, ("table",))
    expected = np.hstack([X, np.zeros_like(X)]).astype(np.float32)
    np.testing.assert_array_equal(said.activations["table"], expected)


def test_a_classifier_judged_by_leaves_and_gaps_is_saved_and_loaded(tmp_path):
    values, labels = punched()
    forest = RandomForestClassifier(20, random_state=0).fit(values[::2], labels[::2])
    ec = EpistemicClassifier(forest).fit(values[::2], labels[::2]).tune(values[1::2], coverage=0.8)
    other = RandomForestClassifier(20, random_state=1).fit(values[::2], labels[::2])
    assert_comes_back(ec, forest, values, tmp_path, other)
