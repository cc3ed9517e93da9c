"""Bounds of torch modules from their exported graph: hostile modules are refused, others bounded.

A forward that always does the same has the constant of what it does, whatever it reads meanwhile.
"""

import copy
import math
import random
import sys
import threading
import time
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from iknow.errors import LayerError
from iknow.metrics import spectral_norm
from iknow.metrics.lipschitz_torch import sensitivities
from iknow.models.torch import TorchModel
from tests.metrics.bounding import lipschitz_constants

deterministic = settings(derandomize=True, deadline=None, max_examples=8)
SEEN, COUNT, SCALE = [], 0, 3.0
read_setting = {"factor": 9.0}.get


def norm(linear):
    return spectral_norm(linear.weight.detach().numpy())


class Network(nn.Module):
    """A Linear behind code; `extra` are attributes of the instance."""

    def __init__(self, **extra):
        super().__init__()
        self.a = nn.Linear(4, 3)
        self.register_buffer("n", torch.zeros(1))
        for name, value in extra.items():
            setattr(self, name, value)


class Other(nn.Module):
    """No part of the network."""

    def __init__(self):
        super().__init__()
        self.calls = []


OTHER = Other()


def helper_that_counts(network):
    network.calls += 1
    return network.calls


def marked():
    """A function with something attached to it."""


marked.calls = []


@torch.compiler.assume_constant_result
def chance_that_torch_takes_for_constant():
    return random.random()


# What may do something else another time, or for another batch


def counted_by_attribute(self, x):
    self.calls += 1
    return self.a(x if self.calls < 30 else 9 * x)


def counted_by_helper(self, x):
    return self.a(x if helper_that_counts(self) < 30 else 9 * x)


def counted_by_global(self, x):
    global COUNT
    COUNT += 1
    return self.a(x if COUNT < 30 else 9 * x)


def counted_by_list(self, x):
    calls = self.history
    calls += [1]
    return self.a(x if len(calls) < 30 else 9 * x)


def counted_by_appending(self, x):
    self.history.append(1)
    return self.a(x)


def counted_by_global_list(self, x):
    SEEN.append(1)
    return self.a(x if len(SEEN) < 30 else 9 * x)


def counted_by_bound_method(self, x):
    return self.a(x * self.take())


def counted_by_default(self, x, seen=[]):  # noqa: B006
    seen.append(1)
    return self.a(x if len(seen) < 30 else 9 * x)


def counted_by_function(self, x):
    marked.calls.append(1)
    return self.a(x if len(marked.calls) < 30 else 9 * x)


def counted_by_another_module(self, x):
    OTHER.calls.append(1)
    return self.a(x if len(OTHER.calls) < 30 else 9 * x)


def counted_by_class(self, x):
    type(self).total = getattr(type(self), "total", 0) + 1
    return self.a(x if type(self).total < 30 else 9 * x)


def counted_by_buffer(self, x):
    n = self.n
    n += 1
    return self.a(x if n < 30 else 9 * x)


def counted_by_new_buffer(self, x):
    self.n = self.n + 1
    return self.a(x)


def counted_by_data(self, x):
    n = self.n.data
    n += 1
    return self.a(x if n < 30 else 9 * x)


def counted_in_a_buffer_nobody_reads(self, x):
    self.n[0] = 5
    return self.a(x)


def counted_by_iterator(self, x):
    return self.a(x if next(self.numbers) < 30 else 9 * x)


def counted_without_a_call(self, x):
    for n in self.numbers:
        return self.a(x if n < 30 else 9 * x)
    return None


def counted_by_dictionary(self, x):
    self.__dict__["calls"] = 1
    return self.a(x)


def kept_for_later(self, x):
    self.kept = x
    return self.a(x)


def set_once(self, x):
    if hasattr(self, "cache"):
        return self.a(9 * x)
    self.cache = 1
    return self.a(x)


def written_to_the_input(self, x):
    x.mul_(3)
    return self.a(x)


def branching_on_values(self, x):
    return self.a(x if x.sum() > 0 else 9 * x)


def times_a_number_of_its_own(self, x):
    return self.a(x * x.sum().item())


def branching_in_a_try(self, x):
    try:
        return self.a(9 * x if x.sum() > 1e9 else x)
    except RuntimeError:
        return self.a(x)


def branching_by_condition(self, x):
    return self.a(torch.cond(x.sum() > 0, lambda x: x * 1, lambda x: 9 * x, (x,)))


def branching_entry_by_entry(self, x):
    return self.a(torch.where(x > 0, x, 9 * x))


def branching_on_dropout(self, x):
    return self.a(x if functional.dropout(self.n) else 9 * x)


def branching_on_dtype(self, x):
    return self.a(x if x.dtype == torch.float64 else 9 * x)


