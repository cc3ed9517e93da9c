"""Stability: how much of the training set an IK rests on.

The count of training samples that must be removed, the worst chosen first, before an IK is lost.
With B the number of samples within the radius, N that of samples nearer than any other class:

    Ball              B                      until the ball is empty
    Nearest           N - k + 1              until the k nearest are no longer all of one class
    BallElseNearest   max(B, N - k + 1)      both must have happened
    BallWithNearest   min(B, N - k + 1)      either is enough
    RelativeBall      the samples r_j <= ε with ratio · r_j < d_¬g: the nearest that is left decides

The model is taken as it is: it is not trained again on what is left. Other labels are not the same
as fewer samples: a single one within reach turns IK into IMK, whatever the rule.

Neighbour distances tell the counts, no second search; where all that the evidence holds lie within
the limit there may be more, and the count is a lower bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.evidence import Evidence, distances_for_and_against
from iknow.core.neighborhood import (
    Ball,
    BallElseNearest,
    BallWithNearest,
    Nearest,
    Neighborhood,
    RelativeBall,
)


@dataclass(frozen=True, eq=False)
class Stability:
    """How many training samples must be removed for each IK to be lost; 0 where there is none.

    at_least: counts of shape (n,). exact: mask of shape (n,), True where no fewer and no more.
    """

    at_least: Ints
    exact: Bools

    def __len__(self) -> int:
        return len(self.at_least)


def find_stability(
    evidence: Sequence[Evidence],
    neighborhoods: Sequence[Neighborhood],
    belief: Ints,
    known: Bools,
) -> Stability:
    """The stability of what is known: IK falls with the layer that falls first.

    evidence, neighborhoods: one of each layer. belief: class codes of shape (n,). known: mask of
    shape (n,) of the samples that are IK.
    """
    layers = [
        _count_removals(about, rule, belief)
        for about, rule in zip(evidence, neighborhoods, strict=True)
    ]
    whole = layers[0]
    for layer in layers[1:]:
        whole = _either(whole, layer)
    return Stability(np.where(known, whole.at_least, 0), whole.exact | ~known)


def _count_removals(evidence: Evidence, rule: Neighborhood, belief: Ints) -> Stability:
    _, other = distances_for_and_against(evidence, belief)
    distances, nearer = evidence.neighbor_distances, other[:, None]
    if isinstance(rule, RelativeBall):
        return _count(evidence, (distances <= rule.radius) & (rule.ratio * distances < nearer))
    radius: float | Floats = getattr(rule, "radius", np.inf)
    if isinstance(rule, Ball) and isinstance(rule.radius, tuple):
        radius = np.asarray(rule.radius)[belief][:, None]
    ball = _count(evidence, (distances <= radius) & (distances < nearer))
    if isinstance(rule, Ball):
        # With a radius for each class, others may be nearer and yet not within reach.
        return Stability(ball.at_least, ball.exact & (other > np.ravel(radius)))
    if isinstance(rule, (Nearest, BallElseNearest, BallWithNearest)):
        run = _count(evidence, distances < nearer)
        # Without any other class the k nearest stay of one class to the last of them.
        vote = Stability(np.maximum(run.at_least - rule.k + 1, 1), run.exact & np.isfinite(other))
        if isinstance(rule, Nearest):
            return vote
        return _both(ball, vote) if isinstance(rule, BallElseNearest) else _either(ball, vote)
    # Of a rule that is not ours only this much is certain: without any sample nothing is known.
    return Stability(np.ones(len(evidence), dtype=np.int64), np.zeros(len(evidence), dtype=bool))


def _count(evidence: Evidence, counted: Bools) -> Stability:
    """How many neighbours count; at least one does, or there were no IK."""
    counts = (counted & np.isfinite(evidence.neighbor_distances)).sum(axis=1)
    return Stability(np.maximum(counts, 1), counts < evidence.n_neighbors)


def _either(one: Stability, other: Stability) -> Stability:
    """What is lost as soon as either is."""
    fewest = np.minimum(one.at_least, other.at_least)
    exact = (one.exact & (one.at_least == fewest)) | (other.exact & (other.at_least == fewest))
    return Stability(fewest, exact)


def _both(one: Stability, other: Stability) -> Stability:
    """What is lost only when both are."""
    return Stability(np.maximum(one.at_least, other.at_least), one.exact & other.exact)
