"""Selection against trying every radius by really applying the rule."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iknow.core.assertion import Assertion, make_assertions
from iknow.core.evidence import Evidence
from iknow.core.justification import justify
from iknow.core.neighborhood import Ball, BallElseNearest, BallWithNearest, Nearest, has_k
from iknow.core.support import find_support
from iknow.errors import SelectionError
from iknow.selection import Selection, select
from iknow.selection.choice import record_selection
from iknow.testing import brute_force

RULES_WITH_A_RADIUS = [Ball, BallElseNearest, BallWithNearest]


def make_rule(rule, radius, k):
    return rule(radius, k) if has_k(rule) else rule(radius)


class Problem:
    """Random points of one or two layers, as plain arrays and as evidence."""

    def __init__(self, seed, n_layers=None):
        rng = np.random.default_rng(seed)
        n_classes = int(rng.integers(2, 4))
        n_rows, n_queries = int(rng.integers(2, 15)), int(rng.integers(1, 8))
        self.k = int(rng.integers(1, min(5, n_rows) + 1))
        labels = rng.integers(n_classes, size=n_rows)
        self.truth = rng.integers(n_classes, size=n_queries)
        self.evidence = {}
        for layer in range(int(rng.integers(1, 3)) if n_layers is None else n_layers):
            places = 2 * rng.normal(size=(n_classes, 2))
            points = places[labels] + rng.normal(size=(n_rows, 2))
            queries = places[self.truth] + rng.normal(size=(n_queries, 2))
            if seed % 2:  # whole numbers: distances tie and are 0
                points, queries = np.rint(points), np.rint(queries)
            found = brute_force(points, labels, n_classes, queries, self.k)
            self.evidence[f"layer{layer}"] = found
        # The belief is that of the nearest sample for most, as a trained model's would be.
        nearest = self.evidence["layer0"].class_distances.argmin(axis=1)
        guess = rng.integers(n_classes, size=n_queries)
        self.belief = np.where(rng.random(n_queries) < 0.7, nearest, guess)

    def count(self, neighborhoods):
        """How many samples are IK, and how many of those rightly, by applying the rules."""
        supports = [
            find_support(evidence, neighborhoods[layer])
            for layer, evidence in self.evidence.items()
        ]
        return self.count_supports(supports)

    def count_supports(self, supports):
        knows = make_assertions(self.belief, justify(supports)) == Assertion.IK
        return int(knows.sum()), int((knows & (self.belief == self.truth)).sum())

    def best_of_all_radii(self, rule):
        """Support changes at distances to classes alone, so those, and 0, are all that matters."""
        per_layer = []
        for evidence in self.evidence.values():
            finite = evidence.class_distances[np.isfinite(evidence.class_distances)]
            radii = np.unique(np.append(finite, 0.0))
            per_layer.append(
                [find_support(evidence, make_rule(rule, radius, self.k)) for radius in radii]
            )
        return max(self.count_supports(list(pair)) for pair in itertools.product(*per_layer))


@pytest.mark.parametrize("rule", RULES_WITH_A_RADIUS)
def test_coverage_is_the_largest_over_all_radii_and_then_has_the_most_right_beliefs(rule):
    n_selected = 0
    for seed in range(250):
        problem = Problem(seed)
        best = problem.best_of_all_radii(rule)
        if best[0] == 0:
            with pytest.raises(SelectionError, match="no radius makes any"):
                select(problem.evidence, problem.belief, problem.truth, rule, problem.k)
            continue
        chosen = select(problem.evidence, problem.belief, problem.truth, rule, problem.k)
        assert problem.count(chosen.neighborhoods) == best, f"seed {seed}"
        n_selected += 1
    assert n_selected >= 120


@pytest.mark.parametrize("rule", RULES_WITH_A_RADIUS)
def test_recorded_coverage_and_accuracy_are_those_of_applying_the_neighborhoods(rule):
    for seed in range(60):
        problem = Problem(seed)
        try:
            chosen = select(problem.evidence, problem.belief, problem.truth, rule, problem.k)
        except SelectionError:
            continue
        known, right = problem.count(chosen.neighborhoods)
        assert chosen.coverage == known / len(problem.belief)
        assert chosen.accuracy == right / known
        assert chosen.n_samples == len(problem.belief)
        assert chosen.optimal is True
        assert chosen.method == "exact"
        assert {type(chosen_rule) for chosen_rule in chosen.neighborhoods.values()} == {rule}
        assert list(chosen.neighborhoods) == list(problem.evidence)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    rule=st.sampled_from(RULES_WITH_A_RADIUS),
    grid=st.lists(st.floats(0, 8), min_size=1, max_size=4),
)
def test_tuned_coverage_is_never_below_that_of_any_grid_point(seed, rule, grid):
    problem = Problem(seed)
    try:
        chosen = select(problem.evidence, problem.belief, problem.truth, rule, problem.k)
        coverage = chosen.coverage
    except SelectionError:
        coverage = 0.0
    for radii in itertools.product(grid, repeat=len(problem.evidence)):
        neighborhoods = {
            layer: make_rule(rule, radius, problem.k)
            for layer, radius in zip(problem.evidence, radii, strict=True)
        }
        known, _ = problem.count(neighborhoods)
        assert known / len(problem.belief) <= coverage


def one_layer(class_distances, neighbor_distances=None):
    distances = np.array(class_distances, dtype=float)
    if neighbor_distances is None:
        neighbor_distances = np.sort(distances, axis=1)
    return Evidence(distances, np.array(neighbor_distances), np.zeros(distances.shape, dtype=int))


def test_among_equal_coverages_the_one_with_more_right_beliefs_is_taken():
    evidence = {"a": one_layer([[1.0, 2.0], [3.0, 4.0]])}
    belief = np.array([0, 0])
    low = select(evidence, belief, np.array([0, 1]), Ball)
    high = select(evidence, belief, np.array([1, 0]), Ball)
    assert low.neighborhoods == {"a": Ball(1.5)}
    assert high.neighborhoods == {"a": Ball(3.5)}
    assert (low.coverage, low.accuracy) == (high.coverage, high.accuracy) == (0.5, 1.0)


def test_coverage_comes_before_right_beliefs():
    evidence = {"a": one_layer([[1.0, 2.0], [3.0, 4.0], [3.0, 4.0]])}
    chosen = select(evidence, np.zeros(3, dtype=int), np.array([0, 1, 1]), Ball)
    assert chosen.neighborhoods == {"a": Ball(3.5)}
    assert (chosen.coverage, chosen.accuracy) == (2 / 3, 0.0)


def test_a_rule_without_a_radius_is_refused_with_the_way_out():
    problem = Problem(0)
    with pytest.raises(SelectionError, match=r"Nearest has no radius.*match_k"):
        select(problem.evidence, problem.belief, problem.truth, Nearest, problem.k)


def test_three_layers_are_refused_by_name():
    problem = Problem(0, n_layers=3)
    with pytest.raises(SelectionError, match=r"got 3 \(layer0, layer1, layer2\)"):
        select(problem.evidence, problem.belief, problem.truth, Ball)


def test_when_nothing_can_be_known_selection_says_so():
    evidence = {"a": one_layer([[2.0, 1.0], [1.0, 1.0]])}
    with pytest.raises(SelectionError, match="any of the 2 validation samples IK"):
        select(evidence, np.array([0, 0]), np.array([0, 0]), Ball)


def test_layers_that_are_never_pure_together_cannot_be_selected():
    near, far = [[1.0, 2.0]], [[2.0, 1.0]]
    evidence = {"a": one_layer(near), "b": one_layer(far)}
    with pytest.raises(SelectionError, match="no radius makes any"):
        select(evidence, np.array([0]), np.array([0]), Ball)


@pytest.mark.parametrize("rule", RULES_WITH_A_RADIUS)
def test_a_selection_survives_json(rule):
    problem = Problem(2, n_layers=2)
    chosen = select(problem.evidence, problem.belief, problem.truth, rule, problem.k)
    assert Selection.from_dict(json.loads(json.dumps(chosen.to_dict()))) == chosen


def test_the_accuracy_of_neighborhoods_that_know_nothing_is_nan():
    evidence = {"a": one_layer([[2.0, 3.0]])}
    record = record_selection(
        evidence, np.array([0]), np.array([0]), {"a": Ball(1)}, method="given", optimal=False
    )
    assert record.coverage == 0.0
    assert np.isnan(record.accuracy)
