"""Margins: their sign is the assertion, their size the distance to another one."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iknow.core.assertion import Assertion
from iknow.core.evidence import Evidence
from iknow.core.rule import NO_REACH, Rule
from iknow.core.slack import find_margins
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall

distances = st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf])
radii = st.sampled_from([0.0, 0.5, 1.0, 1.75, 2.0, math.inf])
rules = st.one_of(
    st.builds(Ball, radii),
    st.builds(Nearest, st.integers(1, 3)),
    st.builds(BallElseNearest, radii, st.integers(1, 3)),
    st.builds(BallWithNearest, radii, st.integers(1, 3)),
    st.builds(RelativeBall, radii, st.sampled_from([0.5, 1.0, 1.5, 3.0])),
)


def evidence_of(d):
    return Evidence(np.array([d]), np.sort([d]), np.where(np.isinf([d]), -1, 7))


@pytest.mark.parametrize(
    ("rule", "margin"),
    [
        (Ball(2), 1.0),  # the believed class is 1 within, the next 2 outside
        (Ball(3.5), 0.5),
        (Ball(0.25), -0.75),
        (Ball(5), -1.0),
        (Nearest(1), 0.0),
        (Nearest(2), 0.0),  # the reach is the other class's own distance
        (BallElseNearest(2, 2), 1.0),
        (BallElseNearest(0.5, 1), 0.0),
        (BallWithNearest(0.5, 1), -0.5),  # no reach: the radius lacks 0.5
        (RelativeBall(2, 1.5), 0.5),
        (RelativeBall(0.5, 1.5), -0.5),
        (RelativeBall(2, 0.5), 0.0),  # the belief is as far as its own reach
        (Ball(math.inf), -math.inf),
    ],
    ids=repr,
)
def test_the_margin_is_the_smaller_of_what_is_left_on_either_side(rule, margin, evidence_from):
    evidence = evidence_from([[1, 4, math.inf]], n_neighbors=2)
    assert find_margins(evidence, rule, np.array([0])).tolist() == [margin]


@pytest.mark.parametrize("others", [[1, 4], [math.inf, math.inf]])
def test_a_belief_without_training_samples_is_infinitely_far_from_known(others, evidence_from):
    evidence = evidence_from([[*others, math.inf]], n_neighbors=2)
    for rule in (Ball(2), Ball(math.inf), Nearest(2)):
        assert find_margins(evidence, rule, np.array([2])).tolist() == [-math.inf]


def test_without_other_classes_and_without_a_limit_nothing_can_be_lost(evidence_from):
    evidence = evidence_from([[1, math.inf, math.inf]], n_neighbors=2)
    assert find_margins(evidence, Ball(math.inf), np.array([0])).tolist() == [math.inf]


@given(
    layers=st.lists(st.tuples(st.lists(distances, min_size=3, max_size=3), rules), min_size=1),
    belief=st.integers(0, 2),
)
def test_the_sign_of_the_margin_is_the_assertion(layers, belief, assess_by):
    assessment = assess_by([evidence_of(d) for d, _ in layers], [r for _, r in layers], [belief])
    known = assessment.assertion[0] == Assertion.IK
    assert not np.isnan(assessment.margin[0])
    if assessment.margin[0] > 0:
        assert known
    if assessment.margin[0] < 0:
        assert not known
    assert assessment.margin[0] == min(m[0] for m in assessment.layer_margins.values())


@given(
    d=st.lists(distances, min_size=3, max_size=3),
    radius=st.sampled_from([0.5, 1.0, 1.75, 2.0]),
    belief=st.integers(0, 2),
)
def test_an_ik_lasts_while_all_distances_change_by_less_than_the_margin(
    d, radius, belief, assess_by
):
    assessment = assess_by([evidence_of(d)], [Ball(radius)], [belief])
    margin = assessment.margin[0]
    if margin > 0:
        step = 0.999 * min(margin, 5)
        for sign in (-1, 1):
            moved = [max(0, x + (sign if c == belief else -sign) * step) for c, x in enumerate(d)]
            after = assess_by([evidence_of(moved)], [Ball(radius)], [belief])
            assert after.assertion[0] == Assertion.IK


def test_a_rule_that_names_no_limit_says_nothing_about_how_much_is_missing():
    class Nothing(Rule):
        def reach(self, evidence):
            return np.full(len(evidence), NO_REACH)

    class Never(Nothing):
        empty_beyond = 1.5

    for d in ([1.0, 2.0, 3.0], [1.0, np.inf, np.inf]):
        for rule in (Nothing(), Never()):
            assert find_margins(evidence_of(d), rule, np.array([0])).tolist() == [-np.inf]
    assert find_margins(evidence_of([1.0, 2.0, 3.0]), Never(), np.array([1])).tolist() == [-0.5]
