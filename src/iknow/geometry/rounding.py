"""Rounding: how far the values of a layer, as computed, can be from those of real arithmetic.

A sum of n products in an arithmetic that rounds each operation by at most u of its result, in
whatever order, is off by at most γ |a|·|b|, γ = n u / (1 - n u) (Higham, Accuracy and Stability of
Numerical Algorithms, section 3.1). A layer that gets values v̂ near v therefore returns something
within

    Lip · |v̂ - v|  +  γ (‖ |W| ‖ · |v̂| + |b|)

of what it should. Sizes of values are bounded from the input's: |h(x)| <= |h(0)| + L·|x|. So what
is known of a layer is a line in |x|₂, and stays one through any number of layers.

An overflow on the way could be turned into an innocent number by the next function, so
`check_range` refuses what might be too large for inputs up to `LONGEST`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from iknow.core.arrays import Floats
from iknow.core.sensitivity import LONGEST, Sensitivity
from iknow.errors import LayerError
from iknow.geometry.lipschitz import FLOAT32_ROUNDING, ROUND_UP

SMALLEST = 2.0**-149
"""What may be lost of each number in float32 besides, below the smallest normal one."""


@dataclass(frozen=True)
class Line:
    """At most `fixed + per_length · |x|₂`."""

    fixed: float = 0.0
    per_length: float = 0.0

    def __add__(self, other: Line) -> Line:
        return Line(self.fixed + other.fixed, self.per_length + other.per_length)

    def __mul__(self, factor: float) -> Line:
        return Line(self.fixed * factor * ROUND_UP, self.per_length * factor * ROUND_UP)


@dataclass(frozen=True)
class Computed:
    """The values of a layer as computed: what they are for the input 0, and how far off.

    at_zero: of shape (n_features,). error: of all values together, in ℓ2. lipschitz: the ℓ2
    constant from the input, in real arithmetic.
    """

    at_zero: Floats
    error: Line = Line()
    lipschitz: float = 1.0

    @property
    def size(self) -> Line:
        """The ℓ2 norm of what is computed."""
        at_zero = float(np.linalg.norm(self.at_zero)) * ROUND_UP + self.error.fixed
        return Line(at_zero, self.lipschitz) + self.error

    def through(
        self, at_zero: Floats, lipschitz: float, stretch: float, noise: float, fixed: float
    ) -> Computed:
        """Past a step that stretches errors and adds noise · |its input| + fixed of its own.

        lipschitz: the constant from the input up to here, which may be less than the product.
        """
        error = self.error * stretch + self.size * noise + Line(fixed * ROUND_UP)
        return Computed(at_zero, error, lipschitz)

    def check_range(self, *factors: Floats) -> None:
        """What comes next, sums of products with these factors, must be far from overflowing."""
        largest = self.size.fixed + self.size.per_length * LONGEST
        if not largest < 1e150 or any(not np.linalg.norm(each) < 1e100 for each in factors):
            raise LayerError(
                f"values of up to {largest:.3g} might overflow float64 here: scale the inputs, or "
                "look at the weights"
            )

    def stored(self) -> Sensitivity:
        """The sensitivity of the layer, once its values are rounded to float32."""
        fixed = SMALLEST * math.sqrt(len(self.at_zero))
        error = self.error + self.size * FLOAT32_ROUNDING + Line(fixed)
        return Sensitivity(self.lipschitz, error.fixed, error.per_length)
