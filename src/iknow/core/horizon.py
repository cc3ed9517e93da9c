"""Horizon: how far away a class can be and still affect a support.

For a belief g at a distance d_g, with r_k the distance to the k-th nearest training sample, no
other class beyond

    max(fixed, ratio · d_g, r_k)

affects the support, so its distance may as well be inf. A rule that promises a horizon is decided
without a distance to every class: see `iknow.core.decision`. The reach itself is often less; all
that counts is that it is never more.
"""

from __future__ import annotations

import math
from typing import NamedTuple


class Horizon(NamedTuple):
    """The three parts of a horizon; those that a rule does not have are 0.

    Attributes:
        fixed: A radius.
        ratio: Times the distance to the believed class; where that is inf, it counts as 0.
        k: The distance to the k-th nearest training sample; 0 for none.
    """

    fixed: float = 0.0
    ratio: float = 0.0
    k: int = 0

    @property
    def is_finite(self) -> bool:
        """Whether anything can lie beyond it."""
        return math.isfinite(self.fixed) and math.isfinite(self.ratio)
