"""TorchScript and torch.export programs, against the modules that they were made from."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim, export

from iknow import EpistemicClassifier
from iknow.errors import InputError, LayerError
from iknow.models import as_model
from iknow.models.inputs import measure
from iknow.models.torch import GraphModel, TorchModel, load_module
from iknow.testing import ModelContract
from tests.choosing import level_layers, paper_layers

N = 11


@pytest.fixture(name="X")
def samples():
    return np.random.default_rng(0).normal(size=(N, 4)).astype(np.float32)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Dropout(), nn.Linear(5, 3))


def scripted(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        if kind == "trace":
            return torch.jit.trace(network().eval(), torch.ones(2, 4))
        made = torch.jit.script(network() if kind == "script" else network().eval())
        return torch.jit.freeze(made) if kind == "frozen" else made


@pytest.mark.parametrize("kind", ["script", "trace", "frozen"])
def test_torchscript_has_its_input_and_its_output(X, kind):
    program = scripted(kind)
    before = getattr(program, "training", None)
    model = TorchModel(program)
    assert paper_layers(model, X) == level_layers(model, X) == ("input", "output")
    X[2, 1] = np.nan
    seen = model.observe(X, ("input", "output"))
    wanted = TorchModel(network()).observe(X, ("input", "output"))
    for layer, values in wanted.activations.items():
        np.testing.assert_allclose(seen.activations[layer], values, rtol=1e-5, atol=1e-6)
    assert seen.invalid.tolist() == wanted.invalid.tolist() == [row == 2 for row in range(N)]
    assert getattr(program, "training", None) == before
    with pytest.raises(LayerError, match=r"inside cannot be read\) has no layer '1': it has 'inp"):
        model.observe(X, ("1",))
    assert model.sensitivity("input", measure(X)).lipschitz == 1.0
    with pytest.raises(LayerError, match="certify the original module"):
        model.sensitivity("output", measure(X))


def test_a_module_with_torchscript_inside_is_read_around_it(X):
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.fc = scripted("script"), nn.Linear(3, 2)

        def forward(self, x):
            return self.fc(torch.relu(self.inner(x)))

    model = TorchModel(Outer())
    assert paper_layers(model, X) == ("fc.input", "fc")
    inner = TorchModel(network()).observe(X, ()).scores
    found = model.observe(X, ("fc.input",)).activations["fc.input"]
    np.testing.assert_allclose(found, np.maximum(inner, 0), rtol=1e-5, atol=1e-6)


BATCHES = {
    "any": (2, {0: Dim("n")}),
    "two or more": (2, {0: Dim.AUTO}),
}
REFUSED = {
    "exactly 2": (2, None),
    "exactly 1": (1, None),
    "3 to 6": (4, {0: Dim("n", min=3, max=6)}),
    "0 to 64": (2, {0: Dim("n", max=64)}),
    "3 or more": (4, {0: Dim("n", min=3)}),
}


def program(name="any", module=None):
    size, sizes = (BATCHES | REFUSED)[name]
    made = (module or network()).eval()
    return export(made, (torch.ones(size, 4),), dynamic_shapes=None if sizes is None else (sizes,))


@pytest.mark.parametrize("n", [1, 2, N])
@pytest.mark.parametrize("name", BATCHES)
def test_an_exported_program_is_read_module_by_module(X, name, n):
    model = GraphModel(program(name))
    layers = ("input", "0", "1", "3.input", "3", "output")
    seen = model.observe(model.prepare(X[:n]), layers)
    wanted = TorchModel(network()).observe(X[:n], layers)
    for layer, values in zip(layers, wanted.activations.values(), strict=True):
        np.testing.assert_allclose(seen.activations[layer], values, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(seen.scores, wanted.scores, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", REFUSED)
def test_a_program_that_does_not_take_any_number_of_samples_is_refused(name):
    with pytest.raises(InputError, match=rf"takes {name} samples at a time.*Dim\("):
        GraphModel(program(name))


def test_its_default_layers_are_what_enters_the_last_product_and_what_it_gives(X):
    model = as_model(program())
    assert isinstance(model, GraphModel)
    assert paper_layers(model, X) == ("2", "3")
    assert level_layers(model, X) == ("input", "2")
    assert paper_layers(GraphModel(program(module=nn.Sequential(nn.Linear(4, 2)))), X) == (
        "input",
        "0",
    )
    bare = GraphModel(program(module=nn.Softmax(dim=1)))
    assert paper_layers(bare, X) == ("input", "output")


class Counting(nn.Linear):
    def __init__(self):
        super().__init__(4, 3)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):
        self.count += 1
        return super().forward(x) * self.count


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.Sequential(nn.Linear(4, 3), nn.Dropout()), r"in training mode \(dropout\)"),
        (
            nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3)),
            "in training mode|writes to its buffer",
        ),
        (Counting(), "writes to its buffer 'count'"),
    ],
    ids=["dropout", "batch norm", "counting"],
)
def test_a_program_whose_answers_depend_on_chance_or_the_past_is_refused(module, words):
    made = export(module.train(), (torch.ones(2, 4),), dynamic_shapes=({0: Dim("n")},))
    with pytest.raises(InputError, match=words):
        GraphModel(made)


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.fc = nn.Embedding(9, 6), nn.Linear(6, 3)

    def forward(self, input_ids, attention_mask):
        inside, seen = self.embed(input_ids), attention_mask[..., None].float()
        mean = (inside * seen).sum(1) / seen.sum(1)
        return {"logits": self.fc(mean), "states": inside}


def test_inputs_by_name_are_pooled_where_the_mask_says():
    torch.manual_seed(0)
    net, rng = Tokens().eval(), np.random.default_rng(0)
    mask = (np.arange(5) < rng.integers(1, 6, 7)[:, None]).astype(np.int64)
    inputs = {"attention_mask": mask, "input_ids": rng.integers(0, 9, (7, 5))}
    given = {name: torch.as_tensor(inputs[name]) for name in ("input_ids", "attention_mask")}
    sizes = {name: {0: Dim("n")} for name in given}
    model = GraphModel(export(net, (), given, dynamic_shapes=sizes), pool="mean")
    batch = model.prepare(inputs)
    seen = model.observe(batch, ("embed", *paper_layers(model, batch)))
    wanted = TorchModel(net, pool="mean").observe(batch, ("embed", "fc.input", "fc"))
    for one, other in zip(seen.activations.values(), wanted.activations.values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert level_layers(model, batch) == paper_layers(model, batch)[:1]
    with pytest.raises(InputError, match="takes the inputs 'input_ids', 'attention_mask'; got 'in"):
        model.observe(model.prepare({"input_ids": inputs["input_ids"]}), ())
    with pytest.raises(LayerError, match="no single layer 'input'"):
        model.observe(batch, ("input",))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted = TorchModel(torch.jit.script(net))
    np.testing.assert_allclose(scripted.observe(batch, ("output",)).scores, wanted.scores)
    assert level_layers(scripted, batch) == ("output",)


def test_an_exported_program_says_what_it_lacks_and_promises_nothing(X):
    model = GraphModel(program())
    with pytest.raises(LayerError, match="program has no layer 'relu': it has 'input', '0'"):
        model.observe(X, ("relu",))
    with pytest.raises(InputError, match=r"failed on a batch of shape \(11, 3\)"):
        model.observe(X[:, :3], ())
    with pytest.raises(LayerError, match="nothing is known about the inside of GraphModel"):
        model.sensitivity("1", measure(X))


def test_files_of_both_kinds_are_loaded(X, tmp_path):
    scripted("script").save(tmp_path / "net.pt")
    torch.export.save(program(), tmp_path / "net.pt2")
    wanted = TorchModel(network()).observe(X, ()).scores
    for name in ("net.pt", "net.pt2"):
        model = as_model(load_module(tmp_path / name))
        np.testing.assert_allclose(model.observe(X, ()).scores, wanted, rtol=1e-5, atol=1e-6)
    (tmp_path / "bad.pt2").write_bytes(b"nothing")
    with pytest.raises(InputError, match="cannot be loaded as a torch module"):
        load_module(tmp_path / "bad.pt2")


@pytest.mark.parametrize("make", [lambda: scripted("script"), lambda: program("two or more")])
def test_a_classifier_takes_them(make):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(150, 4)).astype(np.float32), np.arange(150) % 3
    ec = EpistemicClassifier(make(), progress=False).fit(X, y)
    ec.tune(rng.normal(size=(90, 4)).astype(np.float32), np.arange(90) % 3)
    assert len(ec.assess(X[:20] + 0.01).assertion) == 20


class TestScript(ModelContract):
    def make_model(self):
        return TorchModel(scripted("script"))

    def make_inputs(self):
        return np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)


class TestExported(TestScript):
    def make_model(self):
        return GraphModel(program("two or more"), pool="mean")