def branching_on_one_sample(self, x):
    return self.a(x if x.shape[0] != 1 else 9 * x)


def branching_on_several_samples(self, x):
    return self.a(x if x.shape[0] > 1 else 9 * x)


def branching_on_length(self, x):
    return self.a(x if len(x) > 1 else 9 * x)


def branching_on_many_samples(self, x):
    return self.a(x if x.shape[0] < 1000 else 9 * x)


def branching_on_seven_samples(self, x):
    return self.a(x if x.shape[0] != 7 else 9 * x)


def branching_by_key(self, x):
    return self.a({1: 9 * x}.get(x.shape[0], x))


def branching_on_print(self, x):
    return self.a(x if f"{x.shape[0]}" != "1" else 9 * x)


def times_the_number_of_samples(self, x):
    return self.a(x * x.shape[0])


def times_the_rest_of_samples(self, x):
    return self.a(x * (x.shape[0] % 3))


def by_chance(self, x):
    return self.a(x if random.random() < 0.5 else 9 * x)


def by_torch_chance(self, x):
    return self.a(x if torch.rand(1) < 0.5 else 9 * x)


def by_noise(self, x):
    return self.a(x + torch.randn_like(x))


def by_dropout(self, x):
    return functional.dropout(self.a(x), 0.5, True)


def by_chance_taken_for_constant(self, x):
    return self.a(x * chance_that_torch_takes_for_constant())


def by_time(self, x):
    return self.a(x if time.time() % 2 else 9 * x)


def by_clock(self, x):
    return self.a(x if time.perf_counter() % 2 > 1 else 9 * x)


def by_thread(self, x):
    return self.a(x if threading.get_ident() % 2 else 9 * x)


def by_training(self, x):
    self.train()
    return self.a(x)


def by_compiling(self, x):
    return self.a(x if torch.compiler.is_compiling() else 9 * x)


def by_exporting(self, x):
    return self.a(x if torch.compiler.is_exporting() else 9 * x)


def by_values_unless_compiling(self, x):
    is_long = not torch.compiler.is_compiling() and bool(x.norm() > 1e9)
    return self.a(9 * x if is_long else x)


def by_values_unless_exporting(self, x):
    is_long = not torch.compiler.is_exporting() and bool(x.norm() > 1e9)
    return self.a(9 * x if is_long else x)


def by_sizes_unless_compiling(self, x):
    if torch.compiler.is_compiling():
        return self.a(x)
    return self.a(torch.where(x.abs() > 500, 9 * x, x))


def by_layers_that_run_only_when_exported(self, x):
    if torch.compiler.is_compiling():
        self.a(x)
    return 2 * x


def by_batch_statistics(self, x):
    return functional.batch_norm(self.a(x), None, None, training=True)


@torch.autocast("cpu", torch.bfloat16)
def by_autocast(self, x):
    return self.a(x)


def mixed_by_sum(self, x):
    return self.a(x + x.sum(0))


def mixed_by_mean(self, x):
    return self.a(x - x.mean(0, keepdim=True))


def mixed_by_softmax(self, x):
    return self.a(x.softmax(0))


def mixed_by_roll(self, x):
    return self.a(x.roll(1, 0))


def mixed_by_flip(self, x):
    return self.a(x.flip(0))


def mixed_by_flattening(self, x):
    return self.a(x.flatten().view(4, -1).flatten().view(-1, 4))


def mixed_by_transposing(self, x):
    return self.a(x.t().reshape(-1, 4))


def mixed_by_the_first_sample(self, x):
    return self.a(x + x[:1])


def mixed_by_concatenation(self, x):
    return self.a(torch.cat([x, x])[: x.shape[0]])


def mixed_by_sorting(self, x):
    return self.a(x.sort(0).values)


def mixed_by_cumulation(self, x):
    return self.a(x.cumsum(0))


HOSTILE = ("counted_", "kept_", "set_", "written_", "branching_", "times_", "by_", "mixed_")
NAMES = {name: value for name, value in list(globals().items()) if name.startswith(HOSTILE)}


@pytest.mark.parametrize("name", NAMES)
def test_a_hostile_module_is_refused_in_one_sentence(name):
    kind = type("Odd", (Network,), {"forward": NAMES[name]})
    network = kind(calls=0, history=[], numbers=iter([*range(90)]), take=[9.0, 1.0].pop)
    with pytest.raises(LayerError) as caught:
        lipschitz_constants(network, (4,), ["a", "output"] if name.startswith("by_") else ["a"])
    assert "\n" not in str(caught.value)
    assert network.calls == 0
    assert network.history == []


