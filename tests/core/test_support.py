"""Support: the classes within reach of one layer."""

import math

import numpy as np
import pytest

from iknow.core.evidence import empty_evidence
from iknow.core.neighborhood import Ball, BallElseNearest, BallWithNearest, Nearest
from iknow.core.support import find_support
from iknow.errors import InputError

ANY_RULE = [Ball(math.inf), Nearest(2), BallElseNearest(math.inf, 2), BallWithNearest(math.inf, 2)]


def classes_within(evidence, neighborhood):
    return [set(np.flatnonzero(row).tolist()) for row in find_support(evidence, neighborhood)]


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


@pytest.mark.parametrize("neighborhood", ANY_RULE, ids=repr)
def test_a_class_without_samples_never_counts(neighborhood, evidence_from):
    evidence = evidence_from([[1, np.inf, 2]], n_neighbors=2)
    assert classes_within(evidence, neighborhood) == [{0, 2}]


@pytest.mark.parametrize("neighborhood", ANY_RULE, ids=repr)
def test_no_training_samples_support_nothing(neighborhood):
    assert classes_within(empty_evidence(2, 3, 2), neighborhood) == [set(), set()]


@pytest.mark.parametrize("neighborhood", ANY_RULE, ids=repr)
def test_no_queries_give_an_empty_mask(neighborhood):
    assert find_support(empty_evidence(0, 3, 2), neighborhood).shape == (0, 3)


def test_a_support_needs_as_many_neighbor_distances_as_k(evidence_from):
    with pytest.raises(InputError, match="holds 1 neighbour distances but k=2 was asked for"):
        find_support(evidence_from([[1, 2, 3]], n_neighbors=1), Nearest(2))
