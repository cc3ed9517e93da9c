"""Bayesian optimization by Optuna: how the paper chooses its radii, kept for comparison."""

from __future__ import annotations

import numpy as np
import optuna

from iknow.core.arrays import Floats
from iknow.selection.grid import search_range
from iknow.selection.objective import Objective


def search_bayes(objective: Objective, n_trials: int, random_state: int) -> Floats:
    """The best of `n_trials` points proposed by a tree-structured Parzen estimator."""
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
