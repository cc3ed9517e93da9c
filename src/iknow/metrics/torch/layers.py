"""Facts about torch's modules: which are affine, and the ℓ2 Lipschitz constants of the others.

They hold in eval mode, for one sample, in real arithmetic. The constants of elementwise functions
are the suprema of their slopes. These, and those of the pools and of Softmax, are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from iknow.errors import LayerError
from iknow.metrics.torch.functions import Reshaped, Scaled

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
AFFINE: tuple[type[nn.Module], ...] = (
    *(nn.Linear, nn.Identity, nn.Flatten, nn.Unflatten, Reshaped, Scaled),
    *(nn.Conv1d, nn.Conv2d, nn.Conv3d),
    *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
    *BATCH_NORMS,
    *(nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
    *(nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d),
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout),
    *(nn.ZeroPad1d, nn.ZeroPad2d, nn.ConstantPad1d, nn.ConstantPad2d, nn.ReflectionPad1d),
    *(nn.ReflectionPad2d, nn.ReplicationPad1d, nn.ReplicationPad2d, nn.PixelShuffle),
)
"""Modules that compute Ax + b: we measure their norm at the size of their input."""

ISOMETRIES: tuple[type[nn.Module], ...] = (
    *(nn.Identity, nn.Flatten, nn.Unflatten, Reshaped),
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout),
)
"""Affine modules that preserve distances in eval mode."""

VIEWS = (*ISOMETRIES, nn.PixelShuffle)  # they may return the memory of their input
Constant = Callable[[Any, tuple[int, ...]], float]


def _always(value: float) -> Constant:
    return lambda _module, _shape: value


def _gelu(module: Any, _shape: tuple[int, ...]) -> float:
    if module.approximate == "tanh":
        return 1.1289931  # the largest slope, at x = 1.4185, rounded up
    # The slope Φ(x) + xφ(x) has the derivative φ(x)(2 - x²): it is steepest at √2.
    return 0.5 * (1 + math.erf(1.0)) + math.exp(-1.0) / math.sqrt(math.pi)


def _celu(module: Any, _shape: tuple[int, ...]) -> float:
    if module.alpha <= 0:
        raise LayerError(f"CELU with alpha={module.alpha} has no bound: alpha must be > 0")
    return 1.0


def _softplus(module: Any, _shape: tuple[int, ...]) -> float:
    if module.beta == 0 or not math.isfinite(module.beta):
        raise LayerError(f"Softplus with beta={module.beta} has no bound")
    return 1.0


def jump_of(module: nn.Module) -> float:
    """How far a function jumps: above its threshold torch replaces Softplus by the identity.

    That is off by log(1 + exp(-threshold)) / β: 2e-9 by default, 2e-6 for β = 1e-3.
    """
    if type(module) is not nn.Softplus:
        return 0.0
    excess = math.log1p(math.exp(-abs(module.threshold))) + max(0.0, -float(module.threshold))
    return excess / abs(module.beta)


def _softmax(module: Any, shape: tuple[int, ...]) -> float:
    """1/2: the Jacobian diag(p) - ppᵀ has absolute row sums 2p(1 - p), largest at p = 1/2."""
    _check_within_sample(module, shape)
    return 0.5


def _log_softmax(module: Any, shape: tuple[int, ...]) -> float:
    """√n: the norm of the Jacobian I - 1pᵀ is convex in p, so its maximum is at a vertex."""
    return math.sqrt(shape[_check_within_sample(module, shape)])


def _check_within_sample(module: Any, shape: tuple[int, ...]) -> int:
    """The axis of a sample that a module works along."""
    axis: int | None = module.dim
    if axis is None or axis % (len(shape) + 1) == 0:
        raise LayerError(f"dim={axis} is not an axis of a sample: choose another")
    return axis % (len(shape) + 1) - 1


def _layer_norm(module: Any, _shape: tuple[int, ...]) -> float:
    """max|γ|/√eps. For u = x - mean(x) the Jacobian of u/√(|u|²/n + eps) is largest at u = 0.

    Nearly constant samples attain it.
    """
    if module.eps <= 0:
        raise LayerError("with eps=0 a sample of equal values has no bound")
    weight = 1.0 if module.weight is None else float(module.weight.abs().max())
    return weight / math.sqrt(module.eps)


def _max_pool(module: Any, shape: tuple[int, ...]) -> float:
    """√m, where m is the largest number of windows that share an entry.

    The square of a maximum's move is at most the sum of squares over its window, and the sum over
    all windows counts each entry up to m times. One entry above all others attains it. Windows are
    products of intervals, so m is a product over the axes.
    """
    output = module.forward(torch.zeros(1, *shape, dtype=torch.float64)).shape
    n_axes = int(base_of(module).__name__[-2])  # e.g. of MaxPool2d
    most = 1
    for axis in range(n_axes):
        n_in, n_out = shape[axis - n_axes], output[axis - n_axes]
        counts = [0] * n_in
        for place in (i for o in range(n_out) for i in _window(module, axis, o, n_in, n_out)):
            counts[place] += 1
        most *= max(counts)
    return math.sqrt(most)


def _window(module: Any, axis: int, o: int, n_in: int, n_out: int) -> list[int]:
    """The positions along an axis that output o of a pool reads."""
    if not hasattr(module, "kernel_size"):  # adaptive
        return list(range(o * n_in // n_out, -(-(o + 1) * n_in // n_out)))

    def along(value: Any) -> int:
        return int(value[axis] if isinstance(value, tuple | list) else value)

    first = o * along(module.stride) - along(module.padding)
    reach = along(module.kernel_size) * along(module.dilation)
    return [i for i in range(first, first + reach, along(module.dilation)) if 0 <= i < n_in]


LIPSCHITZ: dict[type[nn.Module], Constant] = {
    **dict.fromkeys((nn.ReLU, nn.ReLU6, nn.Hardtanh, nn.Tanh, nn.Tanhshrink), _always(1.0)),
    **dict.fromkeys((nn.Softsign, nn.LogSigmoid, nn.Softshrink), _always(1.0)),
    nn.Sigmoid: _always(0.25),
    nn.Hardsigmoid: _always(1 / 6),
    nn.Hardswish: _always(1.5),
    nn.SiLU: _always(1.0998394),  # the largest slope, at x = 2.3994, rounded up
    nn.Mish: _always(1.0884982),  # the largest slope, at x = 1.4906, rounded up
    nn.SELU: _always(1.0507009873554805 * 1.6732632423543772),  # scale * alpha, just below 0
    nn.GELU: _gelu,
    nn.LeakyReLU: lambda module, _: max(1.0, abs(module.negative_slope)),
    nn.RReLU: lambda module, _: max(1.0, abs(module.lower + module.upper) / 2),  # in eval mode
    nn.PReLU: lambda module, _: max(1.0, float(module.weight.abs().max())),
    nn.ELU: lambda module, _: max(1.0, abs(module.alpha)),
    nn.CELU: _celu,
    nn.Softplus: _softplus,
    nn.Softmax: _softmax,
    nn.LogSoftmax: _log_softmax,
    nn.LayerNorm: _layer_norm,
    nn.GroupNorm: _layer_norm,
    **dict.fromkeys((nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d), _max_pool),
    **dict.fromkeys((nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d), _max_pool),
}
KNOWN = frozenset((*LIPSCHITZ, *AFFINE))


def base_of(module: nn.Module) -> type[nn.Module]:
    """The known type that a module has or derives from."""
    for base in type(module).__mro__:
        if base in KNOWN:
            return base
    raise LayerError(f"{type(module).__name__} is not supported")


def is_affine(module: nn.Module) -> bool:
    return base_of(module) in AFFINE


def lipschitz(module: nn.Module, shape: tuple[int, ...]) -> float:
    """The Lipschitz constant of a known module that is not affine."""
    constant = LIPSCHITZ[base_of(module)](module, shape)
    if not constant < math.inf:  # also false for NaN
        raise LayerError(f"{type(module).__name__} has Lipschitz constant {constant}")
    return constant
