"""OnnxModel against the same networks in torch and the same classifiers in scikit-learn."""

import copy
import pickle

import numpy as np
import pytest
import skl2onnx
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestClassifier
from torch import nn

from iknow import EpistemicClassifier
from iknow.errors import InputError, LayerError
from iknow.models import OnnxModel
from iknow.models.adapt import as_model
from iknow.models.inputs import measure
from iknow.models.torch import TorchModel
from iknow.testing import ModelContract
from tests.choosing import level_layers
from tests.models.keeping import assert_comes_back
from tests.models.onnx.graphs import mlp, observe, of_torch, parsed

X = np.random.default_rng(1).normal(size=(12, 4))
Y = np.arange(12) % 3
QUANTIZED = """g (float[{n}, 4] x) => (float[{n}, 3] scores) {{
    q, scale, zero = DynamicQuantizeLinear(x)  hidden = DequantizeLinear(q, scale, zero)
    scores = MatMul(hidden, W)
}}"""


class TestNetwork(ModelContract):
    def make_model(self):
        return OnnxModel(mlp())

    def make_inputs(self):
        return X


class TestDoubles(TestNetwork):
    def make_model(self):
        return OnnxModel(mlp(dtype="double"))


class TestBatchesOfOneSize(TestNetwork):
    def make_model(self):
        return OnnxModel(mlp(batch=5))


class TestForest(TestNetwork):
    def make_model(self):
        forest = RandomForestClassifier(5, random_state=0).fit(X, Y)
        return OnnxModel(skl2onnx.to_onnx(forest, X[:1].astype(np.float32)))


class TestQuantizedByBatch(TestNetwork):
    """The graph itself breaks the contract: it takes its scale from the whole batch."""

    batch = "n"

    def make_model(self):
        weights = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
        return OnnxModel(parsed(QUANTIZED.format(n=self.batch), W=weights))

    def make_inputs(self):
        return X * np.arange(1, 13)[:, None]


class TestQuantizedBatchesOfOneSize(TestQuantizedByBatch):
    batch = 5


class TestTokens(ModelContract):
    def make_model(self):
        rng = np.random.default_rng(0)
        text = """g (int64[n, t] ids) => (float[n, 3] scores) {
            words = Gather(table, ids)  pooled = ReduceMean <axes = [1], keepdims = 0> (words)
            scores = MatMul(pooled, W)
        }"""
        table, head = rng.normal(size=(20, 8)), rng.normal(size=(8, 3))
        weights = {"table": table.astype(np.float32), "W": head.astype(np.float32)}
        return OnnxModel(parsed(text, **weights))

    def make_inputs(self):
        return np.random.default_rng(0).integers(20, size=(9, 5)).astype(np.int32)


DENSE = nn.Sequential(nn.Linear(4, 9), nn.Tanh(), nn.Linear(9, 7), nn.ReLU(), nn.Linear(7, 3))
CONVOLUTIONS = nn.Sequential(
    nn.Conv2d(2, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2, 2),
    nn.Conv2d(6, 4, 3, stride=1), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3),
)  # fmt: skip


