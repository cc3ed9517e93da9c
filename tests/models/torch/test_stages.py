"""The middle stages of deep networks: which are found, and that padding never counts in them."""

import warnings

import numpy as np
import pytest
import torch
from torch import nn

from iknow.errors import LayerError
from iknow.models import TorchModel
from iknow.models.inputs import measure
from iknow.models.network import MOMENTS


class Block(nn.Module):
    """A residual block that may halve the resolution."""

    def __init__(self, n_in, n_out, stride=1):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(n_in, n_out, 3, stride, 1), nn.BatchNorm2d(n_out)
        plain = n_in == n_out and stride == 1
        self.skip = nn.Identity() if plain else nn.Conv2d(n_in, n_out, 1, stride)

    def forward(self, x):
        return torch.relu(self.norm(self.conv(x)) + self.skip(x))


class Residual(nn.Module):
    """Three stages of two blocks, each at half the resolution of the one before."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, padding=1)
        self.layer1 = nn.Sequential(Block(4, 4), Block(4, 4))
        self.layer2 = nn.Sequential(Block(4, 6, 2), Block(6, 6))
        self.layer3 = nn.Sequential(Block(6, 8, 2), Block(8, 8))
        self.fc = nn.Linear(8, 3)

    def forward(self, x):
        return self.fc(self.layer3(self.layer2(self.layer1(self.stem(x)))).mean(dim=(2, 3)))


def vgg():
    """Convolutions and activation functions, halved by pooling, in one long sequence."""
    layers, n_in = [], 3
    for n_out in (4, 6, 8, 8, 8):
        layers += [nn.Conv2d(n_in, n_out, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        n_in = n_out
    return nn.Sequential(nn.Sequential(*layers), nn.Flatten(), nn.Linear(8, 3))


class Transformer(nn.Module):
    """A vision transformer: patches of an image, and blocks that keep the shape."""

    def __init__(self, n_blocks=6):
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, 4)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True) for _ in range(n_blocks)
        )
        self.norm, self.head = nn.LayerNorm(8), nn.Linear(8, 3)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class Text(nn.Module):
    """Blocks over tokens, some of which an attention mask hides."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(20, 8)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True) for _ in range(4)
        )
        self.head = nn.Linear(8, 3)

    def forward(self, input_ids, attention_mask):
        x = self.words(input_ids)
        for block in self.blocks:
            x = block(x, src_key_padding_mask=attention_mask == 0)
        return self.head(x[:, 0])


def series():
    """One-dimensional convolutions at three resolutions."""
    layers, n_in = [], 2
    for n_out in (4, 6, 8):
        layers += [nn.Conv1d(n_in, n_out, 3, padding=1), nn.ReLU(), nn.MaxPool1d(2)]
        n_in = n_out
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(8 * 2, 3))


def dense():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


def pictures(n=5, size=32):
    return np.random.default_rng(0).normal(size=(n, 3, size, size)).astype(np.float32)


def tokens(n=5, length=7, padding=0):
    rng = np.random.default_rng(1)
    ids, lengths = rng.integers(0, 20, size=(n, length)), rng.integers(2, length + 1, size=n)
    mask = (np.arange(length) < lengths[:, None]).astype(np.int64)
    return {
        "input_ids": np.pad(ids, ((0, 0), (0, padding))),
        "attention_mask": np.pad(mask, ((0, 0), (0, padding))),
    }


def stages_of(model, inputs):
    found = model.layers(model.prepare(inputs))
    return [each.name for each in found if each.role == "middle"]


CASES = {
    "residual": (Residual, pictures, ["layer1", "layer2"]),
    "vgg": (vgg, pictures, ["0.1", "0.7", "0.13"]),  # of five, evenly
    "vision transformer": (
        Transformer,
        lambda: pictures(size=16),
        [f"blocks.{i}" for i in (0, 2, 4)],
    ),
    "text": (Text, tokens, ["blocks.0", "blocks.1", "blocks.2"]),
    "series": (series, lambda: pictures(size=16)[:, :2, 0], ["1", "4", "7"]),
    "dense": (dense, lambda: pictures(size=6)[:, 0, 0], []),
}


def made(case):
    torch.manual_seed(0)
    net, inputs, stages = CASES[case]
    return TorchModel(net().eval()), inputs(), [f"{name}{MOMENTS}" for name in stages]


@pytest.mark.parametrize("case", CASES)
def test_the_stages_of_a_network_are_found(case):
    model, inputs, stages = made(case)
    assert stages_of(model, inputs) == stages


@pytest.mark.parametrize("case", [case for case, (_, _, stages) in CASES.items() if stages])
def test_moments_are_means_and_deviations_over_the_places_that_count(case):
    model, inputs, stages = made(case)
    seen = {}
    for name in stages:
        part = dict(model.module.named_modules())[name.removesuffix(MOMENTS)]
        part.register_forward_hook(lambda _m, _a, out, name=name: seen.update({name: out}))
    found = model.observe(model.prepare(inputs), stages).activations
    for name in stages:
        values = seen[name].detach().numpy().astype(np.float64)
        if case in ("vision transformer", "text"):  # features last
            values = np.moveaxis(values, -1, 1)
        rows = [each.reshape(len(each), -1) for each in values]
        if case == "text":
            seen_by = inputs["attention_mask"] == 1
            rows = [each[:, mask] for each, mask in zip(rows, seen_by, strict=True)]
        wanted = [np.concatenate([each.mean(axis=1), each.std(axis=1)]) for each in rows]
        np.testing.assert_allclose(found[name], wanted, rtol=1e-4, atol=1e-5)


def test_padding_does_not_count_in_a_stage():
    model, _, stages = made("text")
    one, other = (
        model.observe(model.prepare(tokens(padding=padding)), stages).activations
        for padding in (0, 6)
    )
    for name in stages:
        np.testing.assert_allclose(one[name], other[name], rtol=1e-4, atol=1e-5)


def test_a_layer_and_its_moments_can_be_read_in_one_pass():
    model, inputs, _ = made("residual")
    found = model.observe(inputs, ["layer1", "layer1.moments"]).activations
    places = found["layer1"].reshape(5, 4, -1)
    wanted = np.hstack([places.mean(axis=2), places.std(axis=2)])
    np.testing.assert_allclose(found["layer1.moments"], wanted, rtol=1e-4, atol=1e-5)


def test_what_hides_its_inside_has_no_stages():
    torch.manual_seed(0)
    net, inputs = Residual().eval(), pictures()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch would rather have programs
        script = torch.jit.trace(net, torch.from_numpy(inputs))
    assert stages_of(TorchModel(script), inputs) == []


def test_nothing_is_known_about_how_far_moments_move():
    model, inputs, stages = made("residual")
    with pytest.raises(LayerError):
        model.sensitivity(stages[0], measure(inputs))
