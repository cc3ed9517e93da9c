"""Ball, the paper's ε-ball.

reach       ε, or one for each class
pure        ε in [d_g, d_¬g)
removals    all samples within ε, until the ball is empty
changes     t with n_g - t >= for and n_c + t < against: one change moves each count by at most 1
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.assertion import Assertion, Reason
from iknow.core.contrast import Contrast
from iknow.core.drawing import Areas, Drawing, Limits, Look
from iknow.core.evidence import Evidence, distances_for_and_against
from iknow.core.horizon import Horizon
from iknow.core.neighborhood import Checks, Neighborhood, Radius, Sides, check_radius, parameter
from iknow.core.quorum import ONE, Quorum, own_distances
from iknow.core.slack import Dial, dial_radius
from iknow.core.stability import Stability, count_nearest
from iknow.core.support import within
from iknow.errors import InputError


def check_radii(radius: Any) -> Radius:
    """A radius, or one for each class."""
    try:
        several = np.asarray(radius)
        one = several.ndim == 0 or np.ma.is_masked(radius)
    except Exception:  # numpy calls methods of the object, which may raise anything
        one = True
    if one:
        return check_radius(radius)
    if several.ndim != 1 or several.size == 0:
        got = f"an array of shape {several.shape}"
        raise InputError(f"a radius must be a number, or one for each class; got {got}")
    return tuple(check_radius(each) for each in several)


@dataclass(frozen=True, repr=False)
class Ball(Neighborhood):
    """All training samples within a fixed radius (the paper's ε-ball).

    Args:
        radius: A number >= 0, or an array of shape (n_classes,) with one for each class.
        quorum: How many samples a class needs to count, or two numbers (for, against).

    Examples:
        >>> from iknow import Ball
        >>> Ball(0.5), Ball([0.5, 2])
        (Ball(radius=0.5), Ball(radius=(0.5, 2.0)))
    """

    radius: Radius
    quorum: Quorum = field(default=ONE, kw_only=True)

    checks: ClassVar[Checks] = {"radius": check_radii}
    axes = ("radius",)
    takes_radius_per_class = True
    empty_beyond = full_within = decided_within = parameter("radius")
    look = Look(Assertion.IK, "o", width=2.0)

    def reach(self, evidence: Evidence) -> Floats:
        self.check_classes(evidence.n_classes)
        if isinstance(self.radius, tuple):
            return np.tile(self.radius, (len(evidence), 1))
        return np.full(len(evidence), self.radius)

    @property
    def reaches_by_class(self) -> bool:
        return isinstance(self.radius, tuple)

    @property
    def horizon(self) -> Horizon:
        return Horizon(fixed=float(np.max(self.radius)))

    def check_classes(self, n_classes: int) -> None:
        if isinstance(self.radius, tuple) and len(self.radius) != n_classes:
            got = len(self.radius)
            raise InputError(f"a radius is needed for each of {n_classes} classes; got {got}")

    @classmethod
    def box(cls, contrast: Contrast, k: int | None) -> Sides:
        return [(contrast.own, contrast.other)]

    def removals(self, evidence: Evidence, belief: Ints) -> Stability:
        radii = np.asarray(self.radius)
        radius = radii[belief] if radii.ndim else np.full(len(belief), radii)
        if self.quorum != ONE:
            inside = within(own_distances(evidence, belief), radius[:, None])
            return count_own(evidence, inside, self)
        nearer = count_within(evidence, radius, belief)
        # With a radius for each class, another class may be nearer and yet out of reach.
        _, other = distances_for_and_against(evidence, belief)
        return Stability(nearer.at_least, nearer.exact & (other > radius))

    def changes(self, evidence: Evidence, belief: Ints) -> Ints:
        radii = np.broadcast_to(self.radius, (evidence.n_classes,))
        inside = within(evidence.ranked_distances(), radii[:, None]).sum(axis=2)
        rows = np.arange(len(belief))
        own = inside[rows, belief]
        inside[rows, belief] = 0
        most = np.minimum(own - self.quorum[0], self.quorum[1] - 1 - inside.max(axis=1))
        return np.asarray(np.maximum(most, 0))

    def dial(self, evidence: Evidence) -> Dial | None:
        if isinstance(self.radius, tuple):
            return super().dial(evidence)
        return dial_radius(self, evidence)

    def drawing(self) -> Drawing | None:
        decided = Reason.KNOWN, Reason.OVERLAP, Reason.EXTRAPOLATION, Reason.CONTRADICTION
        return None if isinstance(self.radius, tuple) else draw_ball(self.radius, *decided)


def count_within(evidence: Evidence, radius: float | Floats, belief: Ints) -> Stability:
    """Count the samples within a radius and nearer than every class but the believed one."""
    _, other = distances_for_and_against(evidence, belief)
    distances, limit = evidence.neighbor_distances, np.broadcast_to(radius, len(belief))
    return count_nearest(evidence, (distances <= limit[:, None]) & (distances < other[:, None]))


def count_own(evidence: Evidence, counted: Bools, rule: Neighborhood) -> Stability:
    """How many of the believed class must go to leave fewer than the quorum.

    counted: a mask of shape (n, per_class) of its nearest samples; a later one counts only if all
    before it do.
    """
    counts = counted.sum(axis=1)
    exact = counts < evidence.per_class
    return Stability(np.maximum(counts - rule.quorum[0] + 1, 1), exact)


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
