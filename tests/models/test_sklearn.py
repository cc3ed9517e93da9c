"""SklearnModel against scikit-learn's own forward pass, transforms and predictions."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from scipy.special import expit, softmax
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.datasets import make_blobs
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import SVC, LinearSVC

from iknow.errors import InputError, LayerError
from iknow.models.model import Model
from iknow.models.sklearn import SklearnModel
from tests.choosing import paper_layers

X, Y = make_blobs(120, n_features=4, centers=4, cluster_std=4.0, random_state=3)
NAMES = np.array(["cat", "dog", "eel", "fox"])
COLUMNS = ["a", "b", "c", "d"]


def network(sizes=(5, 3), **settings):
    return MLPClassifier(sizes, max_iter=15, random_state=0, **settings)


def fit(estimator, inputs=X, labels=Y):
    """A fitted copy; a network may stop before it converges."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return clone(estimator).fit(inputs, labels)


def observe(estimator, inputs=X, layers=()):
    model = SklearnModel(estimator)
    return model.observe(model.prepare(inputs), layers)


def rest_of(row):
    return np.arange(len(X)) != row


# Networks


@pytest.mark.parametrize("activation", ["relu", "tanh", "logistic", "identity"])
@pytest.mark.parametrize("n_classes", [2, 4])
def test_hidden_layers_and_logits_are_those_of_the_forward_pass(activation, n_classes):
    few = n_classes > Y
    mlp = fit(network(activation=activation), X[few], Y[few])
    found = observe(mlp, X[few], ("input", "hidden1", "hidden2", "logits")).activations
    own = mlp._forward_pass([X[few]] + [None] * (mlp.n_layers_ - 1))
    np.testing.assert_array_equal(found["input"], X[few].astype(np.float32))
    np.testing.assert_allclose(found["hidden1"], own[1], rtol=1e-6)
    np.testing.assert_allclose(found["hidden2"], own[2], rtol=1e-6)
    if n_classes == 2:
        assert found["logits"].shape == (few.sum(), 1)
        np.testing.assert_allclose(expit(found["logits"]), own[3], rtol=1e-5)
    else:
        np.testing.assert_allclose(softmax(found["logits"], axis=1), own[3], rtol=1e-5)
    observation = observe(mlp, X[few])
    np.testing.assert_array_equal(observation.scores, mlp.predict_proba(X[few]))
    np.testing.assert_array_equal(observation.belief, mlp.predict(X[few]))
    assert observation.activations == {}
    assert not observation.invalid.any()


def test_a_network_has_no_output_layer_but_logits():
    with pytest.raises(LayerError) as caught:
        observe(fit(network()), X, ("output",))
    assert str(caught.value) == (
        "MLPClassifier has no layer 'output': it has 'input', 'hidden1', 'hidden2', 'logits', "
        "'table'"
    )


# Other classifiers


def probabilities(fitted, inputs):
    return fitted.predict_proba(inputs)


def decisions(fitted, inputs):
    return fitted.decision_function(inputs)


def both_signs(fitted, inputs):
    return np.column_stack([-decisions(fitted, inputs), decisions(fitted, inputs)])


def votes(fitted, inputs):
    return np.eye(len(fitted.classes_))[fitted.predict(inputs)]


@pytest.mark.parametrize(
    ("estimator", "n_classes", "scores", "output"),
    [
        (LogisticRegression(), 4, probabilities, decisions),
        (RandomForestClassifier(5, random_state=0), 4, probabilities, probabilities),
        (GaussianNB(), 4, probabilities, probabilities),
        (SVC(), 4, decisions, decisions),
        (LinearSVC(), 4, decisions, decisions),
        (LinearSVC(), 2, both_signs, decisions),
        # Decisions about pairs of classes do not pass for scores.
        (SVC(decision_function_shape="ovo"), 4, votes, decisions),
        (VotingClassifier([("nb", GaussianNB()), ("svc", LinearSVC())]), 4, votes, None),
    ],
    ids=lambda given: getattr(given, "__name__", type(given).__name__),
)
def test_scores_are_probabilities_or_decisions_or_votes_and_the_output_decisions_first(
    estimator, n_classes, scores, output
):
    few = n_classes > Y
    fitted = fit(estimator, X[few], Y[few])
    found = observe(fitted, X[few], () if output is None else ("output",))
    np.testing.assert_array_equal(found.scores, scores(fitted, X[few]))
    np.testing.assert_array_equal(found.belief, fitted.predict(X[few]))
    if output is not None:
        expected = output(fitted, X[few]).reshape(few.sum(), -1).astype(np.float32)
        np.testing.assert_array_equal(found.activations["output"], expected)
        assert expected.shape[1] == {both_signs: 1, votes: 6}.get(scores, 4)


