"""Cosine: distances between the directions of activations, whatever their lengths.

Each activation is divided by its ℓ2 norm, n(a) = a / |a|, and the search is ℓ2, so

    d(a, b) = |n(a) - n(b)|₂ = √(2 - 2 cos(a, b)),

from 0 for the same direction over √2 for a right angle to 2 for opposite ones: the same order as
the cosine distance 1 - cos(a, b), which is d² / 2. Hidden layers of networks tell classes apart by
direction; the length says more about contrast or brightness. A zero vector has no direction. It
stays zero, at distance 1 from every direction and 0 from other zero vectors.

No constant bounds how far n can move: near 0 the slightest change turns any direction into any
other. But for each a and every b, zero or not,

    |n(a) - n(b)|  <=  2 |a - b| / (|a| + |b|)  <=  (2 / |a|) · |a - b|,

so a change shorter than a certain share of |a| cannot turn it far. No smaller factor holds for all
b: just beyond 0, at b = -ε a, the distance is 2 and |a - b| is (1 + ε) |a|.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from iknow.core.arrays import Floats
from iknow.metrics.lipschitz import FLOAT32_ROUNDING, FLOAT64_ROUNDING, ROUND_UP
from iknow.metrics.metric import Metric, in_parts, register_metric


@register_metric
@dataclass(frozen=True)
class Cosine(Metric):
    """The distance between directions, √(2 - 2 cos(a, b)): activations divided by their ℓ2 norm.

    Examples:
        >>> Cosine().distances([[1, 0]], [[5, 0], [0, 3], [-2, 0], [0, 0]]).round(3)
        array([[0.   , 1.414, 2.   , 1.   ]])
    """

    p = 2.0

    def transform(self, activations: Any) -> Any:
        def directions(values: Floats) -> Floats:
            scaled, _, norms = _measure(values)
            return np.divide(scaled, norms[:, None])

        return in_parts(directions, activations)

    def expansion(self, n_features: int) -> float:
        return math.inf

    def expansion_at(self, activations: Any) -> Floats:
        _, largest, norms = _measure(np.asarray(activations, dtype=np.float64))
        with np.errstate(divide="ignore", over="ignore"):
            found = 2 / largest / norms * ROUND_UP
        # Zero vectors, and activations that are not finite.
        return np.nan_to_num(found, nan=np.inf, posinf=np.inf)

    def rounding(self, n_features: int) -> float:
        return 0.0  # the length of an activation does not matter

    def relative_rounding(self, n_features: int) -> float:
        # Two divisions and a root of a sum of n_features squares, then rounding to float32.
        return (FLOAT32_ROUNDING + (n_features + 8) * FLOAT64_ROUNDING) * ROUND_UP


def _measure(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Rows divided by their largest entry, that entry, and the norms of what is left.

    So no square overflows or underflows. Norms are at least 1, and 1 for zero vectors.
    """
    largest: Floats = np.abs(values).max(axis=1, initial=0.0)
    is_some = largest > 0
    with np.errstate(invalid="ignore"):
        scaled = values / np.where(is_some, largest, 1.0)[:, None]
    norms = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))
    return scaled, largest, np.where(is_some, norms, 1.0)
