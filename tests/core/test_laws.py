"""The paper's definitions and laws of the algebra, for all problems hypothesis can think of."""

import math
from collections import Counter
from functools import reduce
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from iknow.core.assertion import Assertion, Reason, find_reasons, make_assertions
from iknow.core.evidence import discard_evidence, empty_evidence, merge_evidence, stack_evidence
from iknow.core.support import find_support, justify
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall
from tests.oracles import assertion_of, distance, justification_of, nearest_of, support_of

law = settings(derandomize=True, deadline=None, max_examples=100)

# Neighbor distances and samples of each class in all evidence here, more than some sets have.
K, PER_CLASS = 4, 3
ks = st.integers(1, K)
# Points lie on a grid, so distances between them are roots of integers: such radii meet ties.
radii = st.integers(0, 80).map(math.sqrt) | st.floats(0, 12)
ratios = st.integers(0, 30).map(math.sqrt) | st.floats(0, 20)
quorums = st.tuples(st.integers(1, PER_CLASS), st.integers(1, PER_CLASS))
neighborhoods = st.one_of(
    st.builds(Ball, radii, quorum=quorums),
    st.builds(RelativeBall, radii, ratios, quorum=quorums),
    st.builds(Nearest, ks, quorum=quorums),
    st.builds(BallElseNearest, radii, ks, quorum=quorums),
    st.builds(BallWithNearest, radii, ks, quorum=quorums),
)
RULES_WITH_RADIUS = pytest.mark.parametrize(
    "rule", [Ball, lambda radius: BallWithNearest(radius, 2)], ids=["Ball", "BallWithNearest"]
)


class Problem(NamedTuple):
    train: np.ndarray
    labels: np.ndarray
    queries: np.ndarray
    belief: np.ndarray
    n_classes: int

    def part(self, rows):
        return self._replace(train=self.train[rows], labels=self.labels[rows])


@st.composite
def problems(draw, every_class=False, most=9):
    n_classes, n_queries = draw(st.integers(2, 4)), draw(st.integers(1, 5))
    n_train = draw(st.integers(n_classes if every_class else 1, most))
    coordinates, codes = st.integers(-3, 3), st.integers(0, n_classes - 1)
    labels = draw(arrays(np.int64, n_train, elements=codes))
    if every_class:
        labels[:n_classes] = np.arange(n_classes)
    return Problem(
        train=draw(arrays(np.int64, (n_train, 2), elements=coordinates)),
        labels=labels,
        queries=draw(arrays(np.int64, (n_queries, 2), elements=coordinates)),
        belief=draw(arrays(np.int64, n_queries, elements=codes)),
        n_classes=n_classes,
    )


@st.composite
def masks(draw):
    """A belief and one support per layer."""
    n_layers, n_queries, n_classes = (
        draw(st.integers(*limits)) for limits in ((1, 3), (1, 5), (1, 4))
    )
    supports = draw(arrays(bool, (n_layers, n_queries, n_classes)))
    belief = draw(arrays(np.int64, n_queries, elements=st.integers(0, n_classes - 1)))
    return belief, list(supports)


@pytest.fixture(scope="session")
def evidence_of(gather):
    def evidence_of(problem, rows=None, k=K):
        training = problem.train, problem.labels, problem.queries, problem.n_classes
        return gather(*training, k, rows=rows, per_class=PER_CLASS)

    return evidence_of


def assess(evidence, problem, rule):
    return make_assertions(problem.belief, find_support(evidence, rule, problem.belief))


def is_subset(left, right):
    return bool((~left | right).all())


# The paper's definitions, with plain sets over raw points, and a quorum

