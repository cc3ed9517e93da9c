"""xgboost's classifiers and boosters, against what xgboost itself says."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris

from iknow import EpistemicClassifier
from iknow.core.assertion import Assertion
from iknow.errors import InputError, LayerError
from iknow.models import as_model
from iknow.testing import ModelContract
from tests.choosing import level_layers

xgboost = pytest.importorskip("xgboost")
pd = pytest.importorskip("pandas")

X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])
EVEN, ODD = slice(0, None, 2), slice(1, None, 2)


def classifier(**settings):
    return xgboost.XGBClassifier(n_estimators=6, n_jobs=1, random_state=0, **settings)


def booster(objective="multi:softprob", data=X, labels=Y, **settings):
    settings = {"objective": objective, "nthread": 1, **settings}
    if objective.startswith("multi"):
        settings["num_class"] = 3
    return xgboost.train(settings, xgboost.DMatrix(data, labels, enable_categorical=True), 6)


class TestClassifier(ModelContract):
    def make_model(self):
        return as_model(classifier().fit(X, Y))

    def make_inputs(self):
        return X[::10]


class TestBooster(TestClassifier):
    def make_model(self):
        return as_model(booster())


def test_scores_and_leaves_are_xgboosts_own():
    model = classifier().fit(X, Y)
    said = as_model(model).observe(X, ("leaves",))
    np.testing.assert_array_equal(said.scores, model.predict_proba(X).astype(np.float64))
    np.testing.assert_array_equal(said.activations["leaves"], model.apply(X))
    assert said.activations["leaves"].shape == (150, 6 * 3)


@pytest.mark.parametrize("objective", ["multi:softprob", "multi:softmax"])
def test_a_booster_of_many_classes_gives_probabilities_and_leaves(objective):
    model = booster(objective)
    said = as_model(model).observe(X, ("leaves",))
    data = xgboost.DMatrix(X)
    expected = booster("multi:softprob").predict(data)
    np.testing.assert_allclose(said.scores, expected, atol=1e-6)
    if objective == "multi:softmax":
        np.testing.assert_array_equal(said.belief, model.predict(data))
    np.testing.assert_array_equal(said.activations["leaves"], model.predict(data, pred_leaf=True))


@pytest.mark.parametrize("objective", ["binary:logistic", "binary:logitraw"])
def test_a_booster_of_two_classes_gives_two_columns(objective):
    values, labels = load_breast_cancer(return_X_y=True)
    model = booster(objective, values, labels)
    said = as_model(model).observe(values, ())
    expected = model.predict(xgboost.DMatrix(values))
    expected = expected if objective == "binary:logistic" else 1 / (1 + np.exp(-expected))
    np.testing.assert_allclose(said.scores, np.column_stack([1 - expected, expected]), atol=1e-6)


def test_the_best_iteration_answers_if_training_stopped_early():
    model = xgboost.XGBClassifier(
        n_estimators=60, early_stopping_rounds=2, n_jobs=1, learning_rate=0.8
    )
    model.fit(X[EVEN], Y[EVEN], eval_set=[(X[ODD], Y[ODD])], verbose=False)
    rounds = model.best_iteration + 1
    assert rounds < model.get_booster().num_boosted_rounds()
    own, inner = (as_model(each).observe(X, ("leaves",)) for each in (model, model.get_booster()))
    assert own.activations["leaves"].shape == (150, 3 * rounds)
    np.testing.assert_array_equal(own.activations["leaves"], inner.activations["leaves"])
    np.testing.assert_allclose(own.scores, inner.scores, atol=1e-6)


def test_names_for_encoded_labels():
    model = classifier().fit(X[EVEN], Y[EVEN])
    named = NAMES[Y]
    ec = EpistemicClassifier(model, classes=NAMES).fit(X[EVEN], named[EVEN])
    ec.tune(X[ODD], named[ODD], coverage=0.8)
    np.testing.assert_array_equal(ec.predict(X), NAMES[model.predict(X)])
    for given in (model, booster()):
        with pytest.raises(InputError, match=r"give classes=\[...\], the label of each in order"):
            EpistemicClassifier(given).fit(X, named)
    with pytest.raises(InputError, match="score columns once"):
        EpistemicClassifier(model, classes=["a", "b"]).fit(X, named)
    with pytest.raises(InputError, match="differs from the model's own"):
        EpistemicClassifier(model, classes=[2, 1, 0]).fit(X, Y)


def make_frame():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    frame["kind"] = pd.Categorical(np.array(["u", "v", "w"])[(Y + (rng.random(150) < 0.2)) % 3])
    frame.loc[rng.random(150) < 0.2, "b"] = np.nan
    frame.loc[rng.random(150) < 0.1, "kind"] = np.nan
    return frame


@pytest.mark.parametrize("native", [False, True])
def test_categories_and_gaps_are_taken_as_they_are(native):
    frame = make_frame()
    model = classifier(enable_categorical=True).fit(frame[EVEN], Y[EVEN])
    ec = EpistemicClassifier(model.get_booster() if native else model)
    ec.fit(frame[EVEN], Y[EVEN]).tune(frame[ODD], coverage=0.8)
    assert ec.layers_ == ("table", "leaves")
    assessed = ec.assess(frame[ODD])
    assert 0.7 < (assessed.assertion == Assertion.IK).mean() < 0.9
    np.testing.assert_array_equal(assessed.belief, model.predict(frame[ODD]))


@pytest.mark.parametrize("native", [False, True])
def test_columns_in_another_order_are_refused(native):
    frame = make_frame()
    model = classifier(enable_categorical=True).fit(frame, Y)
    ec = EpistemicClassifier(model.get_booster() if native else model)
    ec.fit(frame[EVEN], Y[EVEN]).tune(frame[ODD], coverage=0.8)
    with pytest.raises(InputError, match="order"):
        ec.assess(frame[["kind", "d", "c", "b", "a"]])


def test_a_linear_booster_has_no_leaves():
    for model in (classifier(booster="gblinear").fit(X, Y), booster(booster="gblinear")):
        adapter = as_model(model)
        assert level_layers(adapter, X) == ("input",)
        with pytest.raises(LayerError, match="has no layer 'leaves'"):
            adapter.observe(X, ("leaves",))


@pytest.mark.parametrize("make", [classifier, booster])
def test_infinite_values_disturb_no_other_sample(make):
    model = make() if make is booster else make().fit(X, Y)
    broken = X.copy()
    broken[3, 1] = np.inf
    said, expected = (as_model(model).observe(each, ("leaves",)) for each in (broken, X))
    assert said.invalid.tolist() == [i == 3 for i in range(150)]
    np.testing.assert_array_equal(np.delete(said.belief, 3), np.delete(expected.belief, 3))


def test_what_is_no_classifier_or_no_table_is_refused():
    with pytest.raises(InputError, match=r"no classifier.*'reg:squarederror'"):
        as_model(booster("reg:squarederror"))
    with pytest.raises(InputError, match="not trained"):
        as_model(xgboost.Booster())
    for model in (classifier().fit(X, Y), booster()):
        with pytest.raises(InputError, match="a DMatrix of xgboost: pass the data"):
            as_model(model).prepare(xgboost.DMatrix(X))
