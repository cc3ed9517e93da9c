"""Rounding: how far the computed values of a layer can be from those of real arithmetic.

In an arithmetic that rounds each operation by at most u times its result, a sum of n products, in
any order, is off by at most γ |a|·|b|, γ = n u / (1 - n u) (Higham, Accuracy and Stability of
Numerical Algorithms, section 3.1). So a layer that receives v̂ instead of v returns values within

    Lip · |v̂ - v|  +  γ (‖ |W| ‖ · |v̂| + |b|)

of the true ones. The size of the input bounds the size of the values: |h(x)| <= |h(0)| + L·|x|. So
the error bound of a layer is linear in |x|₂, and stays linear through any number of layers.

An activation function could hide an overflow, so `check_range` refuses values that might be too
large for inputs up to `LONGEST`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from iknow.core.arrays import Floats
from iknow.core.robustness import LONGEST, Sensitivity
from iknow.errors import LayerError
from iknow.metrics.lipschitz import FLOAT32_ROUNDING, ROUND_UP

SMALLEST = 2.0**-149  # the absolute error of float32 below its smallest normal number


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
    """The computed values of a layer: their value at the input 0, and bounds of their error.

    at_zero: of shape (n_features,). error: of the vector of values, in ℓ2. lipschitz: the ℓ2
    constant from the input, in real arithmetic.
    """

    at_zero: Floats
    error: Line = Line()
    lipschitz: float = 1.0

    @property
    def size(self) -> Line:
        """A bound of the ℓ2 norm of the computed values."""
        at_zero = float(np.linalg.norm(self.at_zero)) * ROUND_UP + self.error.fixed
        return Line(at_zero, self.lipschitz) + self.error

    def through(
        self, at_zero: Floats, lipschitz: float, stretch: float, noise: float, fixed: float
    ) -> Computed:
        """The values after a step that stretches errors and adds noise · |its input| + fixed.

        lipschitz: the constant from the input to here, which may be less than the product.
        """
        error = self.error * stretch + self.size * noise + Line(fixed * ROUND_UP)
        return Computed(at_zero, error, lipschitz)

    def check_range(self, *factors: Floats) -> None:
        """Check that sums of products with these factors stay far from overflow."""
        largest = self.size.fixed + self.size.per_length * LONGEST
        if not largest < 1e150 or any(not np.linalg.norm(each) < 1e100 for each in factors):
            raise LayerError(
                f"values of up to {largest:.3g} might overflow float64 here: scale the inputs, or "
                "check the weights"
            )

    def stored(self) -> Sensitivity:
        """The sensitivity of the layer, once its values are rounded to float32."""
        fixed = SMALLEST * math.sqrt(len(self.at_zero))
        error = self.error + self.size * FLOAT32_ROUNDING + Line(fixed)
        return Sensitivity(self.lipschitz, error.fixed, error.per_length)