KNOWN_BY = {Reason.KNOWN, Reason.OVERLAP}
RULES = {  # how each is made, and which reasons it can give in one layer
    "Ball": (
        lambda radius, k, ratio, seen, quorum: Ball(radius, quorum=quorum),
        {*KNOWN_BY, Reason.CONTRADICTION, Reason.EXTRAPOLATION},
    ),
    "Nearest": (
        lambda radius, k, ratio, seen, quorum: Nearest(k, quorum=quorum),
        {*KNOWN_BY, Reason.CONTRADICTION},
    ),
    "BallElseNearest": (
        lambda radius, k, ratio, seen, quorum: BallElseNearest(radius, k, quorum=quorum),
        {*KNOWN_BY, Reason.CONTRADICTION},
    ),
    "BallWithNearest": (
        lambda radius, k, ratio, seen, quorum: BallWithNearest(radius, k, quorum=quorum),
        {*KNOWN_BY, Reason.CONTRADICTION, Reason.EXTRAPOLATION},
    ),
    "RelativeBall": (  # which looks for the belief first
        lambda radius, k, ratio, seen, quorum: RelativeBall(radius, ratio, seen, quorum=quorum),
        {*KNOWN_BY, Reason.EXTRAPOLATION},
    ),
}


def beside(number):
    """A number and the floats next to it, where they are no less than 0."""
    return [each for each in (number, *np.nextafter(number, [-math.inf, math.inf])) if each >= 0]


def distance_table(problem):
    """Of shape (n_queries, n_train). Coordinates are integers, so only the root is rounded."""
    return np.array([[distance(x, z) for z in problem.train] for x in problem.queries])


@st.composite
def parameters_at_ties(draw, table):
    """A radius, k and a ratio; often a sample lies exactly at the end of a reach, or beside it."""
    x = draw(st.integers(0, len(table) - 1))
    far = draw(st.sampled_from(table[x].tolist()))
    nearest = table[x].min()
    tied = beside(far / nearest) if nearest > 0 else [2.0]
    radius = draw(st.sampled_from([0.0, 0.5, 2.0, 1e9, math.inf, far, far, *beside(far)]))
    ratio = draw(st.sampled_from([0.0, 0.5, 1.0, 1.5, 3.0, *tied, *tied]))
    # How far a tenth sample is at the most; some sets have none.
    tenth = np.sort(np.append(table[x], [math.inf] * 10))[9]
    seen = draw(st.sampled_from([math.inf, math.inf, tenth, *beside(tenth)]))
    k = draw(st.integers(1, min(K, table.shape[1])))
    return float(radius), k, float(ratio), float(seen)


@pytest.mark.parametrize("quorum", [(1, 1), (1, 3), (2, 2), (3, 1)], ids=str)
@pytest.mark.parametrize("name", RULES)
def test_answers_are_those_of_the_papers_definitions(name, quorum, evidence_of):
    make, possible = RULES[name]
    met = Counter()

    @settings(law, max_examples=800 if quorum == (1, 1) else 120)
    @given(problem=problems(most=12 if name == "RelativeBall" else 9), data=st.data())
    def check(problem, data):
        table = distance_table(problem)
        radius, k, ratio, seen = data.draw(parameters_at_ties(table))
        rule = make(radius, k, ratio, seen, quorum)
        support = find_support(evidence_of(problem, k=10), rule, problem.belief)
        reasons = find_reasons(problem.belief, [support])
        for i, belief in enumerate(problem.belief.tolist()):
            expected = support_of(rule, table[i], problem.labels, belief)
            assert set(np.flatnonzero(support[i]).tolist()) == expected
            met[Reason(reasons[i])] += 1
        nearest = table.min(axis=1, keepdims=True)
        met["at the radius"] += (table == radius).any()
        met["tied with the k-th"] += any(len(nearest_of(k, row)) > k for row in table.tolist())
        ends = (nearest > 0) & (nearest < table) & (table == ratio * nearest)
        met["at the end of the relative reach"] += ends.any()
        met["a class without samples"] += len(set(problem.labels)) < problem.n_classes

    check()
    assert met[Reason.KNOWN] >= 15
    if quorum == (1, 1):
        assert {reason for reason in met if isinstance(reason, Reason)} == possible
        assert min(met.values()) >= 20, met


