"""Axes: where the features are in the activations of a torch layer, to pool the others.

Convolutions and batch normalization have channels in the second axis, (n, channels, ...); linear
layers, layer normalization, embeddings, attention and recurrent layers have features in the last,
(n, tokens, features). What comes after them, such as an activation function or a block, keeps
their order unless it moves axes. So the features are the axis, second or last, that is as long as
the last such module that ran is wide. If both or neither are, the order is that module's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

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
