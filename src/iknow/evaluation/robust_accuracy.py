"""Robust fractions: how much is still certain when inputs may be changed by so much.

A sample's robust radius is the change of its input, in the ℓ2 norm, below which no other class
can become IK. The samples that are IK, rightly so, and certified for at least r are what an
adversary with less than r cannot turn into a confident mistake.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.assertion import Assertion
from iknow.errors import InputError
from iknow.evaluation.metrics import evaluate
from iknow.explain.assessment import Assessment


@dataclass(frozen=True, eq=False)
class RobustCurve:
    """How many samples are certified for at least a radius, for every radius.

    radii: robust radii, finite and ascending from 0, of shape (m,). known: IK samples that are
    certified for at least each radius, of shape (m + 1,): the last holds beyond the last radius,
    forever. right: those among them whose belief is true, of shape (m + 1,); None without truth.
    The counts belong to a radius and to all between it and the one before.
    """

    radii: Floats
    known: Ints
    right: Ints | None
    n_samples: int

    @property
    def known_fraction(self) -> Floats:
        """Fraction of all samples that are IK and certified, of shape (m + 1,)."""
        fractions: Floats = self.known / self.n_samples
        return fractions

    @property
    def right_fraction(self) -> Floats | None:
        """Fraction of all samples that are IK, right and certified, of shape (m + 1,)."""
        return None if self.right is None else self.right / self.n_samples

    def places(self, radii: Any) -> Ints:
        """The places in the counts that answer for any radii; of their shape."""
        asked = np.asarray(radii, dtype=np.float64)
        if not (asked >= 0).all():  # NaN included
            raise InputError(f"radii must be numbers >= 0; got {radii}")
        found: Ints = np.searchsorted(self.radii, asked, side="left")
        return found


def robust_curve(assessment: Assessment, y_true: Any = None) -> RobustCurve:
    """The curve of the robust fraction against the radius.

    y_true: labels of shape (n,), to count right beliefs apart; may be left out.
    """
    if len(assessment) == 0:
        raise InputError("there is nothing to certify: the assessment is empty")
    ik: Bools = assessment.assertion == Assertion.IK
    certified = assessment.robust_radius
    finite = certified[ik & np.isfinite(certified)]
    radii = np.unique(np.append(finite, 0.0))
    right = None
    if y_true is not None:
        evaluate(assessment, y_true)  # refuses labels that do not fit
        right = _count(certified[ik & (assessment.belief == np.asarray(y_true))], radii)
    return RobustCurve(radii, _count(certified[ik], radii), right, len(assessment))


def _count(certified: Floats, radii: Floats) -> Ints:
    """How many are certified for at least each radius, and for more than all of them."""
    fewer = np.searchsorted(np.sort(certified), radii, side="left")
    return len(certified) - np.append(fewer, np.isfinite(certified).sum())