def test_nothing_but_the_error_is_said_and_what_other_threads_say_is_not_lost(capsys):
    done = threading.Event()

    def talk():
        while not done.wait(0.01):
            print("said", file=sys.stderr)
            lines.append("said")

    lines = []
    thread = threading.Thread(target=talk)
    thread.start()
    for name in ("branching_on_values", "by_thread", "branching_in_a_try", "mixed_by_sum"):
        with pytest.raises(LayerError):
            lipschitz_constants(type("Odd", (Network,), {"forward": NAMES[name]})(), (4,), ["a"])
    done.set()
    thread.join()
    assert capsys.readouterr().err.split() == lines


# What always does the same


def by_setting_of_a_dictionary(self, x):
    return self.a(x * read_setting("factor"))


def in_a_with(self, x):
    with torch.no_grad():
        return self.a(9 * x)


def on_identity(self, x):
    return self.a(9 * x if torch.relu(x) is not x else x)


def on_type(self, x):
    return self.a(9 * x if isinstance(x, torch.Tensor) else x)


def on_class(self, x):
    return self.a(9 * x if x.__class__ is torch.Tensor else x)


def on_gradients_of_weights(self, x):
    return self.a(9 * x if self.a.weight.requires_grad else x)


def on_gradient_mode(self, x):
    return self.a(x if torch.is_grad_enabled() else 9 * x)


def by_product_of_weights(self, x):
    return self.a(x * float((self.n + 3) * 3))


class Ninefold(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 9 * x

    @staticmethod
    def backward(ctx, up):
        return up  # no gradient tells what this does


def by_function_with_its_own_gradient(self, x):
    return self.a(Ninefold.apply(x))


ODD_BUT_CONSTANT = [
    by_setting_of_a_dictionary, in_a_with, on_identity, on_type, on_class, on_gradients_of_weights,
    on_gradient_mode, by_function_with_its_own_gradient,
]  # fmt: skip


@pytest.mark.parametrize("forward", ODD_BUT_CONSTANT, ids=lambda forward: forward.__name__)
def test_the_constant_is_that_of_what_runs(forward):
    network = type("Odd", (Network,), {"forward": forward})()
    found = lipschitz_constants(network, (4,))["output"]
    assert found == pytest.approx(9 * norm(network.a))
    X = torch.randn(50, 4)
    with torch.no_grad():
        moved = (network(X) - network(X + 1)).norm(dim=1) / 2
    assert (moved <= found * (1 + 1e-5)).all()


def test_a_forward_of_many_parts_is_followed():
    class Plain(Network):
        depth = 2

        def block(self, x):
            return functional.relu(self.a(x)) if self.depth > 1 else x

        @property
        def factor(self):
            return SCALE * math.sqrt(self.depth)

        def forward(self, x, mask=None):
            if mask is not None:
                raise ValueError("no masks")
            if self.training or x.dim() != 2 or x.shape[1] != self.a.weight.shape[1]:
                return x
            outs = [f(self.factor * self.block(x)) for f in self.functions]
            return torch.cat(outs, dim=-1).view(x.size(0), *[3, len(outs)])

    network = Plain(functions=(torch.tanh, functional.relu))
    assert lipschitz_constants(network, (4,))["output"] == pytest.approx(6 * norm(network.a))


class AlwaysTraining(nn.BatchNorm1d):
    def train(self, mode=True):
        return super().train(True)


class Hundredfold(nn.Conv1d):
    def _conv_forward(self, batch, weight, bias):
        return super()._conv_forward(100 * batch, weight, bias)


class Heavier(nn.Linear):
    def __getattr__(self, name):
        value = super().__getattr__(name)
        return 100 * value if name == "weight" else value


class Doubled(nn.Linear):
    def forward(self, batch):
        return 2 * super().forward(batch)


def test_a_subclass_is_bounded_by_what_it_computes_not_by_what_it_is_called(largest_stretch):
    torch.manual_seed(0)
    patched = nn.Linear(4, 4)
    patched.forward = lambda batch: 5 * batch
    for module, shape in ((Hundredfold(1, 2, 3), (1, 8)), (Doubled(3, 3), (3,)), (patched, (4,))):
        found = lipschitz_constants(nn.Sequential(module), shape)["0"]
        stretch = largest_stretch(module.double().eval(), shape, n_steps=100)
        assert 0.9 * found <= stretch <= found * (1 + 1e-7)
    with pytest.raises(LayerError, match=r"'0' \(AlwaysTraining\) stays in training mode"):
        lipschitz_constants(nn.Sequential(AlwaysTraining(4)), (4,))
    with pytest.raises(LayerError, match="computes a tensor of its own in each pass"):
        sensitivities(nn.Sequential(Heavier(4, 4)), (4,), ["0"])


def test_modules_that_are_in_training_are_bounded_as_in_eval():
    network = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.BatchNorm1d(4)).train()
    trained = lipschitz_constants(network, (4,))
    assert trained == lipschitz_constants(network.eval(), (4,))
    no_statistics = nn.Sequential(nn.BatchNorm1d(4, track_running_stats=False))
    with pytest.raises(LayerError):
        lipschitz_constants(no_statistics, (4,))


