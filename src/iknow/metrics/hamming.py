"""Hamming: in how many features two activations differ, whatever the values are.

    d(a, b) = |{ j : a_j ≠ b_j }|

For numbers that are names: the leaves in which the trees of a model put a sample (leaf 7 is no
nearer to leaf 8 than to leaf 90), categories, flags. It is the ℓp "norm" in the limit p → 0, and
p = 0 tells an index to count. We count features rather than take their share: counts are exact in
float64, so equal distances are equal to the last bit, and a radius reads as "other leaves in at
most 12 of the trees".

The slightest change of a feature is a whole step, so no constant bounds how far an activation can
move: Hamming distances certify no robust radius, and another layer has to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from iknow.metrics.metric import Metric

LEAVES = "leaves"
"""The layer that holds the numbers of leaves."""


@dataclass(frozen=True)
class Hamming(Metric):
    """The number of features that differ.

    Examples:
        >>> Hamming().distances([[4, 7, 2]], [[4, 7, 2], [4, 8, 3]])
        array([[0., 2.]])
    """

    @property
    def p(self) -> float:  # type: ignore[override]
        return 0.0

    def transform(self, activations: Any) -> Any:
        return np.asarray(activations)

    def restore(self, points: Any) -> Any:
        return points

    def expansion(self, n_features: int) -> float:
        return math.inf

    def rounding(self, n_features: int) -> float:
        return 0.0  # float32 stays as it is

    def to_dict(self) -> dict[str, Any]:
        return {"metric": type(self).__name__}
