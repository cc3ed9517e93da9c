"""Pictures: how to show a sample to a person: as an image, a series, a text, or a row of features.

A renderer makes a picture of a sample. A picture is data, never markup, and what is made of it is
escaped, so nothing in a sample can run in the page that shows it. Without a renderer the shape of
the sample decides:

    (n,)                                            a row of features
    (1, n), (n, 1)                                  a series of n steps
    (h, w), (1, h, w), (h, w, 1), (3, h, w), (h, w, 3)    an image

A text is shown as it is, shortened. What cannot be rendered is shown as numbers.
"""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from numbers import Number
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.cards import table, text
from iknow.core.arrays import Floats
from iknow.core.text import as_whole, name, shown
from iknow.errors import InputError

MOST_FEATURES = 256  # values of a sample that are shown as numbers
LONGEST_TEXT = 600  # characters of a sample that is a text
OF_TEXT = ("text",)  # the names of the features of a text
SERIES_COLORS = ("#0063a6", "#a83279", "#4aa8e0", "#777777")
WIDTH, HEIGHT = 180, 72  # of a drawn series
FEATURES_SHOWN = 12  # in a notebook


@dataclass(frozen=True, eq=False)
class Image:
    """An image to show: `pixels` of shape (height, width) or (height, width, 3), 0 to 255."""

    pixels: NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Series:
    """A time series to show: `values` of shape (n_channels, n_steps), finite."""

    values: Floats


@dataclass(frozen=True)
class Features:
    """A row of features to show.

    Attributes:
        values: Numbers or text.
        names: A name for each value, if they have names.
        n_more: How many further values the sample has that are not shown.
    """

    values: tuple[float | str, ...]
    names: tuple[str, ...] | None = None
    n_more: int = 0


Picture = Image | Series | Features
Renderer = Callable[[Any], Picture]


def as_image(*shape: int, limits: tuple[float, float] | None = None) -> Renderer:
    """Make a renderer for samples that are images.

    Args:
        *shape: Shape of an image: (h, w), (3, h, w) or (h, w, 3), ... The samples may be flat.
        limits: The values that are black and white. Default: 0 and 1 if the sample lies between
            them, 0 and 255 if it holds bytes, else its own extremes.

    Examples:
        >>> as_image(2, 2)([0, 1, 1, 0]).pixels.tolist()
        [[0, 255], [255, 0]]
    """
    for side in shape:
        as_whole(side, "the sides of an image", "be at least 1 pixel", 1)
    if len(shape) not in (2, 3) or (len(shape) == 3 and not {shape[0], shape[2]} & {1, 3}):
        raise InputError(
            "an image has a shape of height and width, and may have 1 or 3 channels before or "
            f"after them; got {shown(shape)}"
        )

    def render(sample: Any) -> Picture:
        values = _numbers(sample).reshape(shape)
        if values.ndim == 3 and shape[2] not in (1, 3):
            values = np.moveaxis(values, 0, 2)
        if values.ndim == 3 and values.shape[2] == 1:
            values = values[:, :, 0]
        return Image(_as_pixels(values, limits))

    return render


def as_series(n_channels: int = 1) -> Renderer:
    """Make a renderer for series: samples of shape (`n_channels`, n_steps), or flat ones.

    Examples:
        >>> as_series()([1, 2, 3]).values
        array([[1., 2., 3.]])
    """
    as_whole(n_channels, "a series", "have at least one channel", 1)

    def render(sample: Any) -> Picture:
        values = _numbers(sample).astype(np.float64).reshape(n_channels, -1)
        if values.shape[1] < 2 or not np.isfinite(values).all():
            raise InputError("a series has at least two steps, all of them finite")
        return Series(values)

    return render


def as_features(names: Sequence[str] | None = None) -> Renderer:
    """Make a renderer for samples that are rows of features, with their `names`, if they have any.

    Examples:
        >>> as_features(["height", "width"])([1.5, 2.0]).names
        ('height', 'width')
    """

    def render(sample: Any) -> Picture:
        values = np.asarray(sample).ravel()
        if names is not None and len(names) != len(values):
            raise InputError(f"{len(names)} names do not fit a sample of {len(values)} features")
        shown = tuple(_plain(value) for value in values[:MOST_FEATURES].tolist())
        titles = None if names is None else tuple(map(name, names[:MOST_FEATURES]))
        return Features(shown, titles, len(values) - len(shown))

    return render


def picture_of(sample: Any, renderer: Renderer | None = None) -> Picture:
    """The picture of a sample, or its numbers if that fails."""
    # A renderer is the caller's code, and its failure is no reason to lose a report.
    for make in (_by_shape if renderer is None else renderer, as_features()):
        try:
            picture = make(sample)
        except Exception:
            continue
        if isinstance(picture, Picture):
            return picture
    return Features((_plain(sample),))