def test_a_tensor_of_another_kind_is_refused_by_name():
    class Doubling(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, kinds, args=(), kwargs=None):
            return 2 * super().__torch_function__(function, kinds, args, kwargs or {})

    module = nn.Linear(4, 4)
    module._parameters["weight"] = torch.zeros(4, 4).as_subclass(Doubling)
    with pytest.raises(LayerError, match=r"'0' \(Linear\) has 'weight', which is not a plain"):
        lipschitz_constants(nn.Sequential(module), (4,), ["0"])


def test_hooks_are_refused():
    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    network[0].register_forward_hook(lambda _module, _inputs, output: 10 * output)
    with pytest.raises(LayerError, match=r"'0' \(Linear\) has a hook"):
        lipschitz_constants(network, (4,))
    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    network[1].register_forward_pre_hook(lambda _module, inputs: (10 * inputs[0],))
    with pytest.raises(LayerError, match=r"'1' \(ReLU\) has a hook"):
        lipschitz_constants(network, (4,))
    for register in ("register_module_forward_hook", "register_module_forward_pre_hook"):
        handle = getattr(nn.modules.module, register)(lambda _module, values, *_: values)
        try:
            with pytest.raises(LayerError, match="global hooks"):
                lipschitz_constants(nn.Sequential(nn.Linear(4, 4)), (4,))
        finally:
            handle.remove()


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    "wrap",
    [nn.DataParallel, torch.compile, lambda m: nn.Sequential(nn.DataParallel(m)), torch.jit.script],
)
def test_what_runs_a_module_in_its_own_way_is_refused_by_name(wrap):
    inner = nn.Sequential(nn.Linear(4, 4))
    with pytest.raises(LayerError, match=r"DataParallel|OptimizedModule|ScriptModule"):
        lipschitz_constants(wrap(inner), (4,), ["output"])


@pytest.mark.parametrize("name", ["weight_norm", "orthogonal", "spectral_norm"])
def test_a_parametrization_has_no_bound_of_its_rounding(name):
    linear = getattr(nn.utils.parametrizations, name)(nn.Linear(4, 4))
    with pytest.raises(LayerError, match=r"'0.*computes a tensor of its own in each pass"):
        sensitivities(nn.Sequential(linear), (4,), ["0"])


def test_a_number_made_of_weights_has_no_bound_of_its_rounding():
    network = type("Odd", (Network,), {"forward": by_product_of_weights})()
    with pytest.raises(LayerError, match="computes a tensor of its own in each pass"):
        sensitivities(network, (4,), ["a"])


