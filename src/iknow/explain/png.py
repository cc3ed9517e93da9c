"""PNG: an array of pixels as a file that every browser shows, by the standard library alone."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from numpy.typing import NDArray

from iknow.errors import InputError

GRAY, RGB = 0, 2  # PNG's color types, for one and three bytes per pixel


def png_bytes(pixels: NDArray[np.uint8]) -> bytes:
    """The PNG file of pixels of shape (height, width) or (height, width, 3), 0 to 255."""
    shape = pixels.shape
    drawable = len(shape) >= 2 and shape[2:] in ((), (3,)) and pixels.size > 0
    if pixels.dtype != np.uint8 or not drawable:
        raise InputError(
            "pixels must be uint8 of shape (height, width) or (height, width, 3), and not empty; "
            f"got {pixels.dtype} of shape {shape}"
        )
    height, width = shape[:2]
    color = RGB if pixels.ndim == 3 else GRAY
    # Each line begins with the number of its filter; 0 means none.
    lines = np.zeros((height, 1 + pixels.size // height), dtype=np.uint8)
    lines[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, color, 0, 0, 0)
    data = _chunk(b"IDAT", zlib.compress(lines.tobytes(), 9))
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + data + _chunk(b"IEND", b"")


def _chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)
