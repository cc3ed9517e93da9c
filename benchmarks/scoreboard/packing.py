"""Packing images small: differences between neighboring pixels deflate better than pixels.

All arithmetic is modulo 256, so unpacking restores every pixel.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


def delta(images: NDArray[Any]) -> Bytes:
    """Differences along rows, columns and colors, of shape (3, n, height, width)."""
    images = images.copy()
    images[..., 0] -= images[..., 1]
    images[..., 2] -= images[..., 1]
    images = np.ascontiguousarray(images.transpose(3, 0, 1, 2))
    rows = np.diff(images, axis=2, prepend=np.zeros_like(images[:, :, :1]))
    return np.diff(rows, axis=3, prepend=np.zeros_like(images[..., :1]))


def undelta(packed: NDArray[Any]) -> Bytes:
    """The images of shape (n, height, width, 3) again."""
    columns = np.cumsum(packed, axis=3, dtype=np.uint8)
    images = np.cumsum(columns, axis=2, dtype=np.uint8)
    images = np.ascontiguousarray(images.transpose(1, 2, 3, 0))
    images[..., 0] += images[..., 1]
    images[..., 2] += images[..., 1]
    return images
