"""Data: each dataset split by the seed into training, validation and test part, and foreign data.

| dataset | training | validation | test |
|---|---|---|---|
| mnist | 55,000 of the published training part | 5,000 of it | 2,500 of the published test part |
| cifar | 20,000 of the published training part | 5,000 of it | 5,000 of the published test part |
| signs | every third frame of the published training part | 5,000 of the test part | 2,500 of it |
| adult | 15,000 | 5,000 | 5,000 |
| grid | 4,000 | 5,000 | 1,000 |
| others | 40% | 30% | 30% |

Rows of adult are objects, numbers before categories, as a frame would give them to a pipeline.
Validation images of traffic signs come from the published test part: frames of one drive past a
sign are nearly the same picture, so images of the training part would be too easy.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Floats32, Ints

N_TEST = 2500
N_FOREIGN = 1000

Bytes = NDArray[np.uint8]
Samples = NDArray[Any]
"""Of shape (n, ...): float32, or objects for a table with categories."""


@dataclass(frozen=True, eq=False)
class Data:
    """Samples of shape (n, ...) with labels of shape (n,), and foreign samples by name."""

    x: Samples
    y: Ints
    x_val: Samples
    y_val: Ints
    x_test: Samples
    y_test: Ints
    foreign: dict[str, Samples]

    @property
    def n_classes(self) -> int:
        return int(max(self.y.max(), self.y_val.max(), self.y_test.max())) + 1

    def flat(self) -> Data:
        """The same with samples of one axis, for a network of dense layers."""
        x, x_val, x_test = (
            part.reshape(len(part), -1) for part in (self.x, self.x_val, self.x_test)
        )
        foreign = {name: part.reshape(len(part), -1) for name, part in self.foreign.items()}
        return Data(x, self.y, x_val, self.y_val, x_test, self.y_test, foreign)

    def few(self) -> Data:
        """A version that takes seconds; it only shows that everything runs."""
        foreign = {name: part[:40] for name, part in self.foreign.items()}
        parts = (self.x[:600], self.y[:600], self.x_val[:300], self.y_val[:300])
        return Data(*parts, self.x_test[:120], self.y_test[:120], foreign)


def load(folder: Path, dataset: str, seed: int) -> Data:
    """A dataset from the folder that `pack` wrote."""
    rng = np.random.default_rng(seed)
    stored = np.load(folder / f"{dataset}.npz")
    if dataset in IMAGES:
        return IMAGES[dataset](stored, folder, rng)
    order = rng.permutation(len(stored["y"]))
    x, y = _rows(stored)[order], stored["y"][order].astype(np.int64)
    n = len(x)
    ends = {"grid": (4000, 9000), "adult": (15000, 20000)}.get(
        dataset, (int(0.4 * n), int(0.7 * n))
    )
    if dataset == "grid":  # as one would for a network; distances are invariant to it
        x = (x - x[: ends[0]].mean(axis=0)) / x[: ends[0]].std(axis=0)
    (train, val, test), labels = np.split(x, ends), np.split(y, ends)
    foreign: dict[str, Samples] = {}
    if dataset == "adult":
        test, labels[2] = test[:5000], labels[2][:5000]
        foreign = _strangers(test[:N_FOREIGN])
    elif dataset not in ("grid", "cancer"):
        drawn = rng.uniform(x.min(), x.max(), (N_FOREIGN, *x.shape[1:]))
        foreign["uniform"] = drawn.astype(np.float32)
    return Data(train, labels[0], val, labels[1], test, labels[2], foreign)


def _rows(stored: Any) -> Samples:
    """The rows of a table, of shape (n, d)."""
    if "x" in stored:
        return np.asarray(stored["x"], dtype=np.float32)
    named = stored["names"].astype(object)[stored["codes"]]
    return np.hstack([stored["numbers"].astype(object), named])


def numbers_of(x: Samples) -> list[int]:
    """The columns of a table that hold numbers."""
    return [place for place, value in enumerate(x[0]) if not isinstance(value, str)]


def _strangers(x: Samples) -> dict[str, Samples]:
    """Rows like nothing in training: categories that nobody has, and numbers ten times as large."""
    numbers = numbers_of(x)
    martians, enlarged = x.copy(), x.copy()
    martians[:, [place for place in range(x.shape[1]) if place not in numbers]] = "Martian"
    enlarged[:, numbers] *= 10
    return {"Martians": martians, "numbers x 10": enlarged}


def _pictures(folder: Path, rng: np.random.Generator) -> dict[str, Floats32]:
    """Foreign images of 32 x 32 in color: digits in the middle, traffic signs, uniform noise."""
    stored = np.load(folder / "foreign.npz")
    digits, signs = stored["digits"], undelta(stored["signs"])
    framed = np.pad(digits[rng.permutation(len(digits))[:N_FOREIGN]], ((0, 0), (2, 2), (2, 2)))
    return {
        "digits": _unit(framed)[:, None].repeat(3, axis=1),
        "signs": _planes(signs[rng.permutation(len(signs))[:N_FOREIGN]]),
        "uniform": rng.random((N_FOREIGN, 3, 32, 32), dtype=np.float32),
    }


def _mnist(stored: Any, folder: Path, rng: np.random.Generator) -> Data:
    """Foreign: traffic signs in grey; two digits over each other, one turned; uniform noise."""
    order, chosen = rng.permutation(60000), rng.permutation(10000)[:N_TEST]
    val, train = order[:5000], order[5000:]
    x = _unit(stored["x_train"][train])[:, None]
    turned = x[N_FOREIGN : 2 * N_FOREIGN].transpose(0, 1, 3, 2)[..., ::-1, :]
    signs = _pictures(folder, rng)["signs"][..., 2:30, 2:30]
    foreign = {
        "signs": signs.mean(axis=1, keepdims=True),
        "overlaid": np.maximum(x[:N_FOREIGN], turned),
        "uniform": rng.random((N_FOREIGN, 1, 28, 28), dtype=np.float32),
    }
    return Data(
        x, stored["y_train"][train].astype(np.int64),
        _unit(stored["x_train"][val])[:, None], stored["y_train"][val].astype(np.int64),
        _unit(stored["x_test"][chosen])[:, None], stored["y_test"][chosen].astype(np.int64),
        foreign,
    )  # fmt: skip


def _signs(stored: Any, folder: Path, rng: np.random.Generator) -> Data:
    """Foreign: digits, and uniform noise."""
    order = rng.permutation(len(stored["y_test"]))
    val, test = order[:5000], order[5000 : 5000 + N_TEST]
    shuffled = rng.permutation(len(stored["y_train"]))
    x_test, foreign = _planes(undelta(stored["x_test"])), _pictures(folder, rng)
    return Data(
        _planes(undelta(stored["x_train"]))[shuffled], stored["y_train"][shuffled].astype(np.int64),
        x_test[val], stored["y_test"][val].astype(np.int64),
        x_test[test], stored["y_test"][test].astype(np.int64),
        {name: foreign[name] for name in ("digits", "uniform")},
    )  # fmt: skip


def _cifar(stored: Any, folder: Path, rng: np.random.Generator) -> Data:
    """Foreign: digits, traffic signs, and uniform noise."""
    x, y = _planes(decode(stored["jpeg"], stored["sizes"])), stored["y"].astype(np.int64)
    first = int(stored["n_train"])
    order = rng.permutation(first)
    val, train = order[:5000], order[5000:]
    parts = x[train], y[train], x[val], y[val], x[first:], y[first:]
    return Data(*parts, _pictures(folder, rng))


IMAGES = {"mnist": _mnist, "signs": _signs, "cifar": _cifar}


def decode(jpeg: Bytes, sizes: Ints) -> Bytes:
    """Images of shape (n, height, width, 3) from JPEG files back to back."""
    from PIL import Image

    parts = np.split(jpeg, np.cumsum(sizes)[:-1])
    return np.stack([np.asarray(Image.open(io.BytesIO(part.tobytes()))) for part in parts])


def _unit(pixels: np.ndarray) -> Floats32:
    return pixels.astype(np.float32) / np.float32(255)


def _planes(pixels: np.ndarray) -> Floats32:
    """Colors before rows and columns, as torch wants them."""
    return _unit(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)))


def delta(images: NDArray[Any]) -> Bytes:
    """Differences along rows, columns and colors, of shape (3, n, height, width), modulo 256.

    They deflate better than pixels, and unpacking restores every pixel.
    """
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


def shift_table(x: Samples, training: Samples, seed: int) -> dict[str, Samples]:
    """Shifted versions of samples of shape (n, d), by name; noise in units of each spread.

    The record is wrong, and the truth stays as it was before the shift. Noise is for numbers. Where
    there are categories, the first column is missing in place of a swap and larger values.
    """
    rng = np.random.default_rng(seed)
    n, d = x.shape
    order = rng.random((n, d)).argsort(axis=1)
    numbers = numbers_of(x)
    values = x[:, numbers].astype(np.float64)
    spread = training[:, numbers].astype(np.float64).std(axis=0)
    resampled = x.copy()
    others = training[rng.integers(0, len(training), (n, d)), np.arange(d)]
    few = order[:, : max(1, d // 4)]
    np.put_along_axis(resampled, few, np.take_along_axis(others, few, 1), 1)
    found = {}
    for name, strength in (("noise, weak", 0.3), ("noise, strong", 1.0)):
        found[name] = x.copy()
        found[name][:, numbers] = values + strength * spread * rng.standard_normal(values.shape)
    found["a quarter resampled"] = resampled
    if len(numbers) < d:
        found["a column missing"] = x.copy()
        found["a column missing"][:, 0] = np.nan
        return found
    swapped, pairs = x.copy(), order[:, :2]
    np.put_along_axis(swapped, pairs, np.take_along_axis(x, pairs[:, ::-1], 1), 1)
    return found | {"two features swapped": swapped, "doubled": 2 * x}
