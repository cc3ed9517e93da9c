"""Inputs of any form and type become what a graph declares, or are refused."""

import numpy as np
import pandas as pd
import pytest
import skl2onnx
import torch
from hypothesis import given
from hypothesis import strategies as st
from skl2onnx.common.data_types import FloatTensorType, StringTensorType
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from iknow import EpistemicClassifier
from iknow.errors import InputError, RefusedError
from iknow.models import OnnxModel
from iknow.models.inputs import Fields
from tests.choosing import level_layers
from tests.models.onnx.graphs import mlp, observe, parsed

X = np.random.default_rng(1).normal(size=(12, 4))
TYPES = {"uint8": np.uint8, "int32": np.int32, "int64": np.int64, "uint64": np.uint64}


def echo(kind):
    """A graph whose scores are its input and its negative."""
    return parsed(
        f"""g ({kind}[n, 1] x) => (double[n, 2] scores) {{
        y = Cast <to = 11> (x)  z = Neg(y)  scores = Concat <axis = 1> (y, z)
        }}"""
    )


@given(
    kind=st.sampled_from(sorted(TYPES)),
    value=st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300) | st.floats(-1e20, 1e20),
)
def test_a_number_arrives_as_it_is_or_not_at_all(kind, value):
    info = np.iinfo(TYPES[kind])
    fits = value == int(value) and info.min <= int(value) <= info.max
    model = OnnxModel(echo(kind))
    batch = model.prepare(np.array([[value]]))
    if fits:
        assert model.observe(batch, ()).scores[0, 0] == float(value)
    else:
        with pytest.raises(RefusedError, match=f"takes {kind}"):
            model.observe(batch, ())


def test_whole_numbers_that_are_missing_are_invalid_and_disturb_no_other():
    model = OnnxModel(echo("int64"))
    found = model.observe(model.prepare([[1.0], [np.nan], [3.0]]), ())
    assert found.invalid.tolist() == [False, True, False]
    assert found.scores[[0, 2], 0].tolist() == [1.0, 3.0]


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int8", "bool", ">f8", "O"])
def test_numbers_of_any_type_become_the_graphs(dtype):
    numbers = np.arange(48).reshape(12, 4) % 2
    wanted = observe(mlp(), numbers.astype(np.float32)).scores
    np.testing.assert_array_equal(observe(mlp(), numbers.astype(dtype)).scores, wanted)
    for same in (numbers.tolist(), {"x": numbers}, pd.DataFrame(numbers), torch.tensor(numbers)):
        np.testing.assert_array_equal(observe(mlp(), same).scores, wanted)


TWO = "g (float[n, 2] a, int64[n, 2] b) => (float[n, 2] y) { c = Cast <to = 1> (b)  y = Add(a, c) }"


def test_several_inputs_come_by_name():
    batch = {"b": np.arange(16).reshape(8, 2), "a": np.ones((8, 2))}
    found = observe(parsed(TWO), batch, ["input", "b", "c"])
    np.testing.assert_array_equal(found.scores, 1 + batch["b"])
    np.testing.assert_array_equal(found.activations["input"], batch["a"])  # the only floats
    np.testing.assert_array_equal(found.activations["b"], found.activations["c"])
    assert isinstance(OnnxModel(parsed(TWO)).prepare(batch), Fields)
    ec = EpistemicClassifier(parsed(TWO), progress=False).fit(batch, np.arange(8) % 2)
    assert ec.layers_ == ("input",)


