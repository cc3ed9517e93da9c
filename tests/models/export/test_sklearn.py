"""scikit-learn models as ONNX, against what their adapter observes."""

import copy
import pickle
import warnings

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from iknow.errors import ExportError, LayerError
from iknow.models import as_model
from tests.models.export.comparing import assert_same, export, on_thresholds, quick, run

pytest.importorskip("skl2onnx")

X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])[Y]
CANCER, SICK = load_breast_cancer(return_X_y=True)
rng = np.random.default_rng(0)
WILD = X + rng.normal(0, 3, X.shape)  # far from the training data too


def fitted(model, values=X, labels=NAMES):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few iterations
        return model.fit(values, labels)


LINEAR = {
    "logistic": LogisticRegression(max_iter=50),
    "SGD": SGDClassifier(random_state=0),
    "SGD's probabilities": SGDClassifier(loss="log_loss", random_state=0),
    "Huber": SGDClassifier(loss="modified_huber", random_state=0),
    "SVM": LinearSVC(random_state=0),
    "ridge": RidgeClassifier(),
    "discriminants": LinearDiscriminantAnalysis(),
}


@pytest.mark.parametrize("name", quick(LINEAR, ["logistic", "SGD's probabilities"]))
def test_linear_classifiers(name):
    assert_same(fitted(LINEAR[name]), X, ["input", "output"], WILD, rtol=1e-9)
    two = fitted(make_pipeline(StandardScaler(), LINEAR[name]), CANCER, SICK)
    assert_same(two, CANCER[:200], ["standardscaler", "output"], CANCER[200:], rtol=1e-9)


def test_saturated_probabilities_do_not_hide_the_answer():
    model = fitted(SGDClassifier(loss="log_loss", random_state=0))
    far = 1e4 * X
    assert (model.predict_proba(far) == 0).any()
    assert_same(model, X, ["input"], far)


TREES = {
    "tree": DecisionTreeClassifier(random_state=0),
    "root": DecisionTreeClassifier(max_depth=1, min_samples_leaf=80, random_state=0),
    "forest": RandomForestClassifier(8, random_state=0),
    "extra trees": ExtraTreesClassifier(8, random_state=0),
    "boosting": GradientBoostingClassifier(n_estimators=4, random_state=0),
    "bagging": BaggingClassifier(n_estimators=6, max_features=2, random_state=0),
    "AdaBoost": AdaBoostClassifier(n_estimators=5, random_state=0),
}


def find_thresholds(model):
    """Pairs of a feature and a threshold in all trees."""
    members = [model] if hasattr(model, "tree_") else list(np.ravel(model.estimators_))
    columns = getattr(model, "estimators_features_", [np.arange(99)] * len(members))
    for member, seen in zip(members, columns, strict=True):
        tree = member.tree_
        inner = tree.children_left != -1
        yield from zip(np.asarray(seen)[tree.feature[inner]], tree.threshold[inner], strict=True)


@pytest.mark.parametrize("name", quick(TREES, ["forest", "boosting", "bagging"]))
def test_leaves_are_equal_on_the_thresholds_too(name):
    model = fitted(TREES[name])
    near = on_thresholds(X, find_thresholds(model)) if name != "root" else WILD
    assert_same(model, X, ["leaves", "input", "output"], near, rtol=1e-12)


def test_a_forest_of_two_classes_ties_as_scikit_learn_does():
    model = fitted(RandomForestClassifier(4, max_depth=6, random_state=0), CANCER, SICK)
    tied = (model.predict_proba(CANCER) == 0.5).all(axis=1)
    assert tied.any()
    graph = assert_same(model, CANCER, ["leaves"], on_thresholds(CANCER, find_thresholds(model)))
    assert len(graph.graph.output) == 2


def test_missing_values_go_the_way_that_the_trees_learned():
    holes = np.where(rng.random(X.shape) < 0.2, np.nan, X)
    for model in (RandomForestClassifier(8, random_state=0), DecisionTreeClassifier()):
        assert_same(fitted(model, holes), holes, ["table", "leaves"])
    grown = fitted(HistGradientBoostingClassifier(max_iter=5), holes)
    thresholds = [
        (node["feature_idx"], node["num_threshold"])
        for each in grown._predictors
        for predictor in each
        for node in predictor.nodes
        if not node["is_leaf"]
    ]
    assert_same(grown, holes, ["table"], on_thresholds(holes, thresholds), rtol=1e-12)


PAIRS = {
    "boosting": GradientBoostingClassifier(n_estimators=4, loss="exponential"),
    "AdaBoost": AdaBoostClassifier(n_estimators=4),
    "histograms": HistGradientBoostingClassifier(max_iter=4),
    "SVM": SVC(gamma=0.1),
    "bagging": BaggingClassifier(LogisticRegression(), 3, max_features=9, random_state=0),
    "boosted lines": AdaBoostClassifier(LogisticRegression(), n_estimators=2),
}


