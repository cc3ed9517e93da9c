"""The six datasets of the paper's experiments, split into training, validation and test parts.

Where the authors of a dataset publish a part, it is used as published. A part they do not publish
is drawn at random from their training part, stratified by class: the classes keep their shares. The
seed decides the draw and nothing else does, so two datasets over the same rows (the two of the
power grid) are split alike. What is learned for scaling is learned from the training part alone.

    published.py → split → scale → Dataset
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split

from iknow.core.arrays import Floats32, Ints
from iknow.errors import InputError
from reproduction.data import published
from reproduction.data.published import Part, Published


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
    "grid_stability": Preparation(published.read_grid_stability, n_val=1400, n_test=3000),
    "grid_stability_12": Preparation(
        published.read_grid_stability_12, n_val=1400, n_test=3000, scaling=per_feature
    ),
    # The paper's fractions for iris are multiples of 1/45.
    "iris": Preparation(published.read_iris, n_val=30, n_test=45),
    "italy_power_demand": Preparation(published.read_italy_power_demand, n_val=16, scaling=overall),
    "synthetic_control": Preparation(published.read_synthetic_control, n_val=60, scaling=overall),
    "mnist": Preparation(published.read_mnist, n_val=10_000),
    "gtsrb": Preparation(published.read_gtsrb),
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