@law
@given(masks())
def test_every_query_is_either_ik_imk_or_idk_by_the_definition(belief_and_supports):
    belief, supports = belief_and_supports
    justified = justify(supports)
    assertions, reasons = make_assertions(belief, justified), find_reasons(belief, supports)
    for i, code in enumerate(belief):
        sets = [set(np.flatnonzero(support[i]).tolist()) for support in supports]
        assert (assertions[i], reasons[i]) == assertion_of(code, sets)
        assert set(np.flatnonzero(justified[i]).tolist()) == justification_of(sets)


def pairs(make, numbers, *fixed):
    """Two rules with the same fixed parameters; the other number of the second is the larger."""
    drawn = st.tuples(st.tuples(numbers, numbers).map(sorted), *fixed)
    return drawn.map(lambda given: [make(number, *given[1:]) for number in given[0]])


# The paper's remark on the fractions: as a parameter grows in one layer, which assertions spread,
# and which withdraw.
GROWING = {
    "radius of Ball": (pairs(Ball, radii), [Assertion.IMK], [Assertion.IDK]),
    "radius of BallWithNearest": (
        pairs(BallWithNearest, radii, st.just(2)), [Assertion.IMK], [Assertion.IDK],
    ),
    "radius of RelativeBall": (
        pairs(RelativeBall, radii, ratios), [Assertion.IK, Assertion.IMK], [Assertion.IDK],
    ),
    "ratio of RelativeBall": (
        pairs(lambda ratio, radius: RelativeBall(radius, ratio), ratios, radii), [], [Assertion.IK],
    ),
}  # fmt: skip


@pytest.mark.parametrize("parameter", GROWING)
@law
@given(problem=problems(), data=st.data())
def test_as_a_parameter_grows_some_assertions_spread_and_some_withdraw(
    parameter, problem, data, evidence_of
):
    rules, spreading, withdrawing = GROWING[parameter]
    small, large = (assess(evidence_of(problem), problem, rule) for rule in data.draw(rules))
    for assertion in spreading:
        assert is_subset(small == assertion, large == assertion)
    for assertion in withdrawing:
        assert is_subset(large == assertion, small == assertion)


@RULES_WITH_RADIUS
@law
@given(problem=problems(), radius=st.sampled_from([0, 1e-9, 0.7]))
def test_a_vanishing_radius_knows_nothing_away_from_samples(rule, radius, problem, evidence_of):
    between = problem._replace(queries=problem.queries + 0.5)  # at least sqrt(1/2) from the grid
    support = find_support(evidence_of(between), rule(radius))
    assert (make_assertions(problem.belief, support) == Assertion.IDK).all()
    assert (find_reasons(problem.belief, [support]) == Reason.EXTRAPOLATION).all()


@law
@given(problem=problems(), query=st.integers(0, 4))
def test_radius_zero_finds_the_samples_that_coincide(problem, query, evidence_of):
    x = problem.queries[query % len(problem.queries)]
    expected = set(problem.labels[(problem.train == x).all(axis=1)].tolist())
    support = find_support(evidence_of(problem), Ball(0))[query % len(problem.queries)]
    assert set(np.flatnonzero(support).tolist()) == expected


@RULES_WITH_RADIUS
@law
@given(problem=problems(every_class=True), radius=st.sampled_from([1e9, math.inf]))
def test_an_endless_radius_finds_every_class(rule, radius, problem, evidence_of):
    assertions = assess(evidence_of(problem), problem, rule(radius))
    assert (assertions == Assertion.IMK).all()


# The order and the sharding of the training set


@law
@given(problem=problems(), data=st.data(), rule=neighborhoods)
def test_permuting_the_training_rows_changes_no_support(problem, data, rule, evidence_of):
    order = data.draw(st.permutations(range(len(problem.labels))))
    support = find_support(evidence_of(problem), rule, problem.belief)
    permuted = find_support(evidence_of(problem.part(order)), rule, problem.belief)
    np.testing.assert_array_equal(permuted, support)


