"""BallWithNearest, the paper's H-2.

reach       max(ε, r_k) if any sample lies within ε, else none
pure        ε in [d_g, d_¬g) if the k nearest are all g, else never
removals    those of the ball or those of the k nearest: either is enough
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.assertion import Reason
from iknow.core.evidence import Evidence
from iknow.core.quorum import ONE, Contrast, Quorum
from iknow.core.rule import NO_REACH, Drawing, Horizon, Rule, Sides, Stability, parameter
from iknow.core.slack import radius_settings
from iknow.core.stability import lost_with_either
from iknow.rules.ball import count_within, draw_ball
from iknow.rules.nearest import count_votes


@dataclass(frozen=True, repr=False)
class BallWithNearest(Rule):
    """The ball and the k nearest samples, or nothing where the ball is empty (the paper's H-2).

    Args:
        radius: Of the ball, a number >= 0.
        k: How many neighbors, at least 1.
        quorum: How many samples a class needs to count, or two numbers (for, against).

    Examples:
        >>> from iknow import BallWithNearest
        >>> BallWithNearest(0.5, 3)
        BallWithNearest(radius=0.5, k=3)
    """

    radius: float
    k: int
    quorum: Quorum = field(default=ONE, kw_only=True)

    axes = ("radius",)
    empty_beyond = full_within = parameter("radius")
    settings = radius_settings

    def reach(self, evidence: Evidence) -> Floats:
        inhabited = evidence.nearest_distance() <= self.radius
        wide = np.maximum(self.radius, evidence.neighbor_distance(self.k))
        return np.where(inhabited, wide, NO_REACH)

    @property
    def horizon(self) -> Horizon:
        return Horizon(fixed=self.radius, k=self.k)

    @classmethod
    def box(cls, contrast: Contrast, k: int | None) -> Sides:
        # Ties with the k-th neighbor count, so the k nearest are all g if none is as far as d_¬g.
        agree = contrast.neighbor_distance(k or 0) < contrast.other
        return [(contrast.own, np.where(agree, contrast.other, contrast.own))]

    def removals(self, evidence: Evidence, belief: Ints) -> Stability:
        if self.quorum != ONE:
            return super().removals(evidence, belief)
        ball = count_within(evidence, self.radius, belief)
        return lost_with_either(ball, count_votes(evidence, self.k, belief))

    def drawing(self) -> Drawing | None:
        # Elsewhere the k nearest may add a class.
        return draw_ball(self.radius, Reason.OVERLAP, Reason.EXTRAPOLATION)
