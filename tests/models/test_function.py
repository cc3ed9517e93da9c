"""FunctionModel: the oracle is the pipeline whose methods the functions are."""

from functools import partial

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from iknow import EpistemicClassifier
from iknow.errors import InputError, LayerError, RefusedError
from iknow.models import FunctionModel, SklearnModel, as_model
from iknow.models.inputs import measure
from iknow.testing import ModelContract
from tests.choosing import level_layers, paper_layers
from tests.models.keeping import assert_comes_back

X, Y = load_iris(return_X_y=True)
PIPELINE = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y)
SCALER, CLASSIFIER = PIPELINE[0], PIPELINE[1]
TRAINING, VALIDATION, TEST = np.split(np.random.default_rng(0).permutation(150), [70, 110])


def two_layers(rows):
    return {"scaled": SCALER.transform(rows), "petals": np.asarray(rows)[:, 2:]}


def refusing_nan(rows):
    """Without NaN, the pipeline's answers."""
    if np.isnan(rows).any():
        raise ZeroDivisionError("no NaN please")
    return PIPELINE.predict_proba(rows)


def writing(rows):
    scores = PIPELINE.predict_proba(rows)
    rows *= np.nan
    return scores


class TestContract(ModelContract):
    def make_model(self):
        return FunctionModel(PIPELINE.predict_proba, two_layers)

    def make_inputs(self):
        return X[:20]


class TestContractOfOneThatRefuses(TestContract):
    def make_model(self):
        return FunctionModel(refusing_nan, SCALER.transform)


class TestContractOfText(ModelContract):
    """Texts of numbers, in a list, which the function must get as a list."""

    def make_model(self):
        return FunctionModel(of_texts(PIPELINE.predict_proba), of_texts(SCALER.transform))

    def make_inputs(self):
        return [" ".join(map(str, row)) for row in X[:20].tolist()]


def of_texts(function):
    def read(texts):
        assert type(texts) is list
        return function([[float(number) for number in text.split()] for text in texts])

    return read


def fit(predict, embed=None, make=lambda rows: rows, **parameters):
    ec = EpistemicClassifier(as_model(predict, embed=embed), **parameters)
    ec.fit(make(X[TRAINING]), Y[TRAINING])
    return ec.tune(make(X[VALIDATION]), Y[VALIDATION])


# What it finds


def test_it_sees_what_the_pipeline_sees():
    model = as_model(PIPELINE.predict_proba, embed=SCALER.transform)
    found = model.observe(X, ("embedding", "input"))
    expected = SklearnModel(PIPELINE).observe(X, ("standardscaler", "input"))
    np.testing.assert_array_equal(found.scores, expected.scores)
    np.testing.assert_array_equal(found.belief, expected.belief)
    for here, there in {"embedding": "standardscaler", "input": "input"}.items():
        np.testing.assert_array_equal(found.activations[here], expected.activations[there])


def test_the_layers_are_those_of_embed():
    assert paper_layers(FunctionModel(PIPELINE.predict_proba), X) == ("input",)
    model = FunctionModel(PIPELINE.predict_proba, two_layers)
    assert paper_layers(model, X) == level_layers(model, X) == ("scaled", "petals")
    with pytest.raises(LayerError, match="it has 'input', 'scaled', 'petals'"):
        model.observe(X, ("hidden",))


def test_nothing_is_promised_about_a_function():
    with pytest.raises(LayerError, match="nothing is known"):
        FunctionModel(PIPELINE.predict_proba).sensitivity("input", measure(X))


@pytest.mark.parametrize(
    ("make", "read"),
    [
        (lambda rows: rows, np.asarray),
        (lambda rows: rows.tolist(), np.asarray),
        (lambda rows: tuple(map(tuple, rows)), np.asarray),
        (lambda rows: pd.DataFrame(rows, index=rows[:, 0]), lambda frame: frame.to_numpy()),
        (pl.DataFrame, lambda frame: frame.to_numpy()),
        (lambda rows: torch.tensor(rows), lambda tensor: tensor.clone().numpy()),
        (csr_array, lambda matrix: matrix.toarray()),
        (
            lambda rows: {"sepals": rows[:, :2], "petals": torch.tensor(rows[:, 2:])},
            lambda both: np.hstack([both["sepals"], both["petals"].numpy()]),
        ),
        (
            lambda rows: [" ".join(map(str, row)) for row in rows.tolist()],
            lambda texts: np.array([list(map(float, text.split())) for text in texts]),
        ),
        (lambda rows: [{"row": row} for row in rows], lambda ds: np.array([d["row"] for d in ds])),
    ],
    ids=["array", "list", "tuple", "frame", "polars", "tensor", "sparse", "dict", "texts", "dicts"],
)
@pytest.mark.parametrize("batch_size", [None, 7])
def test_inputs_come_as_they_are_in_batches(make, read, batch_size):
    expected = fit(PIPELINE.predict_proba, SCALER.transform).assess(X[TEST])
    ec = fit(
        lambda batch: PIPELINE.predict_proba(read(batch)),
        lambda batch: SCALER.transform(read(batch)),
        make,
        batch_size=batch_size,
    )
    found = ec.assess(make(X[TEST]))
    np.testing.assert_array_equal(found.assertion, expected.assertion)
    np.testing.assert_array_equal(found.level, expected.level)
    np.testing.assert_array_equal(ec.predict(make(X[TEST])), PIPELINE.predict(X[TEST]))


