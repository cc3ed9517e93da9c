"""Goals: what may be asked for together, and which method serves it."""

from itertools import combinations

import numpy as np
import pytest

from iknow.errors import InputError
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall
from iknow.selection import Goal, Validation, choose, select
from iknow.testing import brute_force


@pytest.fixture(scope="module")
def data():
    """Two layers about three groups that are easy to tell apart, most beliefs right."""
    rng = np.random.default_rng(0)
    labels, y_true = rng.integers(3, size=120), rng.integers(3, size=200)
    evidence = {
        layer: brute_force(
            rng.normal(size=(120, 2)) + 5 * labels[:, None],
            labels,
            3,
            rng.normal(size=(200, 2)) + 5 * y_true[:, None],
            k=10,
        )
        for layer in ("a", "b")
    }
    return evidence, np.where(rng.random(200) < 0.03, (y_true + 1) % 3, y_true), y_true


@pytest.mark.parametrize("several", [*combinations(["accuracy", "coverage", "false_alarm"], 2)])
def test_one_thing_is_asked_for_at_a_time(several):
    with pytest.raises(InputError, match="ask for one of accuracy, coverage and false_alarm"):
        Goal(**dict.fromkeys(several, 0.5))


def test_each_class_needs_an_accuracy():
    with pytest.raises(InputError, match="each_class needs an accuracy to guarantee"):
        Goal(each_class=True)
    assert Goal(each_class=True, accuracy=0.9).each_class


def test_without_more_the_goal_is_the_exact_maximum_of_coverage(data):
    found = choose(Goal(), Validation(*data), Ball)
    assert repr(found) == repr(select(Goal(), Validation(*data), Ball))
    assert found.optimal


@pytest.mark.parametrize("method", ["grid", "bayes"])
def test_the_goals_method_and_seed_are_used(method, data):
    goal = Goal(method=method, k=3, random_state=5)
    found = choose(goal, Validation(*data), BallElseNearest)
    assert repr(found) == repr(select(goal, Validation(*data), BallElseNearest))
    assert found.method == method


@pytest.mark.parametrize("rule", [BallElseNearest, BallWithNearest])
def test_several_k_are_tried(rule, data):
    found = choose(Goal(k=[1, 3, 9]), Validation(*data), rule)
    singles = [choose(Goal(k=k), Validation(*data), rule) for k in (1, 3, 9)]
    assert found.coverage == max(single.coverage for single in singles)


def test_a_coverage_is_matched(data):
    found = choose(Goal(coverage=0.6), Validation(*data), Nearest)
    assert found.method == "matched"
    assert choose(Goal(coverage=0.6), Validation(*data), RelativeBall).coverage == pytest.approx(
        0.6, abs=1.001 / 200
    )


def test_an_accuracy_is_certified_for_the_classes_by_name(data):
    found = choose(
        Goal(accuracy=0.8, each_class=True),
        Validation(*data),
        Ball,
        classes=np.array(["x", "y", "z"]),
    )
    assert found.certificate.accuracy == 0.8
    assert set(found.certificate.by_class) == {"x", "y", "z"}
    assert found.method == "certified"


def test_a_relative_ball_can_be_certified(data):
    found = choose(Goal(accuracy=0.8), Validation(*data), RelativeBall)
    assert {type(rule) for rule in found.neighborhoods.values()} == {RelativeBall}
    assert found.certificate.bound >= 0.8


def test_a_guarantee_needs_one_k(data):
    with pytest.raises(InputError, match=r"one k, not several; got \(1, 3\)"):
        choose(Goal(accuracy=0.9, k=[1, 3]), Validation(*data), BallElseNearest)
    found = choose(Goal(accuracy=0.8, k=np.int64(3)), Validation(*data), BallElseNearest)
    assert {rule.k for rule in found.neighborhoods.values()} == {3}


