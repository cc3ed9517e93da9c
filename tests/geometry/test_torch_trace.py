"""Which networks are chains: followed where they are, refused by name where they are not."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from iknow.errors import InputError, LayerError
from iknow.geometry import spectral_norm
from iknow.geometry.torch import lipschitz_constants


def norm(linear):
    return spectral_norm(linear.weight.detach().numpy())


def with_forward(forward, **parts):
    """A module of these parts with this forward function."""

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            for name, part in parts.items():
                self.add_module(name, part)

    Network.forward = forward
    return Network()


def two_layers(between, n=4):
    """A Linear, some code, a Linear."""
    torch.manual_seed(0)
    return with_forward(
        lambda self, x: self.b(between(self.a(x))), a=nn.Linear(n, n), b=nn.Linear(n, n)
    )


@pytest.mark.parametrize(
    "between",
    [
        torch.relu,
        functional.relu,
        torch.relu_,
        lambda x: x.clamp(min=0),
        lambda x: torch.relu(x).reshape(len(x), 2, 2).flatten(1),
    ],
)
def test_a_relu_without_a_module_is_seen_and_keeps_the_matrices_apart(between):
    network = two_layers(between)
    constants = lipschitz_constants(network, (4,))
    assert list(constants) == ["input", "a", "b", "output"]
    assert constants["b"] == pytest.approx(norm(network.a) * norm(network.b))


def test_a_relu_that_changes_none_of_the_probes_still_keeps_the_matrices_apart():
    network = two_layers(torch.relu)
    nn.init.constant_(network.a.bias, 1e6)
    found = lipschitz_constants(network, (4,))["b"]
    assert found == pytest.approx(norm(network.a) * norm(network.b))
    in_place = two_layers(torch.relu_)
    nn.init.constant_(in_place.a.bias, 1e6)
    assert lipschitz_constants(in_place, (4,))["b"] == pytest.approx(found)


@pytest.mark.parametrize("between", [lambda x: x, lambda x: x.reshape(len(x), 2, 2).flatten(1)])
def test_matrices_that_meet_are_measured_as_one(between):
    network = two_layers(between)
    product = (network.b.weight @ network.a.weight).detach().numpy()
    assert lipschitz_constants(network, (4,))["b"] == pytest.approx(spectral_norm(product))


def test_flattening_with_and_without_a_module():
    torch.manual_seed(0)
    conv, linear = nn.Conv2d(1, 2, 2), nn.Linear(18, 3)
    with_module = nn.Sequential(conv, nn.Flatten(), linear)
    without = with_forward(lambda self, x: self.b(self.a(x).flatten(1)), a=conv, b=linear)
    viewed = with_forward(lambda self, x: self.b(self.a(x).view(-1, 18)), a=conv, b=linear)
    found = [
        lipschitz_constants(network, (1, 4, 4))["output"]
        for network in (with_module, without, viewed)
    ]
    assert found == pytest.approx([found[0]] * 3)


@pytest.mark.parametrize(
    "between",
    [
        lambda x: 2 * x,
        lambda x: x + 1,
        torch.tanh,
        functional.leaky_relu,
        functional.gelu,
        lambda x: x.flip(1),
        lambda x: x - x.mean(0),
        lambda x: x[:, :1].repeat(1, 4),
    ],
)
def test_other_code_between_modules_breaks_the_chain_where_it_is(between):
    network = two_layers(between)
    with pytest.raises(
        LayerError, match=r"the input of 'b' is not what 'a' gave, nor a reshape or torch\.relu"
    ):
        lipschitz_constants(network, (4,))
    found = lipschitz_constants(network, (4,), layers=["a"])  # up to there it is a chain
    assert found == {"a": pytest.approx(norm(network.a))}


def test_a_residual_sum_breaks_the_chain():
    network = nn.Sequential(
        nn.Linear(4, 4), with_forward(lambda self, x: x + self.inner(x), inner=nn.Linear(4, 4))
    )
    with pytest.raises(LayerError, match=r"output of '1' is not what '1\.inner' gave"):
        lipschitz_constants(network, (4,))
    assert list(lipschitz_constants(network, (4,), ["0", "1.inner"])) == ["0", "1.inner"]


def test_two_ways_break_the_chain():
    network = with_forward(
        lambda self, x: torch.cat([self.a(x), self.b(x)], 1), a=nn.Linear(4, 2), b=nn.Linear(4, 2)
    )
    with pytest.raises(LayerError, match="the input of 'b' is not what 'a' gave"):
        lipschitz_constants(network, (4,))


def test_code_before_the_first_and_after_the_last_module_breaks_the_chain():
    before = with_forward(lambda self, x: self.a(x / 255), a=nn.Linear(4, 2))
    with pytest.raises(LayerError, match="the input of 'a' is not what the input gave"):
        lipschitz_constants(before, (4,))
    after = with_forward(lambda self, x: 3 * self.a(x), a=nn.Linear(4, 2))
    with pytest.raises(LayerError, match="the output of 'output' is not what 'a' gave"):
        lipschitz_constants(after, (4,))


def test_attention_is_not_a_chain():
    attention = with_forward(
        lambda self, x: self.a(x, x, x)[0], a=nn.MultiheadAttention(4, 2, batch_first=True)
    )
    with pytest.raises(LayerError, match="the output of 'a' is not one tensor"):
        lipschitz_constants(attention, (3, 4))


def test_a_hook_that_changes_values_breaks_the_chain():
    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    network[0].register_forward_hook(lambda _module, _inputs, output: 10 * output)
    with pytest.raises(LayerError, match=r"'0'.*a hook changes what it gives"):
        lipschitz_constants(network, (4,))
    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    network[1].register_forward_pre_hook(lambda _module, inputs: (10 * inputs[0],))
    with pytest.raises(LayerError, match="the input of '1' is not what '0' gave"):
        lipschitz_constants(network, (4,))


def test_nested_containers_have_the_constant_of_their_output():
    network = nn.Sequential(
        nn.Sequential(nn.Linear(4, 5), nn.ReLU(inplace=True)), nn.Sequential(), nn.Linear(5, 2)
    )
    constants = lipschitz_constants(network, (4,))
    assert list(constants) == ["input", "0.0", "0.1", "0", "1", "2", "output"]
    assert (
        constants["0"] == constants["0.1"] == constants["1"] == pytest.approx(norm(network[0][0]))
    )
    assert constants["2"] == constants["output"] == pytest.approx(constants["0"] * norm(network[2]))


def test_a_module_used_twice_is_followed_but_has_no_constant_of_its_own():
    twice = with_forward(
        lambda self, x: self.act(self.b(self.act(self.a(x)))),
        a=nn.Linear(4, 4),
        b=nn.Linear(4, 4),
        act=nn.Tanh(),
    )
    constants = lipschitz_constants(twice, (4,))
    assert list(constants) == ["input", "a", "b", "output"]
    assert constants["output"] == pytest.approx(norm(twice.a) * norm(twice.b))
    with pytest.raises(LayerError, match="'act' ran more than once"):
        lipschitz_constants(twice, (4,), ["act"])


def test_a_parametrized_weight_is_the_weight():
    linear = nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))
    nn.init.constant_(linear.parametrizations.weight.original0, 3.0)
    for network in (linear, nn.Sequential(linear)):
        assert lipschitz_constants(network, (4,))["output"] == pytest.approx(norm(linear))


def test_modules_named_input_and_output_are_the_ones_meant():
    network = nn.Sequential()
    network.add_module("input", nn.Linear(4, 4))
    network.add_module("output", nn.Linear(4, 4))
    constants = lipschitz_constants(network, (4,))
    assert list(constants) == ["input", "output"]
    assert constants["input"] == pytest.approx(norm(network.get_submodule("input")))


def test_constants_from_a_later_layer():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
    constants = lipschitz_constants(network, (4,), start="0")
    assert constants["0"] == 1
    assert constants["1"] == pytest.approx(norm(network[1]))
    assert constants["3"] == pytest.approx(norm(network[1]) * norm(network[3]))
    # From the input the two matrices are one, whose norm is less than the product of theirs:
    # a ratio of constants would claim too much.
    whole = lipschitz_constants(network, (4,))
    assert whole["1"] / whole["0"] < norm(network[1]) * 0.99
    with pytest.raises(LayerError, match="'0' comes before '2'"):
        lipschitz_constants(network, (4,), ["0"], start="2")


def test_only_what_is_asked_for_is_measured():
    network = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4, eps=0), nn.Linear(4, 4))
    assert list(lipschitz_constants(network, (4,), ["0"])) == ["0"]
    with pytest.raises(LayerError, match=r"layer '1' \(LayerNorm\) cannot be bounded"):
        lipschitz_constants(network, (4,), ["2"])


def test_unknown_and_idle_layers_and_bad_shapes_are_refused():
    network = with_forward(lambda self, x: self.a(x), a=nn.Linear(4, 4), idle=nn.Linear(4, 4))
    with pytest.raises(LayerError, match="has no layer 'nowhere'"):
        lipschitz_constants(network, (4,), ["nowhere"])
    with pytest.raises(LayerError, match="'idle' did not run"):
        lipschitz_constants(network, (4,), ["idle"])
    with pytest.raises(InputError, match=r"failed in float64 on a batch of shape \(6, 5\)"):
        lipschitz_constants(network, (5,))


def test_the_users_module_is_untouched():
    network = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(inplace=True), nn.Dropout()
    )
    network[2].eval()
    state = {name: value.clone() for name, value in network.state_dict().items()}
    with torch.inference_mode():
        lipschitz_constants(network, (1, 5, 5))
    assert [part.training for part in network] == [True, True, False, True]
    assert all(value.dtype != torch.float64 for value in network.state_dict().values())
    assert all(torch.equal(value, state[name]) for name, value in network.state_dict().items())
    assert all(parameter.requires_grad for parameter in network.parameters())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in network.modules())
