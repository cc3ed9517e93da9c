"""What ATen operations do to distances: which are affine, and the ℓ2 constants of the others.

They hold for one sample, in real arithmetic, outside of training. The constants of elementwise
functions are the suprema of their slopes. These, and those of the pools and of softmax, are exact.

The noise is that of one dtype (`Arithmetic`). Affine operations sum products: with |A| the matrix
of absolute values, a sum of n products is within γ_n·(|A||y| + |b|) of Ay + b entry by entry, in
any order, so within γ_n·(‖|A|‖·|y| + ‖b‖). Elementwise functions, vectorized or not, are within a
few units in the last place of A·|y| + K. Results too small for the dtype may become 0.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from iknow.errors import LayerError
from iknow.metrics.lipschitz import ROUND_UP, Noise, spectral_norm
from iknow.metrics.operator_norm import nonnegative_norm, operator_norm

Shape = tuple[int, ...]
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
TENSOR_FLOAT_32, BFLOAT_16 = 2.0**-10, 2.0**-7
"""The relative error of a factor that was first rounded, or truncated, to this format."""
ULPS = 32  # the largest error of an elementwise function, in units in the last place
LARGEST_JUMP = 1e-8  # Softplus jumps by 2e-9 at its usual threshold, which we may ignore


@dataclass(frozen=True)
class Arithmetic:
    """What one dtype on one device does to numbers.

    unit: the relative error of one operation. Results below `smallest` may become 0, above
    `largest` inf. factors: the relative error of rounding each factor of a product first.
    """

    dtype: torch.dtype
    device: str = "cpu"
    factors: float = 0.0

    @property
    def unit(self) -> float:
        return torch.finfo(self.dtype).eps / 2

    @property
    def smallest(self) -> float:
        return torch.finfo(self.dtype).tiny

    @property
    def least(self) -> float:
        """Parameters below it lose digits: sums are in float32 at least."""
        return min(self.smallest, torch.finfo(torch.float32).tiny)

    def of_sum(self, n_terms: int) -> float:
        """γ: the relative error of a sum of this many products, in any order."""
        share = (n_terms + 2) * self.unit
        if share >= 0.5:
            raise LayerError(
                f"sums of {n_terms} terms in {self.dtype} may lose all digits: compute in float32"
            )
        return (1 + self.factors) ** 2 / (1 - share) - 1

    def of_cast(self, n_values: int) -> Noise:
        """How far a cast to this dtype, perhaps through float32, moves values."""
        return Noise(self.unit * (1 + 2**-10), math.sqrt(n_values) * self.smallest)


def input_dtype(module: nn.Module) -> torch.dtype:
    """The dtype to which `TorchModel` casts real inputs: that of the module's first tensor."""
    like = next(module.parameters(), next(module.buffers(), torch.empty(0)))
    dtype = like.dtype if like.is_floating_point() else torch.get_default_dtype()
    if dtype not in DTYPES:
        raise LayerError(f"no bound for the rounding of {dtype} is known")
    return dtype


def arithmetic_of(module: nn.Module) -> Arithmetic:
    """The arithmetic in which `TorchModel` runs a module."""
    dtype = input_dtype(module)
    tensors = [*module.parameters(), *module.buffers()]
    odd = {t.dtype for t in tensors if t.is_floating_point() or t.is_complex()} - {dtype}
    if odd:
        raise LayerError(f"its tensors have several dtypes, {dtype} and {odd.pop()}")
    devices = {tensor.device.type for tensor in tensors} or {"cpu"}
    if len(devices) > 1 or not devices <= {"cpu", "cuda"}:
        raise LayerError(
            f"no bound for rounding on {', '.join(sorted(devices))} is known: certify on the CPU"
        )
    (device,) = devices
    if torch.is_autocast_enabled(device):
        raise LayerError("under autocast each operation has its own precision: turn autocast off")
    return Arithmetic(dtype, device, _factors(device) if dtype == torch.float32 else 0.0)


