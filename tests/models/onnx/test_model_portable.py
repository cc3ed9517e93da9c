"""Models in the bytes of an ONNX file, against the same models read as they are."""

import numpy as np
import onnx
import pytest
import skl2onnx
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from torch import nn

from iknow.errors import ExportError, InputError, LayerError
from iknow.models import OnnxModel
from iknow.models.export import as_portable
from iknow.models.inputs import Fields
from iknow.models.onnx import PortableModel
from iknow.testing import ModelContract
from tests.models.export.comparing import to_onnx
from tests.models.onnx.graphs import hidden_weights, mlp, of_torch, parsed

X = np.random.default_rng(1).normal(size=(12, 4))
PLACE = "weights.bin"
SINGLE = "g (float[n, 4] x) => (float[n, 1] risk) {{ hidden = Relu(x)  a = MatMul(hidden, W)  {} }}"


def check(model, inputs, layers, atol=0.0):
    """A portable graph says about the same samples, and about one of them, what the model says."""
    portable = as_portable(model, layers, inputs)
    for asked in (inputs, inputs[:1]):
        wanted = model.observe(model.prepare(asked), layers)
        found = portable.observe(portable.prepare(asked), layers)
        np.testing.assert_array_equal(found.belief, wanted.belief)
        np.testing.assert_allclose(found.scores, wanted.scores, rtol=0, atol=atol)
        for layer in layers:
            got = found.activations[layer]
            np.testing.assert_allclose(got, wanted.activations[layer], rtol=0, atol=atol)
    return portable


class TestPortable(ModelContract):
    def make_model(self):
        return as_portable(OnnxModel(mlp()), ("input", "hidden"), X)

    def make_inputs(self):
        return X


@pytest.mark.parametrize("options", [{}, {"batch": 5}, {"dtype": "double"}])
def test_layers_are_the_same_to_the_last_bit(options):
    check(OnnxModel(mlp(**options)), X, ("input", "hidden", "output", "scores"))


@pytest.mark.parametrize("pool", [None, "mean"])
def test_channels_are_pooled(pool):
    torch.manual_seed(0)
    images = np.random.default_rng(0).normal(size=(5, 2, 6, 6)).astype(np.float32)
    net = nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 4)).eval()
    layers = ("layer1", "layer2", "x")
    check(OnnxModel(of_torch(net, images), pool=pool), images, layers, atol=1e-6)


@pytest.mark.parametrize("pool", ["mean", "cls", "last"])
@pytest.mark.parametrize("opset", [17, 18])
def test_tokens_are_pooled(pool, opset):
    tokens = np.random.default_rng(0).normal(size=(5, 3, 4)).astype(np.float32)
    W = np.ones((4, 2), dtype=np.float32)
    graph = parsed(
        """g (float[n, 3, 4] x) => (float[n, 2] scores) {
        h = Tanh(x)  i = Constant<value = int64 {0}>()  t = Gather<axis = 1>(h, i)
        scores = MatMul(t, W) }""",
        W=W,
    )
    graph.opset_import[0].version = opset
    check(OnnxModel(graph, pool=pool), tokens, ("h", "output"))


@pytest.mark.parametrize("pool", ["mean", "cls", "last"])
def test_tokens_are_pooled_by_their_mask(pool):
    table = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    graph = parsed(
        """g (int64[n, t] input_ids, int64[n, t] attention_mask) => (float[n, 2] logits) {
        words = Gather(table, input_ids)  logits = ReduceMean<axes = [1], keepdims = 0>(words) }""",
        table=table,
    )
    ids = np.random.default_rng(1).integers(20, size=(6, 5))
    mask = (np.arange(5) < np.array([[5], [3], [1], [4], [2], [5]])).astype(np.int64)
    batch = Fields({"input_ids": ids, "attention_mask": mask})
    check(OnnxModel(graph, pool=pool), batch, ("words",))


@pytest.mark.parametrize(
    ("meaning", "last"), [("logit", "risk = Neg(a)"), ("probability", "risk = Sigmoid(a)")]
)
def test_a_single_number_becomes_two_columns(meaning, last):
    weights = np.arange(4, dtype=np.float32)[:, None]
    graph = parsed(SINGLE.format(last), W=weights)
    check(OnnxModel(graph, scores=("risk", meaning)), X, ("hidden", "output"))


