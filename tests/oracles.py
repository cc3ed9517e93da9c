"""Oracles: the definitions, slow and plain, that fast code is compared with.

Evidence comes from all distances by loops, in float64; `iknow.testing.brute_force` is the oracle of
indexes, which see float32. Supports, assertions and reasons come from the paper's definitions, as
plain sets of training rows; a quorum counts them.
"""

import math
from collections import Counter

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
from iknow.core.level import Levels, Voice


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
    ranked = np.full((n_queries, n_classes, per_class), np.inf)
    exemplars = np.full(ranked.shape, -1)
    for query in range(n_queries):
        for code in range(n_classes):
            members = [row for row in range(n_rows) if labels[row] == code]
            nearest = sorted((distances[query, row], rows[row]) for row in members)
            for rank, found in enumerate(nearest[:per_class]):
                ranked[query, code, rank], exemplars[query, code, rank] = found
    padding = np.full((n_queries, n_neighbors), np.inf)
    neighbor_distances = np.sort(np.hstack([distances, padding]), axis=1)[:, :n_neighbors]
    return Evidence(ranked, neighbor_distances, exemplars)


def support_of(rule, distances, codes, belief):
    """The classes near one query, by its distances (n_rows,) to samples of classes `codes`."""
    distances, codes = list(map(float, distances)), list(map(int, codes))
    needed, against = rule.quorum

    def ball(reach):
        return {row for row, found in enumerate(distances) if found <= reach}

    def counting(rows):
        """The classes that have enough samples among some rows."""
        found = Counter(codes[row] for row in rows)
        return {code for code, n in found.items() if n >= (needed if code == belief else against)}

    if isinstance(rule, Nearest):
        return counting(nearest_of(rule.k, distances))
    if isinstance(rule, Ball) and np.ndim(rule.radius):
        reached = distances <= np.asarray(rule.radius)[codes]
        return counting(np.flatnonzero(reached))
    within = counting(ball(rule.radius))
    if isinstance(rule, Ball):
        return within
    if isinstance(rule, BallElseNearest):
        return within or counting(nearest_of(rule.k, distances))
    if isinstance(rule, BallWithNearest):
        both = ball(rule.radius) | nearest_of(rule.k, distances)
        return counting(both) if within else set()
    assert isinstance(rule, RelativeBall)
    tenth = sorted([*distances, *[math.inf] * 10])[9]
    if belief not in within or tenth > rule.seen:
        return set()
    if rule.ratio == 0:
        return {belief}
    own = sorted(found for found, code in zip(distances, codes, strict=True) if code == belief)
    return {belief} | counting(ball(rule.ratio * own[needed - 1]))


def nearest_of(k, distances):
    """The rows of the k nearest samples and of all that tie with the k-th."""
    reach = sorted(distances)[k - 1] if k <= len(distances) else math.inf
    return {row for row, found in enumerate(distances) if found <= reach}


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


def make_levels(layers, confidence=None, **options):
    """Levels of reference samples: by layer their d_g and d_¬g / d_g, each ascending."""
    voices = []
    for layer, (own, ratio) in layers.items():
        voices.append(Voice("nearness", layer, np.sort(-np.asarray(own, dtype=float))))
        voices.append(Voice("clarity", layer, np.asarray(ratio, dtype=float)))
    voices += [] if confidence is None else [Voice("confidence", None, confidence)]
    return Levels(tuple(voices), **options)
