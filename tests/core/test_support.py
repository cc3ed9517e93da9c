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


NEAR_2, NEAR_3 = float(np.nextafter(2, 0)), float(np.nextafter(3, 1))
BY_HAND = {
    "a sample exactly at the radius counts": ([[1, 2, 3]], Ball(2), [{0, 1}]),
    "one just beyond does not": ([[1, 2, 3]], Ball(NEAR_2), [{0}]),
    "a coinciding sample counts for radius zero": ([[0, 1], [1, 1]], Ball(0), [{0}, set()]),
    **{
        f"all samples tied with neighbor {k} count": ([[2, 1, 2, 2, 3]], Nearest(k), [classes])
        for k, classes in ((1, {1}), *((k, {0, 1, 2, 3}) for k in (2, 3, 4)), (5, {0, 1, 2, 3, 4}))
    },
    "H-1 counts the nearest only where the ball is empty": (
        [[1, 3, 4], [2, 3, 4], [3, 4, 5]], BallElseNearest(2, 2), [{0}, {0}, {0, 1}],
    ),
    "H-2 counts the nearest only where the ball is not empty": (
        [[1, 3, 4], [2, 3, 4], [3, 4, 5]], BallWithNearest(2, 2), [{0, 1}, {0, 1}, set()],
    ),
    "H-2 keeps the whole ball where it holds more than k": (
        [[1, 2, 3, 4]], BallWithNearest(3, 2), [{0, 1, 2}],
    ),
    "a relative ball counts up to so many times the nearest distance": (
        [[1, 3, 4], [2, 6, 7], [0, 1, 2], [3, 4, 5]], RelativeBall(2, 3),
        [{0, 1}, {0, 1}, {0}, set()],
    ),
    "and nothing just beyond": (
        [[1, 3, 4], [2, 6, 7], [0, 1, 2], [3, 4, 5]], RelativeBall(2, NEAR_3),
        [{0}, {0}, {0}, set()],
    ),
    "with ratio one all classes that tie for the nearest count": (
        [[2, 2, 3], [1, 2, 2]], RelativeBall(2, 1), [{0, 1}, {0}],
    ),
    **{
        f"a class without samples never counts: {rule}": ([[1, np.inf, 2]], rule, [{0, 2}])
        for rule in ANY_RULE
    },
}  # fmt: skip


@pytest.mark.parametrize(("distances", "rule", "supports"), BY_HAND.values(), ids=BY_HAND)
def test_what_is_within_reach(distances, rule, supports, evidence_from):
    """Distances to the only sample of each class."""
    evidence = evidence_from(distances, n_neighbors=rule.n_neighbors)
    assert classes_within(evidence, rule) == supports


def test_k_beyond_the_training_set_counts_every_class_that_has_samples(gather):
    train, queries = np.array([[0.0], [5.0]]), np.array([[1.0]])
    evidence = gather(train, np.array([0, 2]), queries, n_classes=4, n_neighbors=3)
    assert classes_within(evidence, Nearest(3)) == [{0, 2}]


@pytest.mark.parametrize("rule", ANY_RULE, ids=repr)
def test_no_training_samples_support_nothing_and_no_queries_give_an_empty_mask(rule):
    assert classes_within(empty_evidence(2, 3, 2), rule) == [set(), set()]
    assert find_support(empty_evidence(0, 3, 2), rule).shape == (0, 3)


def test_a_support_needs_as_many_neighbor_distances_as_k(evidence_from):
    with pytest.raises(InputError, match="holds 1 neighbor distances, too few for k=2"):
        find_support(evidence_from([[1, 2, 3]], n_neighbors=1), Nearest(2))


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
