"""Wrong inputs: every kind of model meets the same slips, and says what is wrong in plain words.

Each slip is answered for every row or refused by an `InputError` that names the column, the shape
or the type: never by an error of numpy's, torch's or a booster's alone.
"""

import re
import warnings

import lightgbm
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
import torch
import xgboost
from catboost import CatBoostClassifier, CatBoostRegressor
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.ensemble import HistGradientBoostingClassifier, IsolationForest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from iknow import EpistemicClassifier
from iknow.errors import InputError

N, HELD = 200, 40
RNG = np.random.default_rng(0)
Y = np.arange(N) % 2
ARRAY = (RNG.normal(size=(N, 4)) + 3 * Y[:, None]).astype(np.float32)
IMAGES = (RNG.normal(size=(N, 1, 4, 4)) + 3 * Y[:, None, None, None]).astype(np.float32)
NUMBERS = pd.DataFrame(ARRAY[:, :3].astype(float) + 40, columns=["age", "income", "hours"])
FRAME = NUMBERS.assign(city=np.where(RNG.integers(2, size=N) == Y, "Bern", "Rome"))
BY_CATEGORY = FRAME.astype({"city": "category"})
TEXTS = [f"{'good film' if each else 'bad book'} number {i}" for i, each in enumerate(Y)]


def network(*layers):
    torch.manual_seed(0)
    return torch.nn.Sequential(*layers).eval()


def dense():
    return network(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))


def convolutional():
    inner = torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten()
    return network(*inner, torch.nn.Linear(64, 2))


def by_name():
    scaled = StandardScaler(), ["age", "income", "hours"]
    steps = make_column_transformer(scaled, (OneHotEncoder(handle_unknown="ignore"), ["city"]))
    return make_pipeline(steps, LogisticRegression())


def weigh(inputs):
    scores = np.asarray(inputs) @ np.array([1.0, 1.0, 1.0, 1.0]) - 6
    return np.stack([-scores, scores], axis=1)


KINDS = {
    "torch": (dense, ARRAY),
    "torch of images": (convolutional, IMAGES),
    "onnx": (dense, ARRAY),
    "function": (lambda: weigh, ARRAY),
    "logistic": (LogisticRegression, ARRAY),
    "logistic of a frame": (LogisticRegression, NUMBERS),
    "pipeline": (by_name, FRAME),
    "boosting": (lambda: HistGradientBoostingClassifier(max_iter=3), BY_CATEGORY),
    "xgboost": (
        lambda: xgboost.XGBClassifier(n_estimators=3, enable_categorical=True),
        BY_CATEGORY,
    ),
    "lightgbm": (lambda: lightgbm.LGBMClassifier(n_estimators=3, verbose=-1), BY_CATEGORY),
    "catboost": (
        lambda: CatBoostClassifier(
            3, verbose=0, cat_features=["city"], allow_writing_files=False, thread_count=1
        ),
        FRAME,
    ),
    "pipeline in a bundle": (by_name, FRAME),
    "frame in a bundle": (LogisticRegression, NUMBERS),
    "texts": (lambda: make_pipeline(TfidfVectorizer(), LogisticRegression()), TEXTS),
}


@pytest.fixture(scope="module")
def classifiers(tmp_path_factory):
    def make(kind):
        model, X = KINDS[kind]
        model = model()
        if kind == "onnx":
            path, like = tmp_path_factory.mktemp("onnx") / "m.onnx", torch.zeros(2, 4)
            axes = {"x": {0: "n"}, "logits": {0: "n"}}
            names = {"input_names": ["x"], "output_names": ["logits"], "dynamic_axes": axes}
            torch.onnx.export(model, (like,), path, dynamo=False, **names)
            model = path
        model = FrozenEstimator(model.fit(X, Y)) if hasattr(model, "fit") else model
        ec = EpistemicClassifier(model, progress=False).fit(X[HELD:], Y[HELD:])
        ec.tune(X[:HELD], coverage=0.7)
        if "bundle" in kind:
            ec.save(path := tmp_path_factory.mktemp("bundle") / "x.iknow", onnx=True)
            ec = EpistemicClassifier.load(path)
        return ec

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {kind: make(kind) for kind in KINDS}


def plain(X):
    """Six samples as an array: of a frame its values, whatever they are."""
    return np.asarray(X[:6], dtype=object if hasattr(X, "iloc") or X is TEXTS else None)


def like(X, dtype):
    """Ones of a dtype in the shape of six samples, as numbers."""
    return np.ones((6, *np.shape(X)[1:]) if X is not TEXTS else (6, 4), dtype)


def changed(X, value):
    values = plain(X).astype(object)
    values[(1,) + (0,) * (values.ndim - 1)] = value
    return values


