"""The arithmetic a torch module computes in: how much each operation can round.

A module is run in the dtype of its parameters. One operation there is off by at most u times the
size of its result (u is 2⁻²⁴ in float32, 2⁻⁸ in bfloat16), and n of them, summed in any order, by
γ_n = n·u / (1 - n·u) times the sum of the sizes. Results too small for the dtype may become 0: that
is an absolute error. Matrix products may round their factors first (TensorFloat-32, or bfloat16
where the user allowed it). What sums in ways that no such bound covers is refused.

Results too large become inf. At the end that shows; but an activation function can turn an infinity
that real arithmetic would not have had into an innocent number. So nothing on the way may overflow
for inputs up to the length LONGEST.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from iknow.core.sensitivity import LONGEST as LONGEST  # far from where float32 overflows
from iknow.errors import LayerError

UNIT_ROUNDOFF = {
    torch.float64: 2.0**-53,
    torch.float32: 2.0**-24,
    torch.bfloat16: 2.0**-8,
    torch.float16: 2.0**-11,
}
TENSOR_FLOAT_32 = 2.0**-10
BFLOAT_16 = 2.0**-7
"""How much rounding a factor first can change it, whether it is rounded or cut off."""


@dataclass(frozen=True)
class Arithmetic:
    """What one dtype on one device does to numbers.

    unit: the relative error of one operation. smallest: what may become 0. largest: what may become
    inf. factors: how much each factor of a matrix product or a convolution may be rounded first.
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
                f"sums of {n_terms} terms in {self.dtype} may lose everything: compute in float32"
            )
        return (1 + self.factors) ** 2 / (1 - share) - 1


def input_dtype(module: nn.Module) -> torch.dtype:
    """The dtype that `TorchModel` casts real inputs to: that of the module's first tensor."""
    like = next(module.parameters(), next(module.buffers(), torch.empty(0)))
    dtype = like.dtype if like.is_floating_point() else torch.get_default_dtype()
    if dtype not in UNIT_ROUNDOFF:
        raise LayerError(f"rounding in {dtype} is not known")
    return dtype


def plain_arithmetic(dtype: torch.dtype, device: str = "cpu", factors: float = 0.0) -> Arithmetic:
    info = torch.finfo(dtype)
    return Arithmetic(dtype, device, UNIT_ROUNDOFF[dtype], info.tiny, info.max, factors)


def arithmetic_of(module: nn.Module) -> Arithmetic:
    """The arithmetic a module is run in, as `TorchModel` runs it."""
    dtype = input_dtype(module)
    tensors = [*module.parameters(), *module.buffers()]
    odd = {t.dtype for t in tensors if t.is_floating_point() or t.is_complex()} - {dtype}
    if odd:
        raise LayerError(f"its tensors are of several dtypes, {dtype} and {odd.pop()}")
    devices = {tensor.device.type for tensor in tensors} or {"cpu"}
    if len(devices) > 1 or not devices <= {"cpu", "cuda"}:
        raise LayerError(
            f"rounding on {', '.join(sorted(devices))} is not known: certify it on the CPU"
        )
    (device,) = devices
    if torch.is_autocast_enabled(device):
        raise LayerError("under autocast each operation has a precision of its own: leave it")
    return plain_arithmetic(dtype, device, _factors(device) if dtype == torch.float32 else 0.0)


def check_convolution(arithmetic: Arithmetic) -> None:
    """Refuse convolutions that may run by Winograd's method or Fourier's: they round otherwise."""
    if arithmetic.device != "cpu":
        raise LayerError("the rounding of convolutions on a GPU is not known: certify on the CPU")
    direct: Any = torch.backends.mkldnn
    winograd: Any = torch.backends.nnpack
    is_direct = direct.is_available() and direct.enabled
    if not is_direct and arithmetic.dtype == torch.float32 and winograd.is_available():
        raise LayerError("without oneDNN convolutions run by Winograd's method in NNPACK")


def _factors(device: str) -> float:
    """How much factors in float32 may be rounded before they are multiplied."""
    library = torch.backends.cuda if device == "cuda" else torch.backends.mkldnn
    parts = (torch.backends, library, *(getattr(library, n, None) for n in ("matmul", "conv")))
    chosen = {str(getattr(part, "fp32_precision", "none")) for part in parts}
    chosen |= {os.environ.get(f"{name}_DEFAULT_FPMATH_MODE", "") for name in ("DNNL", "ONEDNN")}
    try:
        chosen.add(torch.get_float32_matmul_precision())
    except RuntimeError:  # torch refuses to tell where both of its ways to set it were used
        return BFLOAT_16
    chosen = {choice.lower() for choice in chosen} - {"highest", "", "strict", "none", "ieee"}
    if not chosen:
        return 0.0
    return TENSOR_FLOAT_32 if chosen <= {"high", "tf32"} else BFLOAT_16