def test_older_versions_of_torch_are_not_trusted(monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.12.1+cpu")
    with pytest.raises(LayerError, match=r"need torch 2\.13; got 2\.12\.1"):
        lipschitz_constants(nn.Sequential(nn.Linear(4, 4)), (4,))


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


def test_a_network_is_followed_while_others_run_it():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    batch = torch.randn(5, 4)
    expected, wrong, done = network(batch), [], threading.Event()

    def run():
        while not done.is_set():
            if not torch.equal(network(batch), expected):
                wrong.append(1)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        constants = [lipschitz_constants(network, (4,)) for _ in range(4)]
    finally:
        done.set()
        thread.join()
    assert not wrong
    assert constants == [constants[0]] * 4


def test_the_hooks_of_a_model_that_is_looked_into_meanwhile_do_no_harm():
    network = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    found = []

    class Asking(TorchModel):
        def _run(self, *given):
            found.append(lipschitz_constants(network, (4,), ["1"]))
            return super()._run(*given)

    Asking(network).observe(torch.zeros(3, 4).numpy(), ["1"])
    assert found == [lipschitz_constants(network, (4,), ["1"])]


# Reading the graph


def with_forward(forward, **parts):
    """A module of these parts with this forward function."""
    network = type("Network", (nn.Module,), {"forward": forward})()
    for name, part in parts.items():
        network.add_module(name, part)
    return network


def two_layers(between, n=4):
    """A Linear, some code, a Linear."""
    torch.manual_seed(0)
    return with_forward(
        lambda self, x: self.b(between(self.a(x))), a=nn.Linear(n, n), b=nn.Linear(n, n)
    )


@pytest.mark.parametrize(
    "between",
    [
        functional.relu,
        torch.relu_,
        lambda x: x.clamp(min=0),
        lambda x: torch.relu(x).reshape(x.shape[0], 2, 2).flatten(1),
    ],
)
def test_a_relu_without_a_module_is_seen_and_keeps_the_matrices_apart(between):
    network = two_layers(between)
    nn.init.constant_(network.a.bias, 1e3)  # where no relu shows
    constants = lipschitz_constants(network, (4,))
    assert list(constants) == ["input", "a", "b", "output"]
    assert constants["b"] == pytest.approx(norm(network.a) * norm(network.b))


@pytest.mark.parametrize(
    "between", [lambda x: x, lambda x: x.reshape(x.size(0), 2, 2).flatten(1), lambda x: x + 5]
)
def test_matrices_that_meet_are_measured_as_one(between):
    network = two_layers(between)
    product = (network.b.weight @ network.a.weight).detach().numpy()
    assert lipschitz_constants(network, (4,))["b"] == pytest.approx(spectral_norm(product))


@pytest.mark.parametrize(
    ("between", "factor"),
    [
        (lambda x: (1 - x) / 4, 0.25),
        (lambda x: functional.leaky_relu(x, 3.0), 3),
        (lambda x: functional.max_pool1d(x.unsqueeze(1), 3, 1, 1).squeeze(1), math.sqrt(3)),
        (lambda x: functional.dropout(x.sigmoid(), 0.5, False), 0.25),
    ],
)
def test_functions_have_their_constants(between, factor):
    network = two_layers(between)
    found = lipschitz_constants(network, (4,))["b"]
    product = spectral_norm((network.b.weight @ network.a.weight).detach().numpy())
    most = factor * norm(network.a) * norm(network.b)
    assert found == pytest.approx(most) or found == pytest.approx(factor * product)


@pytest.mark.parametrize(
    "between",
    [
        lambda x: torch.relu(x - 500) ** 2,
        lambda x: x * x,
        lambda x: x.exp(),
        lambda x: 1 / (x * x + 1),
        lambda x: functional.hardshrink(x),
        lambda x: torch.add(x, x, alpha=3),
        lambda x: x.squeeze(),
    ],
)
def test_other_code_between_modules_is_refused_and_what_comes_before_is_not(between):
    network = two_layers(between)
    with pytest.raises(LayerError, match="layer 'b' cannot be bounded: "):
        lipschitz_constants(network, (4,))
    found = lipschitz_constants(network, (4,), layers=["a"])  # up to there all is known
    assert found == {"a": pytest.approx(norm(network.a))}


@pytest.mark.parametrize(
    "between",
    [
        lambda x: x.double().float(),
        lambda x: functional.softmax(x, 1, dtype=torch.float64).float(),
    ],
)
def test_another_precision_inside_is_refused(between):
    with pytest.raises(LayerError):
        lipschitz_constants(two_layers(between), (4,), ["a"])


def written_over(self, x):
    y = self.a(x)
    kept = y.flatten(1)
    torch.relu_(10 * y)
    kept.mul_(7)
    return y


def added_in_place(self, x):
    kept = x
    x = self.a(x)
    x += kept
    return x


@pytest.mark.parametrize(
    ("forward", "found"),
    [
        (written_over, lambda a: 7 * a),
        (added_in_place, lambda a: 1 + a),
        (lambda self, x: torch.relu_(y := self.a(x)) + y, lambda a: 2 * a),
        (lambda self, x: self.a(x).add_(1).div_(4), lambda a: a / 4),
    ],
)
def test_writing_in_place_is_followed(forward, found, largest_stretch):
    torch.manual_seed(0)
    network = with_forward(forward, a=nn.Linear(4, 4))
    constant = lipschitz_constants(network, (4,))["output"]
    assert constant == pytest.approx(found(norm(network.a)))
    assert largest_stretch(network.double(), (4,)) <= constant * (1 + 1e-7)


def test_a_residual_sum_has_the_sum_of_the_constants():
    network = nn.Sequential(
        nn.Linear(4, 4), with_forward(lambda self, x: x + self.inner(x), inner=nn.Linear(4, 4))
    )
    constants = lipschitz_constants(network, (4,))
    outer, both = norm(network[0]), network[1].inner.weight @ network[0].weight
    assert constants["1"] == pytest.approx(outer + spectral_norm(both.detach().numpy()))
    assert list(constants) == ["input", "0", "1.inner", "1", "output"]


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
    network = with_forward(lambda self, x: 3 * self.a(x / 255), a=nn.Linear(4, 2))
    constants = lipschitz_constants(network, (4,))
    assert constants["a"] == pytest.approx(norm(network.a) / 255)
    assert constants["output"] == pytest.approx(3 * constants["a"])


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


def test_modules_named_input_and_output_are_the_ones_meant():
    network = nn.Sequential()
    network.add_module("input", nn.Linear(4, 4))
    network.add_module("output", nn.Linear(4, 4))
    constants = lipschitz_constants(network, (4,))
    assert list(constants) == ["input", "output"]
    assert constants["input"] == pytest.approx(norm(network.get_submodule("input")))


def test_only_what_is_asked_for_must_be_known():
    network = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4, eps=0), nn.Linear(4, 4))
    assert list(lipschitz_constants(network, (4,), ["0"])) == ["0"]
    with pytest.raises(LayerError, match=r"layer '2' cannot be bounded: '1' \(LayerNorm\): "):
        lipschitz_constants(network, (4,), ["2"])
    attention = with_forward(
        lambda self, x: self.a(x, x, x)[0], a=nn.MultiheadAttention(4, 2, batch_first=True)
    )
    with pytest.raises(LayerError, match=r"'a' \(MultiheadAttention\)"):
        lipschitz_constants(attention, (3, 4), ["output"])


