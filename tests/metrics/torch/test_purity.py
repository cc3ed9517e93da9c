"""Forwards that do not always do the same: each is refused, and one that does is not."""

import math
import random
import threading
import time

import pytest
import torch
from torch import nn
from torch.nn import functional

from iknow.errors import LayerError
from iknow.metrics.torch.module import lipschitz_constants

SEEN = []
COUNT = 0
SCALE = 3.0
read_setting = {"factor": 9.0}.get


class Network(nn.Module):
    """A Linear behind code; `extra` are attributes of the instance."""

    def __init__(self, **extra):
        super().__init__()
        self.a = nn.Linear(4, 3)
        self.register_buffer("n", torch.zeros(1))
        for name, value in extra.items():
            setattr(self, name, value)


def helper_that_counts(network):
    network.calls += 1
    return network.calls


def counted_by_attribute(self, x):
    self.calls += 1
    return self.a(x if self.calls < 3 else 9 * x)


def counted_by_helper(self, x):
    return self.a(x if helper_that_counts(self) < 3 else 9 * x)


def counted_by_global(self, x):
    global COUNT
    COUNT += 1
    return self.a(x if COUNT < 3 else 9 * x)


def counted_by_list(self, x):
    calls = self.history
    calls += [1]
    return self.a(x if len(calls) < 3 else 9 * x)


def counted_by_global_list(self, x):
    SEEN.append(1)
    return self.a(x if len(SEEN) < 3 else 9 * x)


def counted_by_bound_method(self, x):
    return self.a(x * self.take())


def by_setting_of_a_dictionary(self, x):
    return self.a(x * read_setting("factor"))


def counted_by_default(self, x, seen=[]):  # noqa: B006
    seen.append(1)
    return self.a(x if len(seen) < 3 else 9 * x)


def counted_by_function(self, x):
    marked.calls.append(1)
    return self.a(x if len(marked.calls) < 3 else 9 * x)


def marked():
    """A function with something attached to it."""


marked.calls = []


def counted_by_buffer(self, x):
    n = self.n
    n += 1
    return self.a(x if n < 3 else 9 * x)


def counted_by_data(self, x):
    n = self.n.data
    n += 1
    return self.a(x if n < 3 else 9 * x)


def counted_by_iterator(self, x):
    return self.a(x if next(self.numbers) < 3 else 9 * x)


def counted_without_a_call(self, x):
    for n in self.numbers:
        return self.a(x if n < 3 else 9 * x)
    return None


def counted_by_dictionary(self, x):
    self.__dict__["calls"] = 1
    return self.a(x)


def branching_on_values(self, x):
    return self.a(x if x.sum() > 0 else 9 * x)


def branching_in_a_try(self, x):
    try:
        return self.a(9 * x if x.sum() > 0 else x)
    except LayerError:
        return self.a(x)


def branching_in_a_with(self, x):
    with torch.no_grad():
        return self.a(x)


def branching_on_dtype(self, x):
    return self.a(x if x.dtype == torch.float64 else 9 * x)


def branching_on_identity(self, x):
    return self.a(9 * x if self.a(x) is x else x)


def branching_on_type(self, x):
    return self.a(9 * x if isinstance(x, torch.Tensor) else x)


def branching_on_class(self, x):
    return self.a(9 * x if x.__class__ is torch.Tensor else x)


def branching_on_gradients(self, x):
    return self.a(x if x.grad is not None else 9 * x)


def branching_on_batch(self, x):
    return self.a(x if x.shape[0] > 1 else 9 * x)


def branching_by_key(self, x):
    return self.a({1: 9 * x, x.shape[0]: x}[1])


def branching_on_length(self, x):
    return self.a(x if len(x) > 1 else 9 * x)


def branching_on_print(self, x):
    return self.a(x if f"{x.shape[0]}" != "1" else 9 * x)


def branching_on_dropout(self, x):
    return self.a(x if functional.dropout(self.n) else 9 * x)


def branching_on_dtype_of_weights(self, x):
    return self.a(x if self.a.weight.dtype == torch.float64 else 9 * x)


def branching_on_gradients_of_weights(self, x):
    return self.a(9 * x if self.a.weight.requires_grad else x)


def branching_on_rounding_of_weights(self, x):
    return self.a(x if self.n + 0.1 == 0.1 else 9 * x)


def by_product_of_weights(self, x):
    return self.a(x * float((self.n + 0.1) * 3))


def by_chance(self, x):
    return self.a(x if random.random() < 0.5 else 9 * x)


def by_torch_chance(self, x):
    return self.a(x if torch.rand(1) < 0.5 else 9 * x)


def by_time(self, x):
    return self.a(x if time.time() % 2 else 9 * x)


def by_training(self, x):
    self.train()
    return self.a(x)


