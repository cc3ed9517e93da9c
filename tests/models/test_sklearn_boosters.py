"""xgboost, lightgbm and catboost, against what they say themselves.

Each has a classifier with scikit-learn's interface, and a model of its own.
"""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_iris

from iknow import EpistemicClassifier
from iknow.core.assertion import Assertion
from iknow.errors import InputError, LayerError
from iknow.models import as_model
from iknow.testing import ModelContract
from tests.choosing import level_layers

xgboost = pytest.importorskip("xgboost")
lightgbm = pytest.importorskip("lightgbm")
catboost = pytest.importorskip("catboost")

X, Y = load_iris(return_X_y=True)
CANCER, SICK = load_breast_cancer(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])
NAMED = NAMES[Y]
EVEN, ODD = slice(0, None, 2), slice(1, None, 2)
QUIET = {
    "iterations": 6, "verbose": 0, "thread_count": 1, "allow_writing_files": False,
    "random_seed": 0,
}  # fmt: skip


def xgb(**settings):
    return xgboost.XGBClassifier(n_estimators=6, n_jobs=1, random_state=0, **settings)


def xgb_booster(objective="multi:softprob", data=X, labels=Y, **settings):
    settings = {"objective": objective, "nthread": 1, **settings}
    if objective.startswith("multi"):
        settings["num_class"] = 3
    return xgboost.train(settings, xgboost.DMatrix(data, labels), 6)


def lgbm(**settings):
    return lightgbm.LGBMClassifier(n_estimators=6, verbose=-1, n_jobs=1, **settings)


def lgbm_booster(objective="multiclass", data=X, labels=Y):
    settings = {"objective": objective, "verbose": -1, "num_threads": 1}
    if objective.startswith("multi"):
        settings["num_class"] = 3
    return lightgbm.train(settings, lightgbm.Dataset(data, labels), 6)


def cat(**settings):
    return catboost.CatBoostClassifier(**QUIET, **settings)


def cat_native(loss="MultiClass", **settings):
    return catboost.CatBoost({**QUIET, "loss_function": loss, **settings})


TRAINED = {
    "xgboost": lambda: xgb().fit(X, Y),
    "xgboost's booster": xgb_booster,
    "lightgbm": lambda: lgbm().fit(X, NAMED),
    "lightgbm's booster": lgbm_booster,
    "catboost": lambda: cat().fit(X, NAMED),
    "catboost's own": lambda: cat_native().fit(X, NAMED),
}


class TestContract(ModelContract):
    @pytest.fixture(autouse=True, params=TRAINED)
    def train(self, request):
        self.trained = TRAINED[request.param]()

    def make_model(self):
        return as_model(self.trained)

    def make_inputs(self):
        return X[::10]


# Scores and leaves


def says_xgboost(model):
    if hasattr(model, "apply"):
        return model.predict_proba(X), model.apply(X)
    data = xgboost.DMatrix(X)
    return xgb_booster("multi:softprob").predict(data), model.predict(data, pred_leaf=True)


def says_lightgbm(model):
    scores = model.predict_proba(X) if hasattr(model, "predict_proba") else model.predict(X)
    return scores, model.predict(X, pred_leaf=True)


def says_catboost(model):
    return model.predict(X, prediction_type="Probability"), model.calc_leaf_indexes(X)


@pytest.mark.parametrize(
    ("make", "says", "n_leaves", "atol"),
    [
        (TRAINED["xgboost"], says_xgboost, 18, 0),
        # With multi:softmax it returns labels alone.
        (xgb_booster, says_xgboost, 18, 1e-6),
        (lambda: xgb_booster("multi:softmax"), says_xgboost, 18, 1e-6),
        (TRAINED["lightgbm"], says_lightgbm, 18, 0),
        (lambda: lgbm(objective="multiclassova").fit(X, Y), says_lightgbm, 18, 0),
        (lgbm_booster, says_lightgbm, 18, 0),
        (lambda: lgbm_booster("multiclassova"), says_lightgbm, 18, 0),
        (TRAINED["catboost"], says_catboost, 6, 0),
        (lambda: cat(loss_function="MultiClassOneVsAll").fit(X, NAMED), says_catboost, 6, 0),
        (lambda: cat(grow_policy="Depthwise").fit(X, NAMED), says_catboost, 6, 0),
        (lambda: cat(grow_policy="Lossguide").fit(X, NAMED), says_catboost, 6, 0),
        (TRAINED["catboost's own"], says_catboost, 6, 0),
        (lambda: cat_native("MultiClassOneVsAll").fit(X, NAMED), says_catboost, 6, 0),
    ],
)
def test_scores_and_leaves_are_the_librarys_own(make, says, n_leaves, atol):
    model = make()
    adapter = as_model(model)
    said, (scores, leaves) = adapter.observe(X, ("leaves",)), says(model)
    np.testing.assert_allclose(said.scores, scores.astype(np.float64), rtol=0, atol=atol)
    np.testing.assert_array_equal(said.belief, scores.argmax(axis=1))
    np.testing.assert_array_equal(said.activations["leaves"], leaves.reshape(150, -1))
    assert said.activations["leaves"].shape == (150, n_leaves)
    if says is says_catboost:
        assert adapter.classes.tolist() == NAMES.tolist()


