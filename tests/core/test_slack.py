"""Margin, slack and stability: how far an assertion is from turning, by hand and in several layers.

That they hold for each rule, in one layer, is in the contract of every rule.
"""

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iknow.core.assertion import Assertion, make_assertions
from iknow.core.evidence import Evidence
from iknow.core.rule import NO_REACH, Rule
from iknow.core.slack import find_margins, find_slack
from iknow.core.support import find_support, justify
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall

distances = st.lists(
    st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf]), min_size=3, max_size=3
)
masks = st.lists(st.booleans(), min_size=3, max_size=3).map(lambda row: np.array([row]))
radii = st.sampled_from([0.0, 0.25, 0.5, 1.0, 1.25, 1.75, 2.0, 5.0])
radii_or_inf = radii | st.just(math.inf)
ratios = st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.0, 3.0])
ks = st.integers(1, 3)


def rules_with(radii):
    return st.one_of(
        st.builds(Ball, radii),
        st.builds(BallElseNearest, radii, ks),
        st.builds(BallWithNearest, radii, ks),
        st.builds(RelativeBall, radii, ratios),
    )


class Foreign(Rule):
    """A rule that says nothing but how far it reaches."""

    def __init__(self, reach):
        self.far = reach

    def reach(self, evidence):
        return np.full(np.broadcast_shapes((len(evidence),), np.shape(self.far)), self.far)

    def __repr__(self):
        return f"{type(self).__name__}({self.far})"


class Never(Foreign):
    empty_beyond = 1.5


class Scaled(Ball):
    """What is said of a ball is not true of it."""

    factor = 2.0

    def reach(self, evidence):
        return self.factor * super().reach(evidence)


class Half(Scaled):
    factor = 0.5


def evidence_of(d):
    return Evidence(np.array([d]), np.sort([d]), np.where(np.isinf([d]), -1, 7))


# Margins: their sign is the assertion, their size the distance to another one


@pytest.mark.parametrize(
    ("d", "rule", "belief", "margin"),
    [
        ([1, 4, math.inf], Ball(2), 0, 1.0),  # the belief is 1 within, the next 2 outside
        ([1, 4, math.inf], Ball(3.5), 0, 0.5),
        ([1, 4, math.inf], Ball(0.25), 0, -0.75),
        ([1, 4, math.inf], Ball(5), 0, -1.0),
        ([1, 4, math.inf], Nearest(1), 0, 0.0),
        ([1, 4, math.inf], Nearest(2), 0, 0.0),  # the reach is the other class's own distance
        ([1, 4, math.inf], BallElseNearest(2, 2), 0, 1.0),
        ([1, 4, math.inf], BallElseNearest(0.5, 1), 0, 0.0),
        ([1, 4, math.inf], BallWithNearest(0.5, 1), 0, -0.5),  # no reach: the radius lacks 0.5
        ([1, 4, math.inf], RelativeBall(2, 1.5), 0, 0.5),
        ([1, 4, math.inf], RelativeBall(0.5, 1.5), 0, -0.5),
        ([1, 4, math.inf], RelativeBall(2, 0.5), 0, 0.0),  # the belief is as far as its own reach
        ([1, 4, math.inf], Ball(math.inf), 0, -math.inf),
        # Without other classes and without a limit nothing can be lost.
        ([1, math.inf, math.inf], Ball(math.inf), 0, math.inf),
        # A belief without training samples is infinitely far from known.
        *(
            ([*others, math.inf], rule, 2, -math.inf)
            for others in ([1, 4], [math.inf, math.inf])
            for rule in (Ball(2), Ball(math.inf), Nearest(2))
        ),
        # A rule that names no limit says nothing about how much is missing.
        *(
            (d, rule, 0, -math.inf)
            for d in ([1.0, 2.0, 3.0], [1.0, math.inf, math.inf])
            for rule in (Foreign(NO_REACH), Never(NO_REACH))
        ),
        ([1.0, 2.0, 3.0], Never(NO_REACH), 1, -0.5),
    ],
    ids=repr,
)
def test_the_margin_is_the_smaller_of_what_is_left_on_either_side(d, rule, belief, margin):
    assert find_margins(evidence_of(d), rule, np.array([belief])).tolist() == [margin]


