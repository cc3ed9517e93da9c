"""Running kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **options: Any) -> None:
    """Run a kernel on the device of its tensors, whichever device is current."""
    device = next(argument.device for argument in arguments if isinstance(argument, Tensor))
    if device.type == "cuda":
        with torch.cuda.device(device):
            kernel[grid](*arguments, **options)
    else:
        kernel[grid](*arguments, **options)


def divide_up(a: int, b: int) -> int:
    return -(-a // b)


def power_of_two(n: int) -> int:
    """The lowest power of two that is at least n."""
    return 1 << (n - 1).bit_length()