def test_the_belief_is_the_prediction_where_the_highest_score_is_another():
    svc = fit(SVC(kernel="linear"))
    queries = np.random.default_rng(0).uniform(-15, 15, size=(400, 4))
    observation = observe(svc, queries)
    voted = svc.predict(queries)
    assert (observation.scores.argmax(axis=1) != voted).any()  # where the votes are tied
    np.testing.assert_array_equal(observation.belief, voted)


def test_string_labels_are_beliefs_by_position():
    forest = fit(RandomForestClassifier(5, random_state=0), X, NAMES[Y])
    model = SklearnModel(forest)
    assert model.classes.tolist() == NAMES.tolist()
    np.testing.assert_array_equal(model.classes[model.observe(X, ()).belief], forest.predict(X))


# Pipelines and wrappers


def pipeline(final):
    return Pipeline([("scale", StandardScaler()), ("pca", PCA(2)), ("final", final)])


def test_the_steps_of_a_pipeline_are_layers_and_the_input_is_the_raw_input():
    pipe = fit(pipeline(network()))
    layers = ("input", "scale", "pca", "hidden1", "hidden2", "logits")
    found = observe(pipe, X, layers).activations
    assert tuple(found) == layers
    scaled = pipe["scale"].transform(X)
    reduced = pipe["pca"].transform(scaled)
    own = pipe["final"]._forward_pass([reduced] + [None] * 3)
    np.testing.assert_array_equal(found["input"], X.astype(np.float32))
    np.testing.assert_allclose(found["scale"], scaled, rtol=1e-6)
    np.testing.assert_allclose(found["pca"], reduced, rtol=1e-6)
    np.testing.assert_allclose(found["hidden2"], own[2], rtol=1e-6)
    np.testing.assert_allclose(softmax(found["logits"], axis=1), own[3], rtol=1e-5)


def test_the_output_of_a_pipeline_is_that_of_its_classifier():
    pipe = fit(pipeline(LogisticRegression()))
    observation = observe(pipe, X, ("pca", "output"))
    np.testing.assert_allclose(
        observation.activations["output"], pipe.decision_function(X), rtol=1e-6
    )
    np.testing.assert_array_equal(observation.scores, pipe.predict_proba(X))


@pytest.mark.parametrize("nothing", ["passthrough", None])
def test_a_step_that_passes_through_gives_what_it_gets(nothing):
    pipe = fit(Pipeline([("scale", StandardScaler()), ("off", nothing), ("nb", GaussianNB())]))
    found = observe(pipe, X, ("scale", "off")).activations
    np.testing.assert_array_equal(found["off"], found["scale"])


def test_a_pipeline_within_a_pipeline_gives_the_steps_of_both():
    pipe = fit(Pipeline([("shift", StandardScaler()), ("inner", pipeline(GaussianNB()))]))
    found = observe(pipe, X, ("shift", "scale", "pca", "output")).activations
    expected = pipe["inner"][:2].transform(pipe["shift"].transform(X))
    np.testing.assert_allclose(found["pca"], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("step", "final"), [("input", GaussianNB()), ("output", GaussianNB()), ("logits", network())]
)
def test_a_step_named_like_a_layer_that_exists_is_refused(step, final):
    pipe = fit(Pipeline([(step, StandardScaler()), ("final", final)]))
    with pytest.raises(LayerError, match=f"'{step}' names more than one layer.*another name"):
        observe(pipe, X, (step,))


def test_a_step_named_output_before_a_network_is_that_step():
    pipe = fit(Pipeline([("output", StandardScaler()), ("final", network())]))
    found = observe(pipe, X, ("output",)).activations
    np.testing.assert_allclose(found["output"], pipe["output"].transform(X), rtol=1e-6)


