"""The album: as many pictures of samples as there is room for.

Pixels and series travel as numbers that the page draws, features as text. They are compressed a few
hundred kilobytes at a time: small images have much in common, and the page opens only the part it
needs.
"""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.explain.picture import Image, Picture, Renderer, Series, picture_at

GRAY, COLOR, SERIES, FEATURES = range(4)
PART_BYTES = 200_000
LONGEST_SIDE = 128
MOST_STEPS = 600
INDEX_BYTES = 12  # about what an entry in the page's list of pictures takes when compressed

Key = tuple[str, int]  # ("sample", its position in the page) or ("training", its row)


def compress(data: bytes | bytearray) -> str:
    """Bytes as gzip in base64; the same bytes always give the same text."""
    return base64.b64encode(gzip.compress(data, compresslevel=6, mtime=0)).decode("ascii")


class Album:
    """Pictures by key, in the order they came, within a budget of bytes in the page.

    parts: compressed. pictures: (kind, height | channels | names, width | steps | more, part,
    offset, length) of each. names: of features, with their positions.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.parts: list[str] = []
        self.pictures: dict[Key, tuple[int, ...]] = {}
        self.names: dict[tuple[str, ...], int] = {}
        self.full = False
        self._open = bytearray()

    def add(self, key: Key, samples: Any, row: int, renderer: Renderer | None) -> None:
        """Draw one of the samples, if it exists and there is still room."""
        if self.full or key in self.pictures:
            return
        if (picture := picture_at(samples, row, renderer)) is None:
            return
        kind, first, second, data = self._encode(picture)
        self.pictures[key] = kind, first, second, len(self.parts), len(self._open), len(data)
        self._open += data
        if len(self._open) >= PART_BYTES:
            self.close_part()

    def close_part(self) -> None:
        """Compress what came since the last part; drop it if there is no room."""
        if not self._open:
            return
        self.parts.append(compress(self._open))
        self._open = bytearray()
        if sum(map(len, self.parts)) + INDEX_BYTES * len(self.pictures) > self.budget:
            self.drop_part()

    def drop_part(self) -> None:
        """Make room: drop the last part and take nothing more."""
        self.full = True
        self.parts.pop()
        kept = len(self.parts)
        self.pictures = {key: each for key, each in self.pictures.items() if each[3] < kept}

    def columns(self, n_samples: int) -> dict[str, NDArray[Any]]:
        """The pictures, and the places in them of samples and training rows; -1 for none."""
        places: dict[str, dict[int, int]] = {"sample": {}, "training": {}}
        for place, (kind, row) in enumerate(self.pictures):
            places[kind][row] = place
        samples, training = places["sample"], places["training"]
        return {
            "pictures": np.array(list(self.pictures.values()), np.int32).reshape(-1, 6),
            "samplePictures": np.array([samples.get(i, -1) for i in range(n_samples)], np.int32),
            "trainingRows": np.array(list(training), np.int64),
            "trainingPictures": np.array(list(training.values()), np.int32),
        }

    def _encode(self, picture: Picture) -> tuple[int, int, int, bytes]:
        if isinstance(picture, Image):
            pixels = shrink_image(picture.pixels)
            kind = COLOR if pixels.ndim == 3 else GRAY
            return kind, pixels.shape[0], pixels.shape[1], pixels.tobytes()
        if isinstance(picture, Series):
            largest = np.finfo(np.float32).max
            values = np.clip(shrink_series(picture.values), -largest, largest).astype("<f4")
            return SERIES, values.shape[0], values.shape[1], values.tobytes()
        titles = picture.names
        names = -1 if titles is None else self.names.setdefault(titles, len(self.names))
        values = [v if isinstance(v, str) else float(f"{v:.6g}") for v in picture.values]
        return FEATURES, names, picture.n_more, json.dumps(values).encode()


def shrink_image(pixels: NDArray[np.uint8], longest: int = LONGEST_SIDE) -> NDArray[np.uint8]:
    """An image of at most `longest` pixels a side: the means of squares."""
    step = -(-max(pixels.shape[:2]) // longest)
    if step <= 1:
        return pixels
    height, width = (max(side // step, 1) for side in pixels.shape[:2])
    tall, wide = min(step, pixels.shape[0]), min(step, pixels.shape[1])
    squares = pixels[: height * tall, : width * wide].reshape(height, tall, width, wide, -1)
    means: NDArray[np.uint8] = np.rint(squares.mean(axis=(1, 3))).astype(np.uint8)
    return means if pixels.ndim == 3 else means[:, :, 0]


def shrink_series(values: NDArray[Any], most: int = MOST_STEPS) -> NDArray[Any]:
    """A series of at most `most` steps: the extremes of each stretch, to lose no peak."""
    channels, steps = values.shape
    if steps <= most:
        return values
    edges = np.linspace(0, steps, most // 2 + 1).astype(int)[:-1]
    lowest = np.minimum.reduceat(values, edges, axis=1)
    highest = np.maximum.reduceat(values, edges, axis=1)
    return np.stack([lowest, highest], axis=2).reshape(channels, -1)
