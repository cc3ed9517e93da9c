"""What ATen operations do to distances: which are affine, and the ℓ2 constants of the others.

They hold for one sample, in real arithmetic, outside of training. The constants of elementwise
functions are the suprema of their slopes. These, and those of the pools and of softmax, are exact.

The noise is that of one dtype (`Arithmetic`). Affine operations sum products: with |A| the matrix
of absolute values, a sum of n products is within γ_n·(|A||y| + |b|) of Ay + b entry by entry, in
any order, so within γ_n·(‖|A|‖·|y| + ‖b‖). Elementwise functions, vectorized or not, are within a
few units in the last place of A·|y| + K. Results too small for the dtype may become 0.

**Norms.** The norm of a convolution is not that of its kernel reshaped to a matrix, which can be
smaller or larger. We measure the operator itself: forward applies it, autograd its transpose.
Small operators are written out as matrices. Large ones are measured by Lanczos iteration on AᵀA.
An iterated norm is always too small: it is the largest value found, not the largest that exists. A
factor turns it into a bound. Let λ be the largest eigenvalue of a positive semi-definite n × n
matrix and θ the value after k steps of Lanczos, from a start that is uniform on the sphere and has
component c along the top eigenvector. With the polynomial p(s) = T(√(1-s))/√(1-s), T the Chebyshev
polynomial of degree 2k-1, the Krylov space holds a vector which shows that

    θ < λ / cosh²(φ)   can happen only if   |c| < 1 / cosh((2k-1) φ)       for every φ > 0,

and a uniform start has |c| < t with probability at most t·√(2n/π). So, for any spectrum,

    |A| <= √θ · cosh( arccosh(√(2n/π)/q) / (2k-1) )    except with probability q over the start.

We take q = 1e-12 and k = 128: the factor is 1.009 for a million inputs. (Kuczyński and
Woźniakowski, 1992, give nearly the same probability.) The start is seeded. Without
reorthogonalization rounding repeats Ritz values but invents none (Paige).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from iknow.errors import LayerError
from iknow.metrics.lipschitz import ROUND_UP, RoundingError, spectral_norm

Shape = tuple[int, ...]
Map = Callable[[Tensor], Tensor]
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
LARGEST_DENSE_SIDE, LARGEST_DENSE = 1024, 1 << 23  # of operators that are written out as matrices
STEPS, FAILURE = 128, 1e-12  # of the iteration for others, and how rarely it may fail
ULPS = 32  # the largest error of an elementwise function, in units in the last place


class Arithmetic:
    """What one dtype does to numbers on a CPU.

    unit: the relative error of one operation. Results below `smallest` may become 0. Parameters
    below `least` lose digits: sums are in float32 at least.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype, info = dtype, torch.finfo(dtype)
        self.unit, self.smallest = info.eps / 2, info.tiny
        self.least = min(info.tiny, torch.finfo(torch.float32).tiny)

    def of_sum(self, n_terms: int) -> float:
        """γ: the relative error of a sum of this many products, in any order."""
        share = (n_terms + 2) * self.unit
        if share >= 0.5:
            raise LayerError(
                f"sums of {n_terms} terms in {self.dtype} may lose all digits: compute in float32"
            )
        return 1 / (1 - share) - 1

    def of_cast(self, n_values: int) -> RoundingError:
        """How far a cast to this dtype, perhaps through float32, moves values."""
        return RoundingError(self.unit * (1 + 2**-10), math.sqrt(n_values) * self.smallest)

    def of_adding(self, n_values: int) -> RoundingError:
        return RoundingError(2 * self.unit, 4 * self.smallest * math.sqrt(n_values))

    def of_storing(self, n_values: int) -> RoundingError:
        """How far storing values in float32 moves them: only float64 does not fit into it."""
        is_cast = self.dtype == torch.float64
        return Arithmetic(torch.float32).of_cast(n_values) if is_cast else RoundingError()


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
    devices = {tensor.device.type for tensor in tensors} - {"cpu"}
    if devices:
        raise LayerError(f"no bound for rounding on {devices.pop()} is known: certify on the CPU")
    if torch.is_autocast_enabled("cpu"):
        raise LayerError("under autocast each operation has its own precision: turn autocast off")
    if dtype == torch.float32 and not _multiplies_exactly():
        raise LayerError(
            "float32 factors may be rounded before they are multiplied: set "
            "torch.set_float32_matmul_precision('highest')"
        )
    return Arithmetic(dtype)