@pytest.mark.parametrize(("module", "shape"), [(DENSE, (4,)), (CONVOLUTIONS, (2, 8, 8))])
def test_every_layer_is_what_torch_computes(module, shape):
    module = copy.deepcopy(module).eval()
    inputs = np.random.default_rng(0).normal(size=(10, *shape)).astype(np.float32)
    layers = [name for name, _ in module.named_children()]
    wanted = TorchModel(module).observe(inputs, ["input", *layers, "output"])
    graph = of_torch(module, inputs)
    found = observe(graph, inputs, ["input", *(f"layer{name}" for name in layers), "output"])
    np.testing.assert_array_equal(found.belief, wanted.belief)
    np.testing.assert_allclose(found.scores, wanted.scores, rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(found.activations.values(), wanted.activations.values(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)
    middle = ("layer2.moments", "layer3.moments") if module[0].weight.ndim == 4 else ()
    assert level_layers(OnnxModel(graph), inputs) == ("input", *middle, f"layer{layers[-2]}")


def test_convolutions_are_pooled_over_their_places_as_in_torch():
    inputs = np.random.default_rng(0).normal(size=(5, 2, 8, 8)).astype(np.float32)
    graph = of_torch(copy.deepcopy(CONVOLUTIONS).eval(), inputs)
    plain = observe(graph, inputs, ["layer2", "layer5"]).activations
    pooled = observe(graph, inputs, ["layer2", "layer5"], pool="mean").activations
    for layer, channels in (("layer2", 6), ("layer5", 4)):
        wanted = plain[layer].reshape(5, channels, -1).mean(axis=2)
        np.testing.assert_allclose(pooled[layer], wanted, rtol=1e-5, atol=1e-6)


def test_tokens_are_pooled_over_tokens_and_padding_does_not_count():
    text = """g (int64[n, t] input_ids, int64[n, t] attention_mask) => (float[n, 2] logits) {
        words = Gather(table, input_ids)  hidden = Tanh(words)
        first = Gather <axis = 1> (hidden, zero)  logits = MatMul(first, W)
    }"""
    rng = np.random.default_rng(0)
    table, head = (rng.normal(size=s).astype(np.float32) for s in ((20, 6), (6, 2)))
    graph = parsed(text, table=table, W=head, zero=np.array(0))
    ids = rng.integers(20, size=(4, 5))
    mask = np.arange(5) < np.array([[5], [3], [1], [4]])
    batch = {"input_ids": ids.tolist(), "attention_mask": mask.astype(int)}
    found = observe(graph, batch, ["hidden", "first"], pool="mean").activations
    wanted = [np.tanh(table[row[keep]]).mean(axis=0) for row, keep in zip(ids, mask, strict=True)]
    np.testing.assert_allclose(found["hidden"], wanted, rtol=1e-5)
    np.testing.assert_allclose(found["first"], np.tanh(table[ids[:, 0]]), rtol=1e-6)
    with pytest.raises(LayerError, match="padding would count"):
        observe(graph, batch, ["hidden"])
    with pytest.raises(LayerError, match=r"'input' needs a single input.*'input_ids' \(int64"):
        observe(graph, batch, ["input"])


def test_any_tensor_may_be_read_and_the_others_do_not_change_it():
    module = copy.deepcopy(CONVOLUTIONS).eval()
    torch.manual_seed(0)
    nn.init.normal_(module[1].running_mean)  # a runtime may fold these into the convolution
    inputs = np.random.default_rng(0).normal(size=(5, 2, 8, 8)).astype(np.float32)
    graph = of_torch(module, inputs)
    tensors = OnnxModel(graph).tensors
    assert tensors == ("x", *(f"layer{i}" for i in range(8)))
    together = observe(graph, inputs, tensors)
    for name in tensors:
        alone = observe(graph, inputs, [name])
        np.testing.assert_array_equal(alone.activations[name], together.activations[name])
        np.testing.assert_array_equal(alone.scores, together.scores)


def test_a_large_batch_answers_as_small_ones():
    inputs = np.random.default_rng(0).normal(size=(300, 4))
    whole = observe(mlp(), inputs, ["hidden"])
    model = OnnxModel(mlp())
    parts = [model.observe(inputs[i : i + 7], ["hidden"]) for i in range(0, 300, 7)]
    for name in ("scores", "belief"):
        found = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_allclose(found, getattr(whole, name), rtol=1e-5, atol=1e-5)


def test_tensors_that_are_not_there_are_named_with_those_that_are():
    with pytest.raises(LayerError, match=r"no layer 'hiden': it has .*'hidden'.*'scores'"):
        observe(mlp(), X, ["hiden"])
    with pytest.raises(LayerError, match=r"pool= names layers, and .* has no layer 'nothing'"):
        OnnxModel(mlp(), pool={"nothing": "mean"})


@pytest.mark.parametrize(
    ("tensor", "says"),
    [("size", "'size' .* 2 rows for 12"), ("total", "no axes"), ("W1", "no layer")],
)
def test_tensors_without_a_row_per_sample_are_no_layers(tensor, says):
    graph = parsed(
        """g (float[n, 4] x) => (float[n, 4] scores)
        { size = Shape(x)  W2 = Neg(W1)  y = Mul(x, W2)  scores = Neg(y)
        total = ReduceSum <keepdims = 0> (x) }""",
        W1=np.ones(4, dtype=np.float32),
    )
    with pytest.raises(LayerError, match=says):
        observe(graph, X, [tensor])


def test_what_is_not_finite_is_invalid_even_where_the_graph_swallows_it():
    swallowing = """g (float[n, 4] x) => (float[n, 4] scores)
        { hidden = Max(x, zero)  big = Greater(x, zero)  scores = Cast <to = 1> (big) }"""
    graph = parsed(swallowing, zero=np.zeros(1, dtype=np.float32))
    inputs = X.copy()
    inputs[2, 1], inputs[5, 0], inputs[7] = np.nan, np.inf, 1e300
    found = observe(graph, inputs, ["scores"])
    assert np.flatnonzero(found.invalid).tolist() == [2, 5, 7]
    np.testing.assert_array_equal(found.activations["scores"][[2, 5, 7]], 0)
    everything = observe(graph, np.full((3, 4), np.nan), ["scores"])
    assert everything.invalid.all()


def test_a_tree_takes_missing_values_but_its_input_does_not():
    table = X.copy()
    table[::3, 0] = np.nan
    forest = RandomForestClassifier(5, random_state=0).fit(table, Y)
    graph = skl2onnx.to_onnx(forest, X[:1].astype(np.float32))
    found = observe(graph, table, ["output"])
    assert not found.invalid.any()
    np.testing.assert_array_equal(found.belief, forest.predict(table))
    assert observe(graph, table, ["input"]).invalid.tolist() == np.isnan(table[:, 0]).tolist()


def test_the_input_is_promised_and_nothing_else():
    class Doubled(OnnxModel):
        def observe(self, batch, layers):
            return super().observe(2 * batch, layers)

    sizes = measure(X)
    assert OnnxModel(mlp()).sensitivity("input", sizes) == 1.0
    half = parsed("g (float16[n, 4] x) => (float16[n, 4] y) { y = Neg(x) }")
    by_pool = OnnxModel(mlp(), pool={"input": lambda values: 3 * values})
    for model in (Doubled(mlp()), OnnxModel(half), by_pool):
        with pytest.raises(LayerError):
            model.sensitivity("input", sizes)
    for layer in ("hidden", "x", "output", "scores"):
        with pytest.raises(LayerError):
            OnnxModel(mlp()).sensitivity(layer, sizes)


IRIS = load_iris()


@pytest.fixture(name="path")
def saved(tmp_path):
    """A forest for iris flowers whose classes are text, saved."""
    forest = RandomForestClassifier(20, max_depth=3, random_state=0)
    forest.fit(IRIS.data, IRIS.target_names[IRIS.target])
    path = tmp_path / "iris.onnx"
    path.write_bytes(skl2onnx.to_onnx(forest, IRIS.data[:1].astype(np.float32)).SerializeToString())
    return path


def fitted(model, **options):
    labels = IRIS.target_names[IRIS.target]
    made = EpistemicClassifier(model, progress=False, **options).fit(IRIS.data[::2], labels[::2])
    return made.tune(IRIS.data[1::2], labels[1::2])


def test_the_path_of_a_file_is_a_model_and_is_left_as_it_was(path):
    before = path.read_bytes()
    for model in (path, str(path)):
        ec = fitted(model)
        assert ec.classes_.tolist() == IRIS.target_names.tolist()
        assert ec.layers_ == ("input",)
        assert ec.assess(IRIS.data).to_frame().shape[0] == 150
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == ["iris.onnx"]
    assert isinstance(as_model(str(path)), OnnxModel)


def test_a_classifier_comes_back_with_its_model(path, tmp_path):
    forest = RandomForestClassifier(2, random_state=1)
    forest.fit(IRIS.data, IRIS.target_names[IRIS.target])
    other = tmp_path / "other.onnx"
    other.write_bytes(skl2onnx.to_onnx(forest, IRIS.data[:1].astype("f4")).SerializeToString())
    for options in ({}, {"layers": ["probabilities"]}):
        ec = fitted(str(path), **options)
        assert_comes_back(ec, str(path), IRIS.data, tmp_path, str(other))
    wanted = ec.assess(IRIS.data).assertion
    for again in (copy.deepcopy(ec), copy.copy(ec)):
        np.testing.assert_array_equal(again.assess(IRIS.data).assertion, wanted)
    model = pickle.loads(pickle.dumps(OnnxModel(mlp())))
    np.testing.assert_array_equal(model.observe(X, ()).scores, observe(mlp(), X).scores)
    assert clone(ec).model == str(path)
    assert not hasattr(clone(ec), "model_")


def test_options_that_say_nothing_are_refused(path):
    with pytest.raises(InputError, match="embed= does not apply to an ONNX model"):
        as_model(str(path), embed=len)


@pytest.mark.parametrize("absent", ["onnx", "onnxruntime"])
def test_what_to_install_is_said(run_without, absent):
    code = """
import iknow
try:
    iknow.EpistemicClassifier("model.onnx").fit([[0.0], [1.0]], [0, 1])
except iknow.errors.MissingExtraError as error:
    print(error)
"""
    assert run_without([absent], code).endswith("pip install 'iknow[onnx]'\n")
