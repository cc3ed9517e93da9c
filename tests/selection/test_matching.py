"""Matching a coverage against trying every k and every threshold."""

import numpy as np
import pytest

from iknow.core.assertion import Assertion, make_assertions
from iknow.core.justification import justify
from iknow.core.neighborhood import Nearest
from iknow.core.support import find_support
from iknow.errors import InputError
from iknow.selection import match_k, match_threshold
from iknow.testing import brute_force

TARGETS = (0.0, 0.2, 0.5, 0.77, 1.0)


def random_evidence(seed):
    rng = np.random.default_rng(seed)
    n_classes, n_rows = int(rng.integers(2, 4)), int(rng.integers(3, 30))
    n_queries = int(rng.integers(1, 12))
    labels = rng.integers(n_classes, size=n_rows)
    evidence = {}
    for layer in range(int(rng.integers(1, 4))):
        k = int(rng.integers(1, n_rows + 1))  # each layer may hold another number of distances
        points = rng.normal(size=(n_rows, 2)) + 2 * labels[:, None]
        queries = rng.normal(size=(n_queries, 2)) + 2 * rng.integers(n_classes)
        if seed % 2:
            points, queries = np.rint(points), np.rint(queries)
        evidence[str(layer)] = brute_force(points, labels, n_classes, queries, k)
    return evidence, rng.integers(n_classes, size=n_queries)


def coverage_of_k(evidence, belief, k):
    supports = [find_support(layer, Nearest(k)) for layer in evidence.values()]
    return np.mean(make_assertions(belief, justify(supports)) == Assertion.IK)


def test_match_k_is_the_least_of_the_nearest_over_all_k():
    chosen = set()
    for seed in range(100):
        evidence, belief = random_evidence(seed)
        largest = min(layer.n_neighbors for layer in evidence.values())
        for target in TARGETS:
            best, smallest_gap = None, np.inf
            for k in range(1, largest + 1):
                gap = abs(coverage_of_k(evidence, belief, k) - target)
                if gap < smallest_gap:
                    best, smallest_gap = k, gap
            assert match_k(evidence, belief, target) == best
            chosen.add(best)
    assert len(chosen) > 5  # the problems do ask for different k


def test_match_k_needs_neighbour_distances():
    points, labels = np.eye(3), np.array([0, 1, 1])
    evidence = {"a": brute_force(points, labels, 2, points, k=0)}
    with pytest.raises(InputError, match="gather it with k > 0"):
        match_k(evidence, labels, 0.5)


@pytest.mark.parametrize("digits", [1, 8])
def test_match_threshold_is_as_near_as_any_threshold_can_be(digits):
    for seed in range(100):
        rng = np.random.default_rng(seed)
        confidence = np.round(rng.random(int(rng.integers(1, 20))), digits)
        thresholds = [*confidence, np.inf]
        for target in (*TARGETS, float(rng.random())):
            gaps = []
            for threshold in thresholds:
                kept = sum(1 for value in confidence if value >= threshold)
                gaps.append(abs(kept / len(confidence) - target))
            found = match_threshold(confidence, target)
            assert isinstance(found, float)
            gap = abs(np.mean(confidence >= found) - target)
            assert gap == pytest.approx(min(gaps), abs=1e-12)


def test_match_threshold_keeps_all_or_none_at_the_ends():
    confidence = np.array([0.3, 0.9, 0.3])
    assert match_threshold(confidence, 1.0) == 0.3
    assert match_threshold(confidence, 0.0) == np.inf
    assert match_threshold(confidence, 0.4) == 0.9