def _multiplies_exactly() -> bool:
    """Whether no setting lets products round their float32 factors to another format first."""
    library = torch.backends.mkldnn
    parts = (torch.backends, library, *(getattr(library, n, None) for n in ("matmul", "conv")))
    chosen = {str(getattr(part, "fp32_precision", "none")) for part in parts}
    chosen |= {os.environ.get(f"{name}_DEFAULT_FPMATH_MODE", "") for name in ("DNNL", "ONEDNN")}
    try:
        chosen.add(torch.get_float32_matmul_precision())
    except RuntimeError:  # torch raises if both of its ways to set the precision were used
        return False
    return {choice.lower() for choice in chosen} <= {"highest", "", "strict", "none", "ieee"}


@dataclass(frozen=True, eq=False)
class TensorCall:
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


SAME = {
    *("view.default", "clone.default", "detach.default", "unsqueeze.default"),
    *("squeeze.dim", "squeeze.dims"),
}
"""Operations that keep the values of a sample in their order."""
AVERAGES = [f"{kind}avg_pool{n}d.default" for n in (1, 2, 3) for kind in ("", "adaptive_")]
MAXIMA = [f"{kind}max_pool{n}d.default" for n in (1, 2, 3) for kind in ("", "adaptive_")]
CONVOLUTIONS = [f"conv{n}d.{kind}" for n in (1, 2, 3) for kind in ("default", "padding")]
BATCH_NORM = "_native_batch_norm_legit_no_training.default"
SHIFTS = ("add.Tensor", "sub.Tensor", "rsub.Scalar")
AFFINE: dict[str, int | Callable[[TensorCall], int]] = {
    **dict.fromkeys(
        ("linear.default", *CONVOLUTIONS), lambda call: int(call["weight"][0].numel()) + 1
    ),
    BATCH_NORM: 16,  # a root, a division, products and sums: a few of each
    **dict.fromkeys(
        AVERAGES, lambda call: math.prod(int(axis.sum(0).max()) for axis in _windows(call)) + 4
    ),
    **dict.fromkeys((*SHIFTS, "mul.Tensor", "div.Tensor"), 4),
    **dict.fromkeys(("pad.default", "pixel_shuffle.default", "neg.default"), 0),
}
"""Operations Ay + b: how many products they sum, 0 if they only move numbers."""


def _windows(call: TensorCall) -> list[Tensor]:
    """For each axis of a pool, of shape (n_in, n_out): which outputs read which inputs.

    Windows are products of intervals, so a sample with ones in one place along an axis shows it.
    """
    n_axes = int(call.name.partition("d.")[0][-1])
    sides, found = call.shape[-n_axes:], []
    for axis, n in enumerate(sides):
        shape = [n if i == axis else 1 for i in range(n_axes)]
        ones = torch.eye(n, dtype=torch.float64).reshape(n, *shape)
        made = [call(one.expand(1, 1, *sides)).movedim(axis + 2, 0) for one in ones]
        found.append(torch.stack([each.flatten(1).any(1) for each in made]))
    return found


def facts_of(call: TensorCall, arithmetic: Arithmetic) -> dict[str, Any]:
    """What a `Node` has of a call."""
    _check_call(call)
    if call.name in AFFINE:
        return {"kind": "affine", "noise": affine_noise(call, arithmetic), "linear": call}
    constant = _value(FUNCTIONS[call.name][0], call)
    if not constant < math.inf:  # also false for NaN
        raise LayerError(f"its Lipschitz constant is {constant}")
    noise = function_noise(call, arithmetic, constant)
    return {"kind": "function", "noise": noise, "lipschitz": constant}


