"""Sensitivity: how far a layer's activation, as computed, can move when the input moves."""

from __future__ import annotations

from dataclasses import dataclass

LONGEST = 1e15
"""A sensitivity holds for inputs up to this ℓ2 length."""


@dataclass(frozen=True)
class Sensitivity:
    """How far a layer's activation, as computed, can move when the input moves.

    In real arithmetic |h(x) - h(z)| <= lipschitz · |x - z|₂. The computed and stored H(x) is within
    rounding + rounding_per_length · |x|₂ + relative_rounding · |H(x)|₂ of h(x), for any batch and
    order of summation. Both hold for inputs no longer than LONGEST: none overflows on the way.

    Attributes:
        lipschitz: Lipschitz constant in ℓ2 from the input to the activation.
        rounding: Constant part of the rounding error.
        rounding_per_length: Rounding error per unit of the input's length.
        relative_rounding: Rounding error per unit of the activation's length.
    """

    lipschitz: float
    rounding: float = 0.0
    rounding_per_length: float = 0.0
    relative_rounding: float = 0.0
