"""Risk and coverage: what is asserted and wrong as more and more is asserted.

Sort samples by a score, the most trusted first, and assert them in turn. At each threshold

    coverage          = the share asserted
    generalized risk  = the share asserted and wrong

Both are shares of all samples, so the risk never falls as coverage grows, and the area under the
curve is the AUGRC of Traub and others, "Overcoming Common Flaws in the Evaluation of Selective
Classification Systems" (NeurIPS 2024): the average risk of an undetected error, between 0 and 1/2.
The more usual selective risk is their quotient.

A threshold asserts equal scores all together. Between two thresholds a share of them, drawn at
random, gives the straight line between the two points; so curve, area and thresholds at a given
coverage do not depend on the order of ties, and every coverage can be met by every method.

Methods are compared when they assert equally much of ordinary data: a threshold is chosen on clean
validation data so that the share c of it is asserted, for each method by its own scores. On any
other data what counts is the share asserted and wrong; a method that asserts little there is right
to do so. Where ties let no threshold give c exactly, all above it are asserted, and those at it
with the probability that makes up the difference.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from iknow.core.arrays import Bools, Floats, Ints
from iknow.errors import InputError


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """A risk-coverage curve, linear from point to point.

    Attributes:
        coverage: The share asserted, ascending from 0 to 1, of shape (m,).
        risk: The share asserted and wrong, of shape (m,).
    """

    coverage: Floats
    risk: Floats

    @property
    def selective_risk(self) -> Floats:
        """The share wrong of those asserted, of shape (m,); NaN where nothing is asserted."""
        shares = np.full(len(self.risk), np.nan)
        np.divide(self.risk, self.coverage, out=shares, where=self.coverage > 0)
        return shares

    @property
    def area(self) -> float:
        """The area under the curve of generalized risk, AUGRC."""
        return float(np.trapezoid(self.risk, self.coverage))

    def at(self, coverage: float) -> float:
        """Return the share asserted and wrong when the share `coverage` is asserted."""
        return float(np.interp(coverage, self.coverage, self.risk))

    def thinned(self, n_points: int) -> RiskCoverage:
        """Return the curve at `n_points` evenly spaced coverages, for drawing."""
        coverage = np.linspace(0, 1, n_points)
        return RiskCoverage(coverage, np.interp(coverage, self.coverage, self.risk))


def risk_coverage(scores: Floats, wrong: Bools, weights: Floats | None = None) -> RiskCoverage:
    """Compute the curve of generalized risk against coverage.

    Args:
        scores: The higher, the more to be trusted, of shape (n,).
        wrong: Which answers are wrong, of shape (n,).
        weights: How much each sample counts, of shape (n,). Default: all the same.

    Examples:
        >>> curve = risk_coverage(np.array([3.0, 2.0, 1.0]), np.array([False, False, True]))
        >>> curve.risk.round(2)
        array([0.  , 0.  , 0.  , 0.33])
    """
    _check(scores, wrong)
    order, ends = rank_ties(scores)
    mass = np.ones(len(scores)) if weights is None else weights
    coverage, risk = _climb(mass[None, :], order, ends, wrong)
    return RiskCoverage(coverage[0], risk[0])


def augrc(scores: Floats, wrong: Bools, weights: Floats | None = None) -> float:
    """Compute the area under the generalized risk-coverage curve; the smaller, the better.

    Args:
        scores: The higher, the more to be trusted, of shape (n,).
        wrong: Which answers are wrong, of shape (n,).
        weights: How much each sample counts, of shape (n,). Default: all the same.

    Examples:
        >>> round(augrc(np.array([3.0, 2.0, 1.0]), np.array([False, False, True])), 4)
        0.0556
    """
    return risk_coverage(scores, wrong, weights).area


def augrc_of_many(scores: Floats, wrong: Bools, weights: Floats) -> Floats:
    """The AUGRC under each of several weightings, of shape (b,); weights: of shape (b, n)."""
    order, ends = rank_ties(scores)
    coverage, risk = _climb(weights, order, ends, wrong)
    widths = np.diff(coverage, axis=1)
    areas: Floats = (widths * (risk[:, 1:] + risk[:, :-1])).sum(axis=1) / 2
    return areas


def rank_ties(scores: Floats) -> tuple[Ints, Ints]:
    """Rows from the highest score to the lowest, and where each group of equal ones ends."""
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    return order, np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))


def _climb(weights: Floats, order: Ints, ends: Ints, wrong: Bools) -> tuple[Floats, Floats]:
    """Coverage and risk from 0 on, for each row of weights, of shape (b, n_groups + 1)."""
    mass = weights[:, order]
    total = mass.sum(axis=1, keepdims=True)
    asserted = np.cumsum(mass, axis=1)[:, ends] / total
    missed = np.cumsum(mass * wrong[order], axis=1)[:, ends] / total
    start = np.zeros((len(weights), 1))
    return np.hstack([start, asserted]), np.hstack([start, missed])


def _check(scores: Floats, wrong: Bools) -> None:
    if scores.ndim != 1 or scores.shape != wrong.shape or len(scores) == 0:
        raise InputError(
            "scores and wrong must both have shape (n,), n >= 1; got "
            f"{scores.shape} and {wrong.shape}"
        )
    if np.isnan(scores).any():
        raise InputError(f"scores must be numbers; {int(np.isnan(scores).sum())} are NaN")


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
