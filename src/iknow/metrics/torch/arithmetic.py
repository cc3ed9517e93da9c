"""The arithmetic of a torch module: how much each operation can round.

A module runs in the dtype of its parameters. One operation is off by at most u times the size of
its result (u is 2⁻²⁴ in float32, 2⁻⁸ in bfloat16), and n of them, summed in any order, by γ_n = n·u
/ (1 - n·u) times the sum of the sizes. Results too small for the dtype may become 0. Matrix
products may round their factors first. We refuse operations that no such bound covers.

Results too large become inf, which an activation function may turn into a harmless-looking number.
So nothing in between may overflow for inputs up to the length LONGEST.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from iknow.core.robustness import LONGEST as LONGEST  # far from where float32 overflows
from iknow.errors import LayerError

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
UNIT_ROUNDOFF = {dtype: torch.finfo(dtype).eps / 2 for dtype in DTYPES}
TENSOR_FLOAT_32, BFLOAT_16 = 2.0**-10, 2.0**-7
"""The relative error of a factor that was first rounded, or truncated, to this format."""


@dataclass(frozen=True)
class Arithmetic:
    """What one dtype on one device does to numbers.

    unit: the relative error of one operation. Results below `smallest` may become 0, above
    `largest` inf. factors: the relative error of rounding each factor of a product first.
    """

    dtype: torch.dtype
    device: str
    unit: float
    smallest: float
    largest: float
    factors: float = 0.0

    def of_sum(self, n_terms: int) -> float:
        """γ: the relative error of a sum of this many products, in any order."""
        share = (n_terms + 2) * self.unit
        if share >= 0.5:
            raise LayerError(
                f"sums of {n_terms} terms in {self.dtype} may lose all digits: compute in float32"
            )
        return (1 + self.factors) ** 2 / (1 - share) - 1


def input_dtype(module: nn.Module) -> torch.dtype:
    """The dtype to which `TorchModel` casts real inputs: that of the module's first tensor."""
    like = next(module.parameters(), next(module.buffers(), torch.empty(0)))
    dtype = like.dtype if like.is_floating_point() else torch.get_default_dtype()
    if dtype not in UNIT_ROUNDOFF:
        raise LayerError(f"no bound for the rounding of {dtype} is known")
    return dtype


def plain_arithmetic(dtype: torch.dtype, device: str = "cpu", factors: float = 0.0) -> Arithmetic:
    info = torch.finfo(dtype)
    return Arithmetic(dtype, device, UNIT_ROUNDOFF[dtype], info.tiny, info.max, factors)


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
    return plain_arithmetic(dtype, device, _factors(device) if dtype == torch.float32 else 0.0)


def check_convolution(arithmetic: Arithmetic) -> None:
    """Refuse convolutions that may use Winograd's or Fourier methods, which round differently."""
    if arithmetic.device != "cpu":
        raise LayerError("no bound for convolutions on a GPU is known: certify on the CPU")
    direct: Any = torch.backends.mkldnn
    winograd: Any = torch.backends.nnpack
    is_direct = direct.is_available() and direct.enabled
    if not is_direct and arithmetic.dtype == torch.float32 and winograd.is_available():
        raise LayerError("convolutions run by Winograd's method in NNPACK: turn oneDNN on")


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
