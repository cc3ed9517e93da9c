"""Quorum: the distances that decide are those that counting samples finds."""

import math
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from iknow.core.codes import NO_BELIEF
from iknow.core.evidence import (
    Evidence,
    believed,
    empty_evidence,
    stack_evidence,
)
from iknow.core.quorum import (
    ONE,
    Contrast,
    Weighed,
    check_quorum,
    find_contrast,
    quorum_of,
    weigh,
)
from iknow.core.support import find_support
from iknow.errors import InputError
from iknow.rules import Ball, RelativeBall
from tests.oracles import evidence_of

N_CLASSES, PER_CLASS, K = 3, 4, 2
quorums = st.tuples(st.integers(1, PER_CLASS), st.integers(1, PER_CLASS))
radii = st.sampled_from([0.0, 1.0, 2.5, 4.0, math.inf])


@st.composite
def tables(draw):
    """Distances full of ties to a few training rows, their labels, and beliefs, some of them none.

    Often a class has fewer samples than a quorum asks for.
    """
    n_queries, n_rows = draw(st.integers(1, 4)), draw(st.integers(0, 9))
    distances = draw(arrays(np.int64, (n_queries, n_rows), elements=st.integers(0, 5)))
    labels = draw(arrays(np.int64, n_rows, elements=st.integers(0, N_CLASSES - 1)))
    codes = st.integers(0, N_CLASSES - 1) | st.just(NO_BELIEF)
    return distances.astype(float), labels, draw(arrays(np.int64, n_queries, elements=codes))


def gather(distances, labels, rows=None):
    return evidence_of(distances, labels, N_CLASSES, K, rows, PER_CLASS)


def deciding(distances, labels, belief, quorum):
    """For each class the distance and row that complete its quorum, by sorting; (inf, -1) if none.

    distances: of one query, with shape (n_rows,).
    """
    found = []
    for code in range(N_CLASSES):
        needed = quorum[0] if code == belief else quorum[1]
        rows = [row for row in range(len(labels)) if labels[row] == code]
        nearest = sorted((distances[row], row) for row in rows)
        found.append(nearest[needed - 1] if len(nearest) >= needed else (math.inf, -1))
    return found


def assert_same(one, other):
    assert one.quorum == other.quorum
    for each in fields(Evidence):
        np.testing.assert_array_equal(getattr(one, each.name), getattr(other, each.name), each.name)
    np.testing.assert_array_equal(one.belief, other.belief)


@given(table=tables(), quorum=quorums)
def test_it_weighs_as_sorting_the_samples_of_each_class_does(table, quorum):
    distances, labels, belief = table
    evidence = gather(distances, labels)
    weighed = weigh(evidence, quorum, belief)
    for i, row in enumerate(distances):
        pairs = zip(weighed.class_distances[i], weighed.exemplars[i], strict=True)
        assert list(pairs) == deciding(row, labels, belief[i], quorum)
    np.testing.assert_array_equal(weighed.neighbor_distances, evidence.neighbor_distances)
    assert (weighed.quorum, len(weighed)) == (quorum, len(evidence))
    assert weighed.belief is belief


@given(table=tables(), quorum=quorums, radius=radii)
def test_a_class_counts_if_enough_of_its_samples_are_within_reach(table, quorum, radius):
    distances, labels, belief = table
    support = find_support(gather(distances, labels), Ball(radius, quorum=quorum), belief)
    for i, row in enumerate(distances):
        counts = [int((row[labels == code] <= radius).sum()) for code in range(N_CLASSES)]
        needed = [quorum[0] if code == belief[i] else quorum[1] for code in range(N_CLASSES)]
        assert support[i].tolist() == [n >= least for n, least in zip(counts, needed, strict=True)]


@given(table=tables(), pair=st.tuples(quorums, quorums))
def test_a_larger_quorum_never_brings_a_class_nearer(table, pair):
    distances, labels, belief = table
    small, large = (tuple(f(ends) for ends in zip(*pair, strict=True)) for f in (min, max))
    evidence = gather(distances, labels)
    near, far = (weigh(evidence, quorum, belief).class_distances for quorum in (small, large))
    assert (near <= far).all()


@given(table=tables(), quorum=quorums)
def test_a_part_of_the_queries_is_weighed_as_in_the_whole(table, quorum):
    distances, labels, belief = table
    evidence = gather(distances, labels)
    whole = weigh(evidence, quorum, belief)
    for part in (slice(1, None), np.arange(len(belief)) % 2 == 0, np.array([-1])):
        assert_same(whole[part], weigh(evidence[part], quorum, belief[part]))


@given(table=tables(), quorum=quorums)
def test_its_contrast_is_between_the_belief_and_the_nearest_other_class(table, quorum):
    distances, labels, belief = table
    weighed = weigh(gather(distances, labels), quorum, belief)
    contrast = find_contrast(weighed, belief)
    own, other = contrast.own.tolist(), contrast.other.tolist()
    assert weighed.believed_distance().tolist() == own
    for i, row in enumerate(distances):
        found = [distance for distance, _ in deciding(row, labels, belief[i], quorum)]
        assert own[i] == (math.inf if belief[i] == NO_BELIEF else found.pop(belief[i]))
        assert other[i] == min(found)
    assert contrast.quorum == contrast[:1].quorum == contrast.as_evidence().quorum == quorum
    assert stack_evidence([contrast, contrast]).quorum == quorum_of({"a": contrast}) == quorum
    assert isinstance(contrast, Contrast)


