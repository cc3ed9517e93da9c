"""Shifts of images with values in [0, 1]: noise, blur, contrast, rotation, occlusion.

Colored images carry less noise, as 32 x 32 photographs are harder to read than digits. Lengths are
in shares of the width, so that small images are disturbed alike.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn import functional

from iknow.core.arrays import Floats32


def shift_images(x: Floats32, shape: tuple[int, int, int], seed: int) -> dict[str, Floats32]:
    """Shifted versions of n images, by name, in the shape of `x`."""
    images = torch.from_numpy(x).reshape(-1, *shape)
    drawn = torch.Generator().manual_seed(seed)
    grey, width = shape[0] == 1, shape[2]
    weak, strong = (0.2, 0.4) if grey else (0.05, 0.15)
    found = {
        "noise, weak": _noise(images, weak, drawn),
        "noise, strong": _noise(images, strong, drawn),
        "blur": blur(images, (2.0 / 28 if grey else 1.5 / 32) * width),
        "contrast": images.mean((1, 2, 3), keepdim=True) * 0.7 + 0.3 * images,
        "rotation": rotate(images, 45.0 if grey else 25.0, drawn),
        "occlusion": occlude(images, round(0.4 * width), drawn),
    }
    return {name: each.reshape(x.shape).numpy() for name, each in found.items()}


def _noise(images: Tensor, deviation: float, drawn: Generator) -> Tensor:
    return (images + deviation * torch.randn(images.shape, generator=drawn)).clamp(0, 1)


def blur(images: Tensor, sigma: float) -> Tensor:
    """A normal blur; the border repeats its pixels."""
    reach = max(1, int(3 * sigma))
    weights = torch.exp(-0.5 * (torch.arange(-reach, reach + 1) / sigma) ** 2)
    weights = (weights / weights.sum()).repeat(images.shape[1], 1)
    n_colors = images.shape[1]
    rows, columns = weights[:, None, None, :], weights[:, None, :, None]
    images = functional.conv2d(
        functional.pad(images, (reach, reach, 0, 0), mode="replicate"), rows, groups=n_colors
    )
    return functional.conv2d(
        functional.pad(images, (0, 0, reach, reach), mode="replicate"), columns, groups=n_colors
    )


def rotate(images: Tensor, degrees: float, drawn: Generator) -> Tensor:
    """Each image turned one way or the other."""
    ways = torch.randint(0, 2, (len(images),), generator=drawn) * 2 - 1
    angle = ways * math.radians(degrees)
    zero = torch.zeros_like(angle)
    rows: list[Any] = [
        torch.stack([angle.cos(), -angle.sin(), zero], 1),
        torch.stack([angle.sin(), angle.cos(), zero], 1),
    ]
    grid = functional.affine_grid(torch.stack(rows, 1), list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, padding_mode="border", align_corners=False)


def occlude(images: Tensor, size: int, drawn: Generator) -> Tensor:
    """A grey square somewhere in the middle part of each image."""
    n, _, height, width = images.shape
    edge = round(width / 8)
    top, left = (
        torch.randint(edge, side - size - edge + 1, (n, 1, 1, 1), generator=drawn)
        for side in (height, width)
    )
    row, column = torch.arange(height).view(1, 1, -1, 1), torch.arange(width).view(1, 1, 1, -1)
    inside = (row >= top) & (row < top + size) & (column >= left) & (column < left + size)
    return torch.where(inside, 0.5, images)