def _factors(device: str) -> float:
    """The relative error of rounding float32 factors before they are multiplied."""
    library = torch.backends.cuda if device == "cuda" else torch.backends.mkldnn
    parts = (torch.backends, library, *(getattr(library, n, None) for n in ("matmul", "conv")))
    chosen = {str(getattr(part, "fp32_precision", "none")) for part in parts}
    chosen |= {os.environ.get(f"{name}_DEFAULT_FPMATH_MODE", "") for name in ("DNNL", "ONEDNN")}
    try:
        chosen.add(torch.get_float32_matmul_precision())
    except RuntimeError:  # torch raises if both of its ways to set the precision were used
        return BFLOAT_16
    chosen = {choice.lower() for choice in chosen} - {"highest", "", "strict", "none", "ieee"}
    if not chosen:
        return 0.0
    return TENSOR_FLOAT_32 if chosen <= {"high", "tf32"} else BFLOAT_16


@dataclass(frozen=True, eq=False)
class Call:
    """A call of an operation on one value of the network; its other tensors are in float64.

    value: the name of the argument that is the network's value; arguments: the others by name.
    shape and output: of one sample, before and after.
    """

    name: str
    target: Callable[..., Any]
    value: str
    arguments: dict[str, Any]
    shape: Shape
    output: Shape

    def __call__(self, batch: Tensor, **changed: Any) -> Tensor:
        result = self.target(**{**self.arguments, **changed, self.value: batch})
        found: Tensor = result[0] if isinstance(result, tuple) else result
        return found

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    @property
    def constant(self) -> str:
        """The name of the other argument of an operation on two."""
        return "other" if self.value == "self" else "self"

    def sides(self, name: str) -> Shape:
        """An argument that has a number for each of the last axes, or one for all."""
        n_axes = int(self.name.partition("d.")[0][-1])  # e.g. of max_pool2d.default
        sides = tuple(self[name])
        return sides if len(sides) == n_axes else sides * n_axes


SAME = {
    *("view.default", "clone.default", "detach.default", "unsqueeze.default"),
    *("squeeze.dim", "squeeze.dims"),
}
"""Operations that keep the values of a sample in their order."""


@dataclass(frozen=True)
class Affine:
    """An operation Ay + b: which of its arguments make b and A, and how many products it sums.

    terms: 0 if it only moves numbers.
    """

    terms: int | Callable[[Call], int]
    offset: tuple[str, ...] = ()
    factors: tuple[str, ...] = ()

    def linear(self, call: Call) -> Callable[[Tensor], Tensor]:
        """Y → Ay. A large offset would swamp small entries."""
        zero = {name: _zero(call[name]) for name in self._given(self.offset, call)}
        return lambda batch: call(batch, **zero)

    def absolute(self, call: Call) -> Callable[[Tensor], Tensor]:
        """Y → |A|y."""
        changed = {name: _zero(call[name]) for name in self._given(self.offset, call)}
        changed |= {name: abs(call[name]) for name in self._given(self.factors, call)}
        negative = call.name.startswith(("neg", "rsub")) or (
            call.value == "other" and "sub" in call.name
        )
        return lambda batch: -call(batch, **changed) if negative else call(batch, **changed)

    def _given(self, names: tuple[str, ...], call: Call) -> list[str]:
        named = [call.constant if name == "constant" else name for name in names]
        return [name for name in named if call[name] is not None]


def _smallest(value: Any) -> float:
    return float(torch.as_tensor(value, dtype=torch.float64).abs().min())


def _zero(value: Any) -> Any:
    return torch.zeros_like(value) if isinstance(value, Tensor) else 0.0


