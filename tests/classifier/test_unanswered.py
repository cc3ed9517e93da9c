"""Belief and scores are what the model said about a sample as it is, or absent; never made up."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier
from torch import nn

from iknow import Assertion, Ball, EpistemicClassifier, Reason, RelativeBall
from iknow.errors import InputError, LayerError
from iknow.evaluation import evaluate
from iknow.models import PrecomputedModel
from iknow.models.sklearn import SklearnModel


def cancer():
    """Half to train on, half to ask about, of which every eighth sample lacks some values."""
    X, y = load_breast_cancer(return_X_y=True)
    X, y = X[:, :8], y
    asked = X[1::2].copy()
    rng = np.random.default_rng(0)
    lacking = np.arange(len(asked)) % 8 == 0
    asked[lacking, rng.integers(8, size=lacking.sum())] = np.nan
    return X[::2], y[::2], asked, y[1::2], lacking


def imputing():
    return make_pipeline(SimpleImputer(), StandardScaler(), LogisticRegression())


def test_an_imputing_pipeline_answers_for_itself_and_its_samples_are_valid():
    X, y, asked, y_true, lacking = cancer()
    classifier = EpistemicClassifier(imputing()).fit(X, y)
    assert classifier.layers_ == ("table",)
    assessment = classifier.assess(asked)
    model = classifier.model_.estimator
    np.testing.assert_array_equal(assessment.belief, model.predict(asked))
    np.testing.assert_array_equal(assessment.scores, model.predict_proba(asked))
    np.testing.assert_array_equal(classifier.predict(asked), model.predict(asked))
    assert not assessment.invalid.any()
    assert (assessment.assertion == Assertion.IK).any()
    assert not (assessment.assertion[lacking] == Assertion.IK).any()  # training had no gaps
    report = evaluate(assessment, y_true)
    assert report.overall_accuracy == np.mean(model.predict(asked) == y_true)


def test_training_samples_may_lack_values_where_the_chosen_layers_do_not():
    _, _, asked, y_true, _ = cancer()
    classifier = EpistemicClassifier(imputing()).fit(asked, y_true)
    assert not classifier.assess(asked).invalid.any()


def test_trees_that_take_nan_answer_for_themselves_and_the_raw_layer_is_invalid():
    X, y, asked, _, lacking = cancer()
    trees = HistGradientBoostingClassifier(max_iter=10).fit(X, y)
    layers = ["input", "output"]
    classifier = EpistemicClassifier(FrozenEstimator(trees), layers, rule=Ball(50.0))
    assessment = classifier.fit(X, y).assess(asked)
    np.testing.assert_array_equal(assessment.belief, trees.predict(asked))
    np.testing.assert_array_equal(assessment.scores, trees.predict_proba(asked))
    np.testing.assert_array_equal(assessment.invalid, lacking)
    assert (assessment.reason[lacking] == Reason.INVALID).all()
    assert (assessment.assertion[lacking] == Assertion.IDK).all()
    alone = EpistemicClassifier(FrozenEstimator(trees), ["output"], rule=Ball(0.5))
    assert not alone.fit(X, y).assess(asked).invalid.any()


@pytest.mark.parametrize("frozen", [False, True])
def test_training_on_raw_values_that_are_missing_names_the_remedy(frozen):
    _, _, asked, y_true, _ = cancer()
    trees = HistGradientBoostingClassifier(max_iter=3)
    model = FrozenEstimator(trees.fit(asked, y_true)) if frozen else trees
    with pytest.raises(InputError, match=r"row 0 has .*takes gaps, but the layer 'input' does"):
        EpistemicClassifier(model, ["input", "output"], Ball(1.0)).fit(asked, y_true)
    # By default gaps are seen as what they are.
    seen = EpistemicClassifier(model, rule=Ball(1.0)).fit(asked, y_true)
    assert seen.layers_ == ("table", "output")


def test_a_model_that_refuses_some_samples_is_asked_about_the_others_as_ever():
    X, y, asked, _, lacking = cancer()
    scaled = make_pipeline(StandardScaler(), LogisticRegression())
    classifier = EpistemicClassifier(scaled).fit(X, y)
    assessment = classifier.assess(asked)
    model = classifier.model_.estimator
    np.testing.assert_array_equal(assessment.answered, ~lacking)
    np.testing.assert_array_equal(assessment.invalid, lacking)
    assert assessment.belief[~lacking].tolist() == model.predict(asked[~lacking]).tolist()
    assert assessment.belief[lacking].tolist() == [None] * lacking.sum()
    assert np.isnan(assessment.scores[lacking]).all()
    assert np.isfinite(assessment.scores[~lacking]).all()
    assert (assessment.margin[lacking] == -np.inf).all()
    explained = assessment.explain(int(lacking.argmax()))
    assert explained.belief is None
    assert "IDK, no belief" in str(explained)
    assert not any(layer.samples_for or layer.samples_against for layer in explained.layers)
    with pytest.raises(InputError, match="no answer for row 0"):
        classifier.predict(asked)


class Fussy(ClassifierMixin, BaseEstimator):
    """Takes NaN in the first feature, inf in the second, and nothing else that is strange."""

    classes_ = np.array(["no", "yes"])

    def predict(self, X):
        X = np.asarray(X, dtype=float)
        if np.isinf(X[:, 0]).any() or np.isnan(X[:, 1]).any():
            raise ValueError("no such value, please")
        return self.classes_[(np.nan_to_num(X[:, 0]) + (X[:, 1] > 0) > 0).astype(int)]


STRANGE = np.array(
    [[1, 2], [np.nan, -1], [np.nan, np.inf], [np.inf, 1], [-1, -np.inf], [3, np.nan], [-1, -1]]
)


@pytest.mark.parametrize("given", ["array", "objects", "frame", "reversed"])
def test_each_kind_of_strange_value_is_asked_about_on_its_own(given):
    order = slice(None, None, -1) if given == "reversed" else slice(None)
    rows = STRANGE[order]
    inputs = {"objects": rows.astype(object), "frame": pd.DataFrame(rows)}.get(given, rows)
    said = SklearnModel(Fussy()).observe(inputs, ())
    expected = np.array([1, 0, 1, -1, 0, -1, 0])[order]
    assert said.belief.tolist() == expected.tolist()
    assert said.invalid.tolist() == (expected == -1).tolist()
    np.testing.assert_array_equal(np.isnan(said.scores).all(axis=1), expected == -1)


@pytest.mark.parametrize("rows", [[3], [3, 5], [5, 1], [1]])
def test_without_an_ordinary_sample_there_are_still_answers_where_the_model_has_some(rows):
    said = SklearnModel(Fussy()).observe(STRANGE[rows], ("input",))
    assert said.belief.tolist() == [{3: -1, 5: -1, 1: 0}[row] for row in rows]
    assert said.activations["input"].shape == (len(rows), 2)
    assert said.invalid.all()


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")  # scikit-learn's own
def test_a_value_too_large_for_a_tree_costs_no_other_sample_its_answer():
    X, y, asked, _, _ = cancer()
    asked = np.nan_to_num(asked)
    asked[3, 2] = 1e39  # trees read float32
    forest = RandomForestClassifier(5, random_state=0).fit(X, y)
    said = SklearnModel(forest).observe(asked, ())
    assert np.flatnonzero(said.belief == -1).tolist() == [3]
    rest = np.arange(len(asked)) != 3
    np.testing.assert_array_equal(said.belief[rest], forest.predict(asked[rest]))


def test_an_error_that_is_about_something_else_is_not_hidden():
    X, y, asked, _, _ = cancer()
    model = SklearnModel(LogisticRegression(max_iter=5000).fit(X, y))
    with pytest.raises(InputError, match="X has 3 features, but LogisticRegression is expecting 8"):
        model.observe(asked[:, :3], ())
    with pytest.raises(InputError, match="failed on a batch of shape"):
        model.observe(np.nan_to_num(asked)[:, :3], ())


def test_a_column_of_text_that_is_missing_is_strange_too():
    frame = pd.DataFrame({"animal": ["cat", "dog", "cat", "dog"]})
    pipe = make_pipeline(OneHotEncoder(), LogisticRegression()).fit(frame, [0, 1, 0, 1])
    asked = pd.DataFrame({"animal": ["dog", None, "cat"]})
    said = SklearnModel(pipe).observe(asked, ("onehotencoder",))
    assert said.belief.tolist() == [1, -1, 0]
    assert np.isnan(said.scores[1]).all()


class BlindLayer(Fussy):
    """Answers what `Fussy` answers, but one of its layers takes no NaN."""

    def decision_function(self, X):
        if np.isnan(X).any():
            raise ValueError("finite, please")
        return self.predict_proba(X)[:, 1]

    def predict_proba(self, X):
        return np.eye(2)[(self.predict(X) == "yes").astype(int)]


@pytest.mark.parametrize("rows", [range(7), [1, 2], [1, 3], [3, 1], [1], [0, 1]], ids=str)
def test_a_layer_that_refuses_a_sample_does_not_cost_it_its_answer(rows):
    asked = STRANGE[list(rows)]
    model, expected = SklearnModel(BlindLayer()), SklearnModel(Fussy()).observe(asked, ())
    said = model.observe(asked, ("output",))
    np.testing.assert_array_equal(said.belief, expected.belief)
    np.testing.assert_array_equal(said.scores, model.observe(asked, ()).scores)
    np.testing.assert_array_equal(said.invalid, np.isnan(asked).any(axis=1) | (said.belief == -1))
    assert said.activations["output"].shape == (len(asked), 1)


class Imputer(nn.Module):
    def __init__(self, strict=False, n_features=3):
        super().__init__()
        torch.manual_seed(0)
        self.strict, self.fc = strict, nn.Linear(n_features, 2)

    def forward(self, x):
        if self.strict and not torch.isfinite(x).all():
            raise ValueError("finite inputs, please")
        return self.fc(torch.nan_to_num(x, nan=0.5))


def test_a_module_that_copes_with_nan_answers_for_itself():
    X = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    module, y = Imputer(), np.arange(30) % 2
    classifier = EpistemicClassifier(module, ["fc"], rule=Ball(1.0)).fit(X, y)
    asked = X.copy()
    asked[4, 1] = np.nan
    assessment = classifier.assess(asked)
    with torch.no_grad():
        said = module(torch.from_numpy(asked)).numpy()
    np.testing.assert_allclose(assessment.scores, said, rtol=1e-5)
    np.testing.assert_array_equal(assessment.belief, said.argmax(axis=1))
    assert not assessment.invalid.any()
    raw = EpistemicClassifier(module, ["input"], rule=Ball(1.0)).fit(X, y).assess(asked)
    assert np.flatnonzero(raw.invalid).tolist() == [4]
    assert raw.answered.all()


@pytest.mark.parametrize("n_lacking", [1, 30])
def test_a_module_that_refuses_a_sample_has_no_answer_about_it_alone(n_lacking):
    X = np.random.default_rng(0).normal(size=(30, 3)).astype(np.float32)
    module = Imputer(strict=True)
    classifier = EpistemicClassifier(module, ["fc"], rule=Ball(1.0))
    classifier.fit(X, np.arange(30) % 2)
    asked = X.copy()
    asked[:n_lacking, 1] = np.nan
    assessment = classifier.assess(asked)
    assert assessment.answered.tolist() == [row >= n_lacking for row in range(30)]
    assert (assessment.assertion[:n_lacking] == Assertion.IDK).all()


# predict and assess say the same about every sample


class Unsteady(nn.Module):
    """Scores by NaN what is NaN, and by two infinities what is infinite."""

    def forward(self, x):
        return torch.stack([x.sum(1), x.abs().sum(1)], 1)


def asked_of(adapter):
    """A classifier, inputs that are finite or not, and what takes some rows of them."""
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(40, 2)), np.arange(40) % 2
    asked = np.concatenate([STRANGE, rng.normal(size=(5, 2)), [[1e39, 0.0], [0.0, -1e39]]])
    rng.shuffle(asked)
    if adapter == "precomputed":
        scores = np.where(rng.random(asked.shape) < 0.3, asked, rng.random(asked.shape))
        given = scores, {"a": asked, "b": rng.normal(size=(len(asked), 1))}
        training = rng.random((40, 2)), {"a": X, "b": X[:, :1]}
        classifier = EpistemicClassifier(PrecomputedModel(), rule=Ball(1.0))
        return (
            classifier.fit(training, y),
            given,
            lambda rows: (scores[rows], {layer: a[rows] for layer, a in given[1].items()}),
        )
    named = np.array(["no", "yes"])[y]
    model, layers = {
        "logistic": (LogisticRegression(), None),
        "tree": (DecisionTreeClassifier(random_state=0), None),
        "boosting": (HistGradientBoostingClassifier(max_iter=3), ["output"]),
        "network": (MLPClassifier((4,), solver="lbfgs", random_state=0), None),
        "imputing": (imputing(), None),
        "scaling": (make_pipeline(StandardScaler(), LogisticRegression()), ["input", "output"]),
        "fussy": (Fussy(), ["input"]),
        "blind layer": (BlindLayer(), ["output"]),
        "torch": (nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2)), None),
        "torch that imputes": (Imputer(n_features=2), ["input", "fc"]),
        "torch that refuses": (Imputer(n_features=2, strict=True), ["fc"]),
        "torch without a highest score": (Unsteady(), ["input", "output"]),
    }[adapter]
    classifier = EpistemicClassifier(model, layers, rule=Ball(1.0), batch_size=6)
    return classifier.fit(X, named), asked, lambda rows: asked[rows]


ADAPTERS = [
    *("logistic", "tree", "boosting", "network", "imputing", "scaling", "fussy", "blind layer"),
    *("torch", "torch that imputes", "torch that refuses", "torch without a highest score"),
    "precomputed",
]


@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")  # sklearn
@pytest.mark.parametrize("adapter", ADAPTERS)
def test_predict_returns_the_beliefs_of_assess_or_names_the_rows_that_have_none(adapter):
    classifier, asked, take = asked_of(adapter)
    assessment = classifier.assess(asked)
    answered = assessment.answered
    assert (assessment.reason[~answered] == Reason.INVALID).all()
    for row in range(len(answered)):
        one = take([row])
        if answered[row]:
            assert classifier.predict(one).tolist() == [assessment.belief[row]]
        else:
            assert assessment.belief[row] is None
            with pytest.raises(InputError, match=r"no answer for row 0, .* affected: 1\)"):
                classifier.predict(one)
    if answered.all():
        np.testing.assert_array_equal(classifier.predict(asked), assessment.belief)
    else:
        first, n = int((~answered).argmax()), int((~answered).sum())
        with pytest.raises(InputError, match=rf"no answer for row {first}, .* affected: {n}\)"):
            classifier.predict(asked)
        kept = np.flatnonzero(answered)
        np.testing.assert_array_equal(classifier.predict(take(kept)), assessment.belief[kept])


# In place, and other manners of models


@pytest.mark.parametrize("given", [np.asarray, pd.DataFrame], ids=["array", "frame"])
def test_steps_that_work_in_place_change_neither_the_users_data_nor_the_answers(given):
    X, y, asked, _, _ = cancer()
    in_place = make_pipeline(
        SimpleImputer(copy=False), StandardScaler(copy=False), LogisticRegression()
    )
    train, question = given(X.copy()), given(asked.copy())
    classifier = EpistemicClassifier(in_place).fit(train, y)
    assessment = classifier.assess(question)
    np.testing.assert_array_equal(np.asarray(train), X)
    np.testing.assert_array_equal(np.asarray(question), asked)
    reference = EpistemicClassifier(imputing()).fit(X, y)
    expected = reference.assess(asked)
    np.testing.assert_array_equal(assessment.belief, expected.belief)
    np.testing.assert_allclose(assessment.scores, expected.scores, rtol=1e-9)
    np.testing.assert_array_equal(assessment.assertion, expected.assertion)
    for layer, index in reference.indexes_.items():
        np.testing.assert_allclose(classifier.indexes_[layer].points, index.points, rtol=1e-5)


class Unsorted(ClassifierMixin, BaseEstimator):
    """A perfect model of whole numbers, with its classes in an order of its own."""

    def __init__(self, classes, column=False):
        self.classes, self.column = classes, column

    def fit(self, X, y):
        self.classes_ = np.array(self.classes)
        return self

    def predict_proba(self, X):
        return (np.round(np.asarray(X)[:, :1]) == np.arange(len(self.classes_))).astype(float)

    def predict(self, X):
        labels = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return labels[:, None] if self.column else labels


@pytest.mark.parametrize("column", [False, True])
@pytest.mark.parametrize("classes", [[2, 0, 1], [1, 2, 0], ["b", "c", "a"], [2.0, 1.0, 3.0]])
@pytest.mark.parametrize("as_objects", [False, True])
def test_a_perfect_model_with_unsorted_classes_is_right_about_everything(
    classes, as_objects, column
):
    codes = np.arange(60) % 3
    X = codes[:, None] + np.random.default_rng(0).uniform(-0.2, 0.2, (60, 1))
    y = np.array(classes, dtype=object if as_objects and isinstance(classes[0], str) else None)
    y = y[codes]
    model = Unsorted(classes, column)
    trained = FrozenEstimator(Unsorted(classes, column).fit(X, y))
    for wrapped, rule in product((model, trained), (Ball, RelativeBall)):
        classifier = EpistemicClassifier(wrapped, ["input"], rule).fit(X, y)
        if isinstance(wrapped, FrozenEstimator):
            classifier.tune(X + 0.01, y)
        assert classifier.classes_.tolist() == list(classes)
        assessment = classifier.assess(X)
        assert assessment.belief.tolist() == y.tolist()
        assert evaluate(assessment, y).overall_accuracy == 1
        coverage = (assessment.assertion == Assertion.IK).mean()
        assert coverage == 1 if rule is Ball else coverage > 0.7


class Broken(Unsorted):
    def __init__(self, classes=(0, 1), predicts=None, columns=2):
        super().__init__(classes)
        self.predicts, self.columns = predicts, columns

    def predict(self, X):
        return super().predict(X) if self.predicts is None else np.full(len(X), self.predicts)

    def predict_proba(self, X):
        return np.eye(self.columns)[np.zeros(len(X), dtype=int)]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (Broken(classes=(0, 1, 0)), "must name each class once"),
        (Broken(predicts=7), r"must predict one of its classes_ .* got \[7, 7, 7\]"),
        (Broken(predicts="0"), "must predict one of its classes_"),
        (Broken(predicts=np.nan), "must predict one of its classes_"),
        (Broken(columns=3), r"a column for each of its 2 classes_; got shape \(20, 3\)"),
    ],
)
def test_a_model_that_contradicts_its_own_classes_is_refused(model, message):
    X, y = np.arange(20.0)[:, None] % 2, np.arange(20) % 2
    with pytest.raises(InputError, match=message):
        EpistemicClassifier(FrozenEstimator(model.fit(X, y)), ["input"]).fit(X, y)


def test_a_model_of_several_outputs_is_refused():
    model = Unsorted([0, 1]).fit(None, None)
    model.classes_ = [np.array([0, 1]), np.array([0, 1, 2])]
    with pytest.raises(InputError, match="more than one label per sample"):
        SklearnModel(model)


def test_columns_in_another_order_are_refused():
    X, y, *_ = cancer()
    frame = pd.DataFrame(X, columns=list("abcdefgh"))
    classifier = EpistemicClassifier(imputing()).fit(frame, y)
    for ask in (classifier.assess, classifier.predict):
        with pytest.raises(InputError, match="not in the order of the training data"):
            ask(frame[list("hgfedcba")])
    with pytest.raises(InputError, match="the column 'a' more than once"):
        EpistemicClassifier(imputing()).fit(frame.rename(columns={"b": "a"}), y)


def test_a_layer_that_was_not_chosen_may_hold_anything_finite_or_not():
    scores = np.eye(2)[np.arange(8) % 2]
    layers = {"good": np.arange(8.0)[:, None], "bad": np.full((8, 1), np.nan)}
    classifier = EpistemicClassifier(PrecomputedModel(), ["good"], rule=Ball(0.5))
    assert (
        not classifier.fit((scores, layers), np.arange(8) % 2)
        .assess((scores, layers))
        .invalid.any()
    )
    with pytest.raises(InputError, match="row 0 has"):
        EpistemicClassifier(PrecomputedModel(), ["bad"]).fit((scores, layers), np.arange(8) % 2)
    with pytest.raises(LayerError, match="layer 'bad' must hold real numbers"):
        EpistemicClassifier(PrecomputedModel()).fit(
            (scores, {"bad": np.zeros((8, 1), dtype="M8[s]")}), np.arange(8) % 2
        )