@pytest.mark.parametrize("name", quick(PAIRS, ["boosting", "histograms"]))
def test_ensembles_of_two_classes(name):
    scaled = StandardScaler().fit_transform(CANCER)
    model = fitted(PAIRS[name], scaled, SICK)
    assert_same(model, scaled[:200], ["input", "output"], scaled[200:])


@pytest.mark.parametrize("activation", quick(["tanh", "logistic", "identity"], ["relu"]))
def test_networks_and_their_layers(activation):
    model = MLPClassifier((6, 5), activation=activation, max_iter=20, random_state=0)
    layers = ["hidden1", "hidden2", "logits"]
    assert_same(fitted(model), X, layers, WILD, rtol=1e-9)
    assert_same(fitted(model, CANCER, SICK), CANCER[:99], layers, CANCER[99:], rtol=1e-9)


FOREST = RandomForestClassifier(3, random_state=0)
META = {
    "soft": VotingClassifier([("a", LogisticRegression()), ("b", FOREST)], voting="soft",
                             weights=[1, 2]),
    "hard": VotingClassifier([("a", LogisticRegression()), ("b", FOREST), ("c", SVC())]),
    "stack": StackingClassifier([("a", LogisticRegression()), ("b", FOREST), ("c", LinearSVC())],
                                passthrough=True),
    "sigmoid": CalibratedClassifierCV(LinearSVC(), cv=2),
    "isotonic": CalibratedClassifierCV(FOREST, cv=2, method="isotonic"),
    "search": GridSearchCV(make_pipeline(StandardScaler(), LogisticRegression()),
                           {"logisticregression__C": [1, 10]}, cv=2),
    "inside": CalibratedClassifierCV(make_pipeline(StandardScaler(), PCA(2), FOREST), cv=2),
}  # fmt: skip


@pytest.mark.parametrize("name", quick(META, ["soft", "isotonic"]))
def test_models_of_models(name):
    model = fitted(copy.deepcopy(META[name]))
    assert_same(model, X, ["input"], WILD, rtol=1e-9)


def test_pipelines_inside_pipelines_and_side_by_side():
    inner = make_pipeline(StandardScaler(), "passthrough", PCA(3))
    union = FeatureUnion([("a", MinMaxScaler()), ("b", PCA(2))], transformer_weights={"b": 0.5})
    model = fitted(make_pipeline(inner, union, FOREST))
    layers = ["pipeline", "pipeline.standardscaler", "pipeline.pca", "featureunion", "leaves"]
    assert_same(model, X, layers, WILD)


def test_others_are_converted_by_skl2onnx_and_compared():
    assert_same(fitted(make_pipeline(StandardScaler(), SVC())), X, ["standardscaler", "output"])
    assert_same(fitted(GaussianNB()), X, ["input"], rtol=1e-9)
    neighbors = fitted(KNeighborsClassifier(3), CANCER, SICK)
    assert_same(neighbors, CANCER[:100], ["output"])


def make_frame(n=200):
    pd = pytest.importorskip("pandas")
    source = np.random.default_rng(1)
    frame = pd.DataFrame(
        {
            "age": source.integers(18, 80, n),
            "income": source.normal(50, 20, n),
            "city": source.choice(["Bonn", "Kyōto", ""], n),
            "home": source.random(n) < 0.5,
            "size": pd.Categorical(source.choice(["S", "L"], n)),
            "floor": source.choice([1, 5, 9], n),
        }
    )
    frame.loc[source.random(n) < 0.1, "income"] = np.nan
    rich = frame.age + frame.income.fillna(40) + 20 * (frame.city == "Bonn") > 100
    return frame, np.where(rich, "yes", "no")


def make_table():
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    kinds = OneHotEncoder(handle_unknown="ignore", drop="if_binary")
    return ColumnTransformer(
        [("numbers", numbers, ["age", "income"]), ("kinds", kinds, ["city", "size", "floor"])],
        remainder="passthrough",
    )


def test_a_frame_has_an_input_for_each_column():
    frame, labels = make_frame()
    model = fitted(make_pipeline(make_table(), FOREST), frame, labels)
    graph = assert_same(model, frame, ["columntransformer", "leaves"])
    assert [each.name for each in graph.graph.input] == list(frame.columns)
    shuffled = frame[list(frame.columns[::-1])]
    expected = as_model(model).observe(frame, ())
    np.testing.assert_array_equal(run(graph, shuffled, [])[1], expected.belief)


