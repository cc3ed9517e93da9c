"""The parts of a fitted scikit-learn model: steps, classifier, activation functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.frozen import FrozenEstimator

from iknow.core.arrays import Floats

ACTIVATIONS: dict[str, Callable[[Floats], Floats]] = {
    "identity": lambda z: z,
    "logistic": expit,
    "tanh": np.tanh,
    "relu": lambda z: np.maximum(z, 0),
}


def unwrap(estimator: Any) -> tuple[list[tuple[str, Any]], Any]:
    """The transformers of a pipeline and the classifier at its end, unwrapped."""
    steps: list[tuple[str, Any]] = []
    while True:
        if hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif isinstance(estimator, FrozenEstimator):
            estimator = estimator.estimator
        elif hasattr(estimator, "steps"):
            steps += [(name, "passthrough" if s is None else s) for name, s in estimator.steps[:-1]]
            estimator = estimator.steps[-1][1]
        else:
            return steps, estimator
