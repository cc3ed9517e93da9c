"""Validation samples of another kind than the training samples are told, ordinary ones are not."""

import warnings

import numpy as np
import pytest

from iknow.metrics import Euclidean
from iknow.search.layer import LayerIndex
from iknow.selection.repeats import sketch
from iknow.selection.validation import warn_of_strangers

CENTERS = 4 * np.random.default_rng(9).normal(size=(3, 6))


def draw(n, seed):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return (CENTERS[y] + rng.normal(size=(n, 6))).astype(np.float32), y


def compare(n_training, change, n=200, seed=0):
    points, y = draw(n_training, 1000 + seed)
    index = LayerIndex.build(points, y, 3, np.arange(n_training), Euclidean)
    ours = change(draw(n, seed)[0]).astype(np.float32)
    found = index.gather(ours, 3)
    warn_of_strangers(index, found, sketch(ours), sketch(index.points), "validation")


CHANGES = {
    "larger": lambda rows: 16 * rows,
    "smaller": lambda rows: rows / 16,
    "moved": lambda rows: rows + 20,
    "other columns": lambda rows: rows[:, ::-1],
    "noise": lambda rows: rows + 4 * np.random.default_rng(0).normal(size=rows.shape),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("n", [20, 200])
def test_another_kind_of_data_is_told(change, n):
    with pytest.warns(UserWarning, match=r"validation samples are (farther|nearer).*check units"):
        compare(500, change, n)


ORDINARY = {
    "the same": lambda rows: rows,
    "a little noise": lambda rows: rows + 0.2 * np.random.default_rng(0).normal(size=rows.shape),
    "one class alone": lambda rows: rows[np.linalg.norm(rows - CENTERS[0], axis=1) < 4],
    "an unknown class among others": lambda rows: np.r_[rows[: -len(rows) // 10], rows[:20] + 20],
}


@pytest.mark.parametrize("change", ORDINARY.values(), ids=ORDINARY)
@pytest.mark.parametrize("n_training", [20, 60, 500])
def test_ordinary_data_is_not(change, n_training):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in range(50):
            compare(n_training, change, seed=seed)
