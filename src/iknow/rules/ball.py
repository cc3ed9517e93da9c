"""Ball, the paper's ε-ball.

reach       ε
pure        ε in [d_g, d_¬g)
removals    all samples within ε, until the ball is empty
changes     t with n_g - t >= for and n_c + t < against: one change moves each count by at most 1
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.assertion import Reason
from iknow.core.evidence import Evidence, believed, distances_for_and_against
from iknow.core.quorum import ONE, Contrast, Quorum
from iknow.core.rule import Areas, Drawing, Horizon, Limits, Rule, Stability, parameter
from iknow.core.slack import count_nearest, radius_settings
from iknow.core.support import within


@dataclass(frozen=True, repr=False)
class Ball(Rule):
    """All training samples within a fixed radius (the paper's ε-ball).

    Args:
        radius: A number >= 0.
        quorum: How many samples a class needs to count, or two numbers (for, against).

    Examples:
        >>> from iknow import Ball
        >>> Ball(0.5)
        Ball(radius=0.5)
    """

    radius: float
    quorum: Quorum = field(default=ONE, kw_only=True)

    axes = ("radius",)
    empty_beyond = full_within = parameter("radius")
    settings = radius_settings

    def reach(self, evidence: Evidence) -> Floats:
        return np.full(len(evidence), self.radius)

    @property
    def horizon(self) -> Horizon:
        return Horizon(fixed=self.radius)

    @classmethod
    def box(cls, contrast: Contrast, k: int | None) -> list[tuple[Floats, Floats]]:
        return [(contrast.own, contrast.other)]

    def removals(self, evidence: Evidence, belief: Ints) -> Stability:
        if self.quorum == ONE:
            return count_within(evidence, self.radius, belief)
        own = believed(evidence.distances, belief)
        return count_own(evidence, within(own, self.radius), self)

    def changes(self, evidence: Evidence, belief: Ints) -> Ints:
        inside = within(evidence.distances, self.radius).sum(axis=2)
        rows = np.arange(len(belief))
        own = inside[rows, belief]
        inside[rows, belief] = 0
        most = np.minimum(own - self.quorum[0], self.quorum[1] - 1 - inside.max(axis=1))
        return np.asarray(np.maximum(most, 0))

    def drawing(self) -> Drawing | None:
        decided = Reason.KNOWN, Reason.OVERLAP, Reason.EXTRAPOLATION, Reason.CONTRADICTION
        return draw_ball(self.radius, *decided)


def count_within(evidence: Evidence, radius: float, belief: Ints) -> Stability:
    """Count the samples within a radius and nearer than every class but the believed one."""
    _, other = distances_for_and_against(evidence, belief)
    distances = evidence.neighbor_distances
    return count_nearest(evidence, (distances <= radius) & (distances < other[:, None]))


def count_own(evidence: Evidence, counted: Bools, rule: Rule) -> Stability:
    """How many of the believed class must go to leave fewer than the quorum; counted: which of its
    nearest samples count, a mask of shape (n, per_class), True up to some rank.
    """
    counts = counted.sum(axis=1)
    return Stability(np.maximum(counts - rule.quorum[0] + 1, 1), counts < evidence.per_class)


def draw_ball(radius: float, *decided: Reason) -> Drawing | None:
    """The believed class is within reach left of d_g = ε, another one below d_¬g = ε.

    decided: the reasons that the two distances alone determine.
    """

    def areas(x_limits: Limits, y_limits: Limits) -> Areas:
        (left, right), (bottom, top) = x_limits, y_limits
        center = (radius, radius)
        quarters = {
            Reason.KNOWN: [(left, radius), center, (radius, top), (left, top)],
            Reason.OVERLAP: [(left, bottom), (radius, bottom), center, (left, radius)],
            Reason.EXTRAPOLATION: [center, (right, radius), (right, top), (radius, top)],
            Reason.CONTRADICTION: [(radius, bottom), (right, bottom), (right, radius), center],
        }
        return {reason: quarters[reason] for reason in decided}

    return Drawing((radius,), areas) if np.isfinite(radius) else None
