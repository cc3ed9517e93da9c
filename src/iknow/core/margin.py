"""Margins: how far an assertion is from being another.

In a layer with reach ρ, the belief g is alone within reach when d_g <= ρ < d_¬g. The smaller of

    ρ - d_g    by which the believed class is within reach
    d_¬g - ρ   by which every other class is not

is the layer's margin: positive if the layer supports g alone; if negative, how much is missing. The
margin of a sample is the smallest of its layers', as IK needs all of them. Where a rule gives no
reach its limit `empty_beyond` takes its place: how much nearer a sample would have to be. If one is
near enough and something else is missing, we cannot say how much, and the margin is -inf.
"""

from __future__ import annotations

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.evidence import Evidence
from iknow.core.quorum import weigh
from iknow.core.rule import NO_REACH, Rule, promise_of


def find_margins(evidence: Evidence, rule: Rule, belief: Ints) -> Floats:
    """The margins of one layer, of shape (n_queries,), in its distances; at 0 a distance equals the
    reach exactly, and the closed ball decides. belief: class codes of shape (n_queries,).
    """
    evidence = weigh(evidence, rule.quorum, belief)
    distances = evidence.class_distances
    reach = rule.reach(evidence)
    reach = np.broadcast_to(reach if reach.ndim == 2 else reach[:, None], distances.shape)
    rows = np.arange(len(evidence))
    none = reach[rows, belief] == NO_REACH
    limit = promise_of(rule, "empty_beyond")
    # Without a limit we cannot say how much is missing.
    reach = np.where(reach == NO_REACH, NO_REACH if np.isinf(limit) else limit, reach)
    with np.errstate(invalid="ignore"):  # inf - inf is replaced below
        outside = distances - reach
    own = 0.0 - outside[rows, belief]
    outside[rows, belief] = np.inf
    # A class without samples is never within reach, however far that is.
    outside[np.isinf(distances)] = np.inf
    own[np.isinf(distances[rows, belief])] = -np.inf
    margins: Floats = np.minimum(own, outside.min(axis=1))
    return np.where(none & (margins >= 0), -np.inf, margins)