def take_sample(samples: Any, row: int) -> Any:
    """One sample of an array, sequence, table, dataset or mapping by row; None if it is missing."""
    try:
        if isinstance(samples, Mapping):
            return samples.get(row)
        if row < 0:
            return None
        sample = samples.iloc[row] if hasattr(samples, "iloc") else samples[row]
        if isinstance(sample, tuple) and sample and not isinstance(sample[0], str | Number):
            sample = sample[0]  # a dataset gives its label too
        return sample.toarray().ravel() if hasattr(sample, "toarray") else sample
    except Exception:  # a user's object may raise anything
        return None


def picture_at(samples: Any, row: int, renderer: Renderer | None) -> Picture | None:
    """What the sample in a row looks like; None if it is not given."""
    sample = take_sample(samples, row)
    return None if sample is None else picture_of(sample, renderer)


def _by_shape(sample: Any) -> Picture:
    if isinstance(sample, str):
        return Features((name(sample, LONGEST_TEXT),), OF_TEXT)
    if hasattr(sample, "index") and hasattr(sample, "to_numpy"):  # a row of a pandas table
        return as_features([str(name) for name in sample.index])(sample)
    shape = np.shape(sample)
    if len(shape) == 2 and 1 in shape and max(shape) > 1:
        return as_series()(sample)
    return (as_image(*shape) if len(shape) in (2, 3) else as_features())(sample)


def _as_pixels(values: NDArray[Any], limits: tuple[float, float] | None) -> NDArray[np.uint8]:
    if not np.isfinite(values).all():
        raise InputError("an image must be finite")
    if values.dtype == np.uint8 and limits is None:
        return values
    low, high = limits or (float(values.min()), float(values.max()))
    if limits is None and low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    scaled = np.clip(scale(values.astype(np.float64), low, high), 0, 1)
    pixels: NDArray[np.uint8] = np.rint(scaled * 255).astype(np.uint8)
    return pixels


def scale(values: Floats, low: float, high: float) -> Floats:
    """Values with `low` at 0 and `high` at 1; halved first, as high - low may overflow."""
    extent = high / 2 - low / 2
    scaled: Floats = (values / 2 - low / 2) / (extent if extent > 0 else 0.5)
    return scaled


def _numbers(sample: Any) -> NDArray[Any]:
    values = np.asarray(sample)
    if values.dtype.kind not in "fiub":
        raise InputError(f"only numbers can be drawn; got {values.dtype}")
    return values


def _plain(value: Any) -> float | str:
    """A number, or a text of bounded length."""
    try:
        if isinstance(value, (bool, int, float)) and math.isfinite(value):
            return float(value)
        return name(value)
    except Exception:  # a number too long to write, an object that cannot be written at all
        return f"<{type(value).__name__}>"


def picture_to_html(picture: Picture) -> str:
    """A picture as an image, a drawing or a table."""
    if isinstance(picture, Image):
        data = base64.b64encode(png_bytes(picture.pixels)).decode()
        return (
            f'<img src="data:image/png;base64,{data}" alt="the sample" '
            'style="height:96px;image-rendering:pixelated">'
        )
    if isinstance(picture, Series):
        return _draw(picture)
    names = picture.names or tuple(f"[{i}]" for i in range(len(picture.values)))
    shown = list(zip(names, picture.values, strict=True))[:FEATURES_SHOWN]
    n_more = picture.n_more + len(picture.values) - len(shown)
    rows = [(text(title), text(v if isinstance(v, str) else f"{v:.4g}")) for title, v in shown]
    return table((), [*rows, ("", f"and {n_more} more")] if n_more else rows)


def _draw(series: Series) -> str:
    """The channels of a series as lines over one another, on a common scale."""
    values = series.values
    low, high = float(values.min()), float(values.max())
    heights = HEIGHT - 3 - scale(values, low, high) * (HEIGHT - 6)
    places = np.linspace(2, WIDTH - 2, values.shape[1])
    lines = ""
    for channel, color in zip(heights, cycle(SERIES_COLORS), strict=False):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(places, channel, strict=True))
        lines += f'<polyline fill="none" stroke="{color}" stroke-width="1.5" points="{points}"/>'
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="a series from {low:.4g} to {high:.4g}">{lines}</svg>'
    )


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
    color = 2 if pixels.ndim == 3 else 0  # PNG's types: RGB, gray
    # Each line begins with the number of its filter; 0 means none.
    lines = np.zeros((height, 1 + pixels.size // height), dtype=np.uint8)
    lines[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, color, 0, 0, 0)
    data = _chunk(b"IDAT", zlib.compress(lines.tobytes(), 9))
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + data + _chunk(b"IEND", b"")


def _chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(kind + content)
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)