def test_unknown_and_idle_layers_and_bad_shapes_are_refused():
    network = with_forward(lambda self, x: self.a(x), a=nn.Linear(4, 4), idle=nn.Linear(4, 4))
    with pytest.raises(LayerError, match="has no layer 'nowhere'"):
        lipschitz_constants(network, (4,), ["nowhere"])
    with pytest.raises(LayerError, match="'idle' did not run"):
        lipschitz_constants(network, (4,), ["idle"])
    with pytest.raises(LayerError, match=r"Network failed on samples of shape \(5,\)"):
        lipschitz_constants(network, (5,), ["a"])
    pair = with_forward(lambda self, x: (self.a(x), x), a=nn.Linear(4, 4))
    with pytest.raises(LayerError, match="'output' did not run, or is not one tensor"):
        lipschitz_constants(pair, (4,), ["output"])


# What enters a module


ENTERED = {
    "functional": lambda self, x: self.b(torch.relu(self.a(x))),
    "sum": lambda self, x: self.b(self.a(x) + x),
    "earlier in place": lambda self, x: self.b(self.a(x).mul_(100.0)),
}


def later_in_place(self, x):
    inside = self.a(x)
    out = self.b(inside)
    inside *= 100.0
    return out


ENTERED["later in place"] = later_in_place


def entered(kind):
    torch.manual_seed(0)
    return with_forward(ENTERED[kind], a=nn.Linear(4, 4), b=nn.Linear(4, 4)).eval()


@pytest.mark.parametrize("kind", ENTERED)
def test_no_movement_breaks_the_bound_of_what_enters_a_module(kind):
    module = entered(kind)
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
        lipschitz_constants(entered(kind), (4,), ["b.input"])["b.input"]
        for kind in ("later in place", "earlier in place")
    )
    assert earlier == pytest.approx(100 * later)


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        (lambda self, x: self.b(self.a(x).sin()), "cannot be bounded"),
        (lambda self, x: self.b(self.b(self.a(x))), "ran more than once"),
        (lambda self, x: self.b(input=self.a(x)), "is not one tensor"),
    ],
)
def test_what_enters_in_an_unknown_way_is_not_promised(forward, words):
    with pytest.raises(LayerError, match=words):
        sensitivities(
            with_forward(forward, a=nn.Linear(4, 4), b=nn.Linear(4, 4)), (4,), ["b.input"]
        )


# Whole networks: no pair of inputs, however chosen, moves further than its bound


ACTIVATIONS = [
    *(nn.ReLU, nn.LeakyReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU, nn.Tanh, nn.Sigmoid),
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
    for layer in constants.keys() & dict(network.named_modules()).keys():
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


class Residual(nn.Module):
    def __init__(self, *parts):
        super().__init__()
        self.inner = nn.Sequential(*parts)

    def forward(self, x):
        return functional.relu(x + self.inner(x))


def convolutional(padding, mode, stride):
    return [
        nn.Conv2d(2, 4, 3, stride, padding, padding_mode=mode),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2, stride=1),
        nn.Conv2d(4, 3, 2),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(3, 3),
        nn.Softmax(1),
    ]


