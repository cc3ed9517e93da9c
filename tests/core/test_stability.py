"""Stability: the count of removals equals what trying all of them out finds."""

from itertools import combinations

import numpy as np
import pytest

from iknow.core.assertion import Assertion
from iknow.core.rule import Rule
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall

RULES = [
    Ball(1.0),
    Nearest(1),
    Nearest(2),
    BallElseNearest(0.7, 2),
    BallWithNearest(1.0, 2),
    RelativeBall(1.0, 1.5),
]


@pytest.fixture(scope="session")
def assess(assess_by, gather):
    """One query among the rows of each layer. train: a list of arrays, one for each rule."""

    def run(train, labels, query, rules, n_neighbors):
        evidence = [gather(rows, labels, query, 2, n_neighbors) for rows in train]
        return assess_by(evidence, rules, [0])

    return run


def fewest_removals(train, labels, query, rules, assess):
    """The size of the smallest set without which class 0 is not known, by trying all of them."""
    for n_removed in range(1, len(labels) + 1):
        for removed in combinations(range(len(labels)), n_removed):
            kept = np.setdiff1d(np.arange(len(labels)), removed)
            rest = [rows[kept] for rows in train]
            n_neighbors = max(len(kept), 3)
            after = assess(rest, labels[kept], query, rules, n_neighbors)
            if after.assertion[0] != Assertion.IK:
                return n_removed
    raise AssertionError("without any sample nothing is known")


@pytest.mark.parametrize("rules", [[RULES[0]], [RULES[0], RULES[3]], RULES[4:6]], ids=repr)
def test_as_many_removals_as_it_says_are_needed(rules, assess):
    rng = np.random.default_rng(0)
    exact = 0
    for _ in range(60):
        labels = rng.integers(0, 2, 8)
        train = [rng.normal(0, 0.8, (8, 2)) + 1.2 * labels[:, None] for _ in rules]
        query = rng.normal(0, 0.4, (1, 2))
        for n_neighbors in (3, 8, 10):
            assessment = assess(train, labels, query, rules, n_neighbors)
            stability = assessment.stability
            if assessment.assertion[0] != Assertion.IK:
                assert stability.at_least[0] == 0
                assert stability.exact[0]
                continue
            y_true = fewest_removals(train, labels, query, rules, assess)
            assert 1 <= stability.at_least[0] <= y_true
            if stability.exact[0]:
                assert stability.at_least[0] == y_true
                exact += 1
    assert exact > 20


def test_where_all_neighbours_in_the_evidence_count_it_is_a_lower_bound(assess):
    train = [np.arange(5)[:, None] / 10]
    for n_neighbors, at_least, exact in [(0, 1, False), (3, 3, False), (5, 5, False), (6, 5, True)]:
        stability = assess(
            train, np.zeros(5, dtype=int), np.zeros((1, 1)), [Ball(1)], n_neighbors
        ).stability
        assert (stability.at_least[0], stability.exact[0]) == (at_least, exact)


def assess_line(assess, places, labels, rule):
    """The origin among samples on a line, with all of them as neighbours."""
    train = [np.array(places, dtype=float)[:, None]]
    return assess(train, np.array(labels), np.zeros((1, 1)), [rule], len(places) + 1)


def test_a_sample_whose_reach_just_touches_another_class_does_not_count(assess):
    line = assess_line(assess, [1, 2, 4], [0, 0, 1], RelativeBall(5, 2))
    assert line.assertion[0] == Assertion.IK
    assert (line.stability.at_least[0], line.stability.exact[0]) == (1, True)


def test_without_other_classes_the_nearest_may_be_fewer_than_k(assess):
    line = assess_line(assess, [1, 2, 3], [0, 0, 0], Nearest(2))
    assert (line.stability.at_least[0], line.stability.exact[0]) == (2, False)


def test_a_lower_bound_is_not_exact_because_another_layer_is(assess_by, gather):
    train, labels, query = np.arange(5)[:, None] / 10, np.zeros(5, dtype=int), np.zeros((1, 1))
    evidence = [gather(train, labels, query, 2, n_neighbors) for n_neighbors in (6, 1)]
    for order in (evidence, evidence[::-1]):
        stability = assess_by(order, [Ball(1), Ball(1)], [0]).stability
        assert (stability.at_least[0], stability.exact[0]) == (1, False)


def test_of_a_foreign_rule_one_sample_is_all_that_is_certain(assess):
    class Everything(Rule):
        def reach(self, evidence):
            return np.full(len(evidence), np.inf)

    class Half(Ball):  # what was said of a ball is not true of it
        def reach(self, evidence):
            return super().reach(evidence) / 2

    train, labels = [np.arange(5)[:, None] / 10], np.zeros(5, dtype=int)
    for rule in (Everything(), Half(1.0)):
        stability = assess(train, labels, np.zeros((1, 1)), [rule], 6).stability
        assert (stability.at_least[0], stability.exact[0]) == (1, False)
    assert len(stability) == 1
