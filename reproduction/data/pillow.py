"""Images, through Pillow."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image


def read_resized(content: bytes, size: int) -> NDArray[np.uint8]:
    """Decode an image and resize the whole of it: of shape (size, size, 3), RGB.

    Pillow's bilinear filter widens with the reduction, so no pixel of a large image is skipped.
    """
    try:
        with Image.open(io.BytesIO(content)) as image:
            resized = image.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
    except OSError as error:  # Pillow's error for a damaged image; there is no file it could be of
        raise ValueError(f"an image cannot be read: {error}") from error
    return np.asarray(resized)
