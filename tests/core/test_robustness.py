"""Certificates: no movement shorter than the radius makes another class known."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iknow.core.assertion import Assertion, make_assertions
from iknow.core.bisector import find_crossings
from iknow.core.quorum import weigh
from iknow.core.robustness import FURTHEST, Movement, find_clearance, find_robust_radii
from iknow.core.rule import Rule
from iknow.core.support import find_support, justify
from iknow.errors import InputError
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall
from iknow.testing.rule import gather_all

RULES = [
    Ball(0.6),
    Nearest(1),
    Nearest(3),
    BallElseNearest(0.3, 2),
    BallWithNearest(0.6, 2),
    RelativeBall(0.8, 1.5),
]
MORE_RULES = [
    *RULES,
    RelativeBall(0.8, 0.8),
    RelativeBall(1.5, 1.2, quorum=(1, 3)),
    Ball(0.8, quorum=(2, 1)),
    Nearest(2, quorum=(2, 1)),
    RelativeBall(1.5, 1.2, quorum=(2, 1)),
    RelativeBall(1.5, 1.2, 0.9),
    RelativeBall(math.inf, 0.0, 0.9),
]


def look(train, labels, queries):
    distances = np.sqrt(np.square(queries[:, None, :] - train).sum(axis=2))
    return gather_all(distances, labels)


@pytest.fixture(scope="session")
def assess(assess_by):
    """Queries in layers that are linear maps of the input."""

    def run(maps, train, labels, queries, rules, belief):
        evidence = [look(train @ matrix, labels, queries @ matrix) for matrix in maps]
        # Float32 gives the bisectors what they ask for; the rounding is of these few numbers.
        movements = {
            f"layer{i}": Movement(
                np.linalg.norm(matrix, 2),
                1e-6,
                find_crossings(
                    (train @ matrix).astype(np.float32),
                    labels,
                    (queries @ matrix).astype(np.float32),
                    np.asarray(belief),
                ),
            )
            for i, matrix in enumerate(maps)
        }
        return assess_by(evidence, rules, belief, movements=movements)

    return run


@settings(max_examples=100)
@given(seed=st.integers(0, 10**6), i=st.integers(0, len(MORE_RULES) - 1), two=st.booleans())
def test_nothing_else_is_known_within_the_radius(seed, i, two, assess):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, 20)
    train = rng.normal(0, 0.5, (20, 2)) + np.array([[0, 0], [1, 0], [0, 1]])[labels]
    queries = rng.normal(0.3, 0.6, (6, 2))
    belief = rng.integers(0, 3, 6)
    maps = [np.eye(2), rng.normal(size=(2, 2))][: 2 if two else 1]
    rules = [MORE_RULES[i], MORE_RULES[-1 - i]][: len(maps)]
    radii = assess(maps, train, labels, queries, rules, belief).robust_radius
    assert np.isfinite(radii).all()
    for query, radius, g in zip(queries, radii, belief, strict=True):
        if radius == 0:
            continue
        angles = np.linspace(0, 2 * np.pi, 40)
        circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        lengths = min(radius, 5) * np.array([0.3, 0.7, 0.95, 0.999999])
        moved = query + np.concatenate([length * circle for length in lengths])
        layers = [look(train @ each, labels, moved @ each) for each in maps]
        for other in {0, 1, 2} - {int(g)}:  # whatever the model then believes
            belief = np.full(len(moved), other)
            supports = [find_support(*layer, belief) for layer in zip(layers, rules, strict=True)]
            assert not (make_assertions(belief, justify(supports)) == Assertion.IK).any()


ONE_EACH = [-1.0], [4.0]
TWO_EACH = [-1.0, -1.5], [4.0, 5.0]
ON_A_LINE = [
    (ONE_EACH, Ball(1), 3.0),  # the other class, at 4, comes within reach
    (ONE_EACH, Ball(3), 2.0),  # it is within reach soon; but the belief, at 1, is so for longer
    (ONE_EACH, Nearest(1), 1.5),  # halfway between the classes
    (ONE_EACH, BallElseNearest(1, 1), 1.5),
    (ONE_EACH, BallElseNearest(3, 1), 2.0),
    (ONE_EACH, BallWithNearest(1, 1), 3.0),
    (ONE_EACH, BallWithNearest(3, 1), 2.0),
    (ONE_EACH, RelativeBall(1, 2.0), 3.0),
    (ONE_EACH, RelativeBall(9, 2.0), 7 / 3),  # there the belief is twice as far as the other class
    # Under a quorum the other class needs what a belief does.
    (TWO_EACH, Ball(1, quorum=(2, 1)), 4.0),  # both of its samples must be within reach
    (TWO_EACH, Ball(3, quorum=(1, 2)), 1.5),  # soon only one of the belief's is left
    (TWO_EACH, Nearest(2, quorum=(1, 2)), 1.25),
    (TWO_EACH, RelativeBall(9, 2.0, quorum=(1, 2)), 6.5 / 3),
    (TWO_EACH, RelativeBall(9, 2.0, quorum=(2, 1)), 3.0),
    (TWO_EACH, RelativeBall(9, 0.5), 2 / 3),  # the belief must be half as far as the other class
    (TWO_EACH, RelativeBall(1, 0.5), 3.0),
    (TWO_EACH, RelativeBall(9, 0.0, quorum=(1, 3)), 0.0),  # only a coinciding sample contradicts
]


@pytest.mark.parametrize(("places", "rule", "radius"), ON_A_LINE, ids=repr)
def test_the_radius_is_where_another_class_becomes_known_and_no_less(
    places, rule, radius, gather, assess_by
):
    """With one sample of each class the bound is attained."""
    train = np.concatenate(places)[:, None]
    labels = np.repeat([0, 1], [len(each) for each in places])

    def gather_at(x):
        return gather(train, labels, np.array([[x]]), 2, 2, per_class=3)

    def knows_the_other(x):
        return find_support(gather_at(x), rule, np.array([1]))[0].tolist() == [False, True]

    clearance = find_clearance(gather_at(0.0), rule, np.array([0]))[0]
    whole = assess_by([gather_at(0.0)], [rule], [0], movements={"layer0": Movement(1.0)})
    if radius == 0:
        assert clearance <= 0 == whole.robust_radius[0]
        assert knows_the_other(0.0)
        return
    for certified in (clearance, whole.robust_radius[0]):
        # Distances might be off by rounding, and so it is a little less than the whole.
        assert radius * (1 - 1e-8) < certified < radius
        assert not knows_the_other(certified)
    assert not knows_the_other(radius * (1 - 1e-9))
    assert knows_the_other(radius * (1 + 1e-9))


def test_bisectors_count_unless_the_belief_needs_several_samples_to_contradict(gather):
    train, labels = np.array([[-1.0], [-1.5], [4.0], [5.0]]), np.array([0, 0, 1, 1])
    evidence, belief = gather(train, labels, np.zeros((1, 1)), 2, 1, per_class=2), np.array([0])
    assert find_clearance(evidence, Nearest(1, quorum=(2, 1)), belief, 2.5).tolist() == [2.5]
    assert find_clearance(evidence, Nearest(1, quorum=(1, 2)), belief, 2.5) == pytest.approx(1.25)


def test_evidence_weighed_for_the_belief_certifies_nothing(gather):
    train, labels = np.array([[-1.0], [-1.5], [4.0], [5.0]]), np.array([0, 0, 1, 1])
    rule, belief = Ball(1, quorum=(1, 2)), np.array([0])
    evidence = gather(train, labels, np.zeros((1, 1)), 2, 1, per_class=2)
    with pytest.raises(InputError, match=r"is weighed by \(1, 2\); \(2, 1\) was asked for"):
        find_clearance(weigh(evidence, rule.quorum, belief), rule, belief)


def test_the_best_layer_counts_and_one_without_a_constant_does_not(assessment):
    assert assessment.robust_radius.tolist() == [0] * 6
    evidence, rules, belief = assessment.evidence, assessment.neighborhoods, assessment.belief_codes
    hidden, logits = {"hidden": Movement(2.0)}, {"logits": Movement(0.5)}
    one, other = (find_robust_radii(evidence, rules, belief, each) for each in (hidden, logits))
    np.testing.assert_allclose(one, [1.75, 0, 1.75, 1.75, 0, math.inf], rtol=1e-8)
    both = find_robust_radii(evidence, rules, belief, hidden | logits)
    assert both.tolist() == np.maximum(one, other).tolist()
    unknown = find_robust_radii(evidence, rules, belief, hidden | {"logits": Movement(math.inf)})
    assert unknown.tolist() == one.tolist()


def test_rounding_is_taken_from_every_clearance_before_it_is_divided(assessment):
    evidence, rules, belief = assessment.evidence, assessment.neighborhoods, assessment.belief_codes
    rounding = np.array([1.5, 0, 3.5, 4, 0, 7])
    radii = find_robust_radii(evidence, rules, belief, {"hidden": Movement(2.0, rounding)})
    np.testing.assert_allclose(radii, [1, 0, 0, 0, 0, math.inf], rtol=1e-8)
    not_known = find_robust_radii(
        evidence, rules, belief, {"hidden": Movement(2.0, np.full(6, math.inf))}
    )
    assert not not_known.any()


def test_bisectors_count_where_they_are_further_and_the_reach_is_one_for_all(evidence_from):
    evidence, belief = evidence_from([[1, 4]], 2), np.array([0])
    assert find_clearance(evidence, Nearest(1), belief, 2.5).tolist() == [2.5]
    # Below 1, a ratio lets a class be known that is further than another.
    assert find_clearance(evidence, RelativeBall(9, 0.5), belief, 2.5) == pytest.approx(2 / 3)
    assert find_clearance(evidence, Nearest(1), belief, 0.5) == pytest.approx(1.5)
    assert find_clearance(evidence, Ball(1.0), belief, 2.5) == pytest.approx(3.0)

    class Partial(Rule):
        """With a reach for each class, a sample need not be the nearest to be alone in it."""

        def reach(self, evidence):
            return np.tile([0.5, 3.0], (len(evidence), 1))

    assert find_clearance(evidence, Partial(), belief, 2.5) < 0


def test_a_layer_that_does_not_move_certifies_any_length_computed_with(assessment):
    evidence, rules, belief = assessment.evidence, assessment.neighborhoods, assessment.belief_codes
    still = find_robust_radii(evidence, rules, belief, {"hidden": Movement(0.0)})
    assert still.tolist() == [FURTHEST, 0, FURTHEST, FURTHEST, 0, math.inf]


def test_without_any_other_class_nothing_else_can_be_known(evidence_from):
    evidence = evidence_from([[1, math.inf, math.inf]], 3)
    for rule in [*RULES, Ball(math.inf)]:
        assert find_clearance(evidence, rule, np.array([0])).tolist() == [math.inf]


def test_a_belief_without_samples_is_certified_only_by_how_far_the_others_are(evidence_from):
    evidence = evidence_from([[math.inf, 1, 2]], 3)
    clearances = [find_clearance(evidence, rule, np.array([0]))[0] for rule in RULES]
    np.testing.assert_allclose(clearances, [0.4, -np.inf, -np.inf, -np.inf, 0.4, 0.2])


def test_a_foreign_rule_is_certified_by_the_lead_alone_and_a_subclass_inherits_no_promise(
    evidence_from,
):
    class Everything(Rule):
        def reach(self, evidence):
            return np.full(len(evidence), np.inf)

    class Twice(Ball):
        def reach(self, evidence):
            return 2 * super().reach(evidence)

    class Said(Twice):
        @property
        def empty_beyond(self):
            return 2 * self.radius

    class Half(RelativeBall):
        def reach(self, evidence):
            return evidence.nearest_distance()

    evidence, belief = evidence_from([[1, 4]], 1), np.array([0])
    assert find_clearance(evidence, Everything(), belief) == pytest.approx(1.5)
    assert find_clearance(evidence, Ball(1.0), belief) == pytest.approx(3.0)
    assert find_clearance(evidence, Twice(1.0), belief) == pytest.approx(1.5)
    assert find_clearance(evidence, Said(1.0), belief) == pytest.approx(2.0)
    assert find_clearance(evidence, Half(9.0, 2.0), belief) == pytest.approx(1.5)


def test_invalid_samples_are_not_certified(assessment):
    invalid = dataclasses.replace(
        assessment,
        evidence={layer: e[np.array([0] * 6)] for layer, e in assessment.evidence.items()},
        invalid=np.array([False, True] * 3),
        movements={"hidden": Movement(1.0)},
    )
    np.testing.assert_allclose(invalid.robust_radius, [3.5, 0, 0, 0, 0, 0], rtol=1e-8)
    assert (invalid.assertion[invalid.invalid] == Assertion.IDK).all()


@pytest.mark.parametrize("size", [-1.0, math.nan])
def test_constants_and_roundings_must_be_sizes(size):
    with pytest.raises(InputError, match="constant must be >= 0; got"):
        Movement(size)
    with pytest.raises(InputError, match="rounding of a layer must be >= 0"):
        Movement(1.0, np.array([0.0, size]))
    for stretch in (size, 0.0, math.inf):
        with pytest.raises(InputError, match="stretch of a layer must be positive and finite"):
            Movement(1.0, stretch=np.array([1.0, stretch]))


def test_a_movement_must_belong_to_a_layer(assessment):
    arguments = assessment.evidence, assessment.neighborhoods, assessment.belief_codes
    with pytest.raises(InputError, match="layer 'relu'; the evidence is of the layers 'hidden'"):
        find_robust_radii(*arguments, {"relu": Movement(1.0)})


def test_a_part_of_an_assessment_is_certified_as_it_was_in_the_whole(assessment):
    movement = Movement(2.0, np.arange(6.0), np.linspace(0, 9, 6), np.geomspace(0.5, 2, 6))
    whole = dataclasses.replace(
        assessment, movements={"hidden": movement, "logits": Movement(math.inf)}
    )
    radii = whole.robust_radius
    assert len(set(radii.tolist())) > 2
    for part in (slice(1, 4), slice(None, None, 2), slice(-1, None)):
        assert whole[part].robust_radius.tolist() == radii[part].tolist()
    assert whole.only(["hidden"]).robust_radius.tolist() == radii.tolist()
    assert not whole.only(["logits"]).robust_radius.any()
