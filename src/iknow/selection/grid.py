"""Grid search: evaluating settings on a regular grid, as the paper suggests."""

from __future__ import annotations

import itertools

import numpy as np

from iknow.core.arrays import Floats
from iknow.selection.objective import Objective


def search_grid(objective: Objective, n_trials: int) -> Floats:
    """The best of about `n_trials` points, spaced evenly in the logarithm of each parameter."""
    low, high = search_range(objective)
    per_axis = max(2, round(n_trials ** (1 / len(low))))
    axes = [np.geomspace(a, b, per_axis) for a, b in zip(low, high, strict=True)]
    points = [np.array(point) for point in itertools.product(*axes)]
    return max(points, key=objective.value)


def search_range(objective: Objective) -> tuple[Floats, Floats]:
    """The smallest and largest positive number at which anything changes, each of shape (n_axes,):
    what a search that does not know the boxes would take from the distances.
    """
    ends = np.concatenate([objective.lows, objective.highs])
    usable = np.isfinite(ends) & (ends > 0)
    low = np.min(ends, axis=0, where=usable, initial=np.inf)
    high = np.max(ends, axis=0, where=usable, initial=0.0)
    low = np.where(np.isinf(low), 1.0, low)  # nothing ever changes
    return low, np.maximum(low, high)
