"""Reading: the layers of a torch module, as hooks see them during one forward pass.

A layer "name" is what the module of this name returns, "name.input" what enters it: its first
tensor in either case. Tensors are copied when they are seen, before anything works on them in
place, and pooled after the pass.

Where the features are in its activations decides which axes are pooled. Convolutions and batch
normalization have channels in the second axis, (n, channels, ...); linear layers, layer
normalization, embeddings, attention and recurrent layers have features in the last, (n, tokens,
features). What comes after them, such as an activation function or a block, keeps their order
unless it moves axes. So the features are the axis, second or last, that is as long as the last such
module that ran is wide. If both or neither are, the order is that module's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from iknow.errors import LayerError
from iknow.models.pooling import Pooling
from iknow.models.torch.tensors import first_tensor, to_array, unnest

CHANNELS_FIRST = (
    nn.modules.conv._ConvNd,
    nn.modules.batchnorm._NormBase,
    nn.GroupNorm,
)
FEATURES_LAST = (nn.Linear, nn.LayerNorm, nn.Embedding, nn.EmbeddingBag, nn.RNNBase)
WIDTHS = ("out_channels", "num_features", "num_channels", "out_features", "embedding_dim")


@dataclass(frozen=True)
class Axes:
    """How a module orders its output: its width, and whether the features come last."""

    width: int | None = None
    last: bool | None = None

    def features_last(self, shape: tuple[int, ...]) -> bool:
        """Whether the last axis of activations of a shape, batch included, holds the features."""
        if len(shape) < 3:
            return True
        second, last = shape[1] == self.width, shape[-1] == self.width
        if second != last:
            return last
        return len(shape) == 3 if self.last is None else self.last


UNKNOWN = Axes()


def axes_of(part: nn.Module) -> Axes | None:
    """How a module orders its output; None if it says nothing about it."""
    if not isinstance(part, (*CHANNELS_FIRST, *FEATURES_LAST)):
        return None
    width: Any = next((getattr(part, name) for name in WIDTHS if hasattr(part, name)), None)
    if isinstance(part, nn.LayerNorm):
        width = part.normalized_shape[-1]
    elif isinstance(part, nn.RNNBase):
        width = (part.proj_size or part.hidden_size) * (2 if part.bidirectional else 1)
    return Axes(width, isinstance(part, FEATURES_LAST))


ENTRANCE = ".input"


def readable_parts(module: nn.Module) -> dict[str, nn.Module]:
    """The modules inside a module by name, except TorchScript, which takes no hooks."""
    return {
        name: part
        for name, part in module.named_modules()
        if name and not isinstance(part, torch.jit.ScriptModule)
    }


@dataclass(frozen=True, eq=False)
class Read:
    """The activations of a layer, of shape (n, ...), and what pooling must know about them.

    axes: of the last module that has an order. mask: as in `Pooling`, if the layer has its own.
    """

    values: Any
    axes: Axes = UNKNOWN
    mask: Any = None


class Reading:
    """Reads some layers of a module during a pass over n samples.

    keep: makes the copy of a tensor, whose name in errors it gets, that is kept.

    Attributes:
        watched: Modules by name to call `act` with, after they ran.
        entered: Modules by name to call `act` with, before they run.
        found: By layer, what was read.
    """

    def __init__(
        self,
        parts: dict[str, nn.Module],
        layers: Sequence[str],
        pooling: Pooling,
        n_samples: int,
        keep: Callable[[Any, str], Any] = to_array,
    ) -> None:
        self._keep = keep
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
        self.found: dict[str, Read] = {}

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
        tensor, mask = samples_first(self._wanted[name], values, self._n_samples)
        self.found[name] = Read(self._keep(tensor, f"layer {name!r}"), self._axes, mask)


def samples_first(part: nn.Module, values: Any, n_samples: int) -> tuple[Any, Any]:
    """The first tensor that a module takes or gives, with samples first; its mask or None.

    Recurrent and attention layers with batch_first=False have time first.
    """
    tensor, mask = unnest(first_tensor(values))
    if mask is not None or getattr(part, "batch_first", True):
        return tensor, mask
    time_first = isinstance(tensor, Tensor) and tensor.ndim == 3 and tensor.shape[1] == n_samples
    return tensor.transpose(0, 1) if time_first else tensor, None
