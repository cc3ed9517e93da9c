"""Matching a coverage against trying every k and every threshold."""

import numpy as np
import pytest

from iknow.core.assertion import Assertion, make_assertions
from iknow.core.evidence import Evidence
from iknow.core.support import find_support, justify
from iknow.errors import InputError, SelectionError
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall
from iknow.selection import Goal, Validation, choose, match_k, match_threshold
from iknow.selection.selection import Candidate, record_choice
from iknow.testing import brute_force

TARGETS = (0.0, 0.2, 0.5, 0.77, 1.0)


def match_coverage(evidence, belief, y_true, rule, coverage):
    known = Validation(evidence, belief, y_true)
    if rule is not RelativeBall:
        return choose(Goal(coverage=coverage), known, rule)
    rules = rule.match(known.contrasts, belief, y_true, coverage)  # `choose` would take levels
    return record_choice(known, Candidate(rules), "matched")


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


# Matching by a whole rule


def known_under(evidence, belief, neighborhoods):
    supports = [find_support(layer, neighborhoods[name]) for name, layer in evidence.items()]
    return make_assertions(belief, justify(supports)) == Assertion.IK


def test_nearest_matches_a_coverage_by_the_best_k():
    for seed in range(60):
        evidence, belief = random_evidence(seed)
        y_true = np.roll(belief, 1)
        for target in (0.2, 0.5, 1.0):
            found = match_coverage(evidence, belief, y_true, Nearest, target)
            k = match_k(evidence, belief, target)
            assert found.neighborhoods == {layer: Nearest(k) for layer in evidence}
            assert found.coverage == coverage_of_k(evidence, belief, k)
            assert (found.method, found.optimal) == ("matched", False)


def relative_settings(evidence, belief):
    """All ratios that matter, and radii at a common rank of the distances to the belief."""
    rows = np.arange(len(belief))
    own = {name: layer.class_distances[rows, belief] for name, layer in evidence.items()}
    ratios = {1.0}
    for layer in evidence.values():
        for i, code in enumerate(belief):
            distance = layer.class_distances[i, code]
            other = np.delete(layer.class_distances[i], code).min()
            if 0 < distance < other < np.inf:
                ratios |= {other / distance, np.nextafter(other / distance, np.inf)}
    for ratio in ratios:
        for rank in range(len(belief)):
            yield {
                name: RelativeBall(sorted(own[name])[rank], ratio)
                for name in evidence
                if np.isfinite(sorted(own[name])[rank])
            }


def test_a_relative_ball_matches_as_nearly_as_any_and_of_those_has_the_fewest_errors():
    n_matched, n_wrong = 0, 0
    for seed in range(45):
        evidence, belief = random_evidence(seed)
        rng = np.random.default_rng(seed)
        nearest = next(iter(evidence.values())).class_distances.argmin(axis=1)
        belief = np.where(rng.random(len(belief)) < 0.8, nearest, belief)
        y_true = np.where(rng.random(len(belief)) < 0.6, belief, 0)
        tried = []
        for neighborhoods in relative_settings(evidence, belief):
            if len(neighborhoods) == len(evidence):
                known = known_under(evidence, belief, neighborhoods)
                tried.append((known.mean(), (belief != y_true)[known].sum()))
        tried = [each for each in tried if each[0] > 0]
        for target in (0.1, 0.4, 0.7, 1.0):
            if not tried:
                with pytest.raises(SelectionError, match="no RelativeBall makes any"):
                    match_coverage(evidence, belief, y_true, RelativeBall, target)
                continue
            found = match_coverage(evidence, belief, y_true, RelativeBall, target)
            known = known_under(evidence, belief, found.neighborhoods)
            errors = (belief != y_true)[known].sum()
            assert found.coverage == known.mean() > 0
            gap = min(abs(coverage - target) for coverage, _ in tried)
            assert abs(found.coverage - target) == pytest.approx(gap, abs=1e-12), f"seed {seed}"
            fewest = min(
                wrong for coverage, wrong in tried if abs(abs(coverage - target) - gap) < 1e-9
            )
            assert errors == fewest, f"seed {seed}"
            n_matched, n_wrong = n_matched + 1, n_wrong + (errors > 0)
    assert n_matched >= 80
    assert n_wrong >= 8


