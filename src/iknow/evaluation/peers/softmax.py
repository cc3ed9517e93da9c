"""Softmax: the probability that the model itself gives to its answer.

The baseline of Hendrycks and Gimpel, "A Baseline for Detecting Misclassified and
Out-of-Distribution Examples in Neural Networks" (ICLR 2017). The answer is almost always the class
of highest probability; where it is not (a support vector machine votes), the answer's own counts.

Probabilities near 1 round to 1, and then confident answers could not be told apart. So the score is
the logarithm, which orders samples the same way and keeps them apart:

    log p_g = -log(1 + Σ_{c ≠ g} exp(l_c - l_g))
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from iknow.core.arrays import Floats, Ints
from iknow.evaluation.peers.observed import Observed


class Softmax:
    """Scores an answer by the logarithm of its softmax probability.

    Examples:
        >>> bool((Softmax().fit(training, validation).score(test) <= 0).all())
        True
    """

    name = "softmax"

    def fit(self, training: Observed, validation: Observed) -> Self:
        """Learn nothing from `training` and `validation`."""
        return self

    def score(self, observed: Observed) -> Floats:
        """Return a score for each sample of `observed`, of shape (n,)."""
        return log_probability(observed.logits, observed.belief)


def log_probability(logits: NDArray[Any], belief: Ints) -> Floats:
    """The logarithm of the probability of each answer, of shape (n,)."""
    rows = np.arange(len(logits))
    leads = np.asarray(logits, dtype=np.float64) - logits[rows, belief][:, None]
    leads[rows, belief] = -np.inf
    # logaddexp(0, x) is log(1 + exp(x)), exact for very small and very large x.
    return -np.logaddexp(0.0, logsumexp(leads, axis=1))
