"""Torch modules as ONNX graphs, against what the modules themselves return."""

import numpy as np
import pytest
import torch
from torch import nn

from iknow.errors import ExportError, IknowError
from iknow.models import FunctionModel, PrecomputedModel, TorchModel
from iknow.models.network import Pooling, pool_places
from iknow.models.onnx import PortableModel
from tests.models.export.comparing import quick, to_onnx
from tests.models.torch.untouched import untouched

SIGNS = torch.tensor([-1.0, 0.5, 1.0])
rng = np.random.default_rng(0)


class TwoInputs(nn.Module):
    """A dict with the scores of the second class, and what is no score; inputs by name."""

    def __init__(self, last=nn.Identity):
        super().__init__()
        self.body, self.head = nn.Linear(6, 5), nn.Sequential(nn.Linear(5, 1), last())

    def forward(self, left, right):
        inside = torch.tanh(self.body(torch.cat([left, right.float()], dim=1)))
        return {"risk": self.head(inside)[:, 0], "loss": inside.mean()}


class Text(nn.Module):
    """Tokens with a mask."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(20, 8), nn.Linear(8, 3)
        self.block = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    def forward(self, input_ids, attention_mask):
        inside = self.block(self.words(input_ids), src_key_padding_mask=attention_mask == 0)
        return self.head(inside[:, 0])


class Branching(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(x) if x.mean() > 0 else -self.head(x)


def dense():
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(8, 3))


def images():
    layers = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(4 * 16, 3))


def floats(*shape):
    return rng.normal(size=shape).astype(np.float32)


CASES = {
    "dense": (lambda: TorchModel(dense()), floats(7, 4), ("input", "0", "3.input", "output")),
    "doubles": (lambda: TorchModel(dense().double()), rng.normal(size=(7, 4)), ("1", "output")),
    "pooled": (
        lambda: TorchModel(images(), pool="mean"),
        floats(7, 2, 6, 6),
        ("0", "2", "4.input", "input"),
    ),
    "whole": (lambda: TorchModel(images()), floats(7, 2, 6, 6), ("2", "4.input")),
    "moments": (
        lambda: TorchModel(images()),
        floats(7, 2, 6, 6),
        ("0.moments", "2.moments", "2", "4.input"),
    ),
    "pixels": (
        lambda: TorchModel(nn.Sequential(nn.Flatten(), Pixels(), nn.Linear(9, 3))),
        rng.integers(0, 256, size=(7, 3, 3), dtype=np.uint8),
        ("input", "2.input"),
    ),
    "logit by name": (
        lambda: TorchModel(TwoInputs(), scores=("risk", "logit")),
        {"left": floats(7, 4), "right": rng.integers(0, 5, size=(7, 2))},
        ("body", "output"),
    ),
    "chance by place": (
        lambda: TorchModel(TwoInputs(nn.Sigmoid), scores=("risk", "probability")),
        (floats(7, 4), floats(7, 2)),
        ("head.input",),
    ),
    "scores by a function": (
        lambda: TorchModel(TwoInputs(), scores=lambda said: said["risk"][:, None] * SIGNS),
        {"left": floats(7, 4), "right": floats(7, 2)},
        ("output",),
    ),
}


class Pixels(nn.Module):
    def forward(self, x):
        return x.float() / 255


def rows_of(inputs, rows):
    if isinstance(inputs, dict):
        return {name: values[rows] for name, values in inputs.items()}
    return tuple(each[rows] for each in inputs) if isinstance(inputs, tuple) else inputs[rows]


def check(model, inputs, layers, others=()):
    """A graph made with some samples says the same about these, about one, and about others."""
    content = to_onnx(model, layers, model.prepare(inputs))
    portable = PortableModel(content)
    assert portable.layer_names == layers
    for asked in (inputs, rows_of(inputs, slice(2, 3)), *others):
        wanted = model.observe(model.prepare(asked), layers)
        found = portable.observe(portable.prepare(asked), layers)
        np.testing.assert_allclose(found.scores, wanted.scores, rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(found.belief, wanted.belief)
        for layer in layers:
            got = found.activations[layer]
            np.testing.assert_allclose(got, wanted.activations[layer], rtol=1e-4, atol=1e-6)
    return portable


def made(case):
    torch.manual_seed(0)
    make, inputs, layers = CASES[case]
    return make(), inputs, layers


@pytest.mark.parametrize("case", quick(CASES, ["dense", "pooled", "moments", "logit by name"]))
def test_a_graph_says_what_the_module_says(case):
    check(*made(case))


def test_a_graph_returns_what_torch_computes():
    torch.manual_seed(0)
    module, x = dense().eval(), floats(5, 4)
    portable = check(TorchModel(module), x, ("1", "output"))
    with torch.no_grad():
        hidden = torch.relu(module[0](torch.from_numpy(x)))
        scores = module[3](hidden)
    found = portable.observe(x, ("1",))
    np.testing.assert_allclose(found.activations["1"], hidden, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.scores, scores, rtol=1e-5, atol=1e-6)


def tokens(n, length):
    ids, lengths = rng.integers(0, 20, size=(n, length)), rng.integers(1, length + 1, size=n)
    return {"input_ids": ids, "attention_mask": (np.arange(length) < lengths[:, None]).astype(int)}


@pytest.mark.parametrize("way", ["mean", "cls", "last"])
@pytest.mark.parametrize("shape", [(5, 3, 4), (5, 2, 3, 4)])
def test_torch_pools_as_arrays_are_pooled(way, shape):
    if len(shape) == 4 and way != "mean":
        return
    values = floats(*shape)
    masks = [None, np.array([[1, 1, 0], [0, 1, 1], [0, 0, 0], [1, 0, 1], [1, 1, 1]])]
    for mask in masks if len(shape) == 3 else masks[:1]:
        for last in (True, False) if way == "mean" else (True,):
            wanted = Pooling(way)("a", values, features_last=last, mask=mask)
            seen = torch.from_numpy(mask) != 0 if last and mask is not None else None
            found = pool_places(way, torch.from_numpy(values), features_last=last, seen=seen)
            np.testing.assert_array_equal(found.numpy(), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["mean", "last"])
def test_tokens_that_are_hidden_never_count(way):
    torch.manual_seed(0)
    model = TorchModel(Text(), pool=way)
    check(model, tokens(7, 6), ("block", "output"), others=[tokens(3, 9), tokens(2, 1)])


def test_moments_of_tokens_leave_out_the_hidden_ones():
    torch.manual_seed(0)
    layers = ("block.moments", "words.moments", "output")
    check(TorchModel(Text()), tokens(7, 6), layers, others=[tokens(3, 9), tokens(2, 1)])


def test_the_module_is_left_as_it_was():
    module = dense().train()
    with untouched(module):
        check(TorchModel(module), floats(5, 4), ("1",))


def test_a_module_whose_way_depends_on_its_data_is_refused(capfd):
    with pytest.raises(ExportError, match=r"Branching cannot become ONNX.*no branch on its data"):
        to_onnx(TorchModel(Branching()), ("output",), floats(5, 4))
    assert capfd.readouterr() == ("", "")


def test_what_is_code_is_refused():
    x = floats(5, 2, 6, 6)
    with pytest.raises(ExportError, match="pooled by a function"):
        to_onnx(TorchModel(images(), pool=lambda values: values.max(axis=(2, 3))), ("0",), x)
    with pytest.raises(ExportError, match="can be any code"):
        to_onnx(FunctionModel(lambda rows: rows), ("input",), x)
    with pytest.raises(ExportError, match="no model to export, only its outputs"):
        to_onnx(PrecomputedModel(), ("input",), x)
    script = torch.jit.ScriptModule()
    with pytest.raises(ExportError, match="TorchScript cannot become ONNX"):
        to_onnx(TorchModel(script), ("output",), x)


def test_an_input_with_the_name_of_an_output_is_refused():
    class Named(nn.Linear):
        def forward(self, scores):
            return super().forward(scores)

    model = TorchModel(Named(4, 3))
    with pytest.raises(ExportError, match="'scores': give the input another name"):
        to_onnx(model, ("output",), model.prepare({"scores": floats(5, 4)}))


def test_a_layer_that_is_missing_is_told():
    with pytest.raises(IknowError, match="no layer"):
        check(TorchModel(dense()), floats(5, 4), ("nothing",))
