"""Local errors: how far torch's computation of a module is from the module's real function.

For a module's real function f and its computed version F, on any input y of F,

    |F(y) - f(y)| <= relative · |y| + constant.

Affine modules sum products. With |A| the matrix of absolute values, a sum of n products is within
γ_n·(|A||y| + |b|) of Ay + b entry by entry, in any order (Higham, Accuracy and Stability, 3.1), so
within γ_n·(‖|A|‖·|y| + ‖b‖). Elementwise functions, vectorized or not, are within a few units in
the last place of A·|y| + K. Results too small for the dtype may become 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from iknow.errors import LayerError
from iknow.metrics.torch.arithmetic import Arithmetic, check_convolution
from iknow.metrics.torch.functions import Scaled
from iknow.metrics.torch.layers import (
    BATCH_NORMS,
    ISOMETRIES,
    base_of,
    is_affine,
    jump_of,
    lipschitz,
)
from iknow.metrics.torch.operators import linear_part, nonnegative_norm

ULPS = 32  # the largest error of an elementwise function, in units in the last place
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
POOLS = (nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
ADAPTIVE_POOLS = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)
MAX_POOLS = (
    *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d),
    *(nn.AdaptiveMaxPool1d, nn.AdaptiveMaxPool2d, nn.AdaptiveMaxPool3d),
)


@dataclass(frozen=True)
class LocalError:
    """The error that a module adds, and the factor by which it stretches an existing one.

    Intermediate numbers are at most peak · |y| + peak_constant, or that squared, with squares.
    """

    stretch: float
    relative: float
    constant: float
    peak: float
    peak_constant: float = 0.0
    squares: bool = False


def local_error(
    module: nn.Module, shape: tuple[int, ...], output: tuple[int, ...], arithmetic: Arithmetic
) -> LocalError:
    """The local error in this arithmetic of the module that `module` is a float64 copy of."""
    if is_affine(module):
        return _of_affine(module, shape, output, arithmetic)
    if isinstance(module, nn.LayerNorm):
        return _of_layer_norm(module, shape, arithmetic)
    if isinstance(module, nn.Softmax | nn.LogSoftmax):
        return _of_softmax(module, shape, arithmetic)
    size, constant, unit = _entrywise(module), lipschitz(module, shape), arithmetic.unit
    root, too_small = math.sqrt(math.prod(output)), arithmetic.smallest
    return LocalError(
        stretch=constant,
        relative=ULPS * unit * size[0],
        constant=root * (ULPS * unit * size[1] + 8 * (1 + constant) * too_small + jump_of(module)),
        peak=4 * max(1.0, constant),
        peak_constant=8 * (1 + size[1]),
    )


def _entrywise(module: Any) -> tuple[float, float]:
    """(A, K): an elementwise function is right up to units in the last place of A·|y| + K."""
    kind = base_of(module)
    if kind in (nn.ReLU, *MAX_POOLS):
        return 0.0, 0.0
    if kind in (nn.Hardtanh, nn.ReLU6):  # their limits are rounded to the dtype
        limits = (module.min_val, module.max_val)
        return 0.0, max((abs(limit) for limit in limits if math.isfinite(limit)), default=0.0)
    if kind in (nn.LeakyReLU, nn.RReLU, nn.PReLU, nn.Hardswish, nn.SiLU, nn.Mish, nn.GELU):
        return 2 * max(1.0, lipschitz(module, ())), 0.0
    if kind in (nn.Tanh, nn.Sigmoid, nn.Hardsigmoid, nn.Softsign):
        return 0.0, 2.0
    if kind in (nn.ELU, nn.CELU):
        return 1.0, 2 * (1 + abs(module.alpha))
    if kind is nn.SELU:
        return 1.1, 4.0
    if kind in (nn.Tanhshrink, nn.LogSigmoid):
        return 1.0, 2.0
    if kind is nn.Softshrink:
        return 1.0, abs(module.lambd)
    if kind is nn.Softplus:
        return 1.0, 2 / abs(module.beta)
    raise LayerError(f"no bound for the rounding of {type(module).__name__} is known")


def _of_layer_norm(module: Any, shape: tuple[int, ...], arithmetic: Arithmetic) -> LocalError:
    """For g(u) = u/√(|u|²/n + eps), u = x - mean(x), which torch computes by Welford's update.

    The mean is off by γ|x|/√n, which moves g by at most γ|x|/√eps. The variance v is off by at most
    γ(v + |mean|√v) + γ²mean². If that is less than v, g moves by at most γ(√n + |x|/√eps);
    otherwise √v <= 2γ|mean|, and both g and its computed value are at most 3γ|x|/√eps. The last
    step adds 2u|x|/√eps. Eight times γ exceeds the total.
    """
    stretch = lipschitz(module, shape)
    n_values = math.prod(module.normalized_shape)
    error = 8 * arithmetic.of_sum(n_values + 8)
    weight = 1.0 if module.weight is None else float(module.weight.abs().max())
    bias = 0.0 if module.bias is None else float(module.bias.abs().max())
    root = math.sqrt(math.prod(shape))
    small = 8 * (1 + stretch) * arithmetic.smallest
    peak = 4 * max(1.0, stretch)
    constant = root * (error * (2 * weight + bias) + small)
    return LocalError(stretch, error * stretch, constant, peak, 8 * (1 + weight + bias), True)


def _of_softmax(module: Any, shape: tuple[int, ...], arithmetic: Arithmetic) -> LocalError:
    """Each p is off by γ of itself and by u·|d|·exp(-|d|), d its distance to the maximum."""
    stretch = lipschitz(module, shape)
    n_values = shape[module.dim % (len(shape) + 1) - 1]
    is_log = isinstance(module, nn.LogSoftmax)
    relative = 8 * arithmetic.unit * (1 + math.sqrt(n_values)) if is_log else 0.0
    scale = 1 + math.log(max(1, n_values)) if is_log else 1.0
    each = 8 * arithmetic.of_sum(n_values + ULPS) * scale + 8 * (n_values + 2) * arithmetic.smallest
    return LocalError(stretch, relative, each * math.sqrt(math.prod(shape)), 8.0, 8.0 * scale)


def _of_affine(
    module: Any, shape: tuple[int, ...], output: tuple[int, ...], arithmetic: Arithmetic
) -> LocalError:
    if base_of(module) in ISOMETRIES:
        return LocalError(1.0, 0.0, 0.0, 1.0)
    n_terms = _n_terms(module, shape, output)
    if isinstance(module, CONVOLUTIONS + TRANSPOSED):
        check_convolution(arithmetic)
    if isinstance(module, BATCH_NORMS):
        stretch, offset = _batch_norm(module, shape)
    else:
        # The output at 0 needs no absolute values: each of its entries is a single term.
        offset = float(module.forward(torch.zeros(1, *shape, dtype=torch.float64)).norm())
        stretch = nonnegative_norm(_absolute(module).forward, shape)
    gamma = arithmetic.of_sum(n_terms) if n_terms else arithmetic.unit
    relative = gamma * stretch if n_terms else 0.0
    n_in, n_out = math.prod(shape), math.prod(output)
    too_small = arithmetic.smallest * (stretch * math.sqrt(n_in) + (n_terms + 4) * math.sqrt(n_out))
    return LocalError(stretch, relative, gamma * offset + too_small, stretch, offset)


def _n_terms(module: Any, shape: tuple[int, ...], output: tuple[int, ...]) -> int:
    """How many products an affine module sums for each entry of its result; 0 if it is exact."""
    if isinstance(module, nn.Linear):
        return int(module.weight.shape[1]) + 1
    if isinstance(module, CONVOLUTIONS):
        return int(module.weight[0].numel()) + 1
    if isinstance(module, TRANSPOSED):
        weight = module.weight
        return int(weight.shape[0] // module.groups * weight[0, 0].numel()) + 1
    if isinstance(module, BATCH_NORMS):
        return 16  # a root, a division, products and sums: a few of each
    if isinstance(module, Scaled):
        return 4
    if isinstance(module, POOLS):
        n_axes = int(base_of(module).__name__[-2])
        size = module.kernel_size
        sides = tuple(size) if isinstance(size, tuple | list) else (size,)
        return math.prod(sides if len(sides) == n_axes else sides * n_axes) + 4
    if isinstance(module, ADAPTIVE_POOLS):
        n_axes = int(base_of(module).__name__[-2])
        ends = zip(shape[-n_axes:], output[-n_axes:], strict=True)
        return math.prod(n_in // n_out + 2 for n_in, n_out in ends) + 4
    return 0  # a pad or a shuffle


def _absolute(module: nn.Module) -> nn.Module:
    """A copy that computes |A|y instead of Ay + b."""
    absolute = linear_part(module)
    for parameter in absolute.parameters():
        parameter.abs_()
    if isinstance(absolute, Scaled):
        absolute.factor = abs(absolute.factor)
    return absolute


def _batch_norm(module: Any, shape: tuple[int, ...]) -> tuple[float, float]:
    """The largest |γ|/√(var + eps), and the length of |γ·mean|/√(var + eps) + |β|."""
    variance = module.running_var
    if float(variance.min()) < 0:
        raise LayerError("its running variance is negative")
    ones = torch.ones_like(variance)
    gamma = ones if module.weight is None else module.weight.abs()
    scale = gamma / torch.sqrt(variance + module.eps)
    beta = 0 * ones if module.bias is None else module.bias.abs()
    offset: Tensor = scale * module.running_mean.abs() + beta
    return float(scale.max()), float(offset.norm()) * math.sqrt(math.prod(shape[1:]))