ARCHITECTURES = {
    "perceptron": ([nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 4), nn.GELU(), nn.Linear(4, 3)], (5,)),
    "zeros": (convolutional(0, "zeros", 1), (2, 8, 8)),
    "padded": (convolutional(1, "zeros", 2), (2, 8, 8)),
    "same": (convolutional("same", "zeros", 1), (2, 8, 8)),
    "reflect": (convolutional(1, "reflect", 1), (2, 8, 8)),
    "replicate": (convolutional(1, "replicate", 2), (2, 8, 8)),
    "circular": (convolutional(1, "circular", 1), (2, 8, 8)),
    "line": ([nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.MaxPool1d(3, 1)], (2, 12)),
    "solid": ([nn.Conv3d(1, 2, 2), nn.BatchNorm3d(2), nn.ELU(), nn.MaxPool3d(2, 1)], (1, 4, 4, 4)),
    "grouped": ([nn.Conv2d(3, 6, 3, groups=3), nn.ReLU(), nn.AvgPool2d(2, 1)], (3, 6, 6)),
    "adaptive": ([nn.Conv2d(2, 2, 3), nn.Tanh(), nn.AdaptiveMaxPool2d(2), nn.Flatten()], (2, 7, 7)),
    "normed": ([nn.Linear(6, 6), nn.LayerNorm(6, eps=0.5), nn.GELU(), nn.LogSoftmax(-1)], (6,)),
    "residual": ([Residual(nn.Linear(5, 5), nn.Tanh(), nn.Linear(5, 5)), nn.Linear(5, 3)], (5,)),
    "residual images": (
        [
            nn.Conv2d(1, 3, 3, padding=1),
            Residual(nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3)),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(27, 3),
        ],
        (1, 6, 6),
    ),
}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_no_architecture_exceeds_its_constants(name, largest_stretch):
    torch.manual_seed(2)
    parts, shape = ARCHITECTURES[name]
    network = nn.Sequential(*map(copy.deepcopy, parts))
    for part in network.modules():
        if hasattr(part, "running_var"):
            part.running_var.uniform_(0.05, 3)
            part.running_mean.normal_()
            nn.init.normal_(part.weight)
    assert_never_exceeded(network, shape, largest_stretch)


def test_the_first_layers_bound_is_attained(largest_stretch):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(4, 6), nn.LeakyReLU(0.99))
    constants = lipschitz_constants(network, (4,))
    found = largest_stretch(network.double(), (4,), n_steps=200)
    assert 0.95 * constants["1"] <= found <= constants["1"]