def test_evidence_that_was_not_weighed_has_a_quorum_of_one():
    evidence = empty_evidence(2, 3, 0)
    assert quorum_of({"a": evidence}) == find_contrast(evidence, np.zeros(2, int)).quorum == ONE


def test_weighing_leaves_the_evidence_alone():
    evidence = gather(np.array([[1.0, 2.0, 3.0, 4.0]]), np.array([0, 0, 1, 1]))
    before = evidence.distances.copy(), evidence.rows.copy()
    weighed = weigh(evidence, (2, 1), np.array([1]))
    assert weighed.class_distances.tolist() == [[1, 4, math.inf]]
    np.testing.assert_array_equal(evidence.distances, before[0])
    np.testing.assert_array_equal(evidence.rows, before[1])


def test_what_is_weighed_stays_as_it_is():
    weighed = weigh(gather(np.array([[1.0, 2.0]]), np.array([0, 0])), (1, 2), np.array([0]))
    assert weigh(weighed, (1, 2)) is weigh(weighed, ONE) is weighed
    with pytest.raises(InputError, match=r"weighed by \(1, 2\); \(2, 1\) was asked for"):
        weigh(weighed, (2, 1))


def test_without_beliefs_the_nearest_class_is_believed_if_the_quorum_treats_all_alike():
    evidence = gather(np.array([[1.0, 2.0, 2.5, 9.0]]), np.array([0, 1, 1, 0]))
    assert weigh(evidence, ONE).belief.tolist() == [0]
    assert weigh(evidence, (2, 2)).belief.tolist() == [1]
    with pytest.raises(InputError, match=r"the quorum \(1, 2\) depends on the belief"):
        weigh(evidence, (1, 2))


@pytest.mark.parametrize("quorum", [(3, 1), (1, 3), (3, 3)])
def test_evidence_with_too_few_samples_of_each_class_is_refused(quorum):
    evidence = empty_evidence(2, 3, 0, per_class=2)
    with pytest.raises(
        InputError, match=r"the 2 nearest of each class, too few .* of 3: .*class=3"
    ):
        weigh(evidence, quorum, np.zeros(2, int))


def test_without_a_belief_every_class_is_another_one():
    evidence = gather(np.array([[1.0, 2.0, 3.0]]), np.array([2, 2, 0]))
    weighed = weigh(evidence, (1, 2), np.array([NO_BELIEF]))
    assert weighed.class_distances.tolist() == [[math.inf, math.inf, 2]]
    assert weighed.believed_distance().tolist() == [math.inf]
    own = believed(evidence.distances, np.array([NO_BELIEF]))
    assert own.tolist() == [[math.inf] * PER_CLASS]
    for ratio in (0, 0.5, 2):  # not even within an endless radius
        rule = RelativeBall(math.inf, ratio, quorum=(1, 2))
        assert not find_support(evidence, rule, np.array([NO_BELIEF])).any()


def test_the_distances_of_the_believed_class_are_all_that_the_evidence_holds():
    evidence = gather(np.array([[5.0, 1.0, 2.0], [1.0, 4.0, 3.0]]), np.array([0, 1, 1]))
    own = believed(evidence.distances, np.array([1, 0]))
    assert own.tolist() == [[1, 2, math.inf, math.inf], [1, math.inf, math.inf, math.inf]]


@pytest.mark.parametrize(
    ("given", "quorum"),
    [
        (3, (3, 3)),
        (1, ONE),
        ((1, 3), (1, 3)),
        ([1, 3], (1, 3)),
        (np.int64(2), (2, 2)),
        (np.uint8(2), (2, 2)),
        ((np.int32(1), 3), (1, 3)),
        (np.array([1, 3]), (1, 3)),
    ],
    ids=repr,
)
def test_a_quorum_is_one_number_or_two(given, quorum):
    checked = check_quorum(given)
    assert checked == quorum
    assert [type(number) for number in checked] == [int, int]


@pytest.mark.parametrize(
    "given",
    [
        *(0, -1, 1.5, 2.0, True, np.True_, "3", "12", None, math.nan, b"12", {1, 3}),
        *((1, 2, 3), (), (1,), (1, 0), (0, 1), (1, 1.5), (1, "3"), (True, 2), [[1, 2], [3, 4]]),
        *(np.array([1.0, 2.0]), np.array(3.5), np.array([[1, 2]]), {1: 2, 3: 4}),
    ],
    ids=repr,
)
def test_what_is_no_quorum_is_refused(given):
    with pytest.raises(InputError, match=r"must be a whole number >= 1, or two: \(for, against\)"):
        check_quorum(given)


def test_a_weighed_record_is_evidence():
    weighed = weigh(empty_evidence(2, 3, 1), ONE)
    assert isinstance(weighed, Evidence)
    assert isinstance(weighed[:1], Weighed)
    assert weighed.per_class == 1