def _adaptive_terms(call: Call) -> int:
    n_axes = len(call.sides("output_size"))
    ends = zip(call.shape[-n_axes:], call.output[-n_axes:], strict=True)
    return math.prod(n_in // n_out + 2 for n_in, n_out in ends) + 4


DENSE = Affine(lambda call: int(call["weight"][0].numel()) + 1, ("bias",), ("weight",))
TRANSPOSED = Affine(
    lambda call: int(call["weight"][:, 0].numel()) // call["groups"] + 1, ("bias",), ("weight",)
)
AVERAGE = Affine(lambda call: math.prod(call.sides("kernel_size")) + 4)
ADDED, TIMES = Affine(4, ("constant",)), Affine(4, (), ("constant",))
CONVOLUTIONS = {
    **{f"conv{n}d.{kind}": DENSE for n in (1, 2, 3) for kind in ("default", "padding")},
    "conv_transpose1d.default": TRANSPOSED,
    **{f"conv_transpose{n}d.input": TRANSPOSED for n in (2, 3)},
}
BATCH_NORM = "_native_batch_norm_legit_no_training.default"
AFFINE: dict[str, Affine] = {
    "linear.default": DENSE,
    **CONVOLUTIONS,
    # A root, a division, products and sums: a few of each.
    BATCH_NORM: Affine(16, ("bias", "running_mean"), ("weight",)),
    **{f"avg_pool{n}d.default": AVERAGE for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{n}d.default": Affine(_adaptive_terms) for n in (1, 2, 3)},
    "pad.default": Affine(0, ("value",)),
    "pixel_shuffle.default": Affine(0),
    **dict.fromkeys(("add.Tensor", "sub.Tensor"), ADDED),
    **dict.fromkeys(("mul.Tensor", "div.Tensor"), TIMES),
    "rsub.Scalar": Affine(4, ("other",)),
    "neg.default": Affine(0),
}


REFUSED: dict[str, tuple[Callable[[Call], bool], str]] = {
    "div.Tensor": (
        lambda call: call.value != "self",
        "division by a value of the network is not supported",
    ),
    "pad.default": (
        lambda call: len(call["pad"]) > 2 * len(call.shape),
        "it pads the batch, so it mixes the samples",
    ),
    "elu.default": (
        lambda call: not call["scale"] == call["input_scale"] == 1,
        "ELU with scales has no known bound",
    ),
    "celu.default": (
        lambda call: not call["alpha"] > 0,
        "CELU with alpha={alpha} has no bound: alpha must be > 0",
    ),
    "softplus.default": (
        lambda call: call["beta"] == 0 or not math.isfinite(call["beta"]),
        "Softplus with beta={beta} has no bound",
    ),
    "rrelu.default": (lambda call: call["training"], "RReLU is random in training"),
    **dict.fromkeys(
        ("softmax.int", "log_softmax.int"),
        (lambda call: _axis(call) == 0, "its axis is that of the batch: it mixes the samples"),
    ),
    **dict.fromkeys(
        ("layer_norm.default", "group_norm.default"),
        (lambda call: not call["eps"] > 0, "with eps=0 a sample of equal values has no bound"),
    ),
}
"""When an operation has no bound, and why."""


def _check_arguments(call: Call) -> None:
    refused, words = REFUSED.get(call.name, (lambda _: False, ""))
    if refused(call):
        raise LayerError(words.format(**call.arguments))


def check_call(call: Call) -> None:
    """Refuse arguments for which the tables do not hold, or that mix the samples of a batch."""
    if call.name not in FUNCTIONS:
        _check_arguments(call)
        if call.arguments.get("alpha", 1) != 1:
            raise LayerError(f"{call.name} with alpha={call['alpha']} is not supported")
    generator = torch.Generator().manual_seed(0)
    batch = torch.randn(3, *call.shape, dtype=torch.float64, generator=generator)
    together, alone = call(batch), torch.cat([call(batch[i : i + 1]) for i in range(3)])
    if together.shape != alone.shape or not torch.allclose(together, alone, 1e-7, 1e-9, True):
        raise LayerError("it mixes the samples of a batch")


def run_norm(run: tuple[Call, ...]) -> float:
    """An upper bound of the ℓ2 norm of consecutive affine operations."""
    parts = [AFFINE[call.name].linear(call) for call in run]
    if len(run) == 1 and run[0].name == "linear.default":
        return spectral_norm(run[0]["weight"].numpy())
    if len(run) == 1 and run[0].name == BATCH_NORM:
        return float(_batch_norm(run[0])[0].max()) * ROUND_UP

    def function(batch: Tensor) -> Tensor:
        for call, part in zip(run, parts, strict=True):
            batch = part(batch.reshape(len(batch), *call.shape))
        return batch

    return operator_norm(function, run[0].shape)


def affine_noise(call: Call, arithmetic: Arithmetic) -> Noise:
    affine = AFFINE[call.name]
    if call.name in CONVOLUTIONS:
        _check_convolution(arithmetic)
    if call.name == BATCH_NORM:
        if float(call["running_var"].min()) + call["eps"] < arithmetic.least / arithmetic.unit:
            raise LayerError("its variance is so small that it loses digits: use a larger eps")
        scale, shift = _batch_norm(call)
        absolute = float(scale.max())
        offset = float(shift.norm()) * math.sqrt(math.prod(call.shape[1:]))
    else:
        # The output at 0 needs no absolute values: each of its entries is a single term.
        offset = float(call(torch.zeros(1, *call.shape, dtype=torch.float64)).norm())
        if call.name == "div.Tensor" and _smallest(call["other"]) < arithmetic.smallest:
            raise LayerError("it divides by numbers so small that they lose digits")
        absolute = nonnegative_norm(affine.absolute(call), call.shape)
    n_terms = _value(affine.terms, call)
    gamma = arithmetic.of_sum(n_terms) if n_terms else arithmetic.unit
    n_in, n_out = math.prod(call.shape), math.prod(call.output)
    small = absolute * math.sqrt(n_in) + (n_terms + 4) * math.sqrt(n_out)
    # Each entry of A may be off by the least, so A by √(n_in·n_out) times as much.
    lost = arithmetic.least * math.sqrt(n_in * n_out)
    return Noise(
        gamma * absolute + lost if n_terms else 0.0,
        gamma * offset + arithmetic.smallest * small,
        absolute,
        offset,
    )


def _batch_norm(call: Call) -> tuple[Tensor, Tensor]:
    """|γ|/√(var + eps), and |γ·mean|/√(var + eps) + |β|, of each channel."""
    variance = call["running_var"]
    if float(variance.min()) < 0:
        raise LayerError("its running variance is negative")
    ones = torch.ones_like(variance)
    weight, bias = call["weight"], call["bias"]
    scale = (ones if weight is None else weight.abs()) / torch.sqrt(variance + call["eps"])
    return scale, scale * call["running_mean"].abs() + (0 * ones if bias is None else bias.abs())


def _check_convolution(arithmetic: Arithmetic) -> None:
    """Refuse convolutions that may use Winograd's or Fourier methods, which round differently."""
    if arithmetic.device != "cpu":
        raise LayerError("no bound for convolutions on a GPU is known: certify on the CPU")
    direct: Any = torch.backends.mkldnn
    winograd: Any = torch.backends.nnpack
    is_direct = direct.is_available() and direct.enabled
    if not is_direct and arithmetic.dtype == torch.float32 and winograd.is_available():
        raise LayerError("convolutions run by Winograd's method in NNPACK: turn oneDNN on")


def _gelu(call: Call) -> float:
    if call["approximate"] == "tanh":
        return 1.1289931  # the largest slope, at x = 1.4185, rounded up
    # The slope Φ(x) + xφ(x) has the derivative φ(x)(2 - x²): it is steepest at √2.
    return 0.5 * (1 + math.erf(1.0)) + math.exp(-1.0) / math.sqrt(math.pi)


def jump_of(call: Call) -> float:
    """How far a function jumps: above its threshold torch replaces Softplus by the identity.

    That is off by log(1 + exp(-threshold)) / β: 2e-9 by default, 2e-6 for β = 1e-3.
    """
    if call.name != "softplus.default":
        return 0.0
    threshold = call["threshold"]
    excess = math.log1p(math.exp(-abs(threshold))) + max(0.0, -float(threshold))
    return excess / abs(float(call["beta"]))


def _axis(call: Call) -> int:
    """The axis that a softmax works along, in a batch."""
    axis: int = call["dim"] % (len(call.shape) + 1)
    return axis


def _norm_of_samples(call: Call) -> float:
    """max|γ|/√eps. For u = x - mean(x) the Jacobian of u/√(|u|²/n + eps) is largest at u = 0.

    Nearly constant samples attain it.
    """
    return _largest(call["weight"], 1.0) / math.sqrt(call["eps"])


def _max_pool(call: Call) -> float:
    """√m, where m is the largest number of windows that share an entry.

    The square of a maximum's move is at most the sum of squares over its window, and the sum over
    all windows counts each entry up to m times. One entry above all others attains it. Windows are
    products of intervals, so m is a product over the axes.
    """
    most, n_axes = 1, len(call.sides("padding" if "padding" in call.arguments else "output_size"))
    for axis in range(n_axes):
        n_in, n_out = call.shape[axis - n_axes], call.output[axis - n_axes]
        counts = [0] * n_in
        for place in (i for o in range(n_out) for i in _window(call, axis, o, n_in, n_out)):
            counts[place] += 1
        most *= max(counts)
    return math.sqrt(most)


def _window(call: Call, axis: int, o: int, n_in: int, n_out: int) -> list[int]:
    """The positions along an axis that output o of a pool reads."""
    if "kernel_size" not in call.arguments:  # adaptive
        return list(range(o * n_in // n_out, -(-(o + 1) * n_in // n_out)))
    size, dilation = call.sides("kernel_size")[axis], call.sides("dilation")[axis]
    stride = (call.sides("stride") or call.sides("kernel_size"))[axis]
    first = o * stride - call.sides("padding")[axis]
    return [i for i in range(first, first + size * dilation, dilation) if 0 <= i < n_in]


def _largest(values: Any, otherwise: float) -> float:
    return otherwise if values is None else float(values.abs().max())


def _value(fact: Any, call: Call) -> Any:
    return fact(call) if callable(fact) else fact


def _limits(call: Call) -> tuple[float, float]:
    """The size of limits, which are rounded to the dtype."""
    given = [abs(v) for k, v in call.arguments.items() if k[:3] in ("min", "max") and v is not None]
    return 0.0, max(filter(math.isfinite, given), default=0.0)


def _exponential(call: Call) -> tuple[float, float]:
    return 1.0, 2 * (1 + abs(call["alpha"]))


def _smooth(call: Call) -> tuple[float, float]:
    """For a function through 0, right up to units in the last place of its steepest slope."""
    return 2 * max(1.0, _value(FUNCTIONS[call.name][0], call)), 0.0


FUNCTIONS: dict[str, tuple[Any, Any]] = {
    "relu.default": (1.0, (0.0, 0.0)),
    **dict.fromkeys(("hardtanh.default", "clamp.default"), (1.0, _limits)),
    "tanh.default": (1.0, (0.0, 2.0)),
    "sigmoid.default": (0.25, (0.0, 2.0)),
    "hardsigmoid.default": (1 / 6, (0.0, 2.0)),
    "log_sigmoid.default": (1.0, (1.0, 2.0)),
    "hardswish.default": (1.5, _smooth),
    "silu.default": (1.0998394, _smooth),  # the largest slope, at x = 2.3994, rounded up
    "mish.default": (1.0884982, _smooth),  # the largest slope, at x = 1.4906, rounded up
    "gelu.default": (_gelu, _smooth),
    "leaky_relu.default": (lambda call: max(1.0, abs(call["negative_slope"])), _smooth),
    "rrelu.default": (lambda call: max(1.0, abs(call["lower"] + call["upper"]) / 2), _smooth),
    "prelu.default": (lambda call: max(1.0, _largest(call["weight"], 1.0)), _smooth),
    # Scale times alpha, just below 0.
    "selu.default": (1.0507009873554805 * 1.6732632423543772, (1.1, 4.0)),
    "elu.default": (lambda call: max(1.0, abs(call["alpha"])), _exponential),
    "celu.default": (1.0, _exponential),
    "softplus.default": (1.0, lambda call: (1.0, 2 / abs(call["beta"]))),
    **{f"max_pool{n}d.default": (_max_pool, (0.0, 0.0)) for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d.default": (_max_pool, (0.0, 0.0)) for n in (1, 2, 3)},
    # The Jacobian diag(p) - ppᵀ has absolute row sums 2p(1 - p), largest at p = 1/2.
    "softmax.int": (0.5, None),
    # The norm of the Jacobian I - 1pᵀ is convex in p, so its maximum is at a vertex.
    "log_softmax.int": (lambda call: math.sqrt(call.shape[_axis(call) - 1]), None),
    **dict.fromkeys(("layer_norm.default", "group_norm.default"), (_norm_of_samples, None)),
}
"""Any other operation: its constant, and the (A, K) of its rounding if it is elementwise."""


def constant_of(call: Call, jumps: bool) -> float:
    """The Lipschitz constant of a function; jumps: whether it may jump."""
    _check_arguments(call)
    if not jumps and jump_of(call) > LARGEST_JUMP:
        raise LayerError(f"it jumps by {jump_of(call):.1e} at its threshold {call['threshold']}")
    constant: float = _value(FUNCTIONS[call.name][0], call)
    if not constant < math.inf:  # also false for NaN
        raise LayerError(f"its Lipschitz constant is {constant}")
    return constant


def function_noise(call: Call, arithmetic: Arithmetic) -> Noise:
    constant, root = constant_of(call, True), math.sqrt(math.prod(call.output))
    largest, size = torch.finfo(arithmetic.dtype).max, _value(FUNCTIONS[call.name][1], call)
    small = 8 * (1 + constant) * arithmetic.smallest
    if size is not None:
        a, k = size
        fixed = root * (ULPS * arithmetic.unit * k + small + jump_of(call))
        peak = 4 * max(1.0, constant)
        return Noise(ULPS * arithmetic.unit * a, fixed, peak, 8 * (1 + k), False, largest)
    if call.name == "layer_norm.default":
        # For g(u) = u/√(|u|²/n + eps), u = x - mean(x), which torch computes by Welford's update:
        # the mean is off by γ|x|/√n, which moves g by at most γ|x|/√eps. The variance v is off by
        # at most γ(v + |mean|√v) + γ²mean². If that is less than v, g moves by at most
        # γ(√n + |x|/√eps); otherwise √v <= 2γ|mean|, and both g and its computed value are at most
        # 3γ|x|/√eps. The last step adds 2u|x|/√eps. Eight times γ exceeds the total.
        error = 8 * arithmetic.of_sum(math.prod(call["normalized_shape"]) + 8)
        weight, bias = _largest(call["weight"], 1.0), _largest(call["bias"], 0.0)
        fixed = root * (error * (2 * weight + bias) + small)
        peak = 4 * max(1.0, constant)
        return Noise(error * constant, fixed, peak, 8 * (1 + weight + bias), True, largest)
    if call.name == "group_norm.default":
        raise LayerError("no bound for the rounding of group_norm is known")
    # Each p is off by γ of itself and by u·|d|·exp(-|d|), d its distance to the maximum.
    n, is_log = call.shape[_axis(call) - 1], call.name.startswith("log")
    relative = 8 * arithmetic.unit * (1 + math.sqrt(n)) if is_log else 0.0
    scale = 1 + math.log(max(1, n)) if is_log else 1.0
    each = 8 * arithmetic.of_sum(n + ULPS) * scale + 8 * (n + 2) * arithmetic.smallest
    return Noise(relative, each * root, 8.0, 8.0 * scale, False, largest)
