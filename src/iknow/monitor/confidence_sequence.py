"""A confidence sequence: an interval for an average that is right at all times at once.

Errors e_1, e_2, ... are 0 or 1, and m_t is the probability of an error given the past. For any λ

    exp(λ k_n) / Π_t (1 + (e^λ - 1) m_t),        k_n = e_1 + ... + e_n

is a martingale that starts at 1: each factor has conditional mean 1. The logarithm of
1 + (e^λ - 1) m is concave in m, so the product is at most the power with the average m̄ of the m_t:

    W(m̄) = exp(λ k_n) / (1 + (e^λ - 1) m̄)^n  <=  the martingale

and so is a mixture over λ. By Ville's inequality W(m̄) reaches 2/α at any n with probability α/2 at
most. Positive λ speak against an m̄ that is too low, negative ones against one too high. The
averages against which neither speaks form the interval; it covers m̄ at all times at once with
probability 1 - α.

The m_t may change, and depend on the past: the interval is about their average so far. The λ are a
fixed grid that does not depend on m̄, as the inequality needs it. (A beta-binomial mixture, Robbins
1970, is about as wide, but needs errors with one and the same probability.)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from iknow.core.arrays import Floats

TILTS: Floats = 2.0 ** np.arange(-12, 4.5, 0.5)
"""|λ|, from what tells most about ten million samples to what tells most without any error."""

HALVINGS = 60


def bound_errors(errors: int, n: int, alpha: float) -> tuple[float, float]:
    """The interval for the average probability of an error, after `errors` in `n` samples.

    Examples:
        >>> low, high = bound_errors(5, 1000, alpha=0.05)
        >>> print(f"{low:.4f} to {high:.4f}")
        0.0005 to 0.0172
    """
    if n == 0:
        return 0.0, 1.0
    limit, share = np.log(2 / alpha), errors / n

    def speaks_against(average: float, sign: int) -> bool:
        tilts = sign * TILTS
        with np.errstate(divide="ignore"):  # all samples wrong, and the average 0
            logs = tilts * errors - n * np.log1p(np.expm1(tilts) * average)
        highest = logs.max()
        return bool(highest + np.log(np.exp(logs - highest).mean()) >= limit)

    return (
        _last_refuted(0.0, share, lambda average: speaks_against(average, 1)),
        _last_refuted(1.0, share, lambda average: speaks_against(average, -1)),
    )


def _last_refuted(refuted: float, kept: float, is_refuted: Callable[[float], bool]) -> float:
    """The end of the interval between an average that is refuted, if any is, and one that is not.

    Rounded outward: the result itself is refuted, or the end of all averages.
    """
    if not is_refuted(refuted):
        return refuted
    for _ in range(HALVINGS):
        middle = (refuted + kept) / 2
        if is_refuted(middle):
            refuted = middle
        else:
            kept = middle
    return refuted
