"""Boxes: the radii for which a sample is IK.

With a belief g, a layer is pure for a sample exactly when the radius ε lies in an interval:

    Ball               [d_g, d_other)
    BallElseNearest    [0, d_other)    if the k nearest are all of class g, else [d_g, d_other)
    BallWithNearest    [d_g, d_other)  if the k nearest are all of class g, else never

where d_other is the distance to the nearest sample of any other class. IK means pure in every
layer, so each sample is a box in the space of the layers' radii, and the coverage of some radii is
the number of boxes around that point: its depth.
"""

from __future__ import annotations

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.evidence import Evidence, distances_for_and_against
from iknow.core.neighborhood import Ball, BallElseNearest, BallWithNearest, Neighborhood

TUNABLE: tuple[type[Neighborhood], ...] = (Ball, BallElseNearest, BallWithNearest)


def pure_radii(
    evidence: Evidence, belief: Ints, rule: type[Neighborhood], k: int | None = None
) -> tuple[Floats, Floats]:
    """The half-open interval [low, high) of radii that make a layer pure, each of shape (n,).

    The interval is empty, low >= high, where no radius does.
    """
    low, high = distances_for_and_against(evidence, belief)
    if k is None or rule not in (BallElseNearest, BallWithNearest):
        return low, high
    # Ties with the k-th neighbour count, so the k nearest are all g when none is as far as d_other.
    nearest_agree = evidence.neighbor_distance(k) < high
    if rule is BallElseNearest:
        return np.where(nearest_agree, 0.0, low), high
    return low, np.where(nearest_agree, high, low)
