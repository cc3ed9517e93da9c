"""Inputs in several arrays, by name or by position, and outputs of any structure."""

import copy
from collections import namedtuple
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from iknow.errors import InputError, LayerError
from iknow.models.inputs import Fields
from iknow.models.probe import keep_rows, make_probe, restore_inputs, store_inputs
from iknow.models.torch import TorchModel
from iknow.testing import ModelContract
from tests.choosing import level_layers, paper_layers

N = 8


class Mixed(nn.Module):
    """Numbers and a category, as many tabular networks take them."""

    def __init__(self, wrap=None):
        super().__init__()
        self.embed, self.numbers = nn.Embedding(5, 3), nn.Linear(4, 6)
        self.head, self.wrap = nn.Linear(9, 3), wrap

    def forward(self, numbers, category, scale=None):
        hidden = torch.cat([torch.relu(self.numbers(numbers)), self.embed(category)], dim=1)
        scores = self.head(hidden if scale is None else hidden * scale[:, None])
        return scores if self.wrap is None else self.wrap(scores, hidden)


@pytest.fixture(name="net")
def some_net():
    torch.manual_seed(0)
    return Mixed().eval()


@pytest.fixture(name="arrays")
def some_arrays():
    rng = np.random.default_rng(0)
    return {"numbers": rng.normal(size=(N, 4)), "category": rng.integers(0, 5, N)}


def expected_scores(net, arrays):
    with torch.no_grad():
        numbers = torch.as_tensor(arrays["numbers"], dtype=next(net.parameters()).dtype)
        return net(numbers, torch.as_tensor(arrays["category"]))


def test_names_and_positions_give_the_same(net, arrays):
    model = TorchModel(net)
    scores = expected_scores(net, arrays).numpy()
    numbers, category = arrays["numbers"], arrays["category"]
    for given in (
        arrays,
        dict(reversed(arrays.items())),
        {name: torch.as_tensor(values) for name, values in arrays.items()},
        {"numbers": numbers.tolist(), "category": category.tolist(), "scale": None},
        (numbers, category),
        (torch.as_tensor(numbers), torch.as_tensor(category)),
        {**arrays, "scale": np.ones(N)},
        model.prepare(arrays),
    ):
        seen = model.observe(model.prepare(given), ("head.input", "embed"))
        np.testing.assert_allclose(seen.scores, scores, rtol=1e-6)
        assert {k: v.shape for k, v in seen.activations.items()} == {
            "head.input": (N, 9),
            "embed": (N, 3),
        }


