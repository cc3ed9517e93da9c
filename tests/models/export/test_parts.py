"""The steps of pipelines as ONNX, to the last place in the precision of their input."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.datasets import load_iris
from sklearn.ensemble import HistGradientBoostingClassifier, VotingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    PowerTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import SVC, NuSVC
from sklearn.tree import DecisionTreeClassifier

from iknow.errors import ExportError
from iknow.models import as_model
from tests.models.export.comparing import assert_same, export, quick, run

pytest.importorskip("skl2onnx")

X, Y = load_iris(return_X_y=True)
SINGLE = X.astype(np.float32)
STEPS = {
    "standard": StandardScaler(),
    "not centered": StandardScaler(with_mean=False),
    "range": MinMaxScaler((-1, 2), clip=True),
    "largest": MaxAbsScaler(),
    "robust": RobustScaler(),
    "binary": Binarizer(threshold=1.5),
    "constant": SimpleImputer(strategy="constant", fill_value=7, missing_values=1.5),
}


@pytest.mark.parametrize("name", quick(STEPS, ["standard", "range"]))
def test_scalers_round_as_scikit_learn_does(name):
    """Compared for equality: a copy of a training sample must stay at distance 0."""
    for trained, seen in ((X, X), (SINGLE, SINGLE), (X, SINGLE)):
        model = make_pipeline(clone(STEPS[name]), LogisticRegression(max_iter=9999)).fit(trained, Y)
        layer = model.steps[0][0]
        said, _ = run(export(model, seen, [layer]), seen, [layer])
        expected = as_model(model).observe(seen, [layer]).activations[layer]
        np.testing.assert_array_equal(said.activations[f"layer:{layer}"], expected)


POWERS = {
    "cubic": PolynomialFeatures(3),
    "products": PolynomialFeatures(2, interaction_only=True, include_bias=False),
    "power": PowerTransformer(),
    "not standardized": PowerTransformer(standardize=False),
}


@pytest.mark.parametrize("name", quick(POWERS, ["cubic", "power"]))
def test_powers(name):
    values = X - X.mean(axis=0)
    model = make_pipeline(POWERS[name], GaussianNB()).fit(values, Y)
    assert_same(model, values, [model.steps[0][0]], 3 * values[::-1], rtol=1e-5)


@pytest.mark.parametrize("unknown", quick(["ignore", "error"], ["infrequent_if_exist"]))
def test_rare_categories_share_a_column(unknown):
    words = np.array([["a", "u"], ["b", "v"], ["a", "u"], ["c", "u"]] * 20)
    encoder = OneHotEncoder(handle_unknown=unknown, min_frequency=30)
    model = make_pipeline(encoder, LogisticRegression()).fit(words, [0, 1, 1, 0] * 20)
    others = None if unknown == "error" else np.array([["zz", "u"], ["c", "?"]])
    assert_same(model, words, ["onehotencoder"], others, rtol=1e-12)


def test_columns_by_name_slice_and_kind():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    frame["kind"] = np.where(Y == 1, "one", "other")
    table = ColumnTransformer(
        [
            ("slice", StandardScaler(), slice(0, 2)),
            ("pattern", MinMaxScaler(), make_column_selector(pattern="^c$")),
            ("none", StandardScaler(), []),
            ("kind", OrdinalEncoder(), ["kind"]),
        ],
        transformer_weights={"slice": 2.0},
    )
    model = make_pipeline(table, LogisticRegression()).fit(frame, Y)
    assert_same(model, frame, ["columntransformer"], rtol=1e-12)


def test_histograms_split_by_sets_of_categories():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    codes = (Y + (rng.random(150) < 0.4) * rng.integers(0, 4, 150)) % 5
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    frame.insert(1, "kind", pd.Categorical(np.array(["u", "v", "w", "zz", "y"])[codes]))
    grown = HistGradientBoostingClassifier(max_iter=8, min_samples_leaf=3)
    assert_same(clone(grown).fit(frame, Y), frame, ["table"], rtol=1e-12)
    table = np.column_stack([X, np.where(rng.random(150) < 0.1, np.nan, codes)])
    unseen = np.column_stack([X, rng.integers(-2, 9, 150)])
    model = clone(grown).set_params(categorical_features=[4]).fit(table, Y)
    assert any(
        predictor.nodes["is_categorical"].any() for each in model._predictors for predictor in each
    )
    assert_same(model, table, ["table"], unseen, rtol=1e-12)


@pytest.mark.parametrize("kernel", quick(["linear", "poly", "sigmoid"], ["rbf"]))
def test_kernels_and_their_votes(kernel):
    """skl2onnx writes them, which computes in single precision."""
    far = 2 * X[::-1] + 1
    for model in (SVC(kernel=kernel), NuSVC(nu=0.2)):
        assert_same(model.fit(X, Y), X, ["output"], far, rtol=1e-4)
    pairs = SVC(kernel=kernel, decision_function_shape="ovo").fit(X, Y)
    assert_same(pairs, X, ["output"], far, rtol=1e-4)
    assert_same(SVC(kernel=kernel).fit(X, Y == 1), X, ["output"], far, rtol=1e-4)


@pytest.mark.filterwarnings("ignore:The `probability` parameter")
def test_support_vectors_with_probabilities_keep_their_decision():
    assert_same(SVC(probability=True, random_state=0).fit(X, Y), X, ["output"], rtol=1e-5)


def test_what_skl2onnx_gets_wrong_is_refused():
    with pytest.raises(ExportError, match="break_ties=True cannot become ONNX"):
        export(SVC(break_ties=True).fit(X, Y), X, ["output"])
    trees = VotingClassifier(
        [("a", OneVsRestClassifier(DecisionTreeClassifier())), ("b", DecisionTreeClassifier())]
    )
    with pytest.raises(ExportError, match="outside OneVsRestClassifier"):
        export(trees.fit(X, Y), X, ["input"])
    assert_same(OneVsRestClassifier(DecisionTreeClassifier()).fit(X, Y), X, ["input"])
