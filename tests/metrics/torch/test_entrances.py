"""Bounds of what enters a module, against the same network with a module in that place."""

import pytest
import torch
from torch import nn

from iknow.errors import LayerError
from iknow.metrics.torch.module import lipschitz_constants, sensitivities
from iknow.models.torch import TorchModel


class Net(nn.Module):
    def __init__(self, forward, **parts):
        super().__init__()
        for name, part in parts.items():
            self.add_module(name, part)
        self.kind = forward

    def forward(self, x):
        inside = self.a(x)
        if self.kind == "functional":
            return self.b(torch.relu(inside))
        if self.kind == "sum":
            return self.b(inside + x)
        if self.kind == "later in place":
            out = self.b(inside)
            inside *= 100.0
            return out
        if self.kind == "earlier in place":
            inside *= 100.0
            return self.b(inside)
        if self.kind == "twice":
            return self.b(self.b(inside))
        if self.kind == "by name":
            return self.b(input=inside)
        return self.b(inside.sin())


def net(kind):
    torch.manual_seed(0)
    return Net(kind, a=nn.Linear(4, 4), b=nn.Linear(4, 4)).eval()


def sequence(kind, *between):
    made = net(kind)
    return nn.Sequential(made.a, *between, made.b)


def test_the_constant_is_that_of_a_module_in_the_same_place():
    found = lipschitz_constants(net("functional"), (4,), ["a.input", "a", "b.input"])
    wanted = lipschitz_constants(sequence("functional", nn.ReLU()), (4,), ["input", "0", "1"])
    assert list(found.values()) == list(wanted.values())


@pytest.mark.parametrize("kind", ["functional", "sum", "later in place", "earlier in place"])
def test_no_movement_breaks_the_bound(kind):
    module = net(kind)
    X = torch.randn(200, 4, generator=torch.Generator().manual_seed(0))
    other = X + torch.randn(200, 4, generator=torch.Generator().manual_seed(1))
    bound = sensitivities(module, (4,), ["b.input"], X[:8], TorchModel)["b.input"]
    one, two = (
        TorchModel(module).observe(x, ("b.input",)).activations["b.input"] for x in (X, other)
    )
    moved = torch.from_numpy(two - one).norm(dim=1)
    allowed = bound.lipschitz * (other - X).norm(dim=1) + 2 * bound.rounding + 1e-4
    assert (moved <= allowed).all()
    assert moved.max() > 0.3 * bound.lipschitz * (other - X).norm(dim=1).max()  # no idle bound


def test_in_place_work_counts_if_it_comes_before():
    later, earlier = (
        lipschitz_constants(net(kind), (4,), ["b.input"])["b.input"]
        for kind in ("later in place", "earlier in place")
    )
    assert earlier == pytest.approx(100 * later)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("unknown", "cannot be bounded"),
        ("twice", "ran more than once"),
        ("by name", "is not one tensor"),
    ],
)
def test_what_is_not_known_is_not_promised(kind, words):
    with pytest.raises(LayerError, match=words):
        sensitivities(net(kind), (4,), ["b.input"])


def test_distances_go_forward_from_what_enters_a_module():
    found = lipschitz_constants(net("functional"), (4,), start="b.input")
    assert list(found) == ["b", "output"]
    norm = torch.linalg.matrix_norm(net("functional").b.weight.double(), 2).item()
    assert found["b"] == pytest.approx(norm)
    with pytest.raises(LayerError, match="comes before"):
        lipschitz_constants(net("functional"), (4,), ["a"], start="b.input")