@given(
    layers=st.lists(
        st.tuples(distances, rules_with(radii_or_inf) | st.builds(Nearest, ks)), min_size=1
    ),
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
    d=distances,
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


# Slack: at the radius it names the assertion turns, and nowhere nearer


def assert_by(evidence, rule, others, belief):
    justification = justify([find_support(evidence, rule, np.array([belief])), *others])
    return Assertion(int(make_assertions(np.array([belief]), justification)[0]))


@given(
    d=distances,
    rule=rules_with(radii),
    others=st.lists(masks, max_size=2),
    belief=st.integers(0, 2),
)
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
    assert str(slack) == "radius 1, IDK if below 0.5, IMK if 2 or more"
    nothing = find_slack(evidence_of([0.5, 2.0, 3.0]), Ball(1.0), [np.zeros((1, 3), bool)], 0)
    assert nothing.smallest == math.inf
    assert str(nothing) == "radius 1, no other alone changes that"


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
    slack = find_slack(evidence_of([0.5, 2.0, 3.0]), Scaled(0.75), [], 0)
    assert str(slack) == "reach 1.5, IDK if below 0.5, IMK if 2 or more"


# Stability: the count of removals equals what trying all of them out finds


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


@pytest.mark.parametrize(
    "rules",
    [
        [Ball(1.0), BallElseNearest(0.7, 2)],
        [BallWithNearest(1.0, 2), RelativeBall(1.0, 1.5)],
    ],
    ids=repr,
)
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


ROW = [0.0, 0.1, 0.2, 0.3, 0.4]


@pytest.mark.parametrize(
    ("places", "labels", "rule", "n_neighbors", "at_least", "exact"),
    [
        # Where all neighbors in the evidence count it is a lower bound.
        (ROW, [0] * 5, Ball(1), 0, 1, False),
        (ROW, [0] * 5, Ball(1), 3, 3, False),
        (ROW, [0] * 5, Ball(1), 5, 5, False),
        (ROW, [0] * 5, Ball(1), 6, 5, True),
        # A sample whose reach just touches another class does not count.
        ([1, 2, 4], [0, 0, 1], RelativeBall(5, 2), 4, 1, True),
        # Without other classes the nearest may be fewer than k.
        ([1, 2, 3], [0, 0, 0], Nearest(2), 4, 2, False),
        # Of a foreign rule one sample is all that is certain.
        (ROW, [0] * 5, Foreign(math.inf), 6, 1, False),
        (ROW, [0] * 5, Half(1.0), 6, 1, False),
    ],
    ids=repr,
)
def test_so_many_samples_on_a_line_must_go_until_the_origin_is_not_known(
    places, labels, rule, n_neighbors, at_least, exact, assess
):
    train = [np.array(places, dtype=float)[:, None]]
    line = assess(train, np.array(labels), np.zeros((1, 1)), [rule], n_neighbors)
    assert line.assertion[0] == Assertion.IK
    assert (line.stability.at_least[0], line.stability.exact[0]) == (at_least, exact)
    assert len(line.stability) == 1


def test_a_lower_bound_is_not_exact_because_another_layer_is(assess_by, gather):
    train, labels, query = np.arange(5)[:, None] / 10, np.zeros(5, dtype=int), np.zeros((1, 1))
    evidence = [gather(train, labels, query, 2, n_neighbors) for n_neighbors in (6, 1)]
    for order in (evidence, evidence[::-1]):
        stability = assess_by(order, [Ball(1), Ball(1)], [0]).stability
        assert (stability.at_least[0], stability.exact[0]) == (1, False)