def _check_call(call: TensorCall) -> None:
    """Refuse arguments for which the tables do not hold, or that mix the samples of a batch."""
    for name in ("scale", "input_scale") if call.name == "elu.default" else ("alpha",):
        if call.arguments.get(name, 1) != 1:
            raise LayerError(f"{call.name} with {name}={call[name]} is not supported")
    if call.name == "div.Tensor" and call.value != "self":
        raise LayerError("division by a value of the network is not supported")
    generator = torch.Generator().manual_seed(0)
    batch = torch.randn(3, *call.shape, dtype=torch.float64, generator=generator)
    together, alone = call(batch), torch.cat([call(batch[i : i + 1]) for i in range(3)])
    mixes = call.name == "pad.default" and len(call["pad"]) > 2 * len(call.shape)
    alike = together.shape == alone.shape and torch.allclose(together, alone, 1e-7, 1e-9, True)
    if mixes or not alike:
        raise LayerError("it mixes the samples of a batch")


def _part(call: TensorCall, absolute: bool = True, offset: int = 0) -> Callable[[Tensor], Tensor]:
    """Y → |A|y + offset · |b|, up to signs; or Y → Ay, as a large b would swamp small entries."""
    changed = {}
    for name, value in call.arguments.items():
        is_other = name in ("self", "other")
        if value is None:
            continue
        if name in ("bias", "running_mean", "value") or (is_other and call.name in SHIFTS):
            changed[name] = offset * abs(value) * (-1 if name == "running_mean" else 1)
        elif absolute and (is_other or name == "weight"):
            changed[name] = abs(value)
    return lambda batch: call(batch, **changed)


def run_norm(run: tuple[TensorCall, ...]) -> float:
    """An upper bound of the ℓ2 norm of consecutive affine operations."""
    if len(run) == 1 and run[0].name == "linear.default":
        return spectral_norm(run[0]["weight"].numpy())
    if len(run) == 1 and run[0].name == BATCH_NORM:  # a diagonal matrix
        ones = torch.ones(1, *run[0].shape, dtype=torch.float64)
        return float(_part(run[0])(ones).max()) * ROUND_UP
    parts = [_part(call, absolute=False) for call in run]

    def function(batch: Tensor) -> Tensor:
        for call, part in zip(run, parts, strict=True):
            batch = part(batch.reshape(len(batch), *call.shape))
        return batch

    return operator_norm(function, run[0].shape)


def affine_noise(call: TensorCall, arithmetic: Arithmetic) -> RoundingError:
    direct: Any = torch.backends.mkldnn
    winograd: Any = torch.backends.nnpack  # for convolutions; its method rounds differently
    may_run = arithmetic.dtype == torch.float32 and winograd.is_available()
    if call.name in CONVOLUTIONS and may_run and not (direct.is_available() and direct.enabled):
        raise LayerError("convolutions run by Winograd's method in NNPACK: turn oneDNN on")
    least = arithmetic.least / arithmetic.unit
    if call.name == BATCH_NORM and float(call["running_var"].min()) + call["eps"] < least:
        raise LayerError("its variance is so small that it loses digits: use a larger eps")
    if call.name == "div.Tensor":
        divisor = torch.as_tensor(call["other"], dtype=torch.float64)
        if float(divisor.abs().min()) < arithmetic.smallest:
            raise LayerError("it divides by numbers so small that they lose digits")
    offset = float(_part(call, offset=1)(torch.zeros(1, *call.shape, dtype=torch.float64)).norm())
    absolute = nonnegative_norm(_part(call), call.shape)
    n_terms = _value(AFFINE[call.name], call)
    gamma = arithmetic.of_sum(n_terms) if n_terms else arithmetic.unit
    n_in, n_out = math.prod(call.shape), math.prod(call.output)
    small = absolute * math.sqrt(n_in) + (n_terms + 4) * math.sqrt(n_out)
    # Each entry of A may be off by the least, so A by √(n_in·n_out) times as much.
    lost = arithmetic.least * math.sqrt(n_in * n_out)
    return RoundingError(
        gamma * absolute + lost if n_terms else 0.0,
        gamma * offset + arithmetic.smallest * small,
        absolute,
        offset,
    )


