"""Clearing: when an upper bound of the distance to the believed class is enough for an IK.

Let d̂_j >= d_j be upper bounds of the distances to the j-th nearest sample of the belief g, and
(m, a) the quorum. A rule's clearing radius R is one for which the following holds: if no other
class has a samples within R, that is d_c^(a) > R for every c ≠ g, then the support is {g}.

    Ball              ε                 if d̂_m <= ε
    RelativeBall      ratio · d̂_m       if d̂_m <= ε
    Nearest           d̂_k               if a = 1 and m <= k
    BallElseNearest   ε                 if d̂_m <= ε, else
                      max(ε, d̂_k)       if a = 1 and m <= k
    BallWithNearest   max(ε, d̂_k)       if d̂_m <= ε

Where a line does not apply there is none. Proof. d_m <= d̂_m, so a belief that is bounded within ε
lies there, and the product with a ratio rounds to no more than that of the bound. So the reach of
the first two is at most R, and reaches the belief. At least k samples lie within d̂_k, so the k-th
nearest of all, r_k, is at most that: hence the last line. With a = 1 all samples within R are of
the believed class, so r_k = d_k: it reaches the belief if m <= k, and no other class. In H-1 the
reach is either ε or r_k, and if it is ε, a class is within ε, which can only be g.

Ties: the ball is closed, so a sample at exactly R is within it, and nothing is cleared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.neighborhood import Neighborhood
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall

UNCLEAR = np.inf


def _ball(rule: Any, own: Floats, belief: Ints) -> Floats:
    if not isinstance(rule.radius, tuple):
        return _where(own[:, rule.quorum[0] - 1] <= rule.radius, rule.radius)
    radii = np.array(rule.radius)
    return _where(own[:, rule.quorum[0] - 1] <= radii[belief], float(radii.max()))


def _relative_ball(rule: Any, own: Floats, belief: Ints) -> Floats:
    needed = own[:, rule.quorum[0] - 1]
    with np.errstate(over="ignore", invalid="ignore"):
        return _where(needed <= rule.radius, rule.ratio * needed)


def _nearest(rule: Any, own: Floats, belief: Ints) -> Floats:
    alone = rule.quorum[1] == 1 and rule.quorum[0] <= rule.k
    return _where(np.full(len(own), alone), own[:, rule.k - 1])


def _ball_else_nearest(rule: Any, own: Floats, belief: Ints) -> Floats:
    inside = own[:, rule.quorum[0] - 1] <= rule.radius
    else_nearest = np.maximum(rule.radius, _nearest(rule, own, belief))
    return np.where(inside, float(rule.radius), else_nearest)


def _ball_with_nearest(rule: Any, own: Floats, belief: Ints) -> Floats:
    inside = own[:, rule.quorum[0] - 1] <= rule.radius
    return _where(inside, np.maximum(rule.radius, own[:, rule.k - 1]))


def _where(applies: Bools, radius: Floats | float) -> Floats:
    return np.where(applies, radius, UNCLEAR)


RADII: Mapping[type[Neighborhood], Callable[[Any, Floats, Ints], Floats]] = {
    Ball: _ball,
    RelativeBall: _relative_ball,
    Nearest: _nearest,
    BallElseNearest: _ball_else_nearest,
    BallWithNearest: _ball_with_nearest,
}
"""By the type itself: a subclass may have another reach."""


def can_clear(rule: Neighborhood) -> bool:
    """Whether a rule has clearing radii."""
    return type(rule) in RADII


def own_needed(rule: Neighborhood) -> int:
    """How many of the nearest samples of the belief `clearing_radii` takes."""
    return max(rule.quorum[0], rule.n_neighbors)


def clearing_radii(rule: Neighborhood, own: Floats, belief: Ints) -> Floats:
    """The clearing radius of each query, of shape (n,); `UNCLEAR`, inf, where there is none.

    own: upper bounds of the distances to the nearest samples of the belief, ascending, of shape
    (n, own_needed(rule)); inf past the last. belief: class codes of shape (n,), none of them
    `NO_BELIEF`.
    """
    radii = RADII[type(rule)](rule, own, belief)
    return np.where(np.isfinite(own[:, rule.quorum[0] - 1]), radii, UNCLEAR)
