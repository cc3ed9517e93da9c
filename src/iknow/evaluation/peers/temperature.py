"""Temperature: softmax after one number has made the probabilities honest on validation data.

Guo and others, "On Calibration of Modern Neural Networks" (ICML 2017): divide the logits by the
temperature T > 0 that minimizes the negative log-likelihood of the validation labels.
"""

from __future__ import annotations

from typing import Self

import numpy as np
from scipy.optimize import minimize_scalar

from iknow.core.arrays import Floats
from iknow.evaluation.peers.observed import Observed
from iknow.evaluation.peers.softmax import log_probability

RANGE = (np.log(1e-2), np.log(1e3))  # of log T: an overfit network asks for 2 or 3


class TemperatureSoftmax:
    """Scores an answer by the logarithm of its temperature-scaled probability.

    Attributes:
        temperature_: The temperature that `fit` chose.

    Examples:
        >>> TemperatureSoftmax().fit(training, validation).temperature_ > 0
        True
    """

    name = "softmax, temperature"
    temperature_: float

    def fit(self, training: Observed, validation: Observed) -> Self:
        """Choose the temperature on `validation`; `training` does not matter."""
        truth = validation.truth()

        def loss(log_temperature: float) -> float:
            scaled = validation.logits / np.exp(log_temperature)
            return -float(log_probability(scaled, truth).mean())

        self.temperature_ = float(np.exp(minimize_scalar(loss, bounds=RANGE).x))
        return self

    def score(self, observed: Observed) -> Floats:
        """Return a score for each sample of `observed`, of shape (n,)."""
        return log_probability(observed.logits / self.temperature_, observed.belief)
