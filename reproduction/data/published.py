"""The datasets as their authors publish them: values in the shape a network wants, not yet split.

Nothing random happens here and nothing is learned from the data: pixels are scaled from 0..255 to
[0, 1], everything else is left as it is.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_iris

from iknow.core.arrays import Floats32, Ints
from reproduction.data import sources
from reproduction.data.files import find_files
from reproduction.data.making import Source

# The 43 signs of the benchmark in the eight groups of the paper.
SIGN_GROUPS: dict[str, tuple[int, ...]] = {
    "speed limit": (0, 1, 2, 3, 4, 5, 7, 8),
    "no passing": (9, 10),
    "end of restriction": (6, 32, 41, 42),
    "warning": (11, *range(18, 32)),
    "priority": (12,),
    "yield": (13,),
    "stop": (14, 15, 16, 17),
    "direction": tuple(range(33, 41)),
}
CONTROL_CHARTS = (
    "normal",
    "cyclic",
    "increasing trend",
    "decreasing trend",
    "upward shift",
    "downward shift",
)


@dataclass(frozen=True, eq=False)
class Part:
    """Samples: X of shape (n, ...), and y of shape (n,), codes of classes."""

    X: NDArray[Any]
    y: Ints


@dataclass(frozen=True, eq=False)
class Published:
    """A dataset's parts, in the order of publication. None: its authors made no such part."""

    classes: tuple[str, ...]
    train: Part
    val: Part | None = None
    test: Part | None = None


def read_mnist() -> Published:
    """Digits: X of shape (n, 784), pixels in [0, 1]."""
    return Published(
        classes=tuple("0123456789"),
        train=_mnist_part(sources.MNIST_TRAIN_IMAGES, sources.MNIST_TRAIN_LABELS),
        test=_mnist_part(sources.MNIST_TEST_IMAGES, sources.MNIST_TEST_LABELS),
    )


def read_gtsrb() -> Published:
    """Traffic signs in eight groups: X of shape (n, 3, 32, 32), channels in [0, 1]."""
    train, val = find_files(sources.GTSRB_TRAINING)
    (test,) = find_files(sources.GTSRB_TEST)
    return Published(tuple(SIGN_GROUPS), _signs(train), _signs(val), _signs(test))


def sample_signs(each: int = 10, seed: int = 0) -> tuple[NDArray[np.uint8], tuple[str, ...]]:
    """Some signs of each group, of shape (8, each, 32, 32, 3), if their file is at hand."""
    train, _ = find_files(sources.GTSRB_TRAINING, download=False)
    rng = np.random.default_rng(seed)
    with np.load(train, allow_pickle=False) as arrays:
        images, signs = arrays["x"], arrays["y"]
    rows = [
        rng.choice(np.flatnonzero(np.isin(signs, group)), each, replace=False)
        for group in SIGN_GROUPS.values()
    ]
    return images[np.array(rows)], tuple(SIGN_GROUPS)


def read_grid_stability() -> Published:
    """A power grid: X of shape (n, 13), the last column being `stab`.

    The label says whether `stab` is positive, so a classifier that sees it is given the answer.
    The paper's has 13 inputs; `read_grid_stability_12` leaves `stab` out.
    """
    (path,) = find_files(sources.GRID_STABILITY)
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.reader(stream))[1:]
    classes = ("stable", "unstable")
    values = np.array([row[:-1] for row in rows], dtype=np.float64)
    return Published(classes, Part(values, _codes([row[-1] for row in rows], classes)))


def read_grid_stability_12() -> Published:
    """A power grid without the answer among its inputs: X of shape (n, 12)."""
    grid = read_grid_stability()
    return Published(grid.classes, Part(grid.train.X[:, :-1], grid.train.y))


def read_iris() -> Published:
    """Iris flowers: X of shape (n, 4), in centimetres."""
    iris = load_iris()
    classes = tuple(str(name) for name in iris.target_names)
    return Published(classes, Part(iris.data, iris.target.astype(np.int64)))


def read_italy_power_demand() -> Published:
    """Power demand over a day: X of shape (n, 1, 24)."""
    train, test = find_files(sources.ITALY_POWER_DEMAND)
    classes = ("October to March", "April to September")
    return Published(classes, _series(train), test=_series(test))


def read_synthetic_control() -> Published:
    """Control charts: X of shape (n, 1, 60)."""
    train, test = find_files(sources.SYNTHETIC_CONTROL)
    return Published(CONTROL_CHARTS, _series(train), test=_series(test))


def _mnist_part(images: Source, labels: Source) -> Part:
    pixels, digits = _read_idx(*find_files(images)), _read_idx(*find_files(labels))
    return Part(_to_unit(pixels.reshape(len(pixels), -1)), digits.astype(np.int64))


def _read_idx(path: Path) -> NDArray[np.uint8]:
    """An array in MNIST's form: two zeros, the type (8: bytes), the rank, the shape, the values."""
    with gzip.open(path) as stream:
        content = stream.read()
    rank = content[3]
    shape = np.frombuffer(content, ">u4", count=rank, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * rank).reshape(shape)


def _signs(path: Path) -> Part:
    group = np.full(43, -1, dtype=np.int64)
    for code, signs in enumerate(SIGN_GROUPS.values()):
        group[list(signs)] = code
    with np.load(path, allow_pickle=False) as arrays:
        return Part(_to_unit(arrays["x"].transpose(0, 3, 1, 2)), group[arrays["y"]])


def _series(path: Path) -> Part:
    rows = np.loadtxt(path, dtype=np.float64, ndmin=2)
    return Part(rows[:, None, 1:], rows[:, 0].astype(np.int64) - 1)


def _to_unit(pixels: NDArray[np.uint8]) -> Floats32:
    values = np.ascontiguousarray(pixels, dtype=np.float32)
    values /= 255
    return values


def _codes(labels: Sequence[str], classes: Sequence[str]) -> Ints:
    code = {name: number for number, name in enumerate(classes)}
    return np.array([code[label] for label in labels], dtype=np.int64)
