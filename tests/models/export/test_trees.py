"""The tree libraries as ONNX, against what they say themselves, also on their thresholds."""

import json
import warnings

import numpy as np
import onnx
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from iknow.errors import ExportError
from iknow.models import as_model
from iknow.models.export.graph import Builder
from iknow.models.export.trees import Tree, find_leaves
from iknow.models.onnx.file import read_file
from iknow.models.onnx.session import Session
from tests.models.export.comparing import assert_same, export, on_thresholds, quick, run

pd = pytest.importorskip("pandas")
xgboost = pytest.importorskip("xgboost")
lightgbm = pytest.importorskip("lightgbm")
catboost = pytest.importorskip("catboost")

X, Y = load_iris(return_X_y=True)
CANCER, SICK = load_breast_cancer(return_X_y=True)
rng = np.random.default_rng(0)
HOLES = np.where(rng.random(X.shape) < 0.15, np.nan, X)
HOLES[::9] = 0
EVEN, ODD = slice(0, None, 2), slice(1, None, 2)
SINGLE = 3e-7  # xgboost adds up in single precision


def xgb(**settings):
    return xgboost.XGBClassifier(n_estimators=6, n_jobs=1, **settings)


def lgbm(**settings):
    return lightgbm.LGBMClassifier(n_estimators=6, verbose=-1, n_jobs=1, **settings)


def cat(**settings):
    quiet = {"verbose": 0, "allow_writing_files": False, "thread_count": 1}
    return catboost.CatBoostClassifier(iterations=6, **{"depth": 3, **quiet, **settings})


def find_thresholds(model):
    """Pairs of a feature and a threshold, as the libraries list them."""
    if hasattr(model, "get_borders"):
        return [(j, t) for j, borders in model.get_borders().items() for t in borders]
    if hasattr(model, "booster_"):
        table = model.booster_.trees_to_dataframe()
        table = table[table.decision_type == "<="]
        names = model.booster_.feature_name()
        found = zip(table.split_feature, table.threshold, strict=True)
        return [(names.index(name), t) for name, t in found]
    dumped = json.loads(model.get_booster().save_raw("json"))["learner"]["gradient_booster"]
    trees = dumped.get("model", dumped.get("gbtree", {}).get("model"))["trees"]
    return [
        (j, t)
        for tree in trees
        for j, t, left in zip(
            tree["split_indices"], tree["split_conditions"], tree["left_children"], strict=True
        )
        if left != -1
    ]


MODELS = {
    "xgboost": xgb(),
    "xgboost's forest": xgboost.XGBRFClassifier(n_estimators=6, n_jobs=1, random_state=0),
    "xgboost's dart": xgb(booster="dart", rate_drop=0.5, random_state=0),
    "xgboost's parallel trees": xgb(num_parallel_tree=2, subsample=0.5, random_state=0),
    "xgboost with 0 missing": xgb(missing=0),
    "lightgbm": lgbm(),
    "lightgbm's ova": lgbm(objective="multiclassova"),
    "lightgbm's forest": lgbm(boosting_type="rf", bagging_fraction=0.7, bagging_freq=1),
    "lightgbm with 0 missing": lgbm(zero_as_missing=True),
    "catboost": cat(),
    "catboost one by one": cat(loss_function="MultiClassOneVsAll"),
    "catboost, missing last": cat(nan_mode="Max"),
}


@pytest.mark.parametrize("name", quick(MODELS, ["xgboost", "lightgbm", "catboost"]))
def test_leaves_are_equal_on_the_thresholds_too(name):
    model = clone(MODELS[name]).fit(HOLES, Y)
    near = on_thresholds(HOLES, find_thresholds(model), most=400)
    assert_same(model, HOLES, ["leaves", "table", "output"], near, rtol=SINGLE)


@pytest.mark.parametrize("name", quick(["xgboost", "catboost"], ["lightgbm"]))
def test_two_classes(name):
    model = clone(MODELS[name]).fit(CANCER, SICK)
    near = on_thresholds(CANCER, find_thresholds(model), most=400)
    graph = assert_same(model, CANCER, ["leaves", "input", "output"], near, rtol=SINGLE)
    assert [each.name for each in graph.graph.output][-1] == "layer:output"  # and no belief


@pytest.mark.slow
def test_the_libraries_own_models():
    multi = {"num_class": 3, "verbose": -1, "num_threads": 1}
    trained = [
        xgboost.train({"objective": "multi:softmax", "num_class": 3}, xgboost.DMatrix(X, Y), 4),
        lightgbm.train({"objective": "multiclass", **multi}, lightgbm.Dataset(X, Y), 4),
        catboost.CatBoost({"loss_function": "MultiClass", "iterations": 4, "verbose": 0,
                           "allow_writing_files": False}).fit(X, Y),
    ]  # fmt: skip
    for model in trained:
        assert_same(model, X, ["leaves", "input"], rtol=SINGLE)


