"""What comes from scikit-learn: two small datasets, and models of trees."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

from benchmarks.scoreboard.problems import Kind
from iknow.core.arrays import Floats32, Ints


def digits() -> tuple[Floats32, Ints]:
    """Images of 8 x 8 pixels in [0, 1]."""
    x, y = load_digits(return_X_y=True)
    return (x / 16).astype(np.float32).reshape(-1, 1, 8, 8), y.astype(np.int64)


def cancer() -> tuple[Floats32, Ints]:
    """Thirty measurements of very different units."""
    x, y = load_breast_cancer(return_X_y=True)
    return x.astype(np.float32), y.astype(np.int64)


def train_trees(kind: Kind, x: Floats32, y: Ints, seed: int) -> Any:
    """A trained classifier of trees, with the package's own settings."""
    if kind == "forest":
        model = RandomForestClassifier(n_estimators=100, random_state=seed)
    else:
        model = HistGradientBoostingClassifier(random_state=seed)
    return model.fit(x, y)