def test_a_convolution_and_its_normalization_are_bounded_as_one():
    """The product of their norms would be far too large."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.BatchNorm2d(2))
    network[0].weight.data[1] *= 1e-3
    network[1].running_var[1] = 1e-6
    constants = lipschitz_constants(network, (1, 6, 6))
    alone = lipschitz_constants(nn.Sequential(network[1]), (2, 4, 4))["0"]
    assert alone > 300
    assert constants["1"] < 3 * constants["0"]


def test_names_are_those_of_the_model_and_a_radius_holds_for_its_activations():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    constants = lipschitz_constants(network, (5,))
    x = torch.randn(200, 5)
    step = functional.normalize(torch.randn(200, 5)) * 0.5
    model = TorchModel(network)
    a = model.observe(x, list(constants)).activations
    b = model.observe(x + step, list(constants)).activations
    assert set(a) == {"input", "0", "1", "2", "output"}
    for layer, constant in constants.items():
        moved = torch.linalg.norm(torch.tensor(a[layer] - b[layer]), dim=1)
        assert float(moved.max()) <= 0.5 * constant * (1 + 1e-5)


def test_the_same_network_has_the_same_bound_each_time():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU())
    first = lipschitz_constants(network, (4, 20, 20))
    torch.manual_seed(99)
    assert lipschitz_constants(network, (4, 20, 20)) == first


# Rounding along a network


def some_networks():
    torch.manual_seed(0)
    yield (
        nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(36, 8),
            nn.GELU(),
            nn.Linear(8, 3),
        ),
        (1, 6, 6),
    )
    yield (
        with_forward(
            lambda self, x: self.c(torch.cat([x, functional.relu(self.b(x / 7) - 3 + x)], 1)),
            b=nn.Linear(5, 5),
            c=nn.Linear(10, 3),
        ),
        (5,),
    )
    yield nn.Sequential(nn.Linear(5, 7), nn.LayerNorm(7), nn.Tanh(), nn.Linear(7, 3)), (5,)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("which", range(3))
def test_errors_add_up_along_a_network(which, dtype):
    network, shape = list(some_networks())[which]
    exact = copy.deepcopy(network).double().eval()
    network = network.to(dtype)
    layers = ["input", *(name for name, _ in network.named_children()), "output"]
    found = {}
    for name, part in exact.named_children():
        part.register_forward_hook(lambda _m, _i, out, name=name: found.update({name: out.clone()}))
    plain = np.random.default_rng(0).normal(size=(40, *shape))
    bounds = sensitivities(network, shape, layers, plain, TorchModel)
    for inputs in (plain, plain + 1000, plain + 1e9):
        with torch.no_grad():
            found["output"] = exact(torch.from_numpy(inputs))
        found["input"] = torch.from_numpy(inputs)
        lengths = np.linalg.norm(inputs.reshape(40, -1), axis=1)
        for rows in (slice(None), slice(2, 3)):
            seen = TorchModel(network).observe(inputs[rows], layers).activations
            for layer, bound in bounds.items():
                wanted = found[layer].flatten(1).numpy()[rows]
                off = np.linalg.norm(seen[layer].astype(float) - wanted, axis=1)
                allowed = bound.rounding + bound.rounding_per_length * lengths[rows]
                assert (off <= allowed).all(), layer


def test_an_overflow_that_could_be_hidden_is_refused():
    """60000 + 60000 - 60000 - 60000 is 0, but not in float16, and tanh makes a number of it."""
    network = nn.Sequential(nn.Linear(4, 2), nn.Tanh(), nn.Linear(2, 2)).half()
    assert sensitivities(network, (4,), ["0"])["0"].rounding_per_length > 1e-3
    with pytest.raises(LayerError, match=r"'1' \(Tanh\).*may overflow"):
        sensitivities(network, (4,), ["1"])
    huge = nn.Sequential(nn.Linear(4, 2), nn.Tanh())
    nn.init.constant_(huge[0].weight, 1e25)
    with pytest.raises(LayerError, match=r"'1' \(Tanh\).*may overflow"):
        sensitivities(huge, (4,), ["1"])


def test_the_cast_of_the_input_is_part_of_every_bound():
    network = nn.Sequential(nn.Identity(), nn.Linear(1, 2)).bfloat16()
    x = np.array([[1001.9], [1002.1]])
    seen = TorchModel(network).observe(x, ["input", "0"]).activations
    bounds = sensitivities(network, (1,), ["input", "0"], x, TorchModel)
    for layer, bound in bounds.items():
        off = np.abs(seen[layer] - x).max()
        assert off > 1.8
        assert off <= bound.rounding + bound.rounding_per_length * 1001.9
    stamps = np.array([[1.7e9 + 60.0]])
    bound = sensitivities(nn.Linear(1, 2), (1,), ["input"], stamps, TorchModel)["input"]
    assert bound.rounding_per_length * 1.7e9 >= 64


def test_what_has_no_bound_of_its_rounding_is_refused_by_name():
    mixed = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4).bfloat16())
    with pytest.raises(LayerError, match="several dtypes"):
        sensitivities(mixed, (4,), ["1"])
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(LayerError, match="under autocast"),
    ):
        sensitivities(nn.Sequential(nn.Linear(4, 4)), (4,), ["0"])
    with pytest.raises((LayerError, NotImplementedError), match="meta"):
        sensitivities(nn.Sequential(nn.Linear(4, 4)).to("meta"), (4,), ["0"])
    infinite = nn.Sequential(nn.Linear(4, 4))
    nn.init.constant_(infinite[0].weight, math.inf)
    with pytest.raises((LayerError, ValueError)):
        sensitivities(infinite, (4,), ["0"])
    with pytest.raises(LayerError, match="pass floats"):
        sensitivities(
            nn.Sequential(nn.ReLU()), (4,), ["0"], np.zeros((3, 4), dtype=np.uint8), TorchModel
        )


def test_of_any_module_the_input_is_known():
    with torch.autocast("cpu", torch.bfloat16):
        found = sensitivities(nn.LSTM(4, 4), (3, 4), ["input"])
    assert found["input"].lipschitz == pytest.approx(1)
    assert 2**-24 <= found["input"].rounding_per_length < 2**-23.9


def test_a_module_that_gives_something_else_in_its_own_precision_is_caught_by_real_inputs():
    """A second net: even what the graph cannot show, such as a patch of torch that it hides."""
    network = nn.Sequential(nn.Linear(4, 4))
    inputs = np.random.default_rng(0).normal(size=(5, 4))
    assert sensitivities(network, (4,), ["0"], inputs, TorchModel)

    class Louder(TorchModel):
        def observe(self, batch, layers):
            seen = super().observe(batch, layers)
            seen.activations["0"] *= 1.001
            return seen

    with pytest.raises(LayerError, match="for real inputs the module differs from"):
        sensitivities(network, (4,), ["0"], inputs, Louder)


def test_errors_grow_as_the_network_does_not_as_its_absolute_values_do():
    """Rotations keep lengths; the same with absolute values stretch 16 entries threefold."""
    torch.manual_seed(0)
    parts = [nn.Linear(16, 16, bias=False) for _ in range(8)]
    for part in parts:
        nn.init.orthogonal_(part.weight)
    network = nn.Sequential(*(step for part in parts for step in (part, nn.ReLU())))
    bound = sensitivities(network, (16,), ["15"])["15"]
    assert bound.lipschitz == pytest.approx(1, rel=1e-5)
    assert bound.rounding_per_length < 1e-4
