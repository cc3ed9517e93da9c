"""The six datasets of the paper's experiments, split into training, validation and test parts.

Where the authors of a dataset publish a part, it is used as published. A part they do not publish
is drawn at random from their training part, stratified by class: the classes keep their shares. The
seed decides the draw and nothing else does, so two datasets over the same rows (the two of the
power grid) are split alike. What is learned for scaling is learned from the training part alone.

    read (nothing is random, nothing learned) → split → scale → Dataset
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_iris
from sklearn.model_selection import train_test_split

from iknow.core.arrays import Floats32, Ints
from iknow.errors import InputError
from reproduction.data import sources
from reproduction.data.files import Source, find_files

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


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset as an experiment uses it.

    X_train, X_val, X_test: of shape (n, ...), alike but for n. y_train, y_val, y_test: of shape
    (n,), positions in `classes`. Published parts keep their order, which may be class by class.
    """

    name: str
    classes: tuple[str, ...]
    X_train: Floats32
    y_train: Ints
    X_val: Floats32
    y_val: Ints
    X_test: Floats32
    y_test: Ints


Scaling = Callable[[NDArray[Any]], tuple[NDArray[Any], NDArray[Any]]]


def per_feature(X: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Mean and standard deviation of every feature: of shape (...) for X of shape (n, ...)."""
    return X.mean(axis=0), X.std(axis=0)


def overall(X: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """One mean and one standard deviation of all values."""
    return X.mean(), X.std()


@dataclass(frozen=True)
class Preparation:
    """How a dataset is made.

    n_val, n_test: how many samples to draw for a part that is not published.
    scaling: from the training part's X, the mean to subtract and the deviation to divide by.
    """

    read: Callable[[], Published]
    n_val: int = 0
    n_test: int = 0
    scaling: Scaling | None = None


DATASETS: dict[str, Preparation] = {
    "grid_stability": Preparation(read_grid_stability, n_val=1400, n_test=3000),
    "grid_stability_12": Preparation(
        read_grid_stability_12, n_val=1400, n_test=3000, scaling=per_feature
    ),
    # The paper's fractions for iris are multiples of 1/45.
    "iris": Preparation(read_iris, n_val=30, n_test=45),
    "italy_power_demand": Preparation(read_italy_power_demand, n_val=16, scaling=overall),
    "synthetic_control": Preparation(read_synthetic_control, n_val=60, scaling=overall),
    "mnist": Preparation(read_mnist, n_val=10_000),
    "gtsrb": Preparation(read_gtsrb),
}


def load_dataset(name: str, seed: int) -> Dataset:
    """Load a dataset by its name in the paper's tables; `seed` decides what is drawn at random."""
    if name not in DATASETS:
        raise InputError(f"no dataset is named {name!r}: choose one of {', '.join(DATASETS)}")
    preparation = DATASETS[name]
    raw = preparation.read()
    train, val, test = split(raw, preparation.n_val, preparation.n_test, seed)
    X_train, X_val, X_test = scale([train.X, val.X, test.X], preparation.scaling)
    return Dataset(
        name=name,
        classes=raw.classes,
        X_train=X_train,
        y_train=train.y,
        X_val=X_val,
        y_val=val.y,
        X_test=X_test,
        y_test=test.y,
    )


def split(raw: Published, n_val: int, n_test: int, seed: int) -> tuple[Part, Part, Part]:
    """Training, validation and test parts: those published, the others drawn from training."""
    train, val, test = raw.train, raw.val, raw.test
    if test is None:
        train, test = _draw(train, n_test, seed)
    if val is None:
        train, val = _draw(train, n_val, seed)
    return train, val, test


def scale(parts: Sequence[NDArray[Any]], scaling: Scaling | None) -> list[Floats32]:
    """Standardise all parts by what the first of them, the training part, says."""
    if scaling is None:
        return [X.astype(np.float32, copy=False) for X in parts]
    mean, deviation = scaling(parts[0])
    return [((X - mean) / deviation).astype(np.float32) for X in parts]


def _draw(pool: Part, n: int, seed: int) -> tuple[Part, Part]:
    """What is left of a pool, and n of its samples drawn at random, both shuffled."""
    rest, drawn = train_test_split(
        np.arange(len(pool.y)), test_size=n, stratify=pool.y, random_state=seed
    )
    return Part(pool.X[rest], pool.y[rest]), Part(pool.X[drawn], pool.y[drawn])
