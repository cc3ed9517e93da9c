"""Neighborhoods: the reach of every rule, its parameters, and its form as JSON."""

import dataclasses
import json
import math
import re

import numpy as np
import pytest

from iknow.core.rule import (
    NO_REACH,
    Rule,
    axes_of,
    has_k,
    is_tuned,
    make_rule,
    parameters_of,
)
from iknow.errors import InputError
from iknow.rules import (
    RULES,
    Ball,
    BallElseNearest,
    BallWithNearest,
    Nearest,
    RelativeBall,
    rule_from_dict,
    rule_to_dict,
)

WITH_RADIUS = [
    Ball,
    lambda radius: BallElseNearest(radius, 1),
    lambda radius: BallWithNearest(radius, 1),
    lambda radius: RelativeBall(radius, 2.0),
]
WITH_K = [Nearest, lambda k: BallElseNearest(1.0, k), lambda k: BallWithNearest(1.0, k)]
NAMES_WITH_RADIUS = ["Ball", "BallElseNearest", "BallWithNearest", "RelativeBall"]
NAMES_WITH_K = ["Nearest", "BallElseNearest", "BallWithNearest"]


@dataclasses.dataclass(frozen=True)
class Everything(Rule):
    """A rule of one's own."""

    def reach(self, evidence):
        return np.full(len(evidence), np.inf)


@pytest.mark.parametrize(
    ("rule", "reach"),
    [
        (Ball(2), [2, 2, 2]),
        (Nearest(1), [1, 2, 3]),
        (Nearest(2), [5, 6, 7]),
        (BallElseNearest(2, 2), [2, 2, 7]),
        (BallElseNearest(2, 1), [2, 2, 3]),
        (BallWithNearest(2, 2), [5, 6, NO_REACH]),
        (BallWithNearest(2, 1), [2, 2, NO_REACH]),
        (RelativeBall(2, 1.5), [1.5, 3, NO_REACH]),
        (RelativeBall(2, 1), [1, 2, NO_REACH]),
        (RelativeBall(math.inf, 4), [4, 8, 12]),
        (RelativeBall(2, 0.5), [[1, 0.5], [1, 2], [NO_REACH, NO_REACH]]),
        (RelativeBall(math.inf, 0), [[1, 0], [0, 2], [3, 0]]),
    ],
    ids=repr,
)
def test_each_rule_reaches_as_far_as_it_says(rule, reach, evidence_from):
    evidence = evidence_from([[1, 5], [6, 2], [3, 7]], n_neighbors=2)
    assert rule.reach(evidence).tolist() == reach


def test_no_reach_reaches_not_even_a_coinciding_sample():
    assert NO_REACH < 0


@pytest.mark.parametrize("rule", WITH_K, ids=NAMES_WITH_K)
def test_more_neighbors_than_the_evidence_holds_are_refused(rule, evidence_from):
    evidence = evidence_from([[1, 5, 6]], n_neighbors=2)
    with pytest.raises(InputError, match="holds 2 neighbor distances, too few for k=3"):
        rule(3).reach(evidence)


@pytest.mark.parametrize("rule", WITH_RADIUS, ids=NAMES_WITH_RADIUS)
@pytest.mark.parametrize("radius", [-1, -0.001, -math.inf, np.float32(-2)], ids=repr)
def test_a_negative_radius_is_refused(rule, radius):
    refused = re.escape(f"a radius must be a number >= 0; got {radius!r}")
    with pytest.raises(InputError, match=refused):
        rule(radius)


@pytest.mark.parametrize("rule", WITH_RADIUS, ids=NAMES_WITH_RADIUS)
@pytest.mark.parametrize(
    ("radius", "shown"),
    [
        (math.nan, "nan"),
        (np.float64("nan"), "nan"),
        (True, "True"),
        (np.True_, "True"),
        ("1.5", "'1.5'"),
        (None, "None"),
        (1j, "1j"),
        ({1.0}, r"\{1.0\}"),
        ("many", "'many'"),
    ],
    ids=repr,
)
def test_a_radius_that_is_no_number_is_refused(rule, radius, shown):
    with pytest.raises(InputError, match=f"a radius must be a number >= 0; got .*{shown}"):
        rule(radius)


@pytest.mark.parametrize("rule", WITH_RADIUS, ids=NAMES_WITH_RADIUS)
@pytest.mark.parametrize("radius", [[], [1.0], [1.0, 2.0], np.ones(3), [[1.0, 2.0]]], ids=repr)
def test_several_radii_are_refused(rule, radius):
    with pytest.raises(InputError, match="a radius must be a number >= 0; got"):
        rule(radius)


