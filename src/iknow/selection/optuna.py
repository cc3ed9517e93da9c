"""Bayesian optimisation by Optuna: how the paper chooses its radii, kept to compare with."""

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
        return float(objective.value(_point(trial)))

    def _point(trial: optuna.Trial) -> Floats:
        values = [
            trial.suggest_float(name, a, b, log=True)
            for name, a, b in zip(names, low, high, strict=True)
        ]
        return np.array(values)

    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        study = optuna.create_study(
            direction="maximize", sampler=optuna.samplers.TPESampler(seed=random_state)
        )
        study.optimize(evaluate, n_trials=n_trials)
    finally:
        optuna.logging.set_verbosity(verbosity)
    return np.array([study.best_params[name] for name in names])