@pytest.mark.filterwarnings("ignore:Found unknown categories")
def test_unknown_categories_are_ignored_or_refused_as_the_encoder_does():
    frame, labels = make_frame()
    strange = frame.copy()
    strange.loc[3, "city"], strange.loc[5, "floor"] = "Ulm", 2
    ignoring = fitted(make_pipeline(make_table(), LogisticRegression()), frame, labels)
    assert_same(ignoring, frame, ["columntransformer"], strange)
    columns = ["city", "floor"]
    refusing = fitted(make_pipeline(OrdinalEncoder(), FOREST), frame[columns], labels)
    graph = assert_same(refusing, frame[columns], ["ordinalencoder", "leaves"])
    _, belief = run(graph, strange[columns], ["leaves"])
    np.testing.assert_array_equal(np.flatnonzero(belief == -1), [3, 5])


TEXTS = ["A good film", "bad bad movie", "ÉTÉ: très bon", "don't x watch 2 it", "日本語 ok", ""] * 9


def test_texts_in_any_script_through_vectorizers():
    labels = [1, 0, 1, 0, 1, 0] * 9
    for step in (
        TfidfVectorizer(),
        TfidfVectorizer(sublinear_tf=True, norm="l1"),
        CountVectorizer(ngram_range=(1, 2), binary=True),
    ):
        name = type(step).__name__.lower()
        model = fitted(make_pipeline(step, LogisticRegression()), TEXTS, labels)
        others = ["été À", "Good, bad; good", "", "_ b2"]
        assert_same(model, TEXTS, [name, "output"], others, rtol=1e-12)
    letters = fitted(make_pipeline(TfidfVectorizer(analyzer="char"), FOREST), TEXTS, labels)
    with pytest.raises(ExportError, match="analyzer other than 'word'"):
        export(letters, TEXTS, ["leaves"])


STRANGE = (np.nan, np.inf, -np.inf, 1e39, 3.4028235e38)


SOME = ColumnTransformer([("some", SimpleImputer(), [0, 1])], remainder="passthrough")
CAUTIOUS = {
    "forest": RandomForestClassifier(3, random_state=0),
    "scaled": make_pipeline(StandardScaler(), FOREST),
    "logistic": LogisticRegression(max_iter=20),
    "histograms": HistGradientBoostingClassifier(max_iter=3),
    "imputed": make_pipeline(SimpleImputer(), LinearSVC(random_state=0)),
    "partly imputed": make_pipeline(SOME, FOREST),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", quick(CAUTIOUS, ["scaled", "partly imputed"]))
def test_a_graph_refuses_the_samples_that_the_model_refuses(name):
    model = fitted(CAUTIOUS[name])
    rows = np.repeat(X[:1], len(STRANGE) * 4, axis=0)
    for i, (j, value) in enumerate((j, value) for j in range(4) for value in STRANGE):
        rows[i, j] = value
    expected = [as_model(model).observe(row[None], ()).belief[0] for row in rows]
    _, belief = run(export(model, X, ["input"]), rows, ["input"])
    np.testing.assert_array_equal(belief, expected)


def test_the_estimator_is_left_as_it_was():
    model = fitted(make_pipeline(StandardScaler(), SVC()))
    before = pickle.dumps(model)
    export(model, X, ["standardscaler"])
    assert pickle.dumps(model) == before


def test_what_cannot_be_converted_is_named():
    squares = fitted(make_pipeline(FunctionTransformer(np.square), FOREST))
    with pytest.raises(ExportError, match=r"calls Python \('square'\)"):
        export(squares, X, ["leaves"])
    process = fitted(GaussianProcessClassifier())
    with pytest.raises(ExportError, match=r"GaussianProcess.* cannot become ONNX by skl2onnx"):
        export(process, X, ["input"])
    with pytest.raises(LayerError, match="has no layer 'hidden'"):
        export(fitted(LogisticRegression()), X, ["hidden"])
    with pytest.raises(ExportError, match="it refuses all"):
        export(fitted(LogisticRegression()), np.full((2, 4), np.nan), ["input"])

    class Mine(LogisticRegression):
        def decision_function(self, X):
            return -super().decision_function(X)

    with pytest.raises(ExportError, match="Mine cannot become ONNX"):
        export(fitted(Mine()), X, ["input"])


def test_columns_whose_names_a_graph_cannot_use_are_an_error():
    pd = pytest.importorskip("pandas")
    model = LogisticRegression()
    for names in (["scores", "b", "c", "d"], [0, 1, 2, 3]):
        frame = pd.DataFrame(X, columns=names)
        with pytest.raises(ExportError, match=r"cannot be called 'scores'|text of its own"):
            export(fitted(model, frame if names[0] else X), frame, ["input"])