def ragged(X):
    rows = changed(X, 0).tolist()
    return [rows[0], [1, 2, 3], [1, 2]]


SHAPE = r"each sample of X has shape \((\d+, )*\d*,?\), and \((\d+, )*\d+,?\) in the training data"
KIND = r"X (is|holds?) .*, and (the training data )?(an array|a data frame|a list|floats|numbers)"
EXPECTED = r"|X must hold (real )?numbers|could not convert|numeric|holds text|hold text"
LENGTHS = "holds (rows|sequences) of different lengths, from [12]|row 1 of X is of type list"
ANY = {
    "narrower": (lambda X: like(X, float)[..., :-1], rf"{SHAPE}|{KIND}"),
    "text for numbers": (lambda X: plain(X).astype(str), KIND + EXPECTED),
    "a text among numbers": (lambda X: changed(X, "x"), KIND + EXPECTED),
    "a list with None": (lambda X: changed(X, None).tolist(), KIND),
    "an array with None": (lambda X: changed(X, None), KIND),
    "dates": (lambda X: np.full(np.shape(plain(X)), "2020-01-01", "M8[D]"), KIND + EXPECTED),
    "bools": (lambda X: like(X, bool), KIND),
    "objects": (lambda X: plain(X).astype(object), KIND),
    "nothing": (lambda X: X[:0], "X holds no samples"),
    "one axis": (lambda X: like(X, float).ravel()[:6], rf"{SHAPE}|Reshape your data"),
    "four axes": (lambda X: np.ones((6, 3, 5, 4), np.float32), rf"{SHAPE}|{KIND}"),
    "uint8": (lambda X: like(X, np.uint8), KIND),
    "float16": (lambda X: like(X, np.float16), KIND),
    "int64": (lambda X: like(X, np.int64), KIND),
    "sparse": (lambda X: scipy.sparse.csr_array(np.ones((6, 4))), rf"{KIND}|must be dense"),
    "nested lists": (lambda X: plain(X).tolist(), KIND),
    "ragged lists": (
        ragged,
        f"{KIND}|{LENGTHS}",
    ),
    "a Series": (lambda X: pd.Series(like(X, float).ravel()[:6]), rf"{SHAPE}|Reshape your data"),
    "a dict": (
        lambda X: {"a": np.ones(6), "b": np.ones(6)},
        rf"{KIND}|X lacks the col|got 'a', 'b'",
    ),
    "a path": (lambda X: "data.csv", "got 'data.csv': read the file first"),
    "nothing at all": (lambda X: None, "must be an array with samples .* got NoneType"),
    "complex": (lambda X: like(X, complex), "real"),
}
COLUMNS = {
    "renamed": (lambda X: X.rename(columns={"income": "wage"}), "'income' .* 'wage' instead"),
    "gone": (lambda X: X.drop(columns="income"), "X lacks the column 'income'"),
    "twice": (lambda X: pd.concat([X, X[["age"]]], axis=1), "the column 'age' more than once"),
    "number as text": (
        lambda X: X.assign(age=X["age"].astype(str)),
        "'age' of X holds text, and numb",
    ),
    "number as date": (
        lambda X: X.assign(age=pd.Timestamp("2020-01-01")),
        "'age' of X holds dates",
    ),
    "polars, renamed": (
        lambda X: pl.from_pandas(X).rename({"income": "wage"}),
        "'income' .* 'wage' instead",
    ),
    "polars, as text": (
        lambda X: pl.from_pandas(X).with_columns(pl.col("age").cast(pl.String)),
        "'age' of X holds text, and numbers in the training data: convert it to numbers",
    ),
    "text as number": (
        lambda X: X.assign(city=np.arange(6)),
        "'city' of X holds numbers, and (text|categories) in the training data: convert it to",
    ),
}
ALSO = {  # a pipeline that takes columns by name has no use for their order, nor for others
    "reordered": (
        lambda X: X[X.columns[::-1]],
        "not in the order of the training data, where 'age'",
    ),
    "one more": (
        lambda X: X.assign(more=1.0),
        "X has the column 'more', which the training data does",
    ),
}
OF_A_GRAPH = (
    "takes a dict of arrays by the names of its inputs, 'age'|^(age|income|hours) (must hold real "
    "numbers|holds .*, and the training data floats)|input 'city' .* takes text"
)
"""What the model in a bundle says about its inputs, which are the columns."""
FINE = {(f"{kind} in a bundle", "reordered") for kind in ("pipeline", "frame")}
"""A graph takes its columns by name as well."""
REFUSED = {"narrower", "dates", "nothing", "one axis", "a Series", "a dict", "a path", "complex"}
REFUSED |= {"nothing at all", "ragged lists", *COLUMNS}
"""Slips that no kind of model answers; others may be numbers to one and none to another."""