def _gelu(call: TensorCall) -> float:
    if call["approximate"] == "tanh":
        return 1.1289931  # the largest slope, at x = 1.4185, rounded up
    # The slope Φ(x) + xφ(x) has the derivative φ(x)(2 - x²): it is steepest at √2.
    return 0.5 * (1 + math.erf(1.0)) + math.exp(-1.0) / math.sqrt(math.pi)


def _axis(call: TensorCall) -> int:
    """The axis that a softmax works along, in a batch."""
    axis: int = call["dim"] % (len(call.shape) + 1)
    return axis


def _layer_norm(call: TensorCall) -> float:
    """max|γ|/√eps. For u = x - mean(x) the Jacobian of u/√(|u|²/n + eps) is largest at u = 0.

    Nearly constant samples attain it.
    """
    if not call["eps"] > 0:
        raise LayerError("with eps=0 a sample of equal values has no bound")
    return _largest(call["weight"], 1.0) / math.sqrt(call["eps"])


def _max_pool(call: TensorCall) -> float:
    """√m, where m is the largest number of windows that share an entry.

    The square of a maximum's move is at most the sum of squares over its window, and the sum over
    all windows counts each entry up to m times. One entry above all others attains it.
    """
    return math.sqrt(math.prod(int(axis.sum(1).max()) for axis in _windows(call)))


def _largest(values: Any, otherwise: float) -> float:
    return otherwise if values is None else float(values.abs().max())


def _value(fact: Any, call: TensorCall) -> Any:
    return fact(call) if callable(fact) else fact


def _limits(call: TensorCall) -> tuple[float, float]:
    """The size of limits, which are rounded to the dtype."""
    given = [abs(v) for k, v in call.arguments.items() if k[:3] in ("min", "max") and v is not None]
    return 0.0, max(filter(math.isfinite, given), default=0.0)


def _smooth(call: TensorCall) -> tuple[float, float]:
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
    "prelu.default": (lambda call: max(1.0, _largest(call["weight"], 1.0)), _smooth),
    # Scale times alpha, just below 0.
    "selu.default": (1.0507009873554805 * 1.6732632423543772, (1.1, 4.0)),
    "elu.default": (
        lambda call: max(1.0, abs(call["alpha"])),
        lambda call: (1.0, 2 * (1 + abs(call["alpha"]))),
    ),
    **dict.fromkeys(MAXIMA, (_max_pool, (0.0, 0.0))),
    # The Jacobian diag(p) - ppᵀ has absolute row sums 2p(1 - p), largest at p = 1/2.
    "softmax.int": (0.5, None),
    # The norm of the Jacobian I - 1pᵀ is convex in p, so its maximum is at a vertex.
    "log_softmax.int": (lambda call: math.sqrt(call.shape[_axis(call) - 1]), None),
    "layer_norm.default": (_layer_norm, None),
}
"""Any other operation: its constant, and the (A, K) of its rounding if it is elementwise."""


def function_noise(call: TensorCall, arithmetic: Arithmetic, constant: float) -> RoundingError:
    root = math.sqrt(math.prod(call.output))
    largest, size = torch.finfo(arithmetic.dtype).max, _value(FUNCTIONS[call.name][1], call)
    small = 8 * (1 + constant) * arithmetic.smallest
    if size is not None:
        a, k = size
        fixed = root * (ULPS * arithmetic.unit * k + small)
        peak = 4 * max(1.0, constant)
        return RoundingError(ULPS * arithmetic.unit * a, fixed, peak, 8 * (1 + k), False, largest)
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
        return RoundingError(error * constant, fixed, peak, 8 * (1 + weight + bias), True, largest)
    # Each p is off by γ of itself and by u·|d|·exp(-|d|), d its distance to the maximum.
    n, is_log = call.shape[_axis(call) - 1], call.name.startswith("log")
    relative = 8 * arithmetic.unit * (1 + math.sqrt(n)) if is_log else 0.0
    scale = 1 + math.log(max(1, n)) if is_log else 1.0
    each = 8 * arithmetic.of_sum(n + ULPS) * scale + 8 * (n + 2) * arithmetic.smallest
    return RoundingError(relative, each * root, 8.0, 8.0 * scale, False, largest)


