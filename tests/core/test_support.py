"""Support: the classes within reach of one layer."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

from iknow.core.evidence import Evidence, empty_evidence
from iknow.core.rule import Rule
from iknow.core.support import find_support, justify
from iknow.errors import InputError
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall

ANY_RULE = [
    Ball(math.inf),
    Nearest(2),
    BallElseNearest(math.inf, 2),
    BallWithNearest(math.inf, 2),
    RelativeBall(math.inf, 2),
]


def classes_within(evidence, rule):
    return [set(np.flatnonzero(row).tolist()) for row in find_support(evidence, rule)]


def test_a_support_is_a_mask_over_queries_and_classes(evidence_from):
    support = find_support(evidence_from([[1, 2, 3], [4, 5, 6]], 0), Ball(2))
    assert support.dtype == bool
    assert support.shape == (2, 3)


def test_a_sample_exactly_at_the_radius_counts(evidence_from):
    evidence = evidence_from([[1, 2, 3]], 0)
    assert classes_within(evidence, Ball(2)) == [{0, 1}]
    assert classes_within(evidence, Ball(np.nextafter(2, 0))) == [{0}]


def test_a_coinciding_sample_counts_for_radius_zero(evidence_from):
    assert classes_within(evidence_from([[0, 1], [1, 1]], 0), Ball(0)) == [{0}, set()]


def test_all_samples_tied_with_the_kth_neighbor_count(evidence_from):
    evidence = evidence_from([[2, 1, 2, 2, 3]], n_neighbors=5)
    assert classes_within(evidence, Nearest(1)) == [{1}]
    for k in (2, 3, 4):
        assert classes_within(evidence, Nearest(k)) == [{0, 1, 2, 3}]
    assert classes_within(evidence, Nearest(5)) == [{0, 1, 2, 3, 4}]


def test_h1_counts_the_nearest_only_where_the_ball_is_empty(evidence_from):
    evidence = evidence_from([[1, 3, 4], [2, 3, 4], [3, 4, 5]], n_neighbors=2)
    assert classes_within(evidence, BallElseNearest(2, 2)) == [{0}, {0}, {0, 1}]


def test_h2_counts_the_nearest_only_where_the_ball_is_not_empty(evidence_from):
    evidence = evidence_from([[1, 3, 4], [2, 3, 4], [3, 4, 5]], n_neighbors=2)
    assert classes_within(evidence, BallWithNearest(2, 2)) == [{0, 1}, {0, 1}, set()]


def test_h2_keeps_the_whole_ball_where_it_holds_more_than_k(evidence_from):
    evidence = evidence_from([[1, 2, 3, 4]], n_neighbors=2)
    assert classes_within(evidence, BallWithNearest(3, 2)) == [{0, 1, 2}]


def test_k_beyond_the_training_set_counts_every_class_that_has_samples(gather):
    train, queries = np.array([[0.0], [5.0]]), np.array([[1.0]])
    evidence = gather(train, np.array([0, 2]), queries, n_classes=4, n_neighbors=3)
    assert classes_within(evidence, Nearest(3)) == [{0, 2}]


@pytest.mark.parametrize("rule", ANY_RULE, ids=repr)
def test_a_class_without_samples_never_counts(rule, evidence_from):
    evidence = evidence_from([[1, np.inf, 2]], n_neighbors=2)
    assert classes_within(evidence, rule) == [{0, 2}]


@pytest.mark.parametrize("rule", ANY_RULE, ids=repr)
def test_no_training_samples_support_nothing(rule):
    assert classes_within(empty_evidence(2, 3, 2), rule) == [set(), set()]


@pytest.mark.parametrize("rule", ANY_RULE, ids=repr)
def test_no_queries_give_an_empty_mask(rule):
    assert find_support(empty_evidence(0, 3, 2), rule).shape == (0, 3)


def test_a_support_needs_as_many_neighbor_distances_as_k(evidence_from):
    with pytest.raises(InputError, match="holds 1 neighbor distances, too few for k=2"):
        find_support(evidence_from([[1, 2, 3]], n_neighbors=1), Nearest(2))


def test_a_relative_ball_counts_up_to_so_many_times_the_nearest_distance(evidence_from):
    evidence = evidence_from([[1, 3, 4], [2, 6, 7], [0, 1, 2], [3, 4, 5]], n_neighbors=0)
    assert classes_within(evidence, RelativeBall(2, 3)) == [{0, 1}, {0, 1}, {0}, set()]
    assert classes_within(evidence, RelativeBall(2, np.nextafter(3, 1))) == [{0}, {0}, {0}, set()]


def test_with_ratio_one_all_classes_that_tie_for_the_nearest_count(evidence_from):
    evidence = evidence_from([[2, 2, 3], [1, 2, 2]], n_neighbors=0)
    assert classes_within(evidence, RelativeBall(2, 1)) == [{0, 1}, {0}]


@dataclass(frozen=True)
class OfClass(Rule):
    """A reach for each class."""

    reaches: tuple[float, ...]

    def reach(self, evidence):
        return np.tile(self.reaches, (len(evidence), 1))


def test_a_reach_for_each_class_counts_by_itself():
    rng = np.random.default_rng(0)
    for _ in range(100):
        n_classes = int(rng.integers(1, 6))
        distances = rng.integers(0, 5, size=(4, n_classes)).astype(float)
        distances[rng.random(distances.shape) < 0.1] = np.inf
        evidence = Evidence(distances, np.empty((4, 0)), np.zeros((4, n_classes), dtype=int))
        radii = rng.choice([0, 1, 2, 3, np.inf], size=n_classes)
        expected = [
            {c for c in range(n_classes) if row[c] <= radii[c] and row[c] < math.inf}
            for row in distances
        ]
        assert classes_within(evidence, OfClass(tuple(radii))) == expected


def mask(*supports, n_classes=3):
    return np.array([[code in support for code in range(n_classes)] for support in supports])


@pytest.mark.parametrize(
    ("supports", "justified"),
    [
        ([{0}], {0}),
        ([{0, 2}], {0, 2}),
        ([set()], set()),
        ([{0}, {0}], {0}),
        ([{0}, {1}], {0, 1}),
        ([{0, 1}, {1, 2}], {0, 1, 2}),
        ([{0}, set()], set()),
        ([set(), {0}], set()),
        ([{0, 1, 2}, set(), {0, 1, 2}], set()),
        ([{0}, {1}, {2}], {0, 1, 2}),
    ],
)
def test_a_justification_is_the_union_or_nothing_if_any_support_is_empty(supports, justified):
    found = justify([mask(support) for support in supports])
    np.testing.assert_array_equal(found, mask(justified))


def test_every_query_is_justified_on_its_own():
    found = justify([mask({0}, set(), {1}), mask({1}, {1}, {1})])
    np.testing.assert_array_equal(found, mask({0, 1}, set(), {1}))
    assert found.dtype == bool


def test_no_supports_are_refused():
    with pytest.raises(InputError, match="needs the support of at least one layer; got none"):
        justify([])


@pytest.mark.parametrize("shape", [(1, 3), (2, 4)], ids=["queries", "classes"])
def test_supports_of_different_shapes_are_refused(shape):
    with pytest.raises(InputError, match=r"must share a shape; got .*\(2, 3\)") as caught:
        justify([np.ones((2, 3), dtype=bool), np.ones(shape, dtype=bool)])
    assert str(shape) in str(caught.value)