def by_gradient_mode(self, x):
    return self.a(x if torch.is_grad_enabled() else 9 * x)


@torch.autocast("cpu", torch.bfloat16)
def by_autocast(self, x):
    return self.a(x)


@torch.autocast("cpu", torch.bfloat16)
def in_bfloat16(x):
    return torch.relu(x)


def by_autocast_inside(self, x):
    return self.a(in_bfloat16(x))


class Other(nn.Module):
    """No part of the network."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def forward(self, x):
        return x


OTHER = Other()


def counted_by_another_module(self, x):
    OTHER.calls.append(1)
    return self.a(x if len(OTHER.calls) < 3 else 9 * x)


IMPURE = [
    value
    for name, value in list(globals().items())
    if name.startswith(("counted_", "branching_", "by_"))
]


@pytest.mark.parametrize("forward", IMPURE, ids=lambda forward: forward.__name__)
def test_a_forward_that_may_do_something_else_another_time_is_refused(forward):
    kind = type("Odd", (Network,), {"forward": forward})
    network = kind(calls=0, history=[], numbers=iter([*range(9)]), take=[9.0, 1.0].pop)
    with pytest.raises(LayerError, match="Odd"):
        lipschitz_constants(network, (4,), ["a"])


def test_a_forward_that_always_does_the_same_is_followed():
    class Plain(Network):
        depth = 2

        def block(self, x):
            return functional.relu(self.a(x)) if self.depth > 1 else x

        @property
        def factor(self):
            return SCALE * math.sqrt(self.depth) * (1 + float(self.n))

        def forward(self, x, mask=None):
            if mask is not None:
                raise ValueError("no masks")
            if self.training or x.dim() != 2 or x.shape[1] != self.a.weight.shape[1]:
                return x
            outs = [f(self.factor * self.block(x)) for f in self.functions]
            return torch.cat(outs, dim=-1).view(x.size(0), *[3, len(outs)])

    network = Plain(functions=(torch.tanh, functional.relu))
    constants = lipschitz_constants(network, (4,))
    norm = float(torch.linalg.matrix_norm(network.a.weight.detach(), 2))
    assert constants["output"] == pytest.approx(6 * norm)


@pytest.mark.parametrize("name", ["train", "eval", "__call__", "__getattr__", "to", "__deepcopy__"])
def test_a_module_that_overrides_what_runs_it_is_refused(name):
    def method(self, *args, **kwargs):
        return getattr(nn.Module, name)(self, *args, **kwargs)

    inner = type("Odd", (Network,), {name: method, "forward": lambda self, x: self.a(x)})()
    with pytest.raises(LayerError, match=rf"'0' \(Odd\) overrides {name}"):
        lipschitz_constants(nn.Sequential(inner), (4,))


def test_a_decorated_forward_of_torch_is_refused():
    decorated = torch.autocast("cpu", torch.bfloat16)(nn.Sequential.forward)
    network = type("Odd", (nn.Sequential,), {"forward": decorated})(nn.Linear(4, 4))
    with pytest.raises(LayerError, match="Odd has a forward that is not a plain function"):
        lipschitz_constants(network, (4,))


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


@pytest.mark.parametrize(
    ("module", "shape"),
    [(AlwaysTraining(4), (4,)), (Hundredfold(1, 2, 3), (1, 8)), (Heavier(4, 4), (4,))],
    ids=lambda value: type(value).__name__,
)
def test_a_subclass_with_code_of_its_own_is_refused_by_name(module, shape):
    with pytest.raises(LayerError, match=rf"'0' \({type(module).__name__}\) has no known bound"):
        lipschitz_constants(nn.Sequential(module), shape)


def test_a_method_on_the_instance_is_refused_by_name():
    module = nn.Conv1d(1, 2, 3)
    module._conv_forward = lambda batch, weight, bias: 100 * batch
    with pytest.raises(LayerError, match=r"'0' \(Conv1d\) has its own _conv_forward"):
        lipschitz_constants(nn.Sequential(module), (1, 8))


def test_a_tensor_of_another_kind_is_refused_by_name():
    class Doubling(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function, kinds, args=(), kwargs=None):
            return 2 * super().__torch_function__(function, kinds, args, kwargs or {})

    module = nn.Linear(4, 4)
    module._parameters["weight"] = torch.zeros(4, 4).as_subclass(Doubling)
    with pytest.raises(LayerError, match="'weight', a Doubling that is not a plain real tensor"):
        lipschitz_constants(nn.Sequential(module), (4,))


def test_a_network_is_followed_while_others_run_it():
    """Following it touches nothing that another thread could see."""
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
        constants = [lipschitz_constants(network, (4,)) for _ in range(20)]
    finally:
        done.set()
        thread.join()
    assert not wrong
    assert constants == [constants[0]] * 20
