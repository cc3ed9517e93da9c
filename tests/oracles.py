"""Oracles: the definitions, slow and plain, that fast code is compared with.

Evidence comes from all distances by loops, in float64; `iknow.testing.brute_force` is the oracle of
indexes, which see float32. Supports, assertions and reasons come from the paper's definitions, as
plain sets of training rows.
"""

import math

import numpy as np

from iknow import (
    Assertion,
    Ball,
    BallElseNearest,
    BallWithNearest,
    Evidence,
    Nearest,
    Reason,
    RelativeBall,
)


def distance(x, z):
    return math.sqrt(sum((a - b) * (a - b) for a, b in zip(x, z, strict=True)))


def gather(train, labels, queries, n_classes, n_neighbors, rows=None, per_class=1):
    """Evidence by all Euclidean distances. rows: numbers of the training rows."""
    distances = np.sqrt(((queries[:, None, :] - train[None, :, :]) ** 2).sum(axis=2))
    return evidence_of(distances, labels, n_classes, n_neighbors, rows, per_class)


def evidence_of(distances, labels, n_classes, n_neighbors, rows=None, per_class=1):
    """The evidence in a table of distances, of shape (n_queries, n_rows)."""
    n_queries, n_rows = distances.shape
    rows = np.arange(n_rows) if rows is None else rows
    nearest = np.full((n_queries, n_classes, per_class), np.inf)
    exemplars = np.full((n_queries, n_classes, per_class), -1)
    for query in range(n_queries):
        for label in range(n_classes):
            own = [(distances[query, i], rows[i]) for i in range(n_rows) if labels[i] == label]
            for rank, found in enumerate(sorted(own)[:per_class]):
                nearest[query, label, rank], exemplars[query, label, rank] = found
    padding = np.full((n_queries, n_neighbors), np.inf)
    neighbor_distances = np.sort(np.hstack([distances, padding]), axis=1)[:, :n_neighbors]
    first = nearest[:, :, 0], neighbor_distances, exemplars[:, :, 0]
    return Evidence(*first, nearest[:, :, 1:], exemplars[:, :, 1:])


def support_of(rule, distances, codes):
    """The classes near one query, by its distances (n_rows,) to samples of classes `codes`."""
    distances, codes = list(map(float, distances)), list(map(int, codes))
    return {codes[row] for row in neighborhood_of(rule, distances, codes)}


def neighborhood_of(rule, distances, codes):
    """The rows that a rule counts; a rule with a radius for each class looks at their codes."""

    def ball(reach):
        return {row for row, found in enumerate(distances) if found <= reach}

    def nearest():
        return ball(sorted(distances)[rule.k - 1] if rule.k <= len(distances) else math.inf)

    if isinstance(rule, Nearest):
        return nearest()
    if isinstance(rule, Ball) and np.ndim(rule.radius):
        return {row for row, code in enumerate(codes) if distances[row] <= rule.radius[code]}
    within = ball(rule.radius)
    if isinstance(rule, Ball):
        return within
    if isinstance(rule, BallElseNearest):
        return within or nearest()
    if isinstance(rule, BallWithNearest):
        return within | nearest() if within else set()
    assert isinstance(rule, RelativeBall)
    return ball(rule.ratio * min(distances)) if within else set()


def justification_of(supports):
    return set() if set() in supports else set().union(*supports)


def assertion_of(belief, supports, invalid=False):
    """Assertion and reason of one query, by the supports of its layers."""
    if invalid:
        return Assertion.IDK, Reason.INVALID
    if set() in supports:
        return Assertion.IDK, Reason.EXTRAPOLATION
    justification = justification_of(supports)
    if justification == {belief}:
        return Assertion.IK, Reason.KNOWN
    if belief not in justification:
        return Assertion.IDK, Reason.CONTRADICTION
    overlap = any(len(support) > 1 for support in supports)
    return Assertion.IMK, Reason.OVERLAP if overlap else Reason.DISAGREEMENT
