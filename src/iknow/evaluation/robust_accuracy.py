"""Robust fractions: how much stays certain when inputs may change by up to a given amount.

No change of the input shorter than the robust radius, in the ℓ2 norm, makes another class IK. So
an adversary with a budget below r cannot turn the samples that are IK, correct, and have a robust
radius of at least r into confident mistakes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.assertion import Assertion
from iknow.errors import InputError
from iknow.evaluation.curves import find_places
from iknow.evaluation.metrics import evaluate
from iknow.explain.assessment import Assessment


@dataclass(frozen=True, eq=False)
class RobustCurve:
    """How many samples have at least a given robust radius, for every radius.

    A count holds at its radius and at all radii between it and the one before.

    Attributes:
        radii: Robust radii, finite and ascending from 0, of shape (m,).
        known: Number of IK samples that are robust at each radius, of shape (m + 1,). The last one
            holds beyond the last radius.
        right: Number of them whose belief is correct, of shape (m + 1,); None without truth.
        n_samples: Number of all samples.
    """

    radii: Floats
    known: Ints
    right: Ints | None
    n_samples: int

    @property
    def known_fraction(self) -> Floats:
        """Fraction of all samples that are IK and robust, of shape (m + 1,)."""
        fractions: Floats = self.known / self.n_samples
        return fractions

    @property
    def right_fraction(self) -> Floats | None:
        """Fraction of all samples that are IK, correct and robust, of shape (m + 1,)."""
        return None if self.right is None else self.right / self.n_samples

    def places(self, radii: Any) -> Ints:
        """Return the positions in the counts that hold for `radii`, in the shape of those."""
        return find_places(self.radii, radii, side="left")


def robust_curve(assessment: Assessment, y_true: Any = None) -> RobustCurve:
    """Compute the curve of the robust fraction against the radius.

    Args:
        assessment: What `assess` returned for n samples.
        y_true: True labels of shape (n,), to also count correct beliefs; optional.

    Examples:
        >>> curve = robust_curve(a, y_true)
        >>> curve.right_fraction[curve.places([0.0, 0.5, 1.0])].round(2)
        array([0.73, 0.48, 0.35])
    """
    if len(assessment) == 0:
        raise InputError("there is nothing to certify: the assessment is empty")
    ik: Bools = assessment.assertion == Assertion.IK
    certified = assessment.robust_radius
    radii = np.unique(np.append(certified[ik & np.isfinite(certified)], 0.0))
    right = None
    if y_true is not None:
        evaluate(assessment, y_true)  # refuses labels that do not fit
        right = _count(certified[ik & (assessment.belief == np.asarray(y_true))], radii)
    return RobustCurve(radii, _count(certified[ik], radii), right, len(assessment))


def _count(certified: Floats, radii: Floats) -> Ints:
    """How many are certified for at least each radius, and for more than all of them."""
    fewer = np.searchsorted(np.sort(certified), radii, side="left")
    return len(certified) - np.append(fewer, np.isfinite(certified).sum())