@pytest.mark.parametrize(
    "ratio", [-0.001, -1, math.inf, math.nan, None, "2", True, np.True_, [2.0], 2j], ids=repr
)
def test_a_ratio_that_is_no_finite_number_of_at_least_zero_is_refused(ratio):
    with pytest.raises(InputError, match="a ratio must be a finite number >= 0"):
        RelativeBall(1.0, ratio)


def test_a_rule_shows_its_quorum_if_it_has_one():
    assert repr(Ball(0.5, quorum=1)) == "Ball(radius=0.5)"
    assert repr(Ball(0.5, quorum=3)) == "Ball(radius=0.5, quorum=(3, 3))"
    assert Ball(0.5, quorum=3) != Ball(0.5)


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_a_quorum_is_given_by_name_alone(rule):
    values = {"radius": 1.0, "k": 2, "ratio": 1.5}
    given = [values[name] for name in parameters_of(rule) if name in values]
    assert rule(*given, quorum=[1, 3]).quorum == (1, 3)
    with pytest.raises(TypeError, match="positional arguments"):
        rule(*given, (1, 3))


def test_a_rule_is_made_with_a_quorum_if_it_takes_one():
    assert make_rule(Nearest, 3, (1, 2)) == Nearest(3, quorum=(1, 2))
    assert make_rule(Ball, 3, (1, 2), radius=0.5) == Ball(0.5, quorum=(1, 2))
    assert make_rule(Everything, None).quorum == (1, 1)
    with pytest.raises(InputError, match=r"Everything takes no quorum; got \(1, 2\)"):
        make_rule(Everything, None, (1, 2))


@pytest.mark.parametrize("rule", WITH_K, ids=NAMES_WITH_K)
@pytest.mark.parametrize("k", [0, -3, np.int64(0)], ids=repr)
def test_a_k_below_one_is_refused(rule, k):
    wanted = "k must be a whole number >= 1, and at most the size of a training set; got "
    with pytest.raises(InputError, match=re.escape(wanted + repr(k))):
        rule(k)


@pytest.mark.parametrize("rule", WITH_K, ids=NAMES_WITH_K)
@pytest.mark.parametrize(
    ("k", "shown"),
    [
        (1.5, "1.5"),
        (2.0, "2.0"),
        (np.float64(2), "2.0"),
        (math.nan, "nan"),
        (True, "True"),
        (np.True_, "True"),
        ("3", "'3'"),
        (None, "None"),
    ],
    ids=repr,
)
def test_a_k_that_is_no_whole_number_is_refused(rule, k, shown):
    with pytest.raises(InputError, match=f"k must be a whole number >= 1, .*; got .*{shown}"):
        rule(k)


def test_a_zero_and_an_infinite_radius_are_allowed():
    assert (Ball(0).radius, Ball(math.inf).radius) == (0.0, math.inf)


@pytest.mark.parametrize(
    ("given", "plain"),
    [
        (Ball(np.float64(0.5)), Ball(0.5)),
        (Ball(np.float32(0.5)), Ball(0.5)),
        (Ball(np.int32(2)), Ball(2.0)),
        (Ball(2), Ball(2.0)),
        (Nearest(np.int64(3)), Nearest(3)),
        (Nearest(np.uint8(3)), Nearest(3)),
        (BallElseNearest(np.float32(0.5), np.int16(3)), BallElseNearest(0.5, 3)),
        (BallWithNearest(np.float16(0.5), np.uint64(3)), BallWithNearest(0.5, 3)),
        (RelativeBall(np.float32(0.5), np.int16(3)), RelativeBall(0.5, 3.0)),
        (Ball(2, quorum=np.int64(3)), Ball(2.0, quorum=(3, 3))),
        (Nearest(3, quorum=np.array([1, 3])), Nearest(3, quorum=[1, 3])),
    ],
    ids=repr,
)
def test_parameters_become_plain_numbers(given, plain):
    assert given == plain
    assert hash(given) == hash(plain)
    kinds = {"radius": float, "ratio": float, "k": int, "quorum": tuple}
    assert [type(value) for value in vars(given).values()] == [kinds[name] for name in vars(plain)]


def test_rules_with_the_same_parameters_are_still_different():
    assert BallElseNearest(1, 2) != BallWithNearest(1, 2)


def test_a_neighborhood_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Ball(1.0).radius = 2.0


def test_a_rule_reads_k_neighbors_or_none():
    rules = [Ball(1), Nearest(2), BallElseNearest(1, 3), BallWithNearest(1, 4), RelativeBall(1, 2)]
    assert [rule.n_neighbors for rule in rules] == [0, 2, 3, 4, 0]


def test_the_rules_are_the_four_of_the_paper_and_ours_by_name():
    rules = [Ball, Nearest, BallElseNearest, BallWithNearest, RelativeBall]
    assert list(RULES.values()) == rules
    names = ["Ball", "Nearest", "BallElseNearest", "BallWithNearest", "RelativeBall"]
    assert list(RULES) == names


