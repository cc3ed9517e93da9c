"""Equal coverage: methods are compared when they assert equally much of ordinary data.

A threshold is chosen on clean validation data so that the share c of it is asserted, for each
method by its own scores. On any other data the method asserts what its threshold says, and what
counts is the share of samples asserted and wrong. A method that asserts little there is right to do
so.

With ties no threshold may give c exactly. Then all above it are asserted, and those at it with the
probability that makes up the difference (`iknow.evaluation.risk_coverage` draws the same line).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from iknow.core.arrays import Floats
from iknow.errors import InputError


@dataclass(frozen=True)
class Threshold:
    """Assert what scores higher than `value`, and a share of what scores exactly that.

    Attributes:
        value: The score.
        share: The probability to assert at the score itself, in [0, 1].
    """

    value: float
    share: float

    def asserts(self, scores: Floats) -> Floats:
        """Return the probability that each sample is asserted, by its `scores` of shape (n,)."""
        return np.where(scores == self.value, self.share, np.where(scores > self.value, 1.0, 0.0))


def match_coverage(scores: Floats, coverage: float) -> Threshold:
    """Choose the threshold at which a share of samples is asserted, exactly.

    Args:
        scores: Scores of clean samples, of shape (n,).
        coverage: The share to assert, in (0, 1].

    Examples:
        >>> match_coverage(np.array([1.0, 2.0, 2.0, 3.0]), 0.5)
        Threshold(value=2.0, share=0.5)
    """
    if not 0 < coverage <= 1:
        raise InputError(f"a coverage must lie in (0, 1]; got {coverage}")
    wanted = coverage * len(scores)
    ranked = np.sort(scores)[::-1]
    # Rounding must not ask for one more sample than there are.
    value = ranked[min(len(ranked), max(1, int(np.ceil(wanted - 1e-9)))) - 1]
    above, at = int((scores > value).sum()), int((scores == value).sum())
    return Threshold(float(value), float(np.clip((wanted - above) / at, 0.0, 1.0)))
