"""Energy: how large the logits are in all.

Liu and others, "Energy-based Out-of-distribution Detection" (NeurIPS 2020), with T = 1:

    score = log Σ_c exp(l_c)

It takes logits: of log-probabilities the sum is 1 for every sample.
"""

from __future__ import annotations

from typing import Self

import numpy as np
from scipy.special import logsumexp

from iknow.core.arrays import Floats
from iknow.evaluation.peers.observed import Observed


class Energy:
    """Scores an answer by the negative free energy of its logits.

    Examples:
        >>> Energy().fit(training, validation).score(test).shape == test.belief.shape
        True
    """

    name = "energy"

    def fit(self, training: Observed, validation: Observed) -> Self:
        """Learn nothing from `training` and `validation`."""
        return self

    def score(self, observed: Observed) -> Floats:
        """Return a score for each sample of `observed`, of shape (n,)."""
        return np.asarray(logsumexp(observed.logits.astype(np.float64), axis=1))