def test_only_nearest_is_made_from_k_alone_and_only_the_balls_by_themselves_lack_a_k():
    assert [name for name, rule in RULES.items() if not is_tuned(rule)] == ["Nearest"]
    assert [name for name, rule in RULES.items() if not axes_of(rule)] == ["Nearest"]
    assert [name for name, rule in RULES.items() if not has_k(rule)] == ["Ball", "RelativeBall"]
    assert not is_tuned(Everything)
    assert not has_k(Everything)


@pytest.mark.parametrize(
    ("rule", "record"),
    [
        (Ball(0.1), {"rule": "Ball", "radius": 0.1}),
        (Nearest(3), {"rule": "Nearest", "k": 3}),
        (BallElseNearest(2, 3), {"rule": "BallElseNearest", "radius": 2.0, "k": 3}),
        (BallWithNearest(1e-300, 1), {"rule": "BallWithNearest", "radius": 1e-300, "k": 1}),
        (RelativeBall(2, 3), {"rule": "RelativeBall", "radius": 2.0, "ratio": 3.0}),
        (Nearest(3, quorum=(1, 3)), {"rule": "Nearest", "k": 3, "quorum": [1, 3]}),
        (Nearest(3, quorum=1), {"rule": "Nearest", "k": 3}),
    ],
    ids=repr,
)
def test_a_record_holds_the_rule_and_its_parameters(rule, record):
    assert rule_to_dict(rule) == record


@pytest.mark.parametrize(
    "rule",
    [
        Ball(0.1),
        Ball(0),
        Ball(math.inf),
        Ball(np.float32(0.1)),
        Ball(np.int64(7)),
        Nearest(3),
        Nearest(np.int32(3)),
        BallElseNearest(0.1 + 0.2, 3),
        BallElseNearest(np.float64(0.3), np.int64(3)),
        BallWithNearest(1e-300, 1),
        BallWithNearest(np.float16(0.1), np.uint8(255)),
        RelativeBall(0.1 + 0.2, 1),
        RelativeBall(math.inf, np.float32(1.1)),
        RelativeBall(0.5, 0.0, quorum=np.array([1, 3])),
    ],
    ids=repr,
)
def test_every_neighborhood_survives_json(rule):
    text = json.dumps(rule_to_dict(rule))
    restored = rule_from_dict(json.loads(text))
    assert type(restored) is type(rule)
    assert restored == rule


def test_reading_a_record_leaves_it_alone():
    record = {"rule": "Ball", "radius": 0.1}
    rule_from_dict(record)
    assert record == {"rule": "Ball", "radius": 0.1}


@pytest.mark.parametrize(
    ("record", "shown"),
    [({"rule": "Cube", "radius": 1.0}, "'Cube'"), ({"radius": 1.0}, "None"), ({}, "None")],
)
def test_an_unknown_rule_is_refused_by_naming_the_known_ones(record, shown):
    known = "Ball, Nearest, BallElseNearest, BallWithNearest, RelativeBall"
    with pytest.raises(InputError, match=f"rule {shown}: .*register_rule.* one of {known}"):
        rule_from_dict(record)


def test_a_record_with_a_bad_parameter_is_refused():
    with pytest.raises(InputError, match="a radius must be a number >= 0; got -1"):
        rule_from_dict({"rule": "Ball", "radius": -1})


def test_a_rule_of_ones_own_is_not_written_as_json():
    with pytest.raises(InputError, match=r"Everything cannot .*register_rule\(Everything\)"):
        rule_to_dict(Everything())


def test_a_namesake_of_a_rule_is_not_written_as_json():
    namesake = type("Ball", (Everything,), {})
    with pytest.raises(InputError, match=r"Ball cannot be saved.*register_rule\(Ball\)"):
        rule_to_dict(namesake())


class Unhelpful:
    def __repr__(self):
        raise RuntimeError("no")

    def __array__(self, *_):
        raise KeyError("no")


@pytest.mark.parametrize(
    "radius",
    [10**400, -(10**400), Unhelpful(), "x" * 10**6, np.ma.masked_equal([1.0, 2.0], 2)],
    ids=["huge", "negative", "unhelpful", "long", "masked"],
)
def test_whatever_is_no_radius_is_refused_in_a_few_words(radius):
    with pytest.raises(InputError, match="a radius must be a number >= 0") as error:
        Ball(radius)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("k", [10**5000, 2**70], ids=["10**5000", "2**70"])
def test_no_training_set_has_so_many_neighbours(k):
    with pytest.raises(InputError, match="at most the size of a training set; got"):
        Nearest(k)