def overlapping_groups(seed, n_layers=1, n=200):
    """Two groups that overlap: beliefs are those of the nearest sample, many of them wrong."""
    rng = np.random.default_rng(seed)
    labels, y_true = rng.integers(2, size=400), rng.integers(2, size=n)
    evidence = {}
    for layer in range(n_layers):
        points = rng.normal(size=(400, 2)) + 2 * labels[:, None]
        queries = rng.normal(size=(n, 2)) + 2 * y_true[:, None]
        evidence[str(layer)] = brute_force(points, labels, 2, queries)
    total = sum(layer.class_distances for layer in evidence.values())
    return evidence, total.argmin(axis=1), y_true


@pytest.mark.parametrize("n_layers", [1, 2, 3])
@pytest.mark.parametrize("target", [0.1, 0.25, 0.5])
def test_a_relative_ball_matches_within_one_sample_where_enough_can_be_known(n_layers, target):
    for seed in range(5):
        evidence, belief, y_true = overlapping_groups(seed, n_layers)
        able = known_under(evidence, belief, dict.fromkeys(evidence, RelativeBall(np.inf, 1)))
        assert able.mean() > target
        found = match_coverage(evidence, belief, y_true, RelativeBall, target)
        assert abs(found.coverage - target) <= 1 / len(belief) + 1e-12
        assert len({rule.ratio for rule in found.neighborhoods.values()}) == 1


def test_a_relative_ball_that_matches_errs_less_than_the_nearest_within_a_radius():
    """The naive alternative: ratio 1, and the radius that gives the coverage."""
    n_better = 0
    for seed in range(6):
        evidence, belief, y_true = overlapping_groups(seed)
        for target in (0.3, 0.5):
            found = match_coverage(evidence, belief, y_true, RelativeBall, target)
            own = np.sort(evidence["0"].class_distances[np.arange(len(belief)), belief])
            naive = min(
                ({"0": RelativeBall(radius, 1)} for radius in own),
                key=lambda each: abs(known_under(evidence, belief, each).mean() - target),
            )
            by_naive = known_under(evidence, belief, naive)
            assert by_naive.mean() == pytest.approx(target, abs=0.01)
            accuracy = (belief == y_true)[by_naive].mean()
            assert found.accuracy >= accuracy - 1 / by_naive.sum()
            n_better += found.accuracy > accuracy
    assert n_better >= 9


def test_a_relative_ball_matches_where_distances_are_zero_and_infinite():
    distances = np.array([[0, 1], [0, np.inf], [1, 2], [2, np.inf], [3, 3], [np.inf, 1]])
    evidence = {"a": Evidence(distances, np.sort(distances), np.zeros((6, 2), dtype=int))}
    belief = np.zeros(6, dtype=int)
    for wanted in range(1, 7):
        found = match_coverage(evidence, belief, belief, RelativeBall, wanted / 6)
        # The two at distance 0 are within every radius and pure for every ratio.
        assert found.coverage == min(max(wanted, 2), 4) / 6, found.neighborhoods


@pytest.mark.parametrize("rule", [Ball, BallElseNearest, BallWithNearest])
def test_a_rule_whose_radii_have_a_best_coverage_is_not_matched(rule):
    evidence, belief = random_evidence(0)
    with pytest.raises(
        SelectionError, match=f"by Nearest and RelativeBall; {rule.__name__} can be tuned"
    ):
        match_coverage(evidence, belief, belief, rule, 0.5)


def test_where_no_sample_is_nearest_to_its_believed_class_no_relative_ball_matches():
    distances = np.array([[2.0, 1.0], [1.0, 1.0]])
    evidence = {"a": Evidence(distances, np.sort(distances), np.zeros((2, 2), dtype=int))}
    with pytest.raises(SelectionError, match="none is nearest to its believed class"):
        match_coverage(evidence, np.zeros(2, int), np.zeros(2, int), RelativeBall, 0.5)
