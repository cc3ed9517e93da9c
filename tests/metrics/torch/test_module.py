"""Whole networks: no pair of inputs, however chosen, moves further than its bound."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from iknow.metrics import lipschitz_constants, propagate_radius
from iknow.models.torch import TorchModel

deterministic = settings(derandomize=True, deadline=None, max_examples=40)
ACTIVATIONS = [
    *(nn.ReLU, nn.LeakyReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid, nn.Softplus),
    *(nn.Hardtanh, nn.ReLU6, nn.Mish, nn.Hardswish, nn.PReLU, nn.Identity, nn.Dropout),
]


def upto(network, layer):
    """The network's function from the input to a layer, in float64."""

    def function(batch):
        found = {}
        handle = network.get_submodule(layer).register_forward_hook(
            lambda _module, _inputs, output: found.update(value=output.clone())
        )
        network(batch)
        handle.remove()
        return found["value"]

    return function


def assert_never_exceeded(network, shape, largest_stretch, seed=0):
    constants = lipschitz_constants(network, shape)
    network = network.double().eval()
    layers = [name for name, _ in network.named_children()]
    for layer in layers:
        stretch = largest_stretch(upto(network, layer), shape, seed=seed)
        assert stretch <= constants[layer] * (1 + 1e-7), layer


@given(
    st.lists(st.integers(1, 8), min_size=2, max_size=4),
    st.sampled_from(ACTIVATIONS),
    st.integers(0, 2**31),
)
@deterministic
def test_random_perceptrons(largest_stretch, sizes, activation, seed):
    torch.manual_seed(seed)
    parts = []
    for n_in, n_out in pairwise(sizes):
        parts += [nn.Linear(n_in, n_out), activation()]
        nn.init.normal_(parts[-2].weight)
    assert_never_exceeded(nn.Sequential(*parts), (sizes[0],), largest_stretch, seed)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_in_a_perceptron(activation, largest_stretch):
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(5, 7), activation(), nn.Linear(7, 4), activation())
    assert_never_exceeded(network, (5,), largest_stretch)


PADDINGS = [
    *[(0, "zeros"), (1, "zeros"), ("same", "zeros"), ("valid", "zeros")],
    *[(1, "reflect"), (1, "replicate"), (1, "circular")],
]


@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(("padding", "mode"), PADDINGS)
def test_convolutional_networks(padding, mode, stride, largest_stretch):
    if padding == "same" and stride > 1:
        padding = "valid"
    torch.manual_seed(2)
    network = nn.Sequential(
        nn.Conv2d(2, 4, 3, stride, padding, padding_mode=mode),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(4, 3, 2, dilation=1, groups=1),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(3, 3),
        nn.Softmax(1),
    )
    network[1].running_var.uniform_(0.05, 3)
    network[1].running_mean.normal_()
    nn.init.normal_(network[1].weight)
    assert_never_exceeded(network, (2, 8, 8), largest_stretch)


@pytest.mark.parametrize(
    ("parts", "shape"),
    [
        ([nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.MaxPool1d(3, 1)], (2, 12)),
        ([nn.Conv3d(1, 2, 2), nn.BatchNorm3d(2), nn.ELU(), nn.MaxPool3d(2, 1)], (1, 4, 4, 4)),
        ([nn.Conv2d(3, 6, 3, groups=3), nn.ReLU(), nn.AvgPool2d(2, 1)], (3, 6, 6)),
        ([nn.Conv2d(2, 2, 3), nn.Tanh(), nn.AdaptiveMaxPool2d(2), nn.Flatten()], (2, 7, 7)),
        ([nn.Linear(6, 6), nn.LayerNorm(6, eps=0.5), nn.GELU(), nn.LogSoftmax(-1)], (6,)),
    ],
    ids=lambda part: "",
)
def test_other_networks(parts, shape, largest_stretch):
    torch.manual_seed(4)
    for part in parts:
        part.reset_parameters() if hasattr(part, "reset_parameters") else None
        if hasattr(part, "running_var"):
            part.running_var.uniform_(0.1, 2)
    assert_never_exceeded(nn.Sequential(*parts), shape, largest_stretch)


def test_the_first_layers_bound_is_attained(largest_stretch):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 6), nn.LeakyReLU(0.99))
    constants = lipschitz_constants(network, (4,))
    found = largest_stretch(network.double(), (4,), n_steps=200)
    assert 0.95 * constants["1"] <= found <= constants["1"]


def test_a_convolution_and_its_normalisation_are_bounded_as_one():
    """The product of their norms would be far too large."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.BatchNorm2d(2))
    network[0].weight.data[1] *= 1e-3
    network[1].running_var[1] = 1e-6
    constants = lipschitz_constants(network, (1, 6, 6))
    alone = lipschitz_constants(network, (1, 6, 6), start="0")["1"]
    assert alone > 300
    assert constants["1"] < 3 * constants["0"]


def test_names_are_those_of_the_model_and_a_radius_holds_for_its_activations():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    constants = lipschitz_constants(network, (5,))
    radii = propagate_radius(0.5, constants)
    x = torch.randn(200, 5)
    step = torch.nn.functional.normalize(torch.randn(200, 5)) * 0.5
    model = TorchModel(network)
    a = model.observe(x, list(constants)).activations
    b = model.observe(x + step, list(constants)).activations
    assert set(a) == {"input", "0", "1", "2", "output"}
    for layer, radius in radii.items():
        moved = torch.linalg.norm(torch.tensor(a[layer] - b[layer]), dim=1)
        assert float(moved.max()) <= radius * (1 + 1e-5)


def test_the_same_network_has_the_same_bound_each_time():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU())
    first = lipschitz_constants(network, (4, 20, 20))
    torch.manual_seed(99)
    assert lipschitz_constants(network, (4, 20, 20)) == first
