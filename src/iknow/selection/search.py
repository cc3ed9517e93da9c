"""Grid search and Bayesian optimization, as the paper has them, beside the exact optimum."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np

from iknow.core.arrays import Floats
from iknow.errors import MissingExtraError
from iknow.selection.exact.boxes import Objective

if TYPE_CHECKING:
    import optuna


def search_grid(objective: Objective, n_trials: int) -> Floats:
    """The best of about `n_trials` points, spaced evenly in the logarithm of each parameter."""
    low, high = search_range(objective)
    per_axis = max(2, round(n_trials ** (1 / len(low))))
    axes = [np.geomspace(a, b, per_axis) for a, b in zip(low, high, strict=True)]
    points = [np.array(point) for point in itertools.product(*axes)]
    return max(points, key=objective.value)


def search_bayes(objective: Objective, n_trials: int, random_state: int) -> Floats:
    """The best of `n_trials` points proposed by a tree-structured Parzen estimator."""
    try:
        import optuna
    except ImportError as error:
        raise MissingExtraError("selection by Bayesian optimization", "bayes") from error
    low, high = search_range(objective)
    names = [str(axis) for axis in range(len(low))]

    def evaluate(trial: optuna.Trial) -> float:
        axes = zip(names, low, high, strict=True)
        point = [trial.suggest_float(name, a, b, log=True) for name, a, b in axes]
        return float(objective.value(np.array(point)))

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        sampler = optuna.samplers.TPESampler(seed=random_state)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        study.optimize(evaluate, n_trials=n_trials)
    finally:
        optuna.logging.set_verbosity(verbosity)
    return np.array([study.best_params[name] for name in names])


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
