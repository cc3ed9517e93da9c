"""Binomial: what the number of errors among some samples says about an accuracy, exactly."""

from __future__ import annotations

import numpy as np
from scipy.stats import beta, binom

from iknow.core.arrays import Floats, Ints


def p_values(errors: Ints, counts: Ints, accuracy: float) -> Floats:
    """P(Binomial(count, 1 - accuracy) <= errors); 1 without samples."""
    return np.asarray(binom.cdf(errors, counts, 1 - accuracy), dtype=np.float64)


def lower_bounds(errors: Ints, counts: Ints, confidence: float) -> Floats:
    """The lower confidence bounds of Clopper and Pearson on accuracies; 0 if none is right."""
    right = counts - errors
    lower = beta.ppf(1 - confidence, np.maximum(right, 1), errors + 1)
    return np.where(right > 0, lower, 0.0)


def least_samples(accuracy: float, confidence: float) -> int:
    """Return the number of samples, all right, below which nothing can be certified.

    Args:
        accuracy: To certify, between 0 and 1.
        confidence: Probability with which the certificate holds.

    Examples:
        >>> least_samples(0.99, 0.95)
        299
    """
    return max(1, int(np.ceil(np.log(1 - confidence) / np.log(accuracy))))


def samples_needed(accuracy: float, confidence: float, error_rate: float) -> int | None:
    """Return about how few samples, within 5%, certify an accuracy; None if no number does.

    Args:
        accuracy: To certify, between 0 and 1.
        confidence: Probability with which the certificate holds.
        error_rate: The share of the samples that are wrong.

    Examples:
        >>> samples_needed(0.99, 0.95, error_rate=0.005)
        1357
    """
    if error_rate >= 1 - accuracy:
        return None
    sizes = np.ceil(least_samples(accuracy, confidence) * 1.05 ** np.arange(400))
    enough = binom.cdf(np.ceil(error_rate * sizes), sizes, 1 - accuracy) <= 1 - confidence
    return int(sizes[enough.argmax()]) if enough.any() else None
