"""Functions and methods of torch that do the same as a known module, and that module.

Each entry takes the arguments after the tensor and returns a module, so that the bounds for modules
(`layers`, `rounding`) hold for functions too.
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
    low = -math.inf if min is None else float(min)
    high = math.inf if max is None else float(max)
    return nn.Hardtanh(low, high)


def _dropout(p: float = 0.5, training: bool = True, inplace: bool = False) -> nn.Module:
    if training:
        raise ValueError("dropout with training=True is random")
    return nn.Dropout(p, inplace)


def _softmax(dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> nn.Module:
    if dtype is not None:
        raise ValueError("softmax in another dtype")
    return nn.Softmax(dim)


def _log_softmax(dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> nn.Module:
    if dtype is not None:
        raise ValueError("log_softmax in another dtype")
    return nn.LogSoftmax(dim)


FUNCTIONS: dict[Any, Make] = {
    functional.relu: nn.ReLU,
    torch.relu: nn.ReLU,
    torch.relu_: lambda: nn.ReLU(inplace=True),
    functional.relu6: nn.ReLU6,
    functional.leaky_relu: nn.LeakyReLU,
    functional.elu: nn.ELU,
    functional.gelu: nn.GELU,
    functional.silu: nn.SiLU,
    functional.softplus: nn.Softplus,
    functional.hardtanh: nn.Hardtanh,
    functional.hardswish: nn.Hardswish,
    functional.logsigmoid: nn.LogSigmoid,
    torch.tanh: nn.Tanh,
    torch.sigmoid: nn.Sigmoid,
    torch.clamp: _clamp,
    functional.softmax: _softmax,
    torch.softmax: _softmax,
    functional.log_softmax: _log_softmax,
    torch.log_softmax: _log_softmax,
    functional.dropout: _dropout,
    functional.max_pool1d: nn.MaxPool1d,
    functional.max_pool2d: nn.MaxPool2d,
    functional.avg_pool1d: nn.AvgPool1d,
    functional.avg_pool2d: nn.AvgPool2d,
    functional.adaptive_avg_pool1d: nn.AdaptiveAvgPool1d,
    functional.adaptive_avg_pool2d: nn.AdaptiveAvgPool2d,
}
"""Most take the module's arguments in the same order; the others have a function above."""

METHODS: dict[str, Make] = {
    "relu": nn.ReLU,
    "relu_": lambda: nn.ReLU(inplace=True),
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "clamp": _clamp,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "contiguous": nn.Identity,
    "detach": nn.Identity,
    "clone": nn.Identity,
}
