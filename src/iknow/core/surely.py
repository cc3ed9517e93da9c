"""Surely: what a rule says about distances that are known up to bounds.

Let every distance lie between a lower and an upper bound: [l_c, h_c] for the class distances as the
quorum counts them, and [l, h] for the k-th neighbor. The *corners* are the four choices of all
class distances at one end and the neighbors at one end. Let ρ be the reach of the true distances
and ρ_min, ρ_max the least and the largest reach in the corners. A rule is `between_corners` if

    every corner has a reach  =>  the true distances have one, and ρ_min <= ρ <= ρ_max.

All of ours are:

    Ball              ρ = ε, whatever the distances
    Nearest           ρ = r_k, in [l, h]
    BallElseNearest   ρ = ε if min d_c <= ε, else r_k. If min h_c <= ε it is always ε; if
                      min l_c > ε always r_k; else one of the two, and ε, l and h are all corners
    BallWithNearest   every corner has a reach only if min h_c <= ε; then max(ε, r_k), monotone
    RelativeBall      every corner has a reach only if h_g <= ε; then ratio · d_g, monotone, also as
                      float64 rounds it. The belief counts wherever there is a reach

So a class is surely within reach if h_c <= ρ_min, and surely out of it if l_c > ρ_max; else it is
open. Let S' be the sure classes of a layer, S its true support, g the belief. We report

    nothing   if a corner has no reach, or if S' holds no class but g while another one is open
    S'        otherwise.

**Theorem.** Whatever the rules, quorums and layers: an assertion made of reported supports is IDK,
or the one that the true distances make. *Proof.* Let every layer report something; else the answer
is IDK. Then every layer has a true support, S ⊇ S' ≠ ∅, so the true justification J contains the
reported J'. If J' = {g}, then S' = {g} in every layer, and no other class was open there: S = {g},
and J = {g}. If J' holds g and another class, so does J: both are IMK. If J' lacks g, the answer is
IDK. What turns an IK into an IMK beside supports, a class that
may not be known or the model's doubt, depends on the belief alone. ∎

Levels compare the upper bound of d_g and the lower bound of d_¬g with reference samples, so they
are never too high; with `RelativeBall` a level of at least α is then still the same as an IK at α.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from iknow.core.arrays import Bools, Floats
from iknow.core.codes import NO_BELIEF
from iknow.core.overriding import speaks_for
from iknow.errors import InputError

if TYPE_CHECKING:
    from iknow.core.neighborhood import Neighborhood
    from iknow.core.quorum import Weighed


def find_sure_support(least: Weighed, most: Weighed, neighborhood: Neighborhood) -> Bools:
    """The support to report, of shape (n_queries, n_classes), given bounds on all distances.

    least, most: the lower and the upper bounds, weighed for the same beliefs and quorum.
    """
    check_decides_by_bounds(neighborhood)
    low, high = least.class_distances, most.class_distances
    reaches = np.stack([_reach(each, neighborhood) for each in _ends(least, most)])
    nearest, furthest = reaches.min(axis=0), reaches.max(axis=0)
    sure = (high <= nearest) & np.isfinite(high)
    is_open = ~sure & (low <= furthest) & np.isfinite(low)
    rows = np.flatnonzero(least.belief != NO_BELIEF)
    believed = rows, least.belief[rows]
    exists = ~np.isneginf(nearest)
    if _promises(neighborhood, "reaches_belief"):
        sure[believed] = exists[believed]
    others = sure.copy()
    others[believed] = is_open[believed] = False
    told = exists.all(axis=1) & (others.any(axis=1) | ~is_open.any(axis=1))
    return np.asarray(sure & told[:, None])


def check_decides_by_bounds(neighborhood: Neighborhood) -> None:
    """Refuse a rule that does not say what bounds on distances mean for its reach."""
    if not _promises(neighborhood, "between_corners"):
        raise InputError(
            f"{type(neighborhood).__name__} does not promise a reach between those of the corners "
            "(between_corners), so bounds on distances decide nothing: use the full classifier"
        )


def find_sure_margins(least: Weighed, most: Weighed, neighborhood: Neighborhood) -> Floats:
    """Lower bounds on the margins (`iknow.core.margin`) of queries with a belief, (n_queries,).

    As ρ_min - h_g and l_c - ρ_max, where every corner has a reach; -inf elsewhere.
    """
    check_decides_by_bounds(neighborhood)
    rows, belief = np.arange(len(least)), least.belief
    ends = _ends(least, most)
    reaches = np.stack([_reach(each, neighborhood) for each in ends])
    nearest, furthest = reaches.min(axis=0), reaches.max(axis=0)
    low, high = least.class_distances, most.class_distances
    with np.errstate(invalid="ignore"):  # inf - inf is replaced below
        outside = low - furthest
        own = nearest[rows, belief] - high[rows, belief]
        if _promises(neighborhood, "reaches_belief"):  # both move together
            pairs = zip(reaches, ends, strict=True)
            own = np.min([(r - e.class_distances)[rows, belief] for r, e in pairs], axis=0)
    outside[np.isinf(low)] = np.inf  # a class without samples is never within reach
    outside[rows, belief] = np.inf
    found = np.minimum(own, outside.min(axis=1))
    proven = np.isfinite(high[rows, belief]) & ~np.isneginf(nearest[rows, belief])
    return np.where(proven, found, -np.inf)


def _promises(neighborhood: Neighborhood, name: str) -> bool:
    """Whether a rule says so of the reach that it has, not of one that it overrides."""
    return speaks_for(type(neighborhood), name, "reach") and bool(getattr(neighborhood, name))


def _ends(least: Weighed, most: Weighed) -> list[Weighed]:
    mixed = [
        replace(one, neighbor_distances=other.neighbor_distances)
        for one, other in ((least, most), (most, least))
    ]
    return [least, most, *mixed]


def _reach(evidence: Weighed, neighborhood: Neighborhood) -> Floats:
    """The reach for each class, of shape (n_queries, n_classes)."""
    reach = neighborhood.reach(evidence)
    return np.broadcast_to(reach.reshape(len(evidence), -1), evidence.class_distances.shape)
