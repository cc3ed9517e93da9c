"""catboost's classifiers and models, against what catboost itself says."""

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris

from iknow import EpistemicClassifier
from iknow.core.assertion import Assertion
from iknow.errors import InputError
from iknow.models import as_model
from iknow.testing import ModelContract

catboost = pytest.importorskip("catboost")
pd = pytest.importorskip("pandas")

X, Y = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])
EVEN, ODD = slice(0, None, 2), slice(1, None, 2)
QUIET = {
    "iterations": 6, "verbose": 0, "thread_count": 1, "allow_writing_files": False,
    "random_seed": 0,
}  # fmt: skip


def classifier(**settings):
    return catboost.CatBoostClassifier(**QUIET, **settings)


def native(loss="MultiClass", **settings):
    return catboost.CatBoost({**QUIET, "loss_function": loss, **settings})


class TestClassifier(ModelContract):
    def make_model(self):
        return as_model(classifier().fit(X, NAMES[Y]))

    def make_inputs(self):
        return X[::10]


class TestNative(TestClassifier):
    def make_model(self):
        return as_model(native().fit(X, NAMES[Y]))


@pytest.mark.parametrize("loss", ["MultiClass", "MultiClassOneVsAll"])
def test_scores_and_leaves_are_catboosts_own(loss):
    for model in (classifier(loss_function=loss), native(loss)):
        model.fit(X, NAMES[Y])
        said = as_model(model).observe(X, ("leaves",))
        expected = model.predict(X, prediction_type="Probability")
        np.testing.assert_array_equal(said.scores, expected)
        np.testing.assert_array_equal(said.activations["leaves"], model.calc_leaf_indexes(X))
        assert as_model(model).classes.tolist() == NAMES.tolist()


def test_two_classes_and_a_model_from_a_file(tmp_path):
    values, labels = load_breast_cancer(return_X_y=True)
    model = classifier().fit(values, labels)
    model.save_model(str(tmp_path / "model.cbm"))
    loaded = catboost.CatBoost().load_model(str(tmp_path / "model.cbm"))
    said, expected = (as_model(each).observe(values, ("leaves",)) for each in (loaded, model))
    np.testing.assert_array_equal(said.scores, expected.scores)
    np.testing.assert_array_equal(said.belief, np.ravel(model.predict(values)))


@pytest.mark.parametrize("policy", ["Depthwise", "Lossguide"])
def test_trees_that_are_not_symmetric_have_leaves_too(policy):
    model = classifier(grow_policy=policy).fit(X, Y)
    leaves = as_model(model).observe(X, ("leaves",)).activations["leaves"]
    np.testing.assert_array_equal(leaves, model.calc_leaf_indexes(X))


def test_the_best_iteration_answers_if_training_stopped_early():
    model = catboost.CatBoostClassifier(**{**QUIET, "iterations": 200}, learning_rate=0.9)
    model.fit(X[EVEN], Y[EVEN], eval_set=(X[ODD], Y[ODD]), early_stopping_rounds=2)
    rounds = model.get_best_iteration() + 1
    assert rounds < 200
    assert as_model(model).observe(X, ("leaves",)).activations["leaves"].shape == (150, rounds)


def make_frame():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    frame["kind"] = np.array(["u", "v", "w"])[(Y + (rng.random(150) < 0.2)) % 3]
    frame.loc[rng.random(150) < 0.2, "b"] = np.nan
    return frame


@pytest.mark.parametrize("make", [classifier, native])
def test_text_in_categories_and_gaps_are_taken_as_they_are(make):
    frame = make_frame()
    model = make(cat_features=["kind"]).fit(frame[EVEN], NAMES[Y[EVEN]])
    ec = EpistemicClassifier(model).fit(frame[EVEN], NAMES[Y[EVEN]])
    assert ec.layers_ == ("table", "leaves")
    assessed = ec.tune(frame[ODD], coverage=0.8).assess(frame[ODD])
    assert 0.7 < (assessed.assertion == Assertion.IK).mean() < 0.9
    expected = model.predict(frame[ODD], prediction_type="Class")
    np.testing.assert_array_equal(assessed.belief, np.ravel(expected))
    with pytest.raises(InputError, match="order"):
        ec.assess(frame[["kind", "d", "c", "b", "a"]])


def test_an_untrained_classifier_is_trained_and_an_untrained_model_is_not():
    assert EpistemicClassifier(classifier()).fit(X, NAMES[Y]).predict(X[:2]).shape == (2,)
    with pytest.raises(InputError, match="not trained"):
        EpistemicClassifier(native()).fit(X, Y)


def test_what_is_no_classifier_or_no_table_is_refused():
    with pytest.raises(InputError, match=r"no classifier.*'RMSE'"):
        as_model(native("RMSE").fit(X, Y))
    with pytest.raises(InputError, match="no classifier"):
        EpistemicClassifier(catboost.CatBoostRegressor(**QUIET).fit(X, Y)).fit(X, Y)
    for model in (classifier(), native()):
        with pytest.raises(InputError, match="a Pool of catboost: pass the data"):
            as_model(model.fit(X, Y)).prepare(catboost.Pool(X))


@pytest.mark.parametrize("make", [classifier, native])
def test_what_catboost_refuses_is_an_error_of_ours(make):
    with pytest.raises(InputError, match="failed on a batch"):
        as_model(make().fit(X, Y)).observe(np.array([["a"] * 4]), ("leaves",))