def test_a_tuple_of_one_and_a_list_of_rows_are_an_array():
    model = TorchModel(nn.Linear(4, 2))
    X = np.ones((3, 4))
    for given in ((X,), list(X), X.tolist(), tuple(X.tolist())):
        assert model.prepare(given).shape == (3, 4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_floats_take_the_modules_precision_and_whole_numbers_keep_theirs(net, arrays, dtype):
    low = copy.deepcopy(net).to(dtype)
    model = TorchModel(low)
    seen = model.observe(model.prepare(arrays), ())
    np.testing.assert_array_equal(seen.scores, expected_scores(low, arrays).double())


def test_a_bad_number_makes_its_own_sample_invalid_alone(net, arrays):
    model = TorchModel(net)
    clean = model.observe(model.prepare(arrays), ("head.input",))
    arrays["numbers"][3, 1] = np.nan
    seen = model.observe(model.prepare(arrays), ("head.input",))
    assert seen.invalid.tolist() == [row == 3 for row in range(N)]
    rest = np.arange(N) != 3
    np.testing.assert_array_equal(seen.scores[rest], clean.scores[rest])
    arrays["numbers"][:] = np.inf
    assert model.observe(model.prepare(arrays), ("head.input",)).invalid.all()


def test_a_module_that_works_in_place_does_not_change_the_users_arrays(arrays):
    class InPlace(Mixed):
        def forward(self, numbers, category):
            return super().forward(numbers.mul_(2), category.clamp_(max=1))

    model = TorchModel(InPlace())
    tensors = {name: torch.as_tensor(values) for name, values in arrays.items()}
    before = {name: values.clone() for name, values in tensors.items()}
    model.observe(model.prepare(tensors), ("head.input",))
    assert all(torch.equal(values, before[name]) for name, values in tensors.items())


def test_what_does_not_fit_is_named(net, arrays):
    model = TorchModel(net)
    with pytest.raises(InputError, match=r", age of shape .*: TypeE.* unexpected .* 'age'"):
        model.observe(model.prepare({**arrays, "age": np.ones(N)}), ())
    with pytest.raises(
        InputError, match=r"numbers of shape .*: TypeE.* missing 1 required .*'category'"
    ):
        model.observe(model.prepare({"numbers": arrays["numbers"]}), ())
    with pytest.raises(InputError, match="positional arguments but 5 were given"):
        model.observe(model.prepare((arrays["numbers"],) * 4), ())
    with pytest.raises(InputError, match="'numbers' holds 8, 'category' holds 2"):
        model.prepare({**arrays, "category": np.ones(2)})
    with pytest.raises(InputError, match="sequences of different lengths, from 1 to 2"):
        model.prepare([[1.0], [1.0, 2.0]])
    with pytest.raises(InputError, match=r"X\['category'\] must hold real numbers; got text"):
        model.prepare({**arrays, "category": ["a"] * N})
    with pytest.raises(InputError, match="text as names; got none"):
        model.prepare({})
    with pytest.raises(InputError, match=r"numbers of shape \(8, 3\) and dtype torch.float32, cat"):
        model.observe(model.prepare({**arrays, "numbers": np.ones((N, 3))}), ())


def test_a_module_may_take_the_dict_as_a_whole(net, arrays):
    class Whole(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, batch):
            return self.net(batch["numbers"], batch["category"])

    model = TorchModel(Whole())
    seen = model.observe(model.prepare(arrays), ("net.head.input",))
    np.testing.assert_allclose(seen.scores, expected_scores(net, arrays), rtol=1e-6)


def test_of_a_module_without_weights_that_takes_several_inputs_the_output_is_all_there_is():
    class Sum(nn.Module):
        def forward(self, a, b):
            return a + b

    model = TorchModel(Sum())
    batch = model.prepare((np.ones((N, 3)), np.ones((N, 3))))
    assert paper_layers(model, batch) == level_layers(model, batch) == ("output",)


def test_pixels_are_a_layer_and_token_numbers_are_not():
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    net.register_forward_pre_hook(lambda _module, args: args[0].float() / 255)
    pixels = np.random.default_rng(0).integers(0, 255, (N, 1, 4, 4))
    model = TorchModel(net)
    assert level_layers(model, pixels.astype(np.uint8)) == ("input", "0")
    assert level_layers(model, pixels) == ("0",)


def test_zeros_do_not_make_other_layers_the_same(net, arrays):
    torch.manual_seed(0)

    class Dead(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b, self.fc = nn.ReLU(), nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x):
            return self.fc(torch.relu(self.b(self.a(x)) - 1e9))

    X = -np.ones((N, 4), dtype=np.float32)  # what enters fc is 0, and so is what `a` gives
    assert paper_layers(TorchModel(Dead()), X) == ("fc.input", "fc")


@dataclass
class Answer:
    loss: object
    logits: object


Both = namedtuple("Both", ["scores", "hidden"])


@pytest.mark.parametrize(
    ("wrap", "option"),
    [
        (lambda scores, hidden: (scores,), None),
        (lambda scores, hidden: [scores.mean(), scores], None),
        (lambda scores, hidden: (hidden, scores), 1),
        (lambda scores, hidden: {"logits": scores, "hidden": hidden}, None),
        (lambda scores, hidden: {"classes": scores, "hidden": hidden}, "classes"),
        (lambda scores, hidden: Answer(scores.sum(), scores), None),
        (Both, "scores"),
        (lambda scores, hidden: {"a": {"b": scores}}, lambda returned: returned["a"]["b"]),
        (lambda scores, hidden: (hidden, scores), lambda returned: returned[1].numpy()),
    ],
)
def test_scores_are_found_in_any_structure(net, arrays, wrap, option):
    wanted = expected_scores(net, arrays).numpy()
    net.wrap = wrap
    model = TorchModel(net, scores=option)
    batch = model.prepare(arrays)
    assert paper_layers(model, batch) == ("head.input", "head")
    assert level_layers(model, batch) == ("head.input",)
    seen = model.observe(batch, ("output",))
    np.testing.assert_allclose(seen.scores, wanted, rtol=1e-6)
    np.testing.assert_allclose(seen.activations["output"], wanted, rtol=1e-6)


def test_several_outputs_are_listed_and_a_wrong_name_too(net, arrays):
    net.wrap = lambda scores, hidden: (scores, hidden)
    model = TorchModel(net)
    batch = model.prepare(arrays)
    both = r"returns 0 of shape \(8, 3\), 1 of shape \(8, 9\)"
    for ask in (lambda: model.observe(batch, ()), lambda: paper_layers(model, batch)):
        with pytest.raises(InputError, match=f"Mixed {both}: say which by scores="):
            ask()
    with pytest.raises(InputError, match=f"no output 'logits': it {both}"):
        TorchModel(net, scores="logits").observe(batch, ())
    with pytest.raises(LayerError, match="the output of Mixed must be a dense tensor"):
        TorchModel(net, scores=lambda returned: "text").observe(batch, ())


def test_inputs_by_name_are_stored_and_found_again(net, arrays):
    model = TorchModel(net)
    tensors = model.prepare({name: torch.as_tensor(values) for name, values in arrays.items()})
    chosen = keep_rows(tensors, np.array([4, 1]))
    record, stored = store_inputs(chosen)
    back = restore_inputs(record, stored)
    assert isinstance(back, Fields)
    for name, values in arrays.items():
        np.testing.assert_array_equal(back.arrays[name], values[[4, 1]])
    probe = make_probe(model, tensors, np.arange(N) % 3, ("head.input",), np.arange(N))
    assert probe.find_difference(model) is None
    torch.manual_seed(1)
    assert "differ by" in probe.find_difference(TorchModel(Mixed()))


class TestMixed(ModelContract):
    def make_model(self):
        torch.manual_seed(0)
        return TorchModel(Mixed())

    def make_inputs(self):
        rng = np.random.default_rng(0)
        return {"numbers": rng.normal(size=(12, 4)), "category": rng.integers(0, 5, 12)}