def operator_norm(
    function: Map, shape: Shape, dense: bool | None = None, steps: int = STEPS
) -> float:
    """An upper bound of the ℓ2 operator norm of the linear part of an affine function.

    function: maps float64 batches of shape (n, *shape), each sample separately; a large offset
    would swamp small entries. dense: whether to write out the matrix; by default, if it is small
    enough. steps: of the iteration otherwise.
    """
    with torch.inference_mode(False), torch.no_grad():
        zero = torch.zeros(1, *shape, dtype=torch.float64)
        offset = function(zero)
        n_inputs, n_outputs = zero.numel(), offset.numel()
        size = min(n_inputs, n_outputs)
        if size == 0:
            return 0.0
        if dense is None:
            dense = size <= LARGEST_DENSE_SIDE and n_inputs * n_outputs <= LARGEST_DENSE
        # The transpose of an affine function's linear part is the same everywhere.
        transpose = torch.func.vjp(function, zero.expand(size if dense else 1, *shape))[1]

        def forward(vectors: Tensor) -> Tensor:
            return (function(vectors.reshape(-1, *shape)) - offset).flatten(1)

        def backward(vectors: Tensor) -> Tensor:
            (found,) = transpose(vectors.reshape(-1, *offset.shape[1:]))
            return cast("Tensor", found.flatten(1))

        first, then = (forward, backward) if n_inputs <= n_outputs else (backward, forward)
        if dense:  # the smaller of the two unit bases through it
            return spectral_norm(first(torch.eye(size, dtype=torch.float64)).numpy())
        largest = lanczos(lambda vector: then(first(vector)).flatten(), size, steps)
        return math.sqrt(largest) * safety_factor(size, steps) * ROUND_UP


def nonnegative_norm(function: Map, shape: Shape, steps: int = 10) -> float:
    """An upper bound of the ℓ2 norm of a linear function whose matrix B has no negative entry.

    For every v > 0 the largest eigenvalue of BᵀB is at most max_i (BᵀBv)_i / v_i (Collatz and
    Wielandt), so power iteration bounds it from above at every step.
    """
    with torch.inference_mode(False), torch.no_grad():
        vector, best = torch.ones(1, *shape, dtype=torch.float64), math.inf
        value, transpose = torch.func.vjp(function, 0 * vector)[:2]
        if vector.numel() == 0 or value.numel() == 0:
            return 0.0
        for _ in range(steps):
            (square,) = transpose(function(vector))
            best = min(best, float((square / vector).max()))
            vector = square / max(float(square.max()), 1e-300) + 1e-3
        return math.sqrt(best) * ROUND_UP


def safety_factor(size: int, steps: int, failure: float = FAILURE) -> float:
    """The factor that turns a norm from Lanczos iteration into a bound; see above."""
    odds = math.sqrt(2 * size / math.pi) / failure
    return math.cosh(math.acosh(odds) / (2 * steps - 1))


def lanczos(square: Map, size: int, steps: int = STEPS, random_state: int = 0) -> float:
    """The largest Ritz value of a positive semi-definite map of vectors of shape (size,).

    It is at most the largest eigenvalue.
    """
    generator = torch.Generator().manual_seed(random_state)
    vector = torch.randn(size, dtype=torch.float64, generator=generator)
    vector /= vector.norm()
    before, beta = torch.zeros_like(vector), 0.0
    diagonal: list[float] = []
    beside: list[float] = []
    for _ in range(steps):
        image = square(vector) - beta * before
        diagonal.append(float(image @ vector))
        image -= diagonal[-1] * vector
        beta = float(image.norm())
        beside.append(beta)
        if beta == 0:  # the Krylov space is exhausted: the value is exact
            break
        before, vector = vector, image / beta
    ritz = np.diag(diagonal) + np.diag(beside[:-1], 1) + np.diag(beside[:-1], -1)
    return max(0.0, float(np.linalg.eigvalsh(ritz)[-1]))