@pytest.mark.parametrize(
    "wrap",
    [
        FrozenEstimator,
        lambda fitted: FrozenEstimator(FrozenEstimator(fitted)),
        lambda fitted: Pipeline([*fitted.steps[:-1], ("f", FrozenEstimator(fitted.steps[-1][1]))]),
        lambda fitted: fit(GridSearchCV(fitted, {"final__alpha": [1e-4, 10.0]}, cv=2)),
    ],
    ids=["frozen", "frozen twice", "frozen at the end of a pipeline", "search"],
)
def test_a_wrapper_is_looked_into(wrap):
    layers = ("input", "scale", "hidden1", "hidden2", "logits")
    fitted = fit(pipeline(network()))
    wrapper = wrap(fitted)
    bare = observe(getattr(wrapper, "best_estimator_", fitted), X, layers)
    found = observe(wrapper, X, layers)
    np.testing.assert_array_equal(found.belief, wrapper.predict(X))
    np.testing.assert_array_equal(found.scores, bare.scores)
    for layer in layers:
        np.testing.assert_array_equal(found.activations[layer], bare.activations[layer])


@pytest.mark.parametrize(
    ("estimator", "layers"),
    [
        (network(), ("hidden2", "logits")),
        (network((7,)), ("hidden1", "logits")),
        (network(()), ("input", "logits")),
        (pipeline(network()), ("hidden2", "logits")),
        (GaussianNB(), ("input", "output")),
        (pipeline(LogisticRegression()), ("pca", "output")),
        (
            Pipeline([("scale", StandardScaler()), ("none", "passthrough"), ("nb", GaussianNB())]),
            ("scale", "output"),
        ),
        (Pipeline([("none", "passthrough"), ("nb", GaussianNB())]), ("input", "output")),
        (VotingClassifier([("nb", GaussianNB())], voting="hard"), ("input",)),
    ],
    ids=[
        "network",
        "one hidden",
        "none hidden",
        "pipeline",
        "bayes",
        "linear pipeline",
        "skipped",
        "all skipped",
        "voting",
    ],
)
def test_by_default_a_network_gives_hidden_and_logits_and_others_what_they_are_given_and_output(
    estimator, layers
):
    model = SklearnModel(fit(estimator))
    assert isinstance(model, Model)
    assert paper_layers(model, X) == layers
    assert tuple(model.observe(X, layers).activations) == layers


# Data frames


def frame(dtype=np.float64):
    return pd.DataFrame(X.astype(dtype), columns=COLUMNS, index=np.arange(len(X)) * 7 + 3)


@pytest.mark.parametrize(
    "estimator",
    [network(), pipeline(network()), RandomForestClassifier(5, random_state=0)],
    ids=["network", "pipeline", "forest"],
)
def test_a_frame_keeps_its_columns_so_that_nothing_warns(estimator):
    fitted = fit(estimator, frame())
    assert fitted.feature_names_in_.tolist() == COLUMNS
    model = SklearnModel(fitted)
    layers = ("input", *paper_layers(model, frame())[1:])
    observation = model.observe(model.prepare(frame()), layers)
    np.testing.assert_array_equal(observation.belief, fitted.predict(frame()))
    np.testing.assert_array_equal(observation.activations["input"], X.astype(np.float32))


def test_a_transformer_may_give_frames():
    pipe = fit(pipeline(GaussianNB()).set_output(transform="pandas"), frame())
    found = observe(pipe, frame(), ("scale", "pca")).activations
    np.testing.assert_allclose(found["pca"], pipe[:2].transform(frame()).to_numpy(), rtol=1e-6)


def mixed_frame():
    return frame().assign(animal=NAMES[(Y * 3 + 1) % 4])


def mixed_pipeline():
    encode = ColumnTransformer(
        [("text", OneHotEncoder(), ["animal"]), ("numbers", StandardScaler(), COLUMNS)]
    )
    return Pipeline([("encode", encode), ("final", network())])


def test_a_string_column_works_for_the_layers_after_its_encoding():
    pipe = fit(mixed_pipeline(), mixed_frame())
    found = observe(pipe, mixed_frame(), ("encode", "hidden2", "logits"))
    encoded = pipe["encode"].transform(mixed_frame())
    np.testing.assert_allclose(found.activations["encode"], encoded, rtol=1e-6)
    np.testing.assert_array_equal(found.belief, pipe.predict(mixed_frame()))


def test_a_string_column_has_no_input_layer_and_the_error_says_what_to_do():
    pipe = fit(mixed_pipeline(), mixed_frame())
    with pytest.raises(LayerError, match="choose layers after the step that encodes them"):
        observe(pipe, mixed_frame(), ("input", "logits"))


