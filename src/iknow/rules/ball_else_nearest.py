"""BallElseNearest, the paper's H-1.

reach       ε if any sample lies within it, else r_k
pure        ε in [0, d_¬g) if the k nearest are all g, else in [d_g, d_¬g)
removals    those of the ball and those of the k nearest: it takes both
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.assertion import Reason
from iknow.core.evidence import Evidence
from iknow.core.quorum import ONE, Contrast, Quorum
from iknow.core.rule import Drawing, Horizon, Rule, Sides, Stability, parameter
from iknow.core.slack import radius_settings
from iknow.core.stability import lost_with_both
from iknow.rules.ball import count_within, draw_ball
from iknow.rules.nearest import count_votes


@dataclass(frozen=True, repr=False)
class BallElseNearest(Rule):
    """The ball, or the k nearest samples where the ball is empty (the paper's H-1).

    Args:
        radius: Of the ball, a number >= 0.
        k: How many neighbors, at least 1.
        quorum: How many samples a class needs to count, or two numbers (for, against).

    Examples:
        >>> from iknow import BallElseNearest
        >>> BallElseNearest(0.5, 3)
        BallElseNearest(radius=0.5, k=3)
    """

    radius: float
    k: int
    quorum: Quorum = field(default=ONE, kw_only=True)

    axes = ("radius",)
    full_within = parameter("radius")
    settings = radius_settings

    def reach(self, evidence: Evidence) -> Floats:
        inhabited = evidence.nearest_distance() <= self.radius
        return np.where(inhabited, self.radius, evidence.neighbor_distance(self.k))

    @property
    def horizon(self) -> Horizon:
        return Horizon(fixed=self.radius, k=self.k)

    @classmethod
    def box(cls, contrast: Contrast, k: int | None) -> Sides:
        # Ties with the k-th neighbor count, so the k nearest are all g if none is as far as d_¬g.
        kth = contrast.neighbor_distance(k or 0)
        agree = (contrast.own <= kth) & (kth < contrast.other)
        return [(np.where(agree, 0.0, contrast.own), contrast.other)]

    def removals(self, evidence: Evidence, belief: Ints) -> Stability:
        if self.quorum != ONE:
            return super().removals(evidence, belief)
        ball = count_within(evidence, self.radius, belief)
        return lost_with_both(ball, count_votes(evidence, self.k, belief))

    def drawing(self) -> Drawing | None:
        # The k nearest decide where nothing is within the radius.
        return draw_ball(self.radius, Reason.KNOWN, Reason.OVERLAP, Reason.CONTRADICTION)