@pytest.mark.slow
def test_nan_where_training_had_none_counts_as_each_library_has_it():
    for model in (xgb(), lgbm(), cat()):
        assert_same(model.fit(X, Y), X, ["leaves", "table"], HOLES, rtol=SINGLE)


@pytest.mark.filterwarnings("ignore:The argument 'eval_set'")
def test_the_best_iteration_answers():
    held_out = [(X[ODD], Y[ODD])]
    early = xgboost.XGBClassifier(learning_rate=0.9, early_stopping_rounds=2, n_jobs=1)
    early.fit(X[EVEN], Y[EVEN], eval_set=held_out, verbose=0)
    light = lightgbm.LGBMClassifier(n_estimators=99, learning_rate=0.8, verbose=-1, n_jobs=1)
    stop = [lightgbm.early_stopping(2, verbose=False)]
    light.fit(X[EVEN], Y[EVEN], eval_set=held_out, callbacks=stop)
    for model in (early, light):
        assert_same(model, X, ["leaves"], rtol=SINGLE)


def make_frame():
    source = np.random.default_rng(0)
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    mixed = (Y + (source.random(150) < 0.4) * source.integers(0, 4, 150)) % 5
    frame["kind"] = pd.Categorical(np.array(["u", "v", "w", "y", "zz"])[mixed])
    frame.loc[source.random(150) < 0.2, "b"] = np.nan
    return frame


SETS = {
    "lightgbm": lgbm(min_data_per_group=2, cat_smooth=1),
    "lightgbm one by one": lgbm(max_cat_to_onehot=9, min_data_per_group=2),
    "xgboost": xgb(enable_categorical=True),
    "xgboost one by one": xgb(enable_categorical=True, max_cat_to_onehot=9),
}


@pytest.mark.parametrize("name", quick(SETS, ["lightgbm", "xgboost"]))
def test_categories_by_their_labels(name):
    model = SETS[name]
    frame = make_frame()
    model.fit(frame, Y)
    graph = assert_same(model, frame, ["table", "leaves"], rtol=SINGLE)
    # A frame of other rows may list its categories in another order.
    again = frame.copy()
    again["kind"] = again["kind"].astype(str)
    said, _ = run(graph, again, ["leaves"])
    expected = as_model(model).observe(frame, ["leaves"])
    np.testing.assert_array_equal(said.activations["layer:leaves"], expected.activations["leaves"])
    unknown = again.assign(kind="never seen")[:3]
    _, belief = run(graph, unknown, ["leaves"])
    refuses = type(model).__module__.startswith("xgboost")
    assert (belief == -1).all() == refuses


def test_what_a_sparse_matrix_does_not_store_is_missing_to_xgboost_alone():
    table = np.round(X) - np.round(X).min(axis=0)
    for model in (xgb(), lgbm(), cat()):
        sparse = make_pipeline(OneHotEncoder(), model).fit(table, Y)
        assert_same(sparse, table, ["onehotencoder", "leaves"], rtol=SINGLE)


def test_numbers_that_are_no_category():
    codes = np.column_stack([X[:, :2], (Y + (rng.random(150) < 0.3)) % 4])
    strange = codes.copy()
    strange[:, 2] = rng.choice([-3, -0.5, 0, 1, 2.7, 3, 9, np.nan], 150)
    kinds = {"enable_categorical": True, "feature_types": ["q", "q", "c"]}
    by_xgboost = xgb(**kinds).fit(codes, Y)
    by_lightgbm = lgbm(min_data_per_group=2).fit(codes, Y, categorical_feature=[2])
    splits = by_lightgbm.booster_.trees_to_dataframe().decision_type
    assert (splits == "==").any()
    for model in (by_xgboost, by_lightgbm):
        assert_same(model, codes, ["leaves", "table"], strange, rtol=SINGLE)


def test_at_the_end_of_a_pipeline():
    for model in (xgb(), lgbm(), cat()):
        pipeline = make_pipeline(StandardScaler(), model).set_output(transform="default")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the names of features
            assert_same(pipeline.fit(X, Y), X, ["standardscaler", "leaves"], HOLES[1:], SINGLE)


