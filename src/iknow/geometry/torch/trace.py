"""The trace: what a network does to a batch, as a graph in which every operation is known.

A stand-in for the batch (`standin`) goes through a copy of the network. Known modules are
noted, not run; the code of other modules is followed, and watched (`purity`). What is not
known makes unknown all that is made of it, with the reason. No state of torch is touched, so other
threads may run the network meanwhile.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from iknow.errors import InputError, LayerError
from iknow.geometry.torch.parts import check_mode, check_parts, is_opaque, known_type
from iknow.geometry.torch.passes import copy_at_rest
from iknow.geometry.torch.purity import watched
from iknow.geometry.torch.standin import ANSWERED, Node, StandIn, unknown


@dataclass
class Trace:
    """nodes: by layer, None if it ran more than once. unknown: by layer, why there is none.

    opaque: by module, why what is inside was not followed.
    """

    kind: str
    names: set[str]
    opaque: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, Node | None] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)

    def mark(self, name: str, value: Any) -> None:
        found = value.current() if isinstance(value, StandIn) else None
        if name in self.nodes or name in self.unknown:
            self.nodes[name] = None
        elif found is None:
            self.unknown[name] = f"the output of {name!r} is not one tensor"
        elif found.node is None:
            self.unknown[name] = found.why
        else:
            self.nodes[name] = found.node

    def __getitem__(self, name: str) -> Node:
        if name not in self.names:
            raise LayerError(f"{self.kind} has no layer {name!r}")
        if name in self.nodes:
            node = self.nodes[name]
            if node is None:
                raise LayerError(f"layer {name!r} ran more than once, so it has no single bound")
            return node
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
    """Follow a batch of samples of a shape through a float64 copy of a module in eval mode.

    Named are the layers as by `TorchModel`, in the order in which they end.
    """
    check_parts(module)
    network = copy_at_rest(module).to("cpu", torch.float64).eval().requires_grad_(False)
    check_mode(network)
    names = dict(network.named_modules())
    found = Trace(type(module).__name__, {"input", "output", *names} - {""})
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
            part.forward = _recorder(name, part)
            if known_type(part) is None:
                found.opaque[name] = _not_known(name, part)
        if name:
            part.register_forward_hook(lambda _m, _i, out, name=name: found.mark(name, out))
    answered: Counter[Any] = Counter()
    token = ANSWERED.set(answered)
    try:
        with watched(network, StandIn, answered):
            output = network(start)
    except LayerError as error:
        raise LayerError(f"{found.kind} cannot be followed: {error}") from error
    except Exception as error:  # a stranger's code can fail in any way
        raise InputError(
            f"{found.kind} failed on a batch of samples of shape {input_shape}: {error}"
        ) from error
    finally:
        ANSWERED.reset(token)
        for part in names.values():
            part.__dict__.pop("forward", None)  # the copy's own again; refused in the original
    if "output" not in names:
        found.mark("output", output)
    _check_untouched(module, network)
    return found


def _recorder(name: str, part: nn.Module) -> Any:
    """What takes the place of a module's forward: it notes that the module ran."""
    what, is_known = f"{name!r} ({type(part).__name__})", known_type(part) is not None

    def forward(*args: Any, **kwargs: Any) -> Any:
        value = args[0] if len(args) == 1 and not kwargs else None
        if not is_known:
            return unknown(_not_known(name, part), *args, *kwargs.values())
        if not isinstance(value, StandIn):
            return unknown(f"{what} is not given one tensor", *args, *kwargs.values())
        return value.step(what, part)

    return forward


def _not_known(name: str, part: nn.Module) -> str:
    kind = type(part).__name__
    return f"{f'{name!r} ({kind})' if name else kind} is of a type whose bound is not known"


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
