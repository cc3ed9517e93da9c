"""Data: each dataset split by the seed into training, validation and test part, and foreign data.

| dataset | training | validation | test |
|---|---|---|---|
| mnist | 55,000 of the published training part | 5,000 of it | 2,500 of the published test part |
| signs | every third frame of the published training part | 5,000 of the test part | 2,500 of it |
| grid | 4,000 | 5,000 | 1,000 |
| others | 40% | 30% | 30% |

Validation images of traffic signs come from the published test part: frames of one drive past a
sign are nearly the same picture, so images of the training part would be too easy.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Floats32, Ints

N_TEST = 2500
N_FOREIGN = 1000

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Data:
    """Samples of shape (n, ...) with labels of shape (n,), and foreign samples by name."""

    x: Floats32
    y: Ints
    x_val: Floats32
    y_val: Ints
    x_test: Floats32
    y_test: Ints
    foreign: dict[str, Floats32]

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
    if dataset == "mnist":
        return _mnist(stored, folder, rng)
    if dataset == "signs":
        return _signs(stored, folder, rng)
    order = rng.permutation(len(stored["x"]))
    x, y = stored["x"][order].astype(np.float32), stored["y"][order].astype(np.int64)
    n = len(x)
    ends = (4000, 9000) if dataset == "grid" else (int(0.4 * n), int(0.7 * n))
    if dataset == "grid":  # as one would for a network; distances are invariant to it
        x = (x - x[: ends[0]].mean(axis=0)) / x[: ends[0]].std(axis=0)
    parts = np.split(x, ends), np.split(y, ends)
    foreign = {}
    if dataset != "grid" and dataset != "cancer":
        low, high = x.min(), x.max()
        foreign["uniform"] = rng.uniform(low, high, (N_FOREIGN, *x.shape[1:])).astype(np.float32)
    return Data(
        parts[0][0], parts[1][0], parts[0][1], parts[1][1], parts[0][2], parts[1][2], foreign
    )


def _mnist(stored: dict[str, np.ndarray], folder: Path, rng: np.random.Generator) -> Data:
    """Foreign: traffic signs in grey; two digits over each other, one turned; uniform noise."""
    order, chosen = rng.permutation(60000), rng.permutation(10000)[:N_TEST]
    val, train = order[:5000], order[5000:]
    x = _unit(stored["x_train"][train])[:, None]
    signs = np.load(folder / "signs.npz")["x_test"]
    signs = undelta(signs[:, rng.permutation(signs.shape[1])[:N_FOREIGN]])
    grey = _unit(signs).mean(axis=3)[:, 2:30, 2:30]
    turned = x[N_FOREIGN : 2 * N_FOREIGN].transpose(0, 1, 3, 2)[..., ::-1, :]
    foreign = {
        "signs": np.ascontiguousarray(grey[:, None]),
        "overlaid": np.maximum(x[:N_FOREIGN], turned),
        "uniform": rng.random((N_FOREIGN, 1, 28, 28), dtype=np.float32),
    }
    return Data(
        x, stored["y_train"][train].astype(np.int64),
        _unit(stored["x_train"][val])[:, None], stored["y_train"][val].astype(np.int64),
        _unit(stored["x_test"][chosen])[:, None], stored["y_test"][chosen].astype(np.int64),
        foreign,
    )  # fmt: skip


def _signs(stored: dict[str, np.ndarray], folder: Path, rng: np.random.Generator) -> Data:
    """Foreign: digits in the middle of a picture, and uniform noise."""
    order = rng.permutation(len(stored["y_test"]))
    val, test = order[:5000], order[5000 : 5000 + N_TEST]
    shuffled = rng.permutation(len(stored["y_train"]))
    x_test = _planes(undelta(stored["x_test"]))
    digits = _unit(np.load(folder / "mnist.npz")["x_test"][rng.permutation(10000)[:N_FOREIGN]])
    framed = np.pad(digits, ((0, 0), (2, 2), (2, 2)))[:, None].repeat(3, axis=1)
    foreign = {
        "digits": framed,
        "uniform": rng.random((N_FOREIGN, 3, 32, 32), dtype=np.float32),
    }
    return Data(
        _planes(undelta(stored["x_train"]))[shuffled], stored["y_train"][shuffled].astype(np.int64),
        x_test[val], stored["y_test"][val].astype(np.int64),
        x_test[test], stored["y_test"][test].astype(np.int64),
        foreign,
    )  # fmt: skip


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


def shift_table(x: Floats32, training: Floats32, seed: int) -> dict[str, Floats32]:
    """Shifted versions of samples of shape (n, d), by name; noise in units of each spread.

    The record is wrong, and the truth stays as it was before the shift.
    """
    rng = np.random.default_rng(seed)
    n, d = x.shape
    order = rng.random((n, d)).argsort(axis=1)
    spread = training.std(axis=0)
    swapped, resampled = x.copy(), x.copy()
    pairs = order[:, :2]
    np.put_along_axis(swapped, pairs, np.take_along_axis(x, pairs[:, ::-1], 1), 1)
    others = training[rng.integers(0, len(training), (n, d)), np.arange(d)]
    few = order[:, : max(1, d // 4)]
    np.put_along_axis(resampled, few, np.take_along_axis(others, few, 1), 1)
    found = {
        "noise, weak": x + 0.3 * spread * rng.standard_normal(x.shape),
        "noise, strong": x + spread * rng.standard_normal(x.shape),
        "two features swapped": swapped,
        "doubled": 2 * x,
        "a quarter resampled": resampled,
    }
    return {name: each.astype(np.float32) for name, each in found.items()}