def test_each_function_is_called_once_per_batch():
    called = []

    def count(function):
        def counted(rows):
            called.append((function.__name__, len(rows)))
            return function(rows)

        return counted

    model = FunctionModel(count(PIPELINE.predict_proba), count(SCALER.transform))
    model.observe(X[:5], ("embedding",))
    assert sorted(called) == [("predict_proba", 5), ("transform", 5)]
    called.clear()
    model.observe(X[:5], ())
    assert called == [("predict_proba", 5)]


def test_a_function_that_writes_to_its_inputs_changes_nothing():
    before = X.copy()
    found = FunctionModel(writing, lambda rows: writing(rows)).observe(X, ("embedding", "input"))
    np.testing.assert_array_equal(X, before)
    np.testing.assert_array_equal(found.activations["input"], X.astype(np.float32))
    np.testing.assert_array_equal(found.scores, PIPELINE.predict_proba(X))


def test_tensors_that_need_a_gradient_are_read():
    weights = torch.tensor(CLASSIFIER.coef_.T, requires_grad=True)

    def score(rows):
        return torch.tensor(SCALER.transform(rows)) @ weights + torch.tensor(CLASSIFIER.intercept_)

    np.testing.assert_array_equal(FunctionModel(score).observe(X, ()).belief, PIPELINE.predict(X))


# Samples it refuses


@pytest.mark.parametrize("make", [np.asarray, pd.DataFrame], ids=["array", "frame"])
def test_a_refused_sample_has_no_belief_and_disturbs_no_other(make):
    damaged = X[TEST].copy()
    damaged[3, 1] = np.nan
    predict = refusing_nan if make is np.asarray else lambda frame: refusing_nan(frame.to_numpy())
    ec = fit(predict, lambda rows: SCALER.transform(np.asarray(rows)), make)
    found, expected = ec.assess(make(damaged)), ec.assess(make(X[TEST]))
    assert found.reason[3].name == "INVALID"
    rest = np.arange(len(TEST)) != 3
    np.testing.assert_array_equal(found.level[rest], expected.level[rest])


# Storage and copies


def test_it_comes_back_with_both_functions_and_can_be_cloned(tmp_path):
    ec = fit(PIPELINE.predict_proba, two_layers)
    assert_comes_back(ec, FunctionModel(PIPELINE.predict_proba, two_layers), X[TEST], tmp_path)
    copy = clone(ec).fit(X[TRAINING], Y[TRAINING]).tune(X[VALIDATION], Y[VALIDATION])
    np.testing.assert_array_equal(copy.assess(X[TEST]).level, ec.assess(X[TEST]).level)


# Errors


@pytest.mark.parametrize(
    ("predict", "embed", "kind", "words"),
    [
        (partial(refusing_nan, 0), None, RefusedError, "refusing_nan failed on a batch"),
        (PIPELINE.predict, None, InputError, r"shape \(n, n_classes\) .* got \(70,\)"),
        (lambda x: PIPELINE.predict_proba(x)[:3], None, InputError,
         r"scores for each of 70 inputs, of shape \(70, n_classes\); got \(3, 3\)"),
        (PIPELINE.predict_proba, lambda x: x[:3], LayerError, "one activation per sample"),
        (PIPELINE.predict_proba, lambda x: {}, InputError, "must return activations"),
        (PIPELINE.predict_proba, lambda x: {"input": x}, InputError, "none of them called 'input'"),
        (PIPELINE.predict_proba, lambda x: [["a"]] * len(x), LayerError, "real numbers"),
        (PIPELINE.predict_proba, lambda x: None, LayerError, "layer 'embedding' must be an array"),
        (PIPELINE.predict_proba, "scaler", InputError, "embed must be a function"),
        (PIPELINE.predict_proba, StandardScaler, InputError, "embed must be a function"),
    ],
)  # fmt: skip
def test_a_function_that_does_something_else_is_named(predict, embed, kind, words):
    with pytest.raises(kind, match=words):
        EpistemicClassifier(as_model(predict, embed=embed)).fit(X[TRAINING], Y[TRAINING])


@pytest.mark.parametrize("inputs", [3, None, "text", (row for row in X), {}, {"a": X, "b": X[:3]}])
def test_inputs_without_samples_are_refused(inputs):
    with pytest.raises(InputError):
        FunctionModel(PIPELINE.predict_proba).prepare(inputs)
