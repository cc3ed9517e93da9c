"""Slack: at the radius it names the assertion turns, and nowhere nearer."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iknow.core.assertion import Assertion, make_assertions
from iknow.core.evidence import Evidence
from iknow.core.rule import NO_REACH, Rule
from iknow.core.slack import find_slack
from iknow.core.support import find_support, justify
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall

distances = st.lists(st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, math.inf]), min_size=3, max_size=3)
masks = st.lists(st.booleans(), min_size=3, max_size=3).map(lambda row: np.array([row]))
radii = st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.25, 2.0, 5.0])
with_radius = st.one_of(
    st.builds(Ball, radii),
    st.builds(BallElseNearest, radii, st.integers(1, 3)),
    st.builds(BallWithNearest, radii, st.integers(1, 3)),
    st.builds(RelativeBall, radii, st.sampled_from([0.0, 0.5, 1.0, 2.0])),
)


def evidence_of(d):
    return Evidence(
        np.array([d]), np.sort([d]), np.array([[-1 if math.isinf(x) else 0 for x in d]])
    )


def assert_by(evidence, rule, others, belief):
    justification = justify([find_support(evidence, rule, np.array([belief])), *others])
    return Assertion(int(make_assertions(np.array([belief]), justification)[0]))


@given(d=distances, rule=with_radius, others=st.lists(masks, max_size=2), belief=st.integers(0, 2))
def test_the_assertion_turns_where_it_is_said_to_and_nowhere_nearer(d, rule, others, belief):
    evidence = evidence_of(d)
    slack = find_slack(evidence, rule, others, belief)
    now = assert_by(evidence, rule, others, belief)
    assert (slack.parameter, slack.value) == ("radius", rule.radius)

    def at(radius):
        return assert_by(evidence, replace(rule, radius=radius), others, belief)

    top = 10.0 if slack.grow is None else slack.grow.at
    bottom = 0.0 if slack.shrink is None else slack.shrink.at
    assert bottom <= rule.radius
    grid = np.arange(0, 10.125, 0.125)  # every distance, and what lies between them
    for radius in grid[(grid >= bottom) & (grid <= top)]:
        assert at(radius) == (slack.grow.becomes if slack.grow and radius >= top else now)
    if slack.grow is not None:
        assert slack.grow.becomes == at(top) != now
        assert at(math.nextafter(top, 0)) == now
    if slack.shrink is not None:
        assert slack.shrink.becomes == at(math.nextafter(bottom, -1)) != now
        assert at(bottom) == now


@pytest.mark.parametrize(
    ("k", "shrink", "grow"),
    [(1, None, (2, Assertion.IMK)), (2, (2, Assertion.IK), None), (3, (2, Assertion.IK), None)],
)
def test_without_a_radius_k_is_varied(k, shrink, grow):
    slack = find_slack(evidence_of([0.5, 1.0, 2.0]), Nearest(k), [], 0)
    assert (slack.parameter, slack.value) == ("k", k)
    assert shrink == (slack.shrink and (slack.shrink.at, slack.shrink.becomes))
    assert grow == (slack.grow and (slack.grow.at, slack.grow.becomes))


def test_k_is_varied_as_far_as_there_are_neighbours():
    evidence = Evidence(np.array([[0.5, 2.0]]), np.array([[0.5, 0.6, 2.0]]), np.array([[0, 1]]))
    slack = find_slack(evidence, Nearest(2), [], 0)
    assert (slack.grow.at, slack.grow.becomes) == (3, Assertion.IMK)
    assert find_slack(evidence, Nearest(3), [], 0).grow is None


def test_the_smallest_change_is_that_of_the_nearer_turn():
    slack = find_slack(evidence_of([0.5, 2.0, 3.0]), Ball(1.0), [], 0)
    assert slack.smallest == 0.5
    assert str(slack) == "radius 1: IDK below 0.5, IMK from 2 on"
    nothing = find_slack(evidence_of([0.5, 2.0, 3.0]), Ball(1.0), [np.zeros((1, 3), bool)], 0)
    assert nothing.smallest == math.inf
    assert str(nothing) == "radius 1: no change turns it"


class Foreign(Rule):
    """A rule that says nothing but how far it reaches."""

    def __init__(self, reach):
        self.far = reach

    def reach(self, evidence):
        return np.full(np.broadcast_shapes((len(evidence),), np.shape(self.far)), self.far)


@given(d=distances, rho=radii, others=st.lists(masks, max_size=2), belief=st.integers(0, 2))
def test_of_a_foreign_rule_the_reach_itself_is_varied(d, rho, others, belief):
    """A ball of that radius reaches as far, and is turned at the same places."""
    slack = find_slack(evidence_of(d), Foreign(rho), others, belief)
    ball = find_slack(evidence_of(d), Ball(rho), others, belief)
    assert slack == replace(ball, parameter="reach")


def test_where_a_foreign_rule_reaches_nothing_it_is_not_known_what_would_turn_it():
    for reach in (NO_REACH, np.array([[1.0, 2.0, 3.0]])):  # or one for each class
        assert find_slack(evidence_of([0.5, 2.0, 3.0]), Foreign(reach), [], 0) is None


def test_a_subclass_with_another_reach_is_turned_by_that_reach():
    class Twice(Ball):
        def reach(self, evidence):
            return 2 * super().reach(evidence)

    slack = find_slack(evidence_of([0.5, 2.0, 3.0]), Twice(0.75), [], 0)
    assert str(slack) == "reach 1.5: IDK below 0.5, IMK from 2 on"
