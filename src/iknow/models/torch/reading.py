"""Reading: the layers of a torch module, as hooks see them during one forward pass.

A layer "name" is what the module of this name returns, "name.input" what enters it: its first
tensor in either case. Tensors are copied when they are seen, before anything works on them in
place, and pooled after the pass.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from iknow.errors import LayerError
from iknow.models.pooling import Pooling
from iknow.models.torch.axes import UNKNOWN, Axes, axes_of
from iknow.models.torch.tensors import first_tensor, to_array

ENTRANCE = ".input"


def readable_parts(module: nn.Module) -> dict[str, nn.Module]:
    """The modules inside a module by name, except TorchScript, which takes no hooks."""
    return {
        name: part
        for name, part in module.named_modules()
        if name and not isinstance(part, torch.jit.ScriptModule)
    }


class Reading:
    """Reads some layers of a module during a pass over n samples.

    Attributes:
        watched: Modules by name to call `act` with, after they ran.
        entered: Modules by name to call `act` with, before they run.
        found: By layer, the activations that were read, and the order of their axes.
    """

    def __init__(
        self, parts: dict[str, nn.Module], layers: Sequence[str], pooling: Pooling, n_samples: int
    ) -> None:
        self.watched = {name: parts[name] for name in layers if name in parts}
        self.entered = {
            name: parts[name.removesuffix(ENTRANCE)]
            for name in layers
            if name not in parts and name.removesuffix(ENTRANCE) in parts and name != ENTRANCE
        }
        self._wanted = {**self.watched, **self.entered}
        self._ordering: dict[str, Axes] = {}
        if any(isinstance(pooling.of(name), str) for name in self._wanted):
            found = {name: axes_of(part) for name, part in parts.items()}
            self._ordering = {name: axes for name, axes in found.items() if axes is not None}
            self.watched = {**{name: parts[name] for name in self._ordering}, **self.watched}
        self._n_samples = n_samples
        self._axes = UNKNOWN
        self.found: dict[str, tuple[Any, Axes]] = {}

    def act(self, name: str, values: Any) -> None:
        """Keep what entered or left a module."""
        self._axes = self._ordering.get(name, self._axes)
        if name not in self._wanted:
            return
        if name in self.found:
            raise LayerError(
                f"layer {name!r} ran more than once in one forward pass, so it has no single "
                "activation: use a separate module each time, or choose another layer"
            )
        tensor = samples_first(self._wanted[name], first_tensor(values), self._n_samples)
        self.found[name] = to_array(tensor, f"layer {name!r}"), self._axes


def samples_first(part: nn.Module, tensor: Any, n_samples: int) -> Any:
    """What a recurrent or attention layer with batch_first=False takes or gives, samples first."""
    if getattr(part, "batch_first", True) or not isinstance(tensor, Tensor) or tensor.ndim != 3:
        return tensor
    return tensor.transpose(0, 1) if tensor.shape[1] == n_samples else tensor
