"""The module that does the same as a function or method of torch, so that its bounds hold for both.

Each entry takes the arguments after the tensor and returns a module.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

Make = Callable[..., nn.Module]


class Reshaped(nn.Module):
    """Each sample in a new shape, its values in the same order."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, batch: Tensor) -> Tensor:
        return batch.reshape(len(batch), *self.shape)


class Scaled(nn.Module):
    """Each entry times a number, plus a number."""

    def __init__(self, factor: float, shift: float) -> None:
        super().__init__()
        self.factor, self.shift = factor, shift

    def forward(self, batch: Tensor) -> Tensor:
        return batch * self.factor + self.shift


def _clamp(min: Any = None, max: Any = None) -> nn.Module:  # torch's names
    return nn.Hardtanh(
        -math.inf if min is None else float(min), math.inf if max is None else float(max)
    )


def _dropout(p: float = 0.5, training: bool = True, inplace: bool = False) -> nn.Module:
    if training:
        raise ValueError("dropout with training=True is random")
    return nn.Dropout(p, inplace)


def _softmax(dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> nn.Softmax:
    if dtype is not None:
        raise ValueError("it computes in another dtype")
    return nn.Softmax(dim)


def _log_softmax(*args: Any, **kwargs: Any) -> nn.Module:
    return nn.LogSoftmax(_softmax(*args, **kwargs).dim)


SHARED: dict[str, Make] = {
    "relu": nn.ReLU,
    "relu_": lambda: nn.ReLU(inplace=True),
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "clamp": _clamp,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
}
METHODS = SHARED | dict.fromkeys(("contiguous", "detach", "clone"), nn.Identity)
FUNCTIONS: dict[Any, Make] = {
    **{getattr(torch, name): make for name, make in SHARED.items()},
    functional.relu: nn.ReLU,
    functional.relu6: nn.ReLU6,
    functional.leaky_relu: nn.LeakyReLU,
    functional.elu: nn.ELU,
    functional.gelu: nn.GELU,
    functional.silu: nn.SiLU,
    functional.softplus: nn.Softplus,
    functional.hardtanh: nn.Hardtanh,
    functional.hardswish: nn.Hardswish,
    functional.logsigmoid: nn.LogSigmoid,
    functional.softmax: _softmax,
    functional.log_softmax: _log_softmax,
    functional.dropout: _dropout,
    functional.max_pool1d: nn.MaxPool1d,
    functional.max_pool2d: nn.MaxPool2d,
    functional.avg_pool1d: nn.AvgPool1d,
    functional.avg_pool2d: nn.AvgPool2d,
    functional.adaptive_avg_pool1d: nn.AdaptiveAvgPool1d,
    functional.adaptive_avg_pool2d: nn.AdaptiveAvgPool2d,
}
"""Most take the module's arguments in the same order; the others have a function above."""
