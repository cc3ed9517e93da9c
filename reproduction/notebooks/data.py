"""The notebooks' data: control charts cut into windows, and blobs.

The blobs are the very ones of the notebooks: scikit-learn still draws the same numbers from their
seeds, and the classes of the test part have the counts that the notebooks print. The seed of a run
decides the split of the charts, which the notebook leaves to chance, and nothing about the blobs.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from sklearn.datasets import make_blobs
from sklearn.model_selection import train_test_split

from iknow.core.arrays import Floats, Floats32, Ints
from reproduction.data.datasets import Dataset, load_dataset, per_feature, scale

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
