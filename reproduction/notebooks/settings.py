"""The notebooks' settings: data, network, layers of support, and the rules they try.

All train with Adam from He's initial weights for a number of epochs, and read dense and convolution
layers after their ReLU. A network that ends far below the printed accuracy has not learned: as in
the paper's experiments, it starts again from other weights. The notebooks show one network each.

The blobs are the very ones of the notebooks: scikit-learn still draws the same numbers from their
seeds, and the classes of the test part have the counts that the notebooks print. The seed of a run
decides the split of the charts, which the notebook leaves to chance, and nothing about the blobs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from sklearn.datasets import make_blobs
from sklearn.model_selection import train_test_split

from iknow.core.arrays import Floats, Floats32, Ints
from iknow.core.rule import Rule
from iknow.rules import Ball, Nearest
from reproduction.data.datasets import Dataset, load_dataset, per_feature, scale
from reproduction.setups import Architecture, Convolution, Training

WINDOW = 55
N_BLOB_SAMPLES = 10_000


def load_windows(seed: int) -> Dataset:
    """Every window of 55 values of the control charts, which are split and scaled as a whole."""
    charts = load_dataset("synthetic_control", seed)
    X_train, y_train = cut_windows(charts.X_train, charts.y_train)
    X_val, y_val = cut_windows(charts.X_val, charts.y_val)
    X_test, y_test = cut_windows(charts.X_test, charts.y_test)
    return replace(
        charts,
        X_train=X_train,
        y_train=y_train,
        X_val=X_val,
        y_val=y_val,
        X_test=X_test,
        y_test=y_test,
    )


def cut_windows(X: Floats32, y: Ints) -> tuple[Floats32, Ints]:
    """All windows of series X, of shape (n, 1, length), and their labels: first windows first."""
    windows = sliding_window_view(X, WINDOW, axis=2)  # (n, 1, n_windows, WINDOW)
    cut = np.moveaxis(windows, 2, 0).reshape(-1, X.shape[1], WINDOW)
    return np.ascontiguousarray(cut), np.tile(y, windows.shape[2])


def load_blobs(n_classes: int, n_features: int, noise: float) -> Dataset:
    """Blobs of standard deviation `noise`, each feature then scaled by the training part.

    The notebooks have no validation part; they watch training on the test part, and so does this.
    They choose nothing by it.
    """
    X, y = draw_blobs(n_classes, n_features, noise)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.33, random_state=42)
    X_train, X_test = scale([X_train, X_test], per_feature)
    test = X_test, y_test
    classes = tuple(map(str, range(n_classes)))
    return Dataset("blobs", classes, X_train, y_train, *test, *test)


def draw_blobs(n_classes: int, n_features: int, noise: float) -> tuple[Floats, Ints]:
    """The blobs as they are drawn: of shape (n, n_features), and their classes, of shape (n,)."""
    X, y = make_blobs(
        n_samples=N_BLOB_SAMPLES,
        centers=n_classes,
        n_features=n_features,
        cluster_std=noise,
        random_state=0,
    )
    return X, y.astype(np.int64)


Kind = Literal["k", "radii", "stretched"]
NOISES = (0.5, 1.0, 1.5)


@dataclass(frozen=True)
class Trial:
    """Fixed rules in every layer. name: in `printed.csv`, by the number of the notebook's loop.

    numbers: the k or the radius of each layer; for "stretched", one radius of the input, which
    every layer multiplies by how much the weights stretch it.
    """

    name: str
    kind: Kind
    numbers: tuple[float, ...]

    def rules(self, layers: Sequence[str], stretches: Mapping[str, float]) -> dict[str, Rule]:
        """The neighborhoods by layer."""
        if self.kind == "stretched":
            return {layer: Ball(stretches[layer] * self.numbers[0]) for layer in layers}
        pairs = zip(layers, self.numbers, strict=True)
        if self.kind == "k":
            return {layer: Nearest(int(k)) for layer, k in pairs}
        return {layer: Ball(radius) for layer, radius in pairs}


@dataclass(frozen=True)
class Notebook:
    """One setting.

    name: ours. file: the notebook's. load: its data, with a seed. chooses: whether the radii of the
    largest coverage on validation data are chosen too. curve: radii of the one layer, for the
    largest F_IK of a plot. watched: after how many epochs the notebook says how accurate the
    network is on validation data.
    """

    name: str
    file: str
    load: Callable[[int], Dataset]
    architecture: Architecture
    training: Training
    layers: tuple[str, ...]
    trials: tuple[Trial, ...] = ()
    chooses: bool = False
    curve: tuple[float, ...] = ()
    watched: tuple[int, ...] = ()


def _blobs(n_classes: int, n_features: int, noise: float, seed: int) -> Dataset:
    del seed  # the notebooks fix it
    return load_blobs(n_classes, n_features, noise)


def _powers(i: float, *factors: float) -> tuple[float, ...]:
    return tuple(factor * 2.0**i for factor in factors)


_SERIES = Notebook(
    name="series",
    file="UCR_TimeSeries",
    load=load_windows,
    architecture=Architecture(
        convolutions=(Convolution(9, 12), Convolution(12, 16), Convolution(9, 12))
    ),
    training=Training(batch=128, epochs=32, least=0.88, rate=0.0005, weights="he"),
    layers=("relu3", "gap"),
    trials=(
        *(Trial(f"k {i}", "k", (i, i)) for i in range(1, 25)),
        *(Trial(f"radii {i}", "radii", _powers(i / 10, 1, 1 / 8)) for i in range(30, 50)),
    ),
    chooses=True,
    watched=(10, 20, 32),
)
_BLOBS = Notebook(
    name="blobs",
    file="Ball_tree_datasets",
    load=partial(_blobs, 5, 15, 1.0),
    architecture=Architecture(hidden=(10, 8, 6)),
    training=Training(batch=2048, epochs=50, least=0.95, weights="he"),
    layers=("relu1", "relu2", "relu3", "logits"),
    # The loops print other numbers than they use; these are the ones they use.
    trials=(
        *(Trial(f"k {i}", "k", (5 * i, 4 * i, 3 * i, 2 * i)) for i in range(1, 10)),
        Trial("k 3 everywhere", "k", (3, 3, 3, 3)),
        *(Trial(f"radii {i}", "radii", _powers(i, 4, 2, 1 / 2, 1 / 4)) for i in range(-5, 3)),
        *(Trial(f"stretched {i}", "stretched", (0.1 * i,)) for i in range(1, 10)),
    ),
)


def plane(noise: float) -> Notebook:
    """The notebook has noise 0.5; the paper's figure from it has 1.0 and 1.5 as well."""
    return Notebook(
        name=f"plane {noise}",
        file="Sample_code_epsilon_vs_performance",
        load=partial(_blobs, 2, 2, noise),
        architecture=Architecture(hidden=(10, 8, 6)),
        training=Training(batch=2048, epochs=50, least=0.8, weights="he"),
        layers=("logits",),
        curve=tuple(np.logspace(-4, 1, 30).tolist()),
    )


NOTEBOOKS = (_SERIES, _BLOBS, *map(plane, NOISES))
