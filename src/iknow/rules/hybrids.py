"""BallElseNearest and BallWithNearest, the paper's H-1 and H-2: a ball and the k nearest.

                                       BallElseNearest       BallWithNearest
reach       any sample within ε        ε                     max(ε, r_k)
            none                       r_k                   none
pure        the k nearest are all g    ε in [0, d_¬g)        ε in [d_g, d_¬g)
            they are not               ε in [d_g, d_¬g)      never
removals    ball and k nearest         it takes both         either is enough
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.assertion import Reason
from iknow.core.evidence import Evidence
from iknow.core.quorum import ONE, Contrast, Quorum
from iknow.core.rule import NO_REACH, Drawing, Horizon, Rule, Stability, parameter
from iknow.core.slack import lost_with_both, lost_with_either, radius_settings
from iknow.rules.ball import count_within, draw_ball
from iknow.rules.nearest import count_votes


@dataclass(frozen=True, repr=False)
class Hybrid(Rule):
    """A ball and the k nearest samples; a subclass says how they combine."""

    radius: float
    k: int
    quorum: Quorum = field(default=ONE, kw_only=True)

    axes = ("radius",)
    full_within = parameter("radius")
    settings = radius_settings

    def reach(self, evidence: Evidence) -> Floats:
        inhabited = evidence.nearest_distance() <= self.radius
        return np.where(inhabited, *self._reaches(evidence.neighbor_distance(self.k)))

    @abstractmethod
    def _reaches(self, kth: Floats) -> tuple[Floats | float, Floats | float]:
        """The reach where any sample lies within the radius, and where none does. kth: r_k."""

    @property
    def horizon(self) -> Horizon:
        return Horizon(fixed=self.radius, k=self.k)

    def removals(self, evidence: Evidence, belief: Ints) -> Stability:
        if self.quorum != ONE:
            return super().removals(evidence, belief)
        ball = count_within(evidence, self.radius, belief)
        return self._lost(ball, count_votes(evidence, self.k, belief))

    _lost = staticmethod(lost_with_both)


class BallElseNearest(Hybrid):
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

    def _reaches(self, kth: Floats) -> tuple[float, Floats]:
        return self.radius, kth

    @classmethod
    def box(cls, contrast: Contrast, k: int | None) -> list[tuple[Floats, Floats]]:
        # Ties with the k-th neighbor count, so the k nearest are all g if none is as far as d_¬g.
        kth = contrast.neighbor_distance(k or 0)
        agree = (contrast.own <= kth) & (kth < contrast.other)
        return [(np.where(agree, 0.0, contrast.own), contrast.other)]

    def drawing(self) -> Drawing | None:
        # The k nearest decide where nothing is within the radius.
        return draw_ball(self.radius, Reason.KNOWN, Reason.OVERLAP, Reason.CONTRADICTION)


class BallWithNearest(Hybrid):
    """The ball and the k nearest samples, or nothing where the ball is empty (the paper's H-2).

    `radius`, `k` and `quorum` are those of `BallElseNearest`.

    Examples:
        >>> from iknow import BallWithNearest
        >>> BallWithNearest(0.5, 3)
        BallWithNearest(radius=0.5, k=3)
    """

    empty_beyond = parameter("radius")
    _lost = staticmethod(lost_with_either)

    def _reaches(self, kth: Floats) -> tuple[Floats, float]:
        return np.maximum(self.radius, kth), NO_REACH

    @classmethod
    def box(cls, contrast: Contrast, k: int | None) -> list[tuple[Floats, Floats]]:
        agree = contrast.neighbor_distance(k or 0) < contrast.other
        return [(contrast.own, np.where(agree, contrast.other, contrast.own))]

    def drawing(self) -> Drawing | None:
        # Elsewhere the k nearest may add a class.
        return draw_ball(self.radius, Reason.OVERLAP, Reason.EXTRAPOLATION)