def cases():
    for kind, (_, X) in KINDS.items():
        for slip in ANY:
            is_fine = kind == "texts" and slip == "text for numbers"
            yield kind, slip, not is_fine
        frame = hasattr(X, "iloc")
        for slip in COLUMNS if frame else ():
            if slip != "text as number" or "city" in X:
                yield kind, slip, True
        for slip in ALSO if frame else ():
            yield kind, slip, kind != "pipeline" and (kind, slip) not in FINE


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "slip", "matters"), list(cases()))
def test_a_slip_is_answered_for_every_row_or_told_in_words(classifiers, kind, slip, matters):
    X, (make, words) = KINDS[kind][1], (ANY | COLUMNS | ALSO)[slip]
    wrong = make(X if slip in ANY else X[:6])
    try:
        assessed = classifiers[kind].assess(wrong)
    except InputError as error:
        told = str(error)
    else:
        assert not (matters and slip in REFUSED | set(ALSO)), "this was answered in silence"
        assert len(assessed) == 6
        return
    assert matters, told
    if "bundle" in kind:
        words += f"|{OF_A_GRAPH}"
    assert re.search(words, told), told
    assert len(told) < 700
    assert "Stack trace" not in told


def test_the_right_inputs_are_answered_in_silence(classifiers):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for kind, (_, X) in KINDS.items():
            assert (classifiers[kind].assess(X).level > 0).any()


def test_what_is_told_survives_a_bundle(classifiers, tmp_path):
    classifiers["boosting"].save(tmp_path / "b.iknow")
    again = EpistemicClassifier.load(tmp_path / "b.iknow", classifiers["boosting"].model)
    with pytest.raises(InputError, match="the column 'age' of X holds text, and numbers"):
        again.assess(BY_CATEGORY.assign(age="old"))


def test_a_column_that_is_all_missing_or_of_objects_is_no_slip(classifiers):
    empty = FRAME[:6].assign(age=[None] * 6, city=np.nan)
    assert len(classifiers["catboost"].assess(empty.astype({"city": object}).fillna({"city": ""})))
    objects = FRAME.astype({"age": object})
    assert len(classifiers["pipeline"].assess(objects)) == N


def test_an_object_column_of_another_kind_is_warned_of():
    frame = FRAME.astype({"city": object})
    model = FrozenEstimator(KINDS["catboost"][0]().fit(frame, Y))
    ec = EpistemicClassifier(model).fit(frame[HELD:], Y[HELD:]).tune(frame[:HELD], coverage=0.7)
    with pytest.warns(UserWarning, match="'city' of X holds numbers, and text in the training"):
        ec.assess(frame[:6].assign(city=range(6)))


@pytest.mark.parametrize(
    "model",
    [Ridge(), Ridge().fit(ARRAY, Y), make_pipeline(StandardScaler(), Ridge()), KMeans(2),
     xgboost.XGBRegressor(), lightgbm.LGBMRegressor(), CatBoostRegressor(), IsolationForest()],
    ids=lambda model: type(model).__name__,
)  # fmt: skip
def test_what_is_no_classifier_is_told_so_before_it_is_trained(model):
    with pytest.raises(InputError, match=r"is no classifier \(its type is '\w+'\)"):
        EpistemicClassifier(model).fit(ARRAY, Y)


def test_a_gap_is_refused_with_advice_for_models_that_take_gaps():
    gaps = np.where(np.arange(N)[:, None] == [3, -1, -1, -1], np.nan, ARRAY)
    model = FrozenEstimator(HistGradientBoostingClassifier(max_iter=3).fit(gaps, Y))
    ec = EpistemicClassifier(model).fit(ARRAY[HELD:], Y[HELD:])
    with pytest.raises(InputError, match=r"row 3 .*takes gaps, .*: pass layers=\['table'\]"):
        ec.tune(gaps[:HELD], coverage=0.7)
    ec = EpistemicClassifier(model, ["table"]).fit(ARRAY[HELD:], Y[HELD:])
    ec.tune(gaps[:HELD], coverage=0.7)
    without = LogisticRegression().fit(ARRAY, Y)
    with pytest.raises(InputError, match=r"row 3 .*remove or fix these rows"):
        EpistemicClassifier(without).fit(gaps, Y)


def test_whole_numbers_that_a_network_refuses_are_told_at_fit_too():
    with pytest.raises(InputError, match=r"pass X\.astype\('float32'\), scaled as"):
        EpistemicClassifier(convolutional()).fit(IMAGES.astype(np.uint8), Y)