def test_the_sparse_output_of_a_transformer_is_a_layer():
    letters = pd.DataFrame({"animal": NAMES[Y], "other": NAMES[::-1][Y]})
    pipe = fit(make_pipeline(OneHotEncoder(), network()), letters)
    found = observe(pipe, letters, ("onehotencoder", "hidden1")).activations
    expected = pipe[0].transform(letters).toarray()
    np.testing.assert_array_equal(found["onehotencoder"], expected)


# What is refused


def test_sparse_inputs_are_refused_by_a_classifier_that_takes_none():
    with pytest.raises(InputError, match=r"GaussianNB failed .* Sparse data was passed"):
        observe(fit(GaussianNB()), csr_array(X))


def test_inputs_of_one_dimension_are_refused():
    with pytest.raises(InputError, match=r"got \(120,\).*Reshape your data"):
        SklearnModel(fit(GaussianNB())).prepare(X[:, 0])


@pytest.mark.parametrize(
    "estimator",
    [
        GaussianNB(),
        pipeline(network()),
        FrozenEstimator(GaussianNB()),
        GridSearchCV(GaussianNB(), {}),
        LinearRegression().fit(X, Y),
    ],
    ids=["bayes", "pipeline", "frozen", "search", "regression"],
)
def test_what_is_no_fitted_classifier_is_refused(estimator):
    with pytest.raises(
        InputError, match=r"is not a fitted classifier \(it has no classes_\)|is no classifier"
    ):
        SklearnModel(estimator)


# What is not finite


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("given", ["array", "frame"])
@pytest.mark.parametrize(
    "estimator",
    [pipeline(network()), RandomForestClassifier(5, random_state=0)],
    ids=["network", "forest"],
)
def test_a_row_that_is_not_finite_is_invalid_and_changes_no_bit_of_the_others(
    estimator, given, dtype, bad
):
    def inputs(values):
        return pd.DataFrame(values, columns=COLUMNS) if given == "frame" else values

    row = 5
    clean, dirty = X.astype(dtype), X.astype(dtype)
    clean[row] = 0
    dirty[row, 2] = bad
    model = SklearnModel(fit(estimator, inputs(clean)))
    layers = ("input", *paper_layers(model, clean))
    reference = model.observe(inputs(clean), layers)
    batch = inputs(dirty.copy())
    observation = model.observe(batch, layers)
    rest = rest_of(row)
    assert observation.invalid.tolist() == (~rest).tolist()
    assert not reference.invalid.any()
    np.testing.assert_array_equal(observation.scores[rest], reference.scores[rest])
    np.testing.assert_array_equal(observation.belief[rest], reference.belief[rest])
    for layer in layers:
        np.testing.assert_array_equal(
            observation.activations[layer][rest], reference.activations[layer][rest]
        )
        assert not observation.activations[layer][row].any()
    if np.isnan(bad) and isinstance(estimator, RandomForestClassifier):  # it takes NaN
        assert observation.belief[row] == model.estimator.predict(inputs(dirty))[row]
        np.testing.assert_array_equal(
            observation.scores[row], model.estimator.predict_proba(inputs(dirty))[row]
        )
    else:
        assert observation.belief[row] == -1
        assert np.isnan(observation.scores[row]).all()
    np.testing.assert_array_equal(np.asarray(batch), dirty)  # the user's own data


def test_a_bad_number_beside_a_string_column_is_invalid():
    pipe = fit(mixed_pipeline(), mixed_frame())
    dirty = mixed_frame()
    dirty.iloc[4, 1] = np.nan
    clean = observe(pipe, mixed_frame(), ("logits",))
    observation = observe(pipe, dirty, ("logits",))
    rest = rest_of(4)
    assert observation.invalid.tolist() == (~rest).tolist()
    np.testing.assert_array_equal(
        observation.activations["logits"][rest], clean.activations["logits"][rest]
    )


def test_an_input_beyond_float32_is_invalid_where_it_is_read():
    fitted = fit(LogisticRegression())
    dirty = X.copy()
    dirty[3, 0] = 1e60
    assert observe(fitted, dirty, ("input",)).invalid.tolist() == (~rest_of(3)).tolist()
    assert not observe(fitted, dirty, ()).invalid.any()
