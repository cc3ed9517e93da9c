"""Shifts of tables: the record is wrong, the truth stays as it was before the shift."""

from __future__ import annotations

import numpy as np

from iknow.core.arrays import Floats32


def shift_table(x: Floats32, training: Floats32, seed: int) -> dict[str, Floats32]:
    """Shifted versions of samples of shape (n, d), by name; noise in units of each spread."""
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
