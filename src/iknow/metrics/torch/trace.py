"""The trace: what a network does to a batch, as a graph in which every operation is known.

A stand-in for the batch (`standin`) goes through a copy of the network. Known modules are recorded,
not run; the code of others runs under watch (`purity`). An unknown operation makes everything that
depends on it unknown. No state of torch changes, so other threads may run the network meanwhile.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from iknow.errors import InputError, LayerError
from iknow.metrics.torch.parts import check_mode, check_parts, is_opaque, known_type
from iknow.metrics.torch.passes import copy_at_rest
from iknow.metrics.torch.purity import watched
from iknow.metrics.torch.standin import ANSWERED, Node, StandIn, unknown

ENTRANCE = ".input"


@dataclass
class Trace:
    """By layer: nodes, None for one that ran twice; unknown and opaque, why a bound is missing.

    entrances: what enters the modules, a layer "name.input" for each name.
    """

    kind: str
    names: set[str]
    entrances: Trace | None = None
    opaque: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, Node | None] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)

    def mark(self, name: str, value: Any) -> None:
        found = value.current() if isinstance(value, StandIn) else None
        if name in self.nodes or name in self.unknown:
            self.nodes[name] = None
        elif found is None:
            self.unknown[name] = f"{name!r} is not one tensor"
        elif found.node is None:
            self.unknown[name] = found.why
        else:
            self.nodes[name] = found.node

    def __getitem__(self, name: str) -> Node:
        if self.entrances is not None and name not in self.names and name in self.entrances.names:
            return self.entrances[name]
        if name not in self.names:
            raise LayerError(f"{self.kind} has no layer {name!r}")
        found = self.nodes.get(name)
        if found is not None:
            return found
        if name in self.nodes:
            raise LayerError(f"layer {name!r} ran more than once, so it has no single bound")
        if name in self.unknown:
            followed = [known for known, node in self.nodes.items() if node is not None]
            raise LayerError(
                f"layer {name!r} cannot be bounded: {self.unknown[name]}. Layers that can: "
                f"{', '.join(followed)}"
            )
        for opaque, why in self.opaque.items():
            if name.startswith(f"{opaque}." if opaque else ""):
                raise LayerError(f"layer {name!r} cannot be bounded: {why}")
        raise LayerError(f"layer {name!r} did not run in the forward pass: choose another")


def trace(module: nn.Module, input_shape: tuple[int, ...]) -> Trace:
    """Follow a batch of samples of a shape through a float64 copy of a module in eval mode."""
    check_parts(module)
    network = copy_at_rest(module).to("cpu", torch.float64).eval().requires_grad_(False)
    check_mode(network)
    names = dict(network.named_modules())
    kind, entrances = type(module).__name__, {f"{name}{ENTRANCE}" for name in names if name}
    entering = Trace(kind, entrances)
    found = Trace(kind, {"input", "output", *names} - {""}, entering)
    start = StandIn(Node("the input", None, (), input_shape))
    if "input" not in names:
        found.mark("input", start)
    inside: tuple[str, ...] = ()
    for name, part in names.items():
        if name.startswith(inside):
            continue  # a part of a known module, such as a parametrization of its weight
        part._forward_hooks.clear()
        part._forward_pre_hooks.clear()
        if known_type(part) is not None or is_opaque(part):
            inside += (f"{name}." if name else "",)
            part_kind = type(part).__name__
            what = f"{name!r} ({part_kind})" if name else part_kind
            if known_type(part) is None:
                found.opaque[name] = entering.opaque[name] = f"{what} has no known bound"
            part.forward = _recorder(what, part, found.opaque.get(name))
        if name:
            part.register_forward_hook(lambda _m, _i, out, name=name: found.mark(name, out))
            part.register_forward_pre_hook(
                lambda _m, args, name=name: entering.mark(f"{name}{ENTRANCE}", _only(args))
            )
    answered: Counter[Any] = Counter()
    token = ANSWERED.set(answered)
    try:
        with watched(network, StandIn, answered):
            output = network(start)
    except LayerError as error:
        raise LayerError(f"{found.kind} cannot be followed: {error}") from error
    except Exception as error:  # the user's code may raise anything
        raise InputError(
            f"{found.kind} failed on a batch of samples of shape {input_shape}: {error}"
        ) from error
    finally:
        ANSWERED.reset(token)
        for part in names.values():
            part.__dict__.pop("forward", None)
    if "output" not in names:
        found.mark("output", output)
    _check_untouched(module, network)
    return found


def _only(args: tuple[Any, ...]) -> Any:
    """The only argument of a module; None if it gets several."""
    return args[0] if len(args) == 1 else None


def _recorder(what: str, part: nn.Module, opaque: str | None) -> Any:
    """A replacement for a module's forward that records that the module ran."""

    def forward(*args: Any, **kwargs: Any) -> Any:
        if not opaque and len(args) == 1 and not kwargs and isinstance(args[0], StandIn):
            return args[0].step(what, part)
        why = opaque or f"{what} does not get exactly one tensor"
        return unknown(why, *args, *kwargs.values())

    return forward


def _check_untouched(module: nn.Module, network: nn.Module) -> None:
    """Refuse a forward that changed a parameter or a buffer of the copy it ran on."""
    for before, after in (
        (module.named_parameters(), network.named_parameters()),
        (module.named_buffers(), network.named_buffers()),
    ):
        left, right = dict(before), dict(after)
        for name in left.keys() | right.keys():
            same = name in left and name in right and left[name].shape == right[name].shape
            if same:
                old = left[name].detach().to("cpu", right[name].dtype)
                same = torch.allclose(old, right[name], 0, 0, equal_nan=True)
            if not same:
                raise LayerError(f"the forward of {type(module).__name__} changes its {name!r}")