@law
@given(problem=problems(), data=st.data())
def test_shards_merged_in_any_order_and_grouping_equal_the_whole(
    problem, data, evidence_of, assert_same_evidence
):
    """Some without rows, often each of one row; merged from the left, from the right, at once."""
    n = len(problem.labels)
    alone = st.permutations(range(9)).map(lambda order: np.array(order[:n]))
    shard_of_row = data.draw(alone | arrays(np.int64, n, elements=st.integers(0, 8)))
    members = [np.flatnonzero(shard_of_row == shard) for shard in range(9)]
    shards = [evidence_of(problem.part(rows), rows) for rows in members]
    nothing = empty_evidence(len(problem.queries), problem.n_classes, K, PER_CLASS)
    left = reduce(lambda one, other: merge_evidence([one, other]), shards, nothing)
    right = reduce(lambda one, other: merge_evidence([other, one]), shards[::-1], nothing)
    for merged in (left, right, merge_evidence(shards)):
        assert_same_evidence(merged, evidence_of(problem))
    for x, exemplars in zip(problem.queries, left.exemplars, strict=True):
        for code, exemplar in enumerate(exemplars):
            rows = np.flatnonzero(problem.labels == code)
            squares = ((problem.train[rows] - x) ** 2).sum(axis=1)
            assert exemplar == (rows[squares == squares.min()].min() if len(rows) else -1)


@law
@given(problem=problems(), rule=neighborhoods, cut=st.integers(0, 5))
def test_batches_of_queries_stack_to_the_whole(
    problem, rule, cut, evidence_of, assert_same_evidence
):
    evidence = evidence_of(problem)
    stacked = stack_evidence([evidence[:cut], evidence[cut:]])
    assert_same_evidence(stacked, evidence)
    np.testing.assert_array_equal(
        find_support(evidence[cut:], rule, problem.belief[cut:]),
        find_support(evidence, rule, problem.belief)[cut:],
    )


@law
@given(problem=problems(), rule=neighborhoods)
def test_discarded_evidence_supports_nothing(problem, rule, evidence_of):
    everything = np.ones(len(problem.queries), dtype=bool)
    discarded = discard_evidence(evidence_of(problem), everything)
    assert not find_support(discarded, rule, problem.belief).any()


# The rules among each other


@law
@given(problem=problems(), radius=radii, k=ks)
def test_h1_is_the_ball_where_inhabited_and_the_nearest_elsewhere(problem, radius, k, evidence_of):
    evidence = evidence_of(problem)
    ball, nearest, hybrid = (
        find_support(evidence, rule)
        for rule in (Ball(radius), Nearest(k), BallElseNearest(radius, k))
    )
    np.testing.assert_array_equal(hybrid, np.where(ball.any(axis=1)[:, None], ball, nearest))
    assert hybrid.any(axis=1).all()


@law
@given(problem=problems(), radius=radii, k=ks)
def test_h2_is_ball_and_nearest_where_the_ball_is_inhabited_and_empty_elsewhere(
    problem, radius, k, evidence_of
):
    evidence = evidence_of(problem)
    ball, nearest, hybrid = (
        find_support(evidence, rule)
        for rule in (Ball(radius), Nearest(k), BallWithNearest(radius, k))
    )
    inhabited = ball.any(axis=1)
    assert is_subset(ball[inhabited], hybrid[inhabited])
    assert not hybrid[~inhabited].any()
    np.testing.assert_array_equal(hybrid[inhabited], (ball | nearest)[inhabited])
    known = assess(evidence, problem, BallWithNearest(radius, k)) == Assertion.IK
    assert is_subset(known, assess(evidence, problem, Ball(radius)) == Assertion.IK)


@law
@given(problem=problems(), pair=st.tuples(ks, ks), ends=st.tuples(ratios, ratios), radius=radii)
def test_supports_grow_with_k_and_with_the_ratio(problem, pair, ends, radius, evidence_of):
    evidence = evidence_of(problem)
    few, many = (find_support(evidence, Nearest(k)) for k in sorted(pair))
    assert is_subset(few, many)
    assert few.any(axis=1).all()
    near, far = (
        find_support(evidence, RelativeBall(radius, ratio), problem.belief)
        for ratio in sorted(ends)
    )
    assert is_subset(near, far)