@pytest.mark.parametrize("objective", ["binary:logistic", "binary:logitraw"])
def test_a_booster_of_two_classes_gives_two_columns(objective):
    model = xgb_booster(objective, CANCER, SICK)
    said = as_model(model).observe(CANCER, ())
    expected = model.predict(xgboost.DMatrix(CANCER))
    expected = expected if objective == "binary:logistic" else 1 / (1 + np.exp(-expected))
    np.testing.assert_allclose(said.scores, np.column_stack([1 - expected, expected]), atol=1e-6)
    light = lgbm_booster("binary", CANCER, SICK)
    said = as_model(light).observe(CANCER, ())
    np.testing.assert_array_equal(said.scores[:, 1], light.predict(CANCER))
    np.testing.assert_array_equal(said.belief, light.predict(CANCER) > 0.5)


def test_two_classes_of_catboost_and_its_model_from_a_file(tmp_path):
    model = cat().fit(CANCER, SICK)
    model.save_model(str(tmp_path / "model.cbm"))
    loaded = catboost.CatBoost().load_model(str(tmp_path / "model.cbm"))
    said, expected = (as_model(each).observe(CANCER, ("leaves",)) for each in (loaded, model))
    np.testing.assert_array_equal(said.scores, expected.scores)
    np.testing.assert_array_equal(said.belief, np.ravel(model.predict(CANCER)))


def stop_xgboost():
    model = xgboost.XGBClassifier(
        n_estimators=60, early_stopping_rounds=2, n_jobs=1, learning_rate=0.8
    )
    model.fit(X[EVEN], Y[EVEN], eval_set=[(X[ODD], Y[ODD])], verbose=False)
    assert model.best_iteration + 1 < model.get_booster().num_boosted_rounds()
    return (model, model.get_booster()), 3 * (model.best_iteration + 1)


def stop_lightgbm():
    model = lightgbm.LGBMClassifier(n_estimators=200, learning_rate=0.8, verbose=-1, n_jobs=1)
    stop = [lightgbm.early_stopping(2, verbose=False)]
    model.fit(X[EVEN], Y[EVEN], eval_set=[(X[ODD], Y[ODD])], callbacks=stop)
    assert 0 < model.best_iteration_ < 200
    return (model, model.booster_), 3 * model.best_iteration_


def stop_catboost():
    model = catboost.CatBoostClassifier(**{**QUIET, "iterations": 200}, learning_rate=0.9)
    model.fit(X[EVEN], Y[EVEN], eval_set=(X[ODD], Y[ODD]), early_stopping_rounds=2)
    assert model.get_best_iteration() + 1 < 200
    return (model,), model.get_best_iteration() + 1


@pytest.mark.filterwarnings("ignore:The argument 'eval_set'")  # in new versions of lightgbm
@pytest.mark.parametrize("stop", [stop_xgboost, stop_lightgbm, stop_catboost])
def test_the_best_iteration_answers_if_training_stopped_early(stop):
    models, n_leaves = stop()
    said = [as_model(model).observe(X, ("leaves",)) for model in models]
    for each in said:
        assert each.activations["leaves"].shape == (150, n_leaves)
        np.testing.assert_array_equal(each.activations["leaves"], said[0].activations["leaves"])
        np.testing.assert_allclose(each.scores, said[0].scores, atol=1e-6)


def test_a_linear_booster_has_no_leaves():
    for model in (xgb(booster="gblinear").fit(X, Y), xgb_booster(booster="gblinear")):
        adapter = as_model(model)
        assert level_layers(adapter, X) == ("input",)
        with pytest.raises(LayerError, match="has no layer 'leaves'"):
            adapter.observe(X, ("leaves",))


@pytest.mark.parametrize("name", ["xgboost", "xgboost's booster"])
def test_infinite_values_disturb_no_other_sample(name):
    model, broken = TRAINED[name](), X.copy()
    broken[3, 1] = np.inf
    said, expected = (as_model(model).observe(each, ("leaves",)) for each in (broken, X))
    assert said.invalid.tolist() == [i == 3 for i in range(150)]
    np.testing.assert_array_equal(np.delete(said.belief, 3), np.delete(expected.belief, 3))


# Labels


def test_names_for_encoded_labels():
    model = xgb().fit(X[EVEN], Y[EVEN])
    ec = EpistemicClassifier(model, classes=NAMES).fit(X[EVEN], NAMED[EVEN])
    ec.tune(X[ODD], NAMED[ODD], coverage=0.8)
    np.testing.assert_array_equal(ec.predict(X), NAMES[model.predict(X)])
    for given in (model, xgb_booster()):
        with pytest.raises(InputError, match=r"give classes=\[...\], the label of each in order"):
            EpistemicClassifier(given).fit(X, NAMED)
    with pytest.raises(InputError, match="score columns once"):
        EpistemicClassifier(model, classes=["a", "b"]).fit(X, NAMED)
    with pytest.raises(InputError, match="differs from the model's own"):
        EpistemicClassifier(model, classes=[2, 1, 0]).fit(X, Y)


