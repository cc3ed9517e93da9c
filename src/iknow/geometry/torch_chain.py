"""The chain: which modules an input goes through, one after another.

Constants multiply only along a chain, so it is watched rather than assumed: a few random inputs
run through the network, and each module must receive what the module before it gave. In between,
code that no module stands for may reshape, or apply torch.relu, and nothing else. Where the data
takes another way (a residual sum, a concatenation, a functional activation) the chain ends, with
the reason.

Inputs of several magnitudes are tried. What shows in none of them stays unseen: code that branches
on its input, or that works on values that are 0 for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from iknow.errors import InputError
from iknow.geometry.torch_layers import known_type

SCALES = (0.03, 0.3, 1.0, 1.0, 3.0, 30.0)


@dataclass(frozen=True)
class Step:
    """A module that ran on samples of a shape. Without a name: a relu that no module stands for."""

    name: str
    module: nn.Module
    shape: tuple[int, ...]


@dataclass
class Chain:
    """The steps in their order, and why there are no more of them, if not all were followed."""

    steps: list[Step] = field(default_factory=list)
    broken: str | None = None


@dataclass
class _Point:
    """The value that the next module must receive; `what` says where it comes from."""

    what: str
    tensor: Tensor  # kept alive, so that equal addresses mean equal memory
    version: int
    values: Tensor  # a copy: the tensor itself may be worked on in place


def trace_chain(network: nn.Module, input_shape: tuple[int, ...]) -> Chain:
    """Follow random inputs of shape (n, *input_shape) through a float64 network in eval mode."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(len(SCALES), *input_shape, dtype=torch.float64, generator=generator)
    inputs *= torch.tensor(SCALES, dtype=torch.float64).reshape(-1, *[1] * len(input_shape))
    watcher = _Watcher(inputs)
    names = dict(network.named_modules())
    if "input" not in names:
        watcher.mark("input", inputs)
    with watcher.watching(network):
        try:
            output = network(inputs)
        except (RuntimeError, ValueError, IndexError, AssertionError, TypeError) as error:
            raise InputError(
                f"{type(network).__name__} failed in float64 on a batch of shape "
                f"{tuple(inputs.shape)}: {error}"
            ) from error
    if "output" not in names:
        watcher.mark("output", output)
    return watcher.chain


class _Watcher:
    """Hooks that compare what modules receive with what the ones before them gave."""

    def __init__(self, inputs: Tensor) -> None:
        self.chain = Chain()
        self._point = _Point("the input", inputs, inputs._version, inputs.clone())
        self._received: Tensor | None = None

    @contextmanager
    def watching(self, network: nn.Module) -> Iterator[None]:
        handles: list[Any] = []
        inside: tuple[str, ...] = ()
        for name, module in network.named_modules():
            if name.startswith(inside):
                continue  # a part of a known module, such as a parametrization of its weight
            if known_type(module) is not None or _is_leaf(module):
                inside += (f"{name}." if name else "",)
                handles.append(module.register_forward_pre_hook(self._before(name)))
                handles.append(module.register_forward_hook(self._after(name)))
            elif name:
                handles.append(module.register_forward_hook(self._container(name)))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def mark(self, name: str, output: Any) -> None:
        """A name for the point reached: a container's output."""
        if self._reach(output, f"the output of {name!r}"):
            self.chain.steps.append(Step(name, nn.Identity(), tuple(output.shape[1:])))

    def _container(self, name: str) -> Any:
        return lambda _module, _inputs, output: self.mark(name, output)

    def _before(self, name: str) -> Any:
        def hook(_module: nn.Module, inputs: tuple[Any, ...]) -> None:
            value: Any = inputs[0] if len(inputs) == 1 else None
            if self._reach(value, f"the input of {name!r}"):
                self._received = self._point.values.reshape(value.shape)

        return hook

    def _after(self, name: str) -> Any:
        def hook(module: nn.Module, _inputs: tuple[Any, ...], output: Any) -> None:
            received = self._received
            if self.chain.broken or received is None:
                return
            kind = type(module).__name__
            if known_type(module) is None:
                self.chain.broken = f"{name!r} ({kind}) is of a type whose bound is not known"
            elif not isinstance(output, Tensor) or output.shape[:1] != received.shape[:1]:
                self.chain.broken = f"{name!r} ({kind}) does not give one tensor with a row each"
            elif not torch.equal(output, module.forward(received.clone())):
                self.chain.broken = f"{name!r} ({kind}): a hook changes what it gives"
            else:
                self.chain.steps.append(Step(name, module, tuple(received.shape[1:])))
                self._point = _Point(repr(name), output, output._version, output.clone())

        return hook

    def _reach(self, value: Any, what: str) -> bool:
        """Whether a value is the point reached so far, but for its shape or a relu."""
        point = self._point
        if self.chain.broken:
            return False
        if not isinstance(value, Tensor) or value.shape[:1] != point.values.shape[:1]:
            self.chain.broken = f"{what} is not one tensor with a row for each sample"
            return False
        flat, expected = value.flatten(1), point.values.flatten(1)
        same = flat.shape == expected.shape and torch.equal(flat, expected)
        if not same and not (
            flat.shape == expected.shape and torch.equal(flat, torch.relu(expected))
        ):
            self.chain.broken = (
                f"{what} is not what {point.what} gave, nor a reshape or torch.relu of it"
            )
            return False
        untouched = value.data_ptr() == point.tensor.data_ptr() and value._version == point.version
        if not (same and untouched):
            # Equal values in other memory may be a relu that happened to change nothing. To take
            # it for one is safe: it keeps the affine maps on its two sides apart.
            self.chain.steps.append(Step("", nn.ReLU(), tuple(value.shape[1:])))
        self._point = _Point(point.what, value, value._version, value.clone())
        return True


def _is_leaf(module: nn.Module) -> bool:
    """Whether a module has no parts. An empty Sequential is a container that does nothing."""
    return not list(module.children()) and not isinstance(module, nn.Sequential)