@pytest.mark.parametrize("labels", [["a", "b", "c"], [3, 5, 8]])
def test_the_answer_is_the_label_that_the_graph_gives(labels):
    inputs, y = load_iris(return_X_y=True)
    inputs = inputs.astype(np.float32)
    forest = RandomForestClassifier(5, random_state=0).fit(inputs, np.array(labels)[y])
    graph = skl2onnx.to_onnx(forest, inputs[:1])
    portable = check(OnnxModel(graph), inputs, ("input",))
    said = np.array(labels)[portable.observe(portable.prepare(inputs), ()).belief]
    np.testing.assert_array_equal(said, forest.predict(inputs))


def test_weights_in_other_files_come_inside(tmp_path):
    onnx.save(mlp(), tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0)
    for where, hidden in hidden_weights(PLACE, mlp()).items():
        (tmp_path / f"{where}.onnx").write_bytes(hidden.SerializeToString())
    np.arange(4).tofile(tmp_path / PLACE)
    dense = [path for path in tmp_path.glob("*.onnx") if "sparse" not in path.name]
    assert len(dense) == 7
    portable = [check(OnnxModel(path), X, ("hidden",)) for path in dense]
    for file in tmp_path.iterdir():
        file.unlink()
    for each in portable:
        again = PortableModel(each.content, reading=each.reading(("hidden",)))
        assert np.isfinite(again.observe(X, ("hidden",)).scores).all()


def test_what_is_code_is_refused():
    for options in ({"scores": lambda outputs: outputs["scores"]}, {"pool": {"hidden": np.tanh}}):
        with pytest.raises(ExportError, match="function"):
            as_portable(OnnxModel(mlp(), **options), ("hidden",), X)


def test_a_missing_value_is_invalid_in_both():
    strange = X.copy()
    strange[3, 1] = np.nan
    portable = as_portable(OnnxModel(mlp()), ("hidden",), X)
    assert portable.observe(strange, ("hidden",)).invalid.tolist() == [i == 3 for i in range(12)]


def test_a_graph_with_weights_elsewhere_is_refused(tmp_path):
    onnx.save(mlp(), tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0)
    with pytest.raises(InputError, match="are in other files"):
        PortableModel((tmp_path / "m.onnx").read_bytes())


def test_a_graph_without_what_is_asked_of_it_is_refused():
    content = to_onnx(OnnxModel(mlp()), ("hidden",), X)
    with pytest.raises(LayerError, match="'input'"):
        PortableModel(content).observe(X, ("input",))
    other = parsed("g (float[n, 4] x) => (float[n, 4] y) { y = Relu(x) }")
    with pytest.raises(InputError, match="has no tensor 'scores': its outputs are 'y'"):
        PortableModel(other.SerializeToString())


@pytest.mark.parametrize("code", [-1, 4, 1 << 40])
def test_a_belief_that_is_no_class_is_refused(code):
    graph = parsed(
        """g (float[n, 4] x) => (float[n, 4] scores, int64[n] belief) {
        scores = Relu(x)  a = ArgMax<axis = 1, keepdims = 0>(x)
        z = Sub(a, a)  belief = Add(z, c) }""",
        c=np.array([code]),
    )
    with pytest.raises(InputError, match="positions of 4 classes"):
        PortableModel(graph.SerializeToString()).observe(X, ())


CONTENT = mlp().SerializeToString()
READINGS = st.sampled_from([None, {"scores": None, "layers": {"input": None, "hidden": "mean"}}])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(CONTENT) - 1), st.binary(min_size=1, max_size=6), st.booleans(), READINGS)
def test_damaged_bytes_are_an_error_or_a_model(place, new, cut, reading):
    content = CONTENT[:place] if cut else CONTENT[:place] + new + CONTENT[place + len(new) :]
    try:
        model = PortableModel(content, reading=reading)
        model.observe(model.prepare(X), model.layer_names)
    except InputError:
        pass