def test_without_a_goal_levels_certify_or_say_how_far_they_got(data):
    """200 samples are too few for a tenth of the model's errors."""
    found = choose(Goal(), Validation(*data), RelativeBall)
    assert found.coverage == pytest.approx(0.75, abs=1.001 / 200)
    assert found.certificate is None
    assert "too few samples: certifying an accuracy of" in found.note
    matched = choose(Goal(coverage=0.75), Validation(*data), RelativeBall)
    assert repr(found.neighborhoods) == repr(matched.neighborhoods)
    assert matched.note == ""


@pytest.mark.parametrize("rule", [Ball, RelativeBall])
def test_no_samples_choose_nothing(rule, data):
    evidence, belief, y_true = data
    none = Validation({"a": evidence["a"][:0]}, belief[:0], y_true[:0])
    with pytest.raises(InputError, match="at least one validation sample; got none"):
        choose(Goal(), none, rule)


@pytest.mark.parametrize("goal", [Goal(), Goal(accuracy=0.9), Goal(accuracy=0.9, each_class=True)])
def test_an_accuracy_along_levels_needs_labels(goal, data):
    evidence, belief, _ = data
    with pytest.raises(InputError, match="an accuracy needs labels: give y too, or ask for"):
        choose(goal, Validation(evidence, belief, None), RelativeBall)


@pytest.mark.parametrize("goal", [Goal(coverage=0.6), Goal(false_alarm=0.1)])
def test_other_goals_along_levels_need_no_labels(goal, data):
    evidence, belief, y_true = data
    without = choose(goal, Validation(evidence, belief, None), RelativeBall)
    assert np.isnan([without.accuracy, without.accuracy_outside]).all()
    for labels in (y_true, (y_true + 1) % 3):  # which only help to choose the budgets of voices
        found = choose(goal, Validation(evidence, belief, labels), RelativeBall)
        if goal.coverage is not None:
            assert found.coverage == pytest.approx(without.coverage, abs=1.001 / 200)


@pytest.mark.parametrize("rule", [Ball, Nearest, BallElseNearest])
def test_rules_without_levels_need_labels_and_take_no_reference(rule, data):
    evidence, belief, y_true = data
    with pytest.raises(InputError, match=f"tuning {rule.__name__} needs labels"):
        choose(Goal(k=1), Validation(evidence, belief, None), rule)
    for more in ({"reference": Validation(evidence, belief, None)}, {}):
        goal = Goal() if more else Goal(false_alarm=0.1)
        with pytest.raises(InputError, match=f"need a rule with levels.*got {rule.__name__}"):
            choose(goal, Validation(evidence, belief, y_true), rule, **more)


@pytest.mark.parametrize(
    ("rule", "k", "needed"),
    [
        (Ball, 5, 0),
        (RelativeBall, 5, 10),
        (BallElseNearest, 5, 5),
        (BallElseNearest, [1, 7, 3], 7),
        (BallWithNearest, None, 0),
        (BallWithNearest, [], 0),
        (Nearest, 5, 100),
    ],
)
def test_evidence_must_hold_as_many_neighbours_as_the_goal_may_use(rule, k, needed):
    assert Goal(k=k).neighbors_needed(rule, n_rows=100) == needed


def test_levels_ask_for_the_ten_neighbours_of_familiarity_and_for_no_more_than_there_are():
    assert Goal().neighbors_needed(RelativeBall, n_rows=100, quorum=(2, 5)) == 10
    assert Goal().neighbors_needed(RelativeBall, n_rows=7, quorum=(2, 5)) == 7


def test_k_is_matched_up_to_a_limit():
    assert Goal(coverage=0.5).neighbors_needed(Nearest, n_rows=10**6) == Nearest.neighbors_to_match


@pytest.mark.parametrize("asked", [{"accuracy": 0.9}, {"coverage": 0.5}, {"false_alarm": 0.1}])
def test_a_method_for_coverage_is_not_silently_ignored(asked):
    with pytest.raises(InputError, match="method='grid' is a way to the largest coverage"):
        Goal(method="grid", **asked)