@pytest.mark.parametrize(
    ("batch", "says"),
    [
        (
            np.ones((3, 2)),
            r"takes a dict of arrays by the names .*, 'a' \(float32 .*'b' .* got ndarray",
        ),
        ({"a": np.ones((3, 2))}, r"'a' \(float32 of shape \(\?, 2\)\), 'b' .* got 'a'"),
        ({"a": np.ones((3, 2)), "b": [[1, 2]], "c": [1]}, "got 'a', 'b', 'c'"),
        ({"a": np.ones((3, 2)), "b": [[1, 2]]}, "'a' holds 3, 'b' holds 1"),
        (
            {"a": np.ones((3, 2)), "b": [[1, 2], [3]]},
            "b holds rows of different lengths",
        ),
        ({"a": [["x", "y"]], "b": [[1, 2]]}, "a must hold real numbers"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(batch, says):
    with pytest.raises(InputError, match=says):
        observe(parsed(TWO), batch)


@pytest.mark.parametrize(
    ("graph", "batch", "says"),
    [
        (mlp(), np.ones((3, 5)), r"failed on 'x' float32 \(3, 5\); it takes 'x' .*\?, 4\)"),
        (mlp(batch=2**40), np.ones((3, 4)), "or one up to 4,096; it takes .*1099511627776, 4"),
        (mlp(), np.ones(3), r"failed on 'x' float32 \(3,\)"),
        (parsed("g (string[n, 1] x) => (float[n, 2] y) { y = Cast <to = 1> (x) }"), [1], "text"),
        (parsed("g (complex64[n, 2] x) => (float[n, 2] y) { y = Cast <to = 1> (x) }"),
         [[1, 2]], "takes neither numbers"),
        (parsed("g (bfloat16[n, 2] x) => (float[n, 2] y) { y = Cast <to = 1> (x) }"),
         [[1, 2]], "takes neither numbers"),
        (parsed("g (seq(float[n, 2]) x) => (float[n, 2] y) { y = SequenceAt(x, x) }"),
         [[1, 2]], "takes neither numbers"),
        (parsed("g (float[3, 2] x, float[2, 2] z) => (float[3, 2] y) { y = MatMul(x, z) }"),
         {"x": np.ones((6, 2)), "z": np.ones((6, 2))}, "first axis of all inputs.*3, 2.*2, 2"),
        (parsed("g (float[n, 2] x) => (float[m, 2] y) { y = Concat <axis = 0> (x, x) }"),
         [[1, 2]], r"2 rows for 1 samples"),
    ],
)  # fmt: skip
def test_graphs_that_take_no_such_batches_are_told(graph, batch, says):
    with pytest.raises(InputError, match=says):
        observe(graph, batch)


def test_a_pipeline_of_text_takes_text():
    texts = ["good day", "good morning", "bad day", "bad night"] * 3
    labels = ["yes", "yes", "no", "no"] * 3
    estimator = make_pipeline(TfidfVectorizer(lowercase=False), LogisticRegression()).fit(
        texts, labels
    )
    graph = skl2onnx.to_onnx(estimator, initial_types=[("text", StringTensorType([None, 1]))])
    found = observe(graph, texts)
    np.testing.assert_allclose(found.scores, estimator.predict_proba(texts), atol=1e-5)
    model = OnnxModel(graph)
    (layer,) = level_layers(model, model.prepare(texts))
    inside = model.observe(model.prepare(np.array(texts)), [layer]).activations[layer]
    np.testing.assert_allclose(inside, estimator[0].transform(texts).toarray(), atol=1e-5)
    with pytest.raises(InputError, match="'input' needs a single input of numbers"):
        model.observe(model.prepare(texts), ["input"])


def test_a_frame_gives_its_columns_to_the_inputs_of_their_names():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"color": rng.choice(["red", "blue"], 40), "size": rng.normal(size=40)})
    labels = np.where((frame["color"] == "red") & (frame["size"] > 0), "a", "b")
    columns = make_column_transformer((OneHotEncoder(), ["color"]), (StandardScaler(), ["size"]))
    estimator = make_pipeline(columns, LogisticRegression()).fit(frame, labels)
    types = [("color", StringTensorType([None, 1])), ("size", FloatTensorType([None, 1]))]
    graph = skl2onnx.to_onnx(estimator, initial_types=types)
    for given_as in (frame, frame[["size", "color"]], frame.to_dict("list")):
        found = observe(graph, given_as)
        np.testing.assert_allclose(found.scores, estimator.predict_proba(frame), atol=1e-5)
    with pytest.raises(InputError, match="got 'color', 'size', 'weight'"):
        observe(graph, frame.assign(weight=1))