# The relative ball


@law
@given(problem=problems(), radius=radii, ratio=ratios)
def test_a_relative_ball_is_empty_exactly_where_the_ball_is(problem, radius, ratio, evidence_of):
    evidence = evidence_of(problem)
    relative, ball = (
        find_support(evidence, rule) for rule in (RelativeBall(radius, ratio), Ball(radius))
    )
    np.testing.assert_array_equal(relative.any(axis=1), ball.any(axis=1))
    beyond = evidence.nearest_distance() > radius
    assert not relative[beyond].any()


@law
@given(problem=problems(), radius=radii)
def test_with_ratio_one_a_relative_ball_finds_the_nearest_and_nothing_else(
    problem, radius, evidence_of
):
    evidence = evidence_of(problem)
    inhabited = find_support(evidence, Ball(radius)).any(axis=1)
    np.testing.assert_array_equal(
        find_support(evidence, RelativeBall(radius, 1)),
        find_support(evidence, Nearest(1)) & inhabited[:, None],
    )


@law
@given(problem=problems(), scale=st.sampled_from([0.25, 0.5, 2, 4, 8]), radius=radii, ratio=ratios)
def test_a_relative_ball_does_not_mind_the_scale_of_the_data(
    problem, scale, radius, ratio, evidence_of
):
    scaled = problem._replace(train=problem.train * scale, queries=problem.queries * scale)
    np.testing.assert_array_equal(
        find_support(evidence_of(scaled), RelativeBall(radius * scale, ratio), problem.belief),
        find_support(evidence_of(problem), RelativeBall(radius, ratio), problem.belief),
    )


@law
@given(problem=problems(), radius=radii, ratio=ratios, quorum=quorums)
def test_a_relative_ball_holds_the_belief_or_nothing(problem, radius, ratio, quorum, evidence_of):
    rule = RelativeBall(radius, ratio, quorum=quorum)
    support = find_support(evidence_of(problem), rule, problem.belief)
    believed = support[np.arange(len(support)), problem.belief]
    np.testing.assert_array_equal(support.any(axis=1), believed)
    ball = find_support(evidence_of(problem), Ball(radius, quorum=quorum), problem.belief)
    np.testing.assert_array_equal(believed, ball[np.arange(len(ball)), problem.belief])


# Several layers


@law
@given(masks())
def test_every_reason_belongs_to_one_assertion(belief_and_supports):
    belief, supports = belief_and_supports
    meaning = {
        Reason.KNOWN: Assertion.IK,
        Reason.OVERLAP: Assertion.IMK,
        Reason.DISAGREEMENT: Assertion.IMK,
        Reason.EXTRAPOLATION: Assertion.IDK,
        Reason.CONTRADICTION: Assertion.IDK,
    }
    assertions = make_assertions(belief, justify(supports))
    assert assertions.tolist() == [meaning[code] for code in find_reasons(belief, supports)]


@law
@given(masks())
def test_another_layer_never_makes_a_belief_known(belief_and_supports):
    belief, supports = belief_and_supports
    assume(len(supports) > 1)
    fewer = make_assertions(belief, justify(supports[:-1])) == Assertion.IK
    all_of_them = make_assertions(belief, justify(supports)) == Assertion.IK
    assert is_subset(all_of_them, fewer)


@law
@given(masks(), st.randoms(use_true_random=False))
def test_the_order_of_the_layers_does_not_matter(belief_and_supports, random):
    belief, supports = belief_and_supports
    shuffled = random.sample(supports, len(supports))
    np.testing.assert_array_equal(justify(shuffled), justify(supports))
    np.testing.assert_array_equal(find_reasons(belief, shuffled), find_reasons(belief, supports))
