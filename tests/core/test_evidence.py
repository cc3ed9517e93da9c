"""Evidence: its shapes, its parts, and how it is merged, stacked and discarded."""

import dataclasses

import numpy as np
import pytest

from iknow.core.evidence import (
    Evidence,
    discard_evidence,
    distances_for_and_against,
    empty_evidence,
    merge_evidence,
)
from iknow.errors import InputError


def test_evidence_knows_its_sizes(evidence_from):
    evidence = evidence_from([[1, 2, 3], [4, 5, 6]], n_neighbors=1)
    assert (len(evidence), evidence.n_classes, evidence.n_neighbors) == (2, 3, 1)


def test_evidence_cannot_be_changed(evidence_from):
    with pytest.raises(dataclasses.FrozenInstanceError):
        evidence_from([[1, 2]], 1).class_distances = np.zeros((1, 2))


def test_nearest_distance_is_the_least_class_distance(evidence_from):
    evidence = evidence_from([[3, 2, 7], [np.inf, 5, 6]], n_neighbors=0)
    assert evidence.nearest_distance().tolist() == [2, 5]


def test_neighbor_distance_counts_from_one(evidence_from):
    evidence = evidence_from([[3, 2, 7], [4, 8, 6]], n_neighbors=3)
    assert [evidence.neighbor_distance(k).tolist() for k in (1, 2, 3)] == [[2, 4], [3, 6], [7, 8]]


def test_a_neighbor_distance_that_is_not_held_is_refused(evidence_from):
    evidence = evidence_from([[3, 2, 7]], n_neighbors=2)
    message = r"holds 2 neighbor distances, too few for k=3: gather it with k=3 or more"
    with pytest.raises(InputError, match=message):
        evidence.neighbor_distance(3)


@pytest.mark.parametrize(
    "queries", [slice(1, 3), np.array([1, 2]), np.array([False, True, True])], ids=repr
)
def test_indexing_keeps_the_evidence_of_the_chosen_queries(
    queries, evidence_from, assert_same_evidence
):
    whole = evidence_from([[1, 2], [3, 4], [6, 5]], n_neighbors=1)
    assert_same_evidence(whole[queries], evidence_from([[3, 4], [6, 5]], n_neighbors=1))


@pytest.mark.parametrize(
    ("class_shape", "neighbor_shape", "exemplar_shape", "message"),
    [
        ((3,), (3, 1), (3,), r"must both have shape \(n_queries, n_classes\) .*; got \(3,\)"),
        ((3, 2), (3, 1), (3, 4), r"got \(3, 2\) and \(3, 4\)"),
        ((3, 2), (3, 1), (2, 2), r"got \(3, 2\) and \(2, 2\)"),
        ((3, 2), (3,), (3, 2), r"must have shape \(3, n_neighbors\); got \(3,\)"),
        ((3, 2), (4, 1), (3, 2), r"must have shape \(3, n_neighbors\); got \(4, 1\)"),
    ],
)
def test_mismatched_shapes_are_refused(class_shape, neighbor_shape, exemplar_shape, message):
    with pytest.raises(InputError, match=message):
        Evidence(
            distances=np.zeros(class_shape),
            neighbor_distances=np.zeros(neighbor_shape),
            rows=np.zeros(exemplar_shape, dtype=np.int64),
        )


def test_empty_evidence_holds_no_distance_and_no_exemplar():
    evidence = empty_evidence(n_queries=2, n_classes=3, n_neighbors=4)
    assert evidence.class_distances.tolist() == [[np.inf] * 3] * 2
    assert evidence.neighbor_distances.tolist() == [[np.inf] * 4] * 2
    assert evidence.exemplars.tolist() == [[-1] * 3] * 2


def test_merging_takes_the_nearest_of_every_part(assert_same_evidence):
    left = Evidence(
        np.array([[1.0, 9.0, np.inf]]), np.array([[1.0, 4.0, 9.0]]), np.array([[0, 1, -1]])
    )
    right = Evidence(
        np.array([[2.0, 5.0, np.inf]]), np.array([[2.0, 5.0, np.inf]]), np.array([[2, 3, -1]])
    )
    merged = Evidence(
        np.array([[1.0, 5.0, np.inf]]), np.array([[1.0, 2.0, 4.0]]), np.array([[0, 3, -1]])
    )
    assert_same_evidence(merge_evidence([left, right]), merged)


def test_merging_one_part_changes_nothing(evidence_from, assert_same_evidence):
    evidence = evidence_from([[3, 2, np.inf], [4, 8, 6]], n_neighbors=2)
    assert_same_evidence(merge_evidence([evidence]), evidence)


def test_merging_nothing_is_refused():
    with pytest.raises(InputError, match="nothing to merge: expected at least one Evidence"):
        merge_evidence([])


@pytest.mark.parametrize(
    ("sizes", "named"),
    [((4, 2, 1), r"4, 2, 1\), 1"), ((3, 5, 1), r"3, 5, 1\), 1"), ((3, 2, 6), r"3, 2, 1\), 6")],
    ids=["queries", "classes", "k"],
)
def test_merging_evidence_of_different_shapes_is_refused(sizes, named):
    with pytest.raises(InputError, match=f"same queries, classes, per_class and k; .*{named}"):
        merge_evidence([empty_evidence(3, 2, 1), empty_evidence(*sizes)])


def test_discarding_empties_the_marked_queries_and_keeps_the_others(
    evidence_from, assert_same_evidence
):
    whole = evidence_from([[3, 2], [4, 8], [1, 7]], n_neighbors=1)
    left = discard_evidence(whole, np.array([False, True, False]))
    assert_same_evidence(left[1:2], empty_evidence(1, 2, 1))
    assert_same_evidence(left[[0, 2]], whole[[0, 2]])


def test_discarding_leaves_the_original_alone(evidence_from, assert_same_evidence):
    whole = evidence_from([[3, 2]], n_neighbors=1)
    discard_evidence(whole, np.array([True]))
    assert_same_evidence(whole, evidence_from([[3, 2]], n_neighbors=1))


def test_the_distance_against_is_to_the_nearest_other_class(evidence_from):
    evidence = evidence_from([[3, 2, 7], [3, 2, 7], [5, 5, 6]], n_neighbors=0)
    own, other = distances_for_and_against(evidence, np.array([1, 2, 0]))
    assert own.tolist() == [2, 7, 5]
    assert other.tolist() == [3, 2, 5]
    assert evidence.class_distances.tolist() == [[3, 2, 7], [3, 2, 7], [5, 5, 6]]


def test_without_another_class_the_distance_against_is_infinite(evidence_from):
    own, other = distances_for_and_against(evidence_from([[3], [4]], 0), np.array([0, 0]))
    assert own.tolist() == [3, 4]
    assert other.tolist() == [np.inf, np.inf]


def test_without_a_belief_no_class_is_near_and_every_class_is_another(evidence_from):
    evidence = evidence_from([[3, 2, 1], [3, 2, 1]], n_neighbors=0)
    own, other = distances_for_and_against(evidence, np.array([-1, 2]))
    assert own.tolist() == [np.inf, 1]
    assert other.tolist() == [1, 2]
