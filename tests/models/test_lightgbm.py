"""lightgbm's classifiers and boosters, against what lightgbm itself says."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris

from iknow import EpistemicClassifier
from iknow.core.assertion import Assertion
from iknow.errors import InputError
from iknow.models import as_model
from iknow.testing import ModelContract

lightgbm = pytest.importorskip("lightgbm")
pd = pytest.importorskip("pandas")

X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])
EVEN, ODD = slice(0, None, 2), slice(1, None, 2)
QUIET = {"verbose": -1, "num_threads": 1}


def classifier(**settings):
    return lightgbm.LGBMClassifier(n_estimators=6, verbose=-1, n_jobs=1, **settings)


def booster(objective="multiclass", data=X, labels=Y):
    settings = {"objective": objective, **QUIET}
    if objective.startswith("multi"):
        settings["num_class"] = 3
    return lightgbm.train(settings, lightgbm.Dataset(data, labels), 6)


class TestClassifier(ModelContract):
    def make_model(self):
        return as_model(classifier().fit(X, NAMES[Y]))

    def make_inputs(self):
        return X[::10]


class TestBooster(TestClassifier):
    def make_model(self):
        return as_model(booster())


@pytest.mark.parametrize("objective", ["multiclass", "multiclassova"])
def test_scores_and_leaves_are_lightgbms_own(objective):
    own, native = classifier(objective=objective).fit(X, Y), booster(objective)
    for model, expected in ((own, own.predict_proba(X)), (native, native.predict(X))):
        said = as_model(model).observe(X, ("leaves",))
        np.testing.assert_array_equal(said.scores, expected)
        np.testing.assert_array_equal(said.activations["leaves"], model.predict(X, pred_leaf=True))
        assert said.activations["leaves"].shape == (150, 6 * 3)


def test_a_booster_of_two_classes_gives_two_columns():
    values, labels = load_breast_cancer(return_X_y=True)
    model = booster("binary", values, labels)
    said = as_model(model).observe(values, ())
    np.testing.assert_array_equal(said.scores[:, 1], model.predict(values))
    np.testing.assert_array_equal(said.belief, model.predict(values) > 0.5)


@pytest.mark.filterwarnings("ignore:The argument 'eval_set'")  # in new versions
def test_the_best_iteration_answers_if_training_stopped_early():
    model = lightgbm.LGBMClassifier(n_estimators=200, learning_rate=0.8, verbose=-1, n_jobs=1)
    stop = [lightgbm.early_stopping(2, verbose=False)]
    model.fit(X[EVEN], Y[EVEN], eval_set=[(X[ODD], Y[ODD])], callbacks=stop)
    assert 0 < model.best_iteration_ < 200
    for each in (model, model.booster_):
        said = as_model(each).observe(X, ("leaves",))
        assert said.activations["leaves"].shape == (150, 3 * model.best_iteration_)


def test_labels_are_as_trained():
    model = classifier().fit(X[EVEN], NAMES[Y[EVEN]])
    ec = EpistemicClassifier(model).fit(X[EVEN], NAMES[Y[EVEN]])
    ec.tune(X[ODD], NAMES[Y[ODD]], coverage=0.8)
    np.testing.assert_array_equal(ec.predict(X), model.predict(X))


def make_frame():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(X, columns=["a a", "b", "c", "d"])
    frame["kind"] = pd.Categorical(np.array(["u", "v", "w"])[(Y + (rng.random(150) < 0.2)) % 3])
    frame.loc[rng.random(150) < 0.2, "b"] = np.nan
    return frame


@pytest.mark.parametrize("native", [False, True])
def test_categories_and_gaps_are_taken_as_they_are(native):
    frame = make_frame()
    model = classifier().fit(frame[EVEN], Y[EVEN])
    ec = EpistemicClassifier(model.booster_ if native else model)
    ec.fit(frame[EVEN], Y[EVEN]).tune(frame[ODD], coverage=0.8)
    assert ec.layers_ == ("table", "leaves")
    assessed = ec.assess(frame[ODD])
    assert 0.7 < (assessed.assertion == Assertion.IK).mean() < 0.9
    np.testing.assert_array_equal(assessed.belief, model.predict(frame[ODD]))


@pytest.mark.parametrize("native", [False, True])
def test_columns_in_another_order_are_refused_and_lightgbm_would_not(native):
    frame = pd.DataFrame(X, columns=["a a", "b", "c", "d"])
    other = frame[["d", "c", "b", "a a"]]
    model = classifier().fit(frame, Y)
    assert (model.predict(other) != model.predict(frame)).any()
    with pytest.raises(InputError, match="in the same order: expected 'a_a', 'b'"):
        EpistemicClassifier(model.booster_ if native else model).fit(other, Y)
    trained_on_an_array = classifier().fit(X, Y)
    assert EpistemicClassifier(trained_on_an_array).fit(frame, Y).layers_ == ("input", "leaves")


def test_what_is_no_classifier_or_no_table_is_refused():
    with pytest.raises(InputError, match=r"no classifier.*'regression'"):
        as_model(booster("regression"))
    for model in (classifier().fit(X, Y), booster()):
        with pytest.raises(InputError, match="a Dataset of lightgbm: pass the data"):
            as_model(model).prepare(lightgbm.Dataset(X))


def test_a_wrong_number_of_columns_is_an_error_of_ours():
    with pytest.raises(InputError, match="failed on a batch"):
        as_model(booster()).observe(X[:, :2], ())
