"""Sensitivity: how far a layer's activation, as computed, can move when the input moves."""

from __future__ import annotations

from dataclasses import dataclass

LONGEST = 1e15
"""The ℓ2 length of inputs up to which a sensitivity is a promise."""


@dataclass(frozen=True)
class Sensitivity:
    """How a layer's activation, as computed, can move when the input moves.

    In real arithmetic |h(x) - h(z)| <= lipschitz · |x - z|₂. What is computed and stored, H(x), is
    within rounding + rounding_per_length · |x|₂ + relative_rounding · |H(x)|₂ of h(x), whatever the
    batch or the order of summation. Both hold for inputs up to the length LONGEST, where nothing
    overflows on the way.
    """

    lipschitz: float
    rounding: float = 0.0
    rounding_per_length: float = 0.0
    relative_rounding: float = 0.0
