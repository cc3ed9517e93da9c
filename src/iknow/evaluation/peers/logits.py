"""Peers that read nothing but the logits: softmax, with a temperature too, energy, and ensembles.

Softmax: the probability that the model itself gives to its answer.

The baseline of Hendrycks and Gimpel, "A Baseline for Detecting Misclassified and
Out-of-Distribution Examples in Neural Networks" (ICLR 2017). The answer is almost always the class
of highest probability; where it is not (a support vector machine votes), the answer's own counts.

Probabilities near 1 round to 1, and then confident answers could not be told apart. So the score is
the logarithm, which orders samples the same way and keeps them apart:

    log p_g = -log(1 + Σ_{c ≠ g} exp(l_c - l_g))

Temperature: softmax after one number has made the probabilities honest on validation data.

Guo and others, "On Calibration of Modern Neural Networks" (ICML 2017): divide the logits by the
temperature T > 0 that minimizes the negative log-likelihood of the validation labels.

Energy: how large the logits are in all.

Liu and others, "Energy-based Out-of-distribution Detection" (NeurIPS 2020), with T = 1:

    score = log Σ_c exp(l_c)

It takes logits: of log-probabilities the sum is 1 for every sample.

Ensemble: several networks trained alike, their probabilities averaged.

Lakshminarayanan and others, "Simple and Scalable Predictive Uncertainty Estimation using Deep
Ensembles" (NeurIPS 2017). The average is a model of its own, with its own belief; `Softmax` scores
it by the maximum of the average.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, logsumexp

from iknow.core.arrays import Floats, Ints
from iknow.errors import InputError
from iknow.evaluation.peers.peer import Observed, Peer


class Softmax(Peer):
    """Scores an answer by the logarithm of its softmax probability.

    Examples:
        >>> bool((Softmax().fit(training, validation).score(test) <= 0).all())
        True
    """

    name = "softmax"

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


class Energy(Peer):
    """Scores an answer by the negative free energy of its logits.

    Examples:
        >>> Energy().fit(training, validation).score(test).shape == test.belief.shape
        True
    """

    name = "energy"

    def score(self, observed: Observed) -> Floats:
        """Return a score for each sample of `observed`, of shape (n,)."""
        return np.asarray(logsumexp(observed.logits.astype(np.float64), axis=1))


def ensemble(members: Sequence[Observed]) -> Observed:
    """Average what several models say about the same samples.

    Args:
        members: Each model's observation of the samples, in the same order.

    Returns:
        The average: log-probabilities as logits, the class of the highest as belief, no hidden
        layer; inputs and labels of the first member.

    Examples:
        >>> bool((ensemble([test, test]).belief == test.belief).all())
        True
    """
    if not members:
        raise InputError("an ensemble needs at least one member; got none")
    shapes = {member.logits.shape for member in members}
    if len(shapes) > 1:
        raise InputError(f"members must have logits of the same shape; got {sorted(shapes)}")
    logs = np.stack([log_softmax(member.logits.astype(np.float64), axis=1) for member in members])
    mean = logsumexp(logs, axis=0) - np.log(len(members))
    return Observed(members[0].inputs, None, mean, mean.argmax(axis=1), members[0].labels)
