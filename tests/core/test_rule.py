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

RADIUS = {
    "Ball": Ball,
    "BallElseNearest": lambda radius: BallElseNearest(radius, 1),
    "BallWithNearest": lambda radius: BallWithNearest(radius, 1),
    "RelativeBall": lambda radius: RelativeBall(radius, 2.0),
    "seen": lambda radius: RelativeBall(1.0, 2.0, radius),
}
K = {
    "Nearest": Nearest,
    "BallElseNearest": lambda k: BallElseNearest(1.0, k),
    "BallWithNearest": lambda k: BallWithNearest(1.0, k),
}
RATIO = {"RelativeBall": lambda ratio: RelativeBall(1.0, ratio)}


class Unhelpful:
    def __repr__(self):
        raise RuntimeError("no")

    def __array__(self, *_):
        raise KeyError("no")


# What is refused: who is called, the words of the refusal, and values with how they are quoted.
NO_NUMBERS = [
    (math.nan, "nan"), (np.float64("nan"), "nan"), (True, "True"), (np.True_, "True"),
    ("1.5", "'1.5'"), ("many", "'many'"), (None, "None"), (1j, "1j"), ({1.0}, "{1.0}"), ([], "[]"),
    ([1.0], "[1.0]"), ([1.0, 2.0], "[1.0, 2.0]"), (np.ones(3), "array([1., 1., 1.])"),
    ([[1.0, 2.0]], "[[1.0, 2.0]]"), (-1, "-1"), (-0.001, "-0.001"), (-math.inf, "-inf"),
    (np.float32(-2), "-2.0"), (10**400, "10000"), (Unhelpful(), "Unhelpful"),
    (-(10**400), "-10000"), ("x" * 10**6, "xxx"),
    (np.ma.masked_equal([1.0, 2.0], 2), "masked"),
]  # fmt: skip
NO_WHOLE_NUMBERS = [
    (0, "0"), (-3, "-3"), (np.int64(0), "0"), (1.5, "1.5"), (2.0, "2.0"), (np.float64(2), "2.0"),
    (math.nan, "nan"), (True, "True"), (np.True_, "True"), ("3", "'3'"), (None, "None"),
    (10**5000, "an object of type int"), (2**70, "1180591620717411303424"),
]  # fmt: skip
REFUSED = [
    (RADIUS, "a radius must be a number >= 0; got ", NO_NUMBERS),
    (RATIO, "a ratio must be a finite number >= 0", [*NO_NUMBERS, (math.inf, "inf")]),
    (K, "k must be a whole number >= 1, and at most the size of a training set; got ",
     NO_WHOLE_NUMBERS),
]  # fmt: skip


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
        (RelativeBall(math.inf, 0), [[1, NO_REACH], [NO_REACH, 2], [3, NO_REACH]]),
    ],
    ids=repr,
)
def test_each_rule_reaches_as_far_as_it_says(rule, reach, evidence_from):
    evidence = evidence_from([[1, 5], [6, 2], [3, 7]], n_neighbors=2)
    assert rule.reach(evidence).tolist() == reach


def test_no_reach_reaches_not_even_a_coinciding_sample():
    assert NO_REACH < 0


@pytest.mark.parametrize("rule", K.values(), ids=K)
def test_more_neighbors_than_the_evidence_holds_are_refused(rule, evidence_from):
    evidence = evidence_from([[1, 5, 6]], n_neighbors=2)
    with pytest.raises(InputError, match="holds 2 neighbor distances, too few for k=3"):
        rule(3).reach(evidence)


@pytest.mark.parametrize(
    ("make", "words", "value", "quoted"),
    [
        pytest.param(make, words, value, quoted, id=f"{name}-{quoted[:30]}")
        for makers, words, values in REFUSED
        for name, make in makers.items()
        for value, quoted in values
    ],
)
def test_what_is_no_parameter_is_refused_and_quoted_in_a_few_words(make, words, value, quoted):
    with pytest.raises(InputError, match=re.escape(words)) as error:
        make(value)
    assert quoted in str(error.value).split("got ", 1)[1]
    assert len(str(error.value)) < 300


def test_a_rule_shows_its_quorum_if_it_has_one():
    assert repr(Ball(0.5, quorum=1)) == "Ball(radius=0.5)"
    assert repr(Ball(0.5, quorum=3)) == "Ball(radius=0.5, quorum=(3, 3))"
    assert Ball(0.5, quorum=3) != Ball(0.5)


@pytest.mark.parametrize("rule", RULES.values(), ids=list(RULES))
def test_a_quorum_is_given_by_name_alone(rule):
    values = {"radius": 1.0, "k": 2, "ratio": 1.5, "seen": 3.0}
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
        (RelativeBall(math.inf, np.float32(1.1)), RelativeBall(math.inf, float(np.float32(1.1)))),
        (RelativeBall(0.1 + 0.2, 1), RelativeBall(0.1 + 0.2, 1.0)),
        (Ball(np.float32(0.1)), Ball(float(np.float32(0.1)))),
        (BallElseNearest(np.float64(0.3), np.int64(3)), BallElseNearest(0.3, 3)),
        (BallWithNearest(1e-300, np.uint8(255)), BallWithNearest(1e-300, 255)),
        (RelativeBall(1, 0, np.float32(2)), RelativeBall(1.0, 0.0, 2.0)),
        (Ball(0), Ball(0.0)),
        (Ball(math.inf), Ball(math.inf)),
    ],
    ids=repr,
)
def test_parameters_become_plain_numbers_and_survive_json(given, plain):
    assert given == plain
    assert hash(given) == hash(plain)
    kinds = dict.fromkeys(("radius", "ratio", "seen"), float) | {"k": int, "quorum": tuple}
    assert [type(value) for value in vars(given).values()] == [kinds[name] for name in vars(plain)]
    restored = rule_from_dict(json.loads(json.dumps(rule_to_dict(given))))
    assert (type(restored), restored) == (type(given), given)


def test_rules_with_the_same_parameters_are_still_different():
    assert BallElseNearest(1, 2) != BallWithNearest(1, 2)


def test_a_rule_reads_k_neighbors_or_none():
    rules = [Ball(1), Nearest(2), BallElseNearest(1, 3), BallWithNearest(1, 4), RelativeBall(1, 2)]
    assert [rule.n_neighbors for rule in rules] == [0, 2, 3, 4, 0]
    # As `seen` asks about the tenth, and one more for each change that may do no harm.
    assert RelativeBall(1, 2, 3).n_neighbors == 10
    assert RelativeBall(1, 2, 3, quorum=(2, 4)).n_neighbors == 13


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
        (
            RelativeBall(2, 3, 4),
            {"rule": "RelativeBall", "radius": 2.0, "ratio": 3.0, "seen": 4.0},
        ),
        (Nearest(3, quorum=(1, 3)), {"rule": "Nearest", "k": 3, "quorum": [1, 3]}),
        (Nearest(3, quorum=1), {"rule": "Nearest", "k": 3}),
    ],
    ids=repr,
)
def test_a_record_holds_the_rule_and_its_parameters(rule, record):
    assert rule_to_dict(rule) == record


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