def test_labels_are_as_trained():
    model = lgbm().fit(X[EVEN], NAMED[EVEN])
    ec = EpistemicClassifier(model).fit(X[EVEN], NAMED[EVEN])
    ec.tune(X[ODD], NAMED[ODD], coverage=0.8)
    np.testing.assert_array_equal(ec.predict(X), model.predict(X))


def test_an_untrained_classifier_is_trained_and_an_untrained_model_is_not():
    assert EpistemicClassifier(cat()).fit(X, NAMED).predict(X[:2]).shape == (2,)
    for model in (cat_native(), xgboost.Booster()):
        with pytest.raises(InputError, match="not trained"):
            EpistemicClassifier(model).fit(X, Y)


# Tables


def make_frame(text=False, gaps=False):
    """Iris with gaps and a category; text: as text; gaps: in the category too."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(X, columns=["a a", "b", "c", "d"])
    kinds = np.array(["u", "v", "w"])[(Y + (rng.random(150) < 0.2)) % 3]
    frame["kind"] = kinds if text else pd.Categorical(kinds)
    frame.loc[rng.random(150) < 0.2, "b"] = np.nan
    frame.loc[rng.random(150) < 0.1 * gaps, "kind"] = np.nan
    return frame


def train_xgboost(frame):
    model = xgb(enable_categorical=True).fit(frame, Y[EVEN])
    return model, model.get_booster()


def train_lightgbm(frame):
    model = lgbm().fit(frame, Y[EVEN])
    return model, model.booster_


def train_catboost(frame):
    makers = (cat, cat_native)
    return tuple(make(cat_features=["kind"]).fit(frame, Y[EVEN]) for make in makers)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize(
    ("train", "frame"),
    [
        (train_xgboost, make_frame(gaps=True)),
        (train_lightgbm, make_frame()),
        (train_catboost, make_frame(text=True)),
    ],
)
def test_categories_and_gaps_are_taken_as_they_are_and_columns_in_their_order(train, frame, native):
    own, inner = train(frame[EVEN])
    ec = EpistemicClassifier(inner if native else own).fit(frame[EVEN], Y[EVEN])
    assert ec.layers_ == ("table", "leaves")
    assessed = ec.tune(frame[ODD], coverage=0.8).assess(frame[ODD])
    assert 0.7 < (assessed.assertion == Assertion.IK).mean() < 0.9
    np.testing.assert_array_equal(assessed.belief, np.ravel(own.predict(frame[ODD])))
    with pytest.raises(InputError, match="order"):
        ec.assess(frame[["kind", "d", "c", "b", "a a"]])


@pytest.mark.parametrize("native", [False, True])
def test_columns_in_another_order_are_refused_and_lightgbm_would_not(native):
    frame = pd.DataFrame(X, columns=["a a", "b", "c", "d"])
    other = frame[["d", "c", "b", "a a"]]
    model = lgbm().fit(frame, Y)
    assert (model.predict(other) != model.predict(frame)).any()
    with pytest.raises(InputError, match="the order of the training data, where 'a_a' comes"):
        EpistemicClassifier(model.booster_ if native else model).fit(other, Y)
    trained_on_an_array = lgbm().fit(X, Y)
    assert EpistemicClassifier(trained_on_an_array).fit(frame, Y).layers_ == ("input", "leaves")


# What is refused


@pytest.mark.parametrize(
    ("make", "objective"),
    [
        (lambda: xgb_booster("reg:squarederror"), "'reg:squarederror'"),
        (lambda: lgbm_booster("regression"), "'regression'"),
        (lambda: cat_native("RMSE").fit(X, Y), "'regressor'"),
        (lambda: catboost.CatBoostRegressor(**QUIET).fit(X, Y), ""),
    ],
)
def test_what_is_no_classifier_is_refused(make, objective):
    with pytest.raises(InputError, match=f"no classifier.*{objective}"):
        EpistemicClassifier(make()).fit(X, Y)


@pytest.mark.parametrize("name", TRAINED)
def test_what_is_no_table_is_refused(name):
    makers = {"xgb": xgboost.DMatrix, "lig": lightgbm.Dataset, "cat": catboost.Pool}
    data = makers[name[:3]](X)
    package = type(data).__module__.partition(".")[0]
    with pytest.raises(InputError, match=f"a {type(data).__name__} of {package}: pass the data"):
        as_model(TRAINED[name]()).prepare(data)


@pytest.mark.parametrize(
    ("name", "inputs"),
    [
        ("lightgbm's booster", X[:, :2]),
        ("catboost", np.array([["a"] * 4])),
        ("catboost's own", np.array([["a"] * 4])),
    ],
)
def test_what_a_library_refuses_is_an_error_of_ours(name, inputs):
    with pytest.raises(InputError, match="failed on a batch"):
        as_model(TRAINED[name]()).observe(inputs, ("leaves",))
