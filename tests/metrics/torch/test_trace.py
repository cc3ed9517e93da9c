"""What networks do: followed where every operation is known, refused by name where one is not."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from iknow.errors import LayerError
from iknow.metrics import spectral_norm
from iknow.metrics.torch.module import lipschitz_constants
from iknow.models.torch import TorchModel


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
        lambda x: torch.relu(x).reshape(x.shape[0], 2, 2).flatten(1),
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


@pytest.mark.parametrize(
    "between", [lambda x: x, lambda x: x.reshape(x.size(0), 2, 2).flatten(1), lambda x: x + 5]
)
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
    ("between", "factor"),
    [
        (lambda x: 2 * x, 2),
        (lambda x: (1 - x) / 4, 0.25),
        (torch.tanh, 1),
        (lambda x: functional.leaky_relu(x, 3.0), 3),
        (lambda x: functional.max_pool1d(x.unsqueeze(1), 3, 1, 1).squeeze(1), math.sqrt(3)),
        (lambda x: functional.dropout(x.sigmoid(), 0.5, False), 0.25),
        (lambda x: x.clamp(-1, 1), 1),
    ],
)
def test_functions_are_bounded_as_the_modules_that_do_the_same(between, factor):
    network = two_layers(between)
    found = lipschitz_constants(network, (4,))["b"]
    product = spectral_norm((network.b.weight @ network.a.weight).detach().numpy())
    most = factor * norm(network.a) * norm(network.b)
    assert found == pytest.approx(most) or found == pytest.approx(factor * product)


@pytest.mark.parametrize(
    ("between", "reason"),
    [
        (lambda x: torch.relu(x - 500) ** 2, r"operator \*\* is not supported"),
        (lambda x: x * x, "operator \\* between tensors is not supported"),
        (lambda x: x.flip(1), "method flip is not supported"),
        (lambda x: x - x.mean(0), "method mean is not supported"),
        (lambda x: x[:, :1].repeat(1, 4), r"operator \[\] is not supported"),
        (torch.exp, "torch's exp is not supported"),
        (functional.hardshrink, "torch's hardshrink is not supported"),
        (lambda x: functional.dropout(x, 0.5), "random"),
        (lambda x: functional.softmax(x, 0), "mixes the samples"),
        (lambda x: functional.softmax(x, 1, dtype=torch.float64), "these arguments"),
        (lambda x: x + x[:1], "operator .* is not supported"),
        (lambda x: x.view(-1, 2, 2).view(-1, 8), "may mix samples"),
        (lambda x: x.reshape(3, 4), "may mix samples"),
        (lambda x: x.flatten(), "may mix samples"),
        (lambda x: x.squeeze(), "may mix samples"),
        (lambda x: torch.cat([x, x]), "along the batch"),
        (lambda x: x.add_(1), "add_ is not supported"),
        (lambda x: torch.relu_(x) + x, "overwritten"),
        (lambda x: torch.sigmoid(x.flatten(1).relu_()) + x, "overwritten"),
        (lambda x: x.double(), "double is not supported"),
    ],
)
def test_other_code_between_modules_is_refused_by_name(between, reason):
    network = two_layers(between)
    with pytest.raises(LayerError, match=f"layer 'b' cannot be bounded: .*{reason}"):
        lipschitz_constants(network, (4,))
    found = lipschitz_constants(network, (4,), layers=["a"])  # up to there all is known
    assert found == {"a": pytest.approx(norm(network.a))}


def test_what_is_given_back_after_it_was_written_over_is_refused():
    def forward(self, x):
        y = self.a(x)
        torch.relu_(10 * y)
        y.flatten(1).relu_()
        return y

    network = with_forward(forward, a=nn.Linear(4, 4))
    with pytest.raises(LayerError, match=r"'a' \(Linear\) is used after it was overwritten"):
        lipschitz_constants(network, (4,), ["output"])


def test_a_residual_sum_has_the_sum_of_the_constants():
    network = nn.Sequential(
        nn.Linear(4, 4), with_forward(lambda self, x: x + self.inner(x), inner=nn.Linear(4, 4))
    )
    constants = lipschitz_constants(network, (4,))
    outer, both = norm(network[0]), network[1].inner.weight @ network[0].weight
    assert constants["1"] == pytest.approx(outer + spectral_norm(both.detach().numpy()))
    assert list(constants) == ["input", "0", "1.inner", "1", "output"]


def test_a_residual_sum_in_place_is_the_same():
    def forward(self, x):
        kept = x
        x = self.inner(x)
        x += kept
        return x

    torch.manual_seed(0)
    inner = nn.Linear(4, 4)
    in_place = with_forward(forward, inner=inner)
    plain = with_forward(lambda self, x: x + self.inner(x), inner=inner)
    assert lipschitz_constants(in_place, (4,)) == lipschitz_constants(plain, (4,))

    def over_itself(self, x):
        kept = x
        x += self.inner(x)
        return x + kept  # twice the same memory

    with pytest.raises(LayerError, match="overwritten"):
        lipschitz_constants(with_forward(over_itself, inner=inner), (4,))


def test_a_concatenation_has_the_root_of_the_squares(largest_stretch):
    torch.manual_seed(0)
    network = with_forward(
        lambda self, x: torch.cat([self.a(x).relu(), self.b(x)], 1),
        a=nn.Linear(4, 2),
        b=nn.Linear(4, 2),
    )
    found = lipschitz_constants(network, (4,))["output"]
    assert found == pytest.approx(math.hypot(norm(network.a), norm(network.b)))
    assert largest_stretch(network.double(), (4,)) <= found


def test_code_before_the_first_and_after_the_last_module_counts():
    torch.manual_seed(0)
    before = with_forward(lambda self, x: self.a(x / 255), a=nn.Linear(4, 2))
    assert lipschitz_constants(before, (4,))["a"] == pytest.approx(norm(before.a) / 255)
    after = with_forward(lambda self, x: 3 * self.a(x), a=nn.Linear(4, 2))
    constants = lipschitz_constants(after, (4,))
    assert constants["a"] == pytest.approx(norm(after.a))
    assert constants["output"] == pytest.approx(3 * norm(after.a))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    "wrap", [nn.DataParallel, torch.compile, lambda m: nn.Sequential(nn.DataParallel(m))]
)
def test_what_runs_a_module_in_its_own_way_is_refused_by_name(wrap):
    inner = nn.Sequential(nn.Linear(4, 4))
    with pytest.raises(
        LayerError, match=r"(DataParallel|OptimizedModule).*(no known bound|unknown)"
    ):
        lipschitz_constants(wrap(inner), (4,))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_script_has_no_code_to_follow():
    with pytest.raises(LayerError, match="ScriptModule"):
        lipschitz_constants(torch.jit.script(nn.Sequential(nn.Linear(4, 4))), (4,))


def test_attention_is_not_known():
    attention = with_forward(
        lambda self, x: self.a(x, x, x)[0], a=nn.MultiheadAttention(4, 2, batch_first=True)
    )
    with pytest.raises(LayerError, match=r"'a' \(MultiheadAttention\) has no known bound"):
        lipschitz_constants(attention, (3, 4))


def test_hooks_are_refused():
    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    network[0].register_forward_hook(lambda _module, _inputs, output: 10 * output)
    with pytest.raises(LayerError, match=r"'0' \(Linear\) has a hook"):
        lipschitz_constants(network, (4,))
    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    network[1].register_forward_pre_hook(lambda _module, inputs: (10 * inputs[0],))
    with pytest.raises(LayerError, match=r"'1' \(ReLU\) has a hook"):
        lipschitz_constants(network, (4,))
    handle = nn.modules.module.register_module_forward_hook(lambda _m, _i, output: 10 * output)
    try:
        with pytest.raises(LayerError, match="global hooks"):
            lipschitz_constants(nn.Sequential(nn.Linear(4, 4)), (4,))
    finally:
        handle.remove()


def test_the_hooks_of_a_model_that_is_looked_into_meanwhile_do_no_harm():
    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    found = []

    class Asking(TorchModel):
        def _run(self, *given):
            found.append(lipschitz_constants(network, (4,), ["1"]))
            return super()._run(*given)

    Asking(network).observe(torch.zeros(3, 4).numpy(), ["1"])
    assert found == [lipschitz_constants(network, (4,), ["1"])]


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
    with pytest.raises(LayerError, match=r"'a' \(Linear\) does not take samples of \(5,\)"):
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
