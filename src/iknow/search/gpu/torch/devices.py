"""Devices: whether torch can use one, and what it can do."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor

from iknow.core.text import shorten, shown
from iknow.errors import InputError


def to_numpy(tensor: Tensor) -> np.ndarray:
    """A copy row by row: on the device a tensor may be a view."""
    array: np.ndarray = tensor.contiguous().cpu().numpy()
    return array


def check_device(device: str | torch.device) -> torch.device:
    """A device that torch can create tensors on and read them from."""
    try:
        checked = torch.device(device)
        torch.zeros(1, device=checked).cpu()
    except (RuntimeError, AssertionError, NotImplementedError, TypeError, ValueError) as error:
        reason = shorten((str(error) or type(error).__name__).splitlines()[0])
        given = str(device) if isinstance(device, torch.device) else device
        raise InputError(
            f"torch {torch.__version__} cannot use device {shown(given)} here ({reason}): "
            "use device='cpu' or install a torch build for that device"
        ) from error
    return checked


def device_with_float64(device: torch.device) -> torch.device:
    """The device itself, or the CPU if the device has no float64 (MPS does not)."""
    try:
        torch.zeros(1, dtype=torch.float64, device=device)
    except (RuntimeError, TypeError):
        return torch.device("cpu")
    return device


def has_kernels(device: torch.device) -> bool:
    """Whether a device is searched by Triton's kernels: CUDA, where Triton is installed."""
    return device.type == "cuda" and find_spec("triton") is not None