@pytest.mark.slow
def test_whole_numbers_are_compared_as_the_libraries_do():
    whole = (X * 10).astype(np.int64)
    large = whole + (1 << 24)  # which single precision cannot hold
    for model in (xgb(), lgbm(), cat()):
        assert_same(model.fit(whole, Y), whole, ["leaves"], rtol=SINGLE)
        assert_same(model.fit(large, Y), large, ["leaves"], rtol=SINGLE)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_infinite_and_huge_values_are_refused_where_the_library_does():
    rows = np.repeat(X[:1], 4, axis=0)
    rows[:, 2] = [np.inf, -np.inf, 1e39, -3e38]
    for model in (xgb(), lgbm(), cat()):
        graph = export(model.fit(X, Y), X, ["leaves"])
        expected = [as_model(model).observe(row[None], ()).belief[0] for row in rows]
        np.testing.assert_array_equal(run(graph, rows, ["leaves"])[1], expected)


def test_what_cannot_be_converted_is_named():
    vectors = xgb(multi_strategy="multi_output_tree").fit(X, Y)
    with pytest.raises(ExportError, match="one_output_per_tree"):
        export(vectors, X, ["leaves"])
    with pytest.raises(ExportError, match="gblinear"):
        export(xgb(booster="gblinear").fit(X, Y), X, ["input"])
    with pytest.raises(ExportError, match="linear_tree=False"):
        export(lgbm(linear_tree=True).fit(X, Y), X, ["leaves"])
    with pytest.raises(ExportError, match="grow_policy='SymmetricTree'"):
        export(cat(grow_policy="Lossguide").fit(X, Y), X, ["leaves"])
    frame = make_frame().drop(columns="b").astype({"kind": str})
    with pytest.raises(ExportError, match="text \\('kind'\\) and numbers"):
        export(cat(cat_features=["kind"]).fit(frame, Y), frame, ["leaves"])
    eager = cat().fit(CANCER, SICK)
    eager.set_probability_threshold(0.2)
    with pytest.raises(ExportError, match=r"threshold of 0\.2"):
        export(eager, CANCER, ["leaves"])


def grow(rng, kind, thresholds):
    """A random tree over two columns of numbers and one of categories."""
    n_inner = int(rng.integers(0, 12))
    n = 2 * n_inner + 1
    left, right = np.full(n, -1), np.full(n, -1)
    for i in range(n_inner):  # listed level by level
        left[i], right[i] = 2 * i + 1, 2 * i + 2
    feature, numbers = rng.integers(0, 3, n), rng.permutation(n)
    nodes = [i for i in range(n_inner) if feature[i] == 2]
    sets = {i: sorted({*rng.integers(0, 70, rng.integers(1, 40)).tolist()}) for i in nodes}
    threshold = rng.choice(thresholds, n).astype(kind)
    return Tree(feature, threshold, left, right, rng.random(n) < 0.5, numbers, sets)


def walk(tree, row, compare):
    node = 0
    while tree.left[node] != -1:
        x, bound = row[tree.feature[node]], tree.threshold[node]
        goes_left = x <= bound if compare == "<=" else x < bound
        if node in tree.sets:
            goes_left = x in tree.sets[node]
        goes_left = tree.missing_left[node] if np.isnan(x) else goes_left
        node = (tree.left if goes_left else tree.right)[node]
    return tree.numbers[node]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("compare", ["<=", "<"])
@pytest.mark.parametrize("kind", ["float64", "float32"])
def test_leaves_are_those_of_a_walk_by_hand(kind, compare, seed):
    rng = np.random.default_rng(seed)
    thresholds = rng.normal(size=5).astype(kind)
    trees = [grow(rng, kind, thresholds) for _ in range([1, 3, 40][seed % 3])]
    near = [np.nextafter(thresholds, np.array(end, kind)) for end in (-9, 9)]
    rows = rng.choice(np.concatenate([thresholds, *near, [np.nan]]), (60, 3)).astype(kind)
    rows[:, 2] = rng.choice([*range(-2, 75), np.nan, np.nan], 60)
    b = Builder()
    leaves = find_leaves(b, trees, b.input("X", kind, 3), compare)
    file = read_file(onnx.ModelProto.FromString(b.finish(leaves.layers)))
    (said,) = Session(file).run(["leaves"], {"X": rows})
    expected = [[walk(tree, row, compare) for tree in trees] for row in rows]
    np.testing.assert_array_equal(said, expected)


def test_categories_with_high_numbers_take_no_large_table():
    codes = np.column_stack([X[:, 1], rng.choice([7, 40, 1023, 1024, 900_000], 150) + Y])
    model = lgbm(min_data_per_group=2, cat_smooth=1).fit(codes, Y, categorical_feature=[1])
    strange = codes.copy()
    strange[:, 1] = rng.choice([-1, 8, 41, 1022, 1e9, np.nan], 150)
    graph = assert_same(model, codes, ["leaves"], strange)
    assert graph.ByteSize() < 1 << 20
