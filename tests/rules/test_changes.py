"""Changes: how many wrong samples an IK survives, compared with trying every set of them.

That as many do no harm is in the contract of every rule. Here: that one more can.
"""

from itertools import combinations_with_replacement

import numpy as np
import pytest

from iknow.core.slack import find_stability
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall
from iknow.testing.rule import ALL, Scene, change_all, gather_all, is_known

QUORUMS = [(1, 1), (1, 2), (2, 2), (1, 3), (2, 3), (3, 1)]


@pytest.mark.parametrize(
    "make",
    [
        lambda quorum: Ball(0.9, quorum=quorum),
        lambda quorum: RelativeBall(1.2, 1.0, quorum=quorum),
        lambda quorum: RelativeBall(2.5, 1.3, quorum=quorum),
    ],
    ids=["Ball", "RelativeBall-1", "RelativeBall-1.3"],
)
def test_one_more_change_can_do_harm(make):
    found = []
    for seed in range(8):
        scene = Scene(seed, n_rows=7, n_queries=6)
        evidence, tried = scene.look(per_class=ALL), {}
        for rule in map(make, QUORUMS):
            changes = rule.changes(evidence, scene.belief)
            for i in np.flatnonzero(is_known(evidence, rule, scene.belief)):
                n_changes = int(changes[i]) + 1
                if (i, n_changes) not in tried:
                    tried[i, n_changes] = scene.look_changed(int(i), n_changes)
                assert not is_known(tried[i, n_changes], rule, scene.belief[i]).all(), rule
                found.append(n_changes - 1)
    assert set(found) == {0, 1, 2}


def test_a_ratio_below_one_may_survive_more_than_it_says():
    """A sample taken from the belief may lie too far to contradict it."""
    distances, labels, belief = (
        np.array([1.0, 1.5, 0.7, 9.0]),
        np.array([0, 0, 1, 1]),
        np.array([0]),
    )
    rule = RelativeBall(2.0, 0.5, quorum=(1, 2))
    assert rule.changes(gather_all(distances[None], labels), belief).tolist() == [0]
    assert is_known(change_all(distances, labels, 1), rule, 0).all()
    assert not is_known(change_all(distances, labels, 2), rule, 0).all()


@pytest.mark.parametrize(
    ("quorum", "n_own", "n_other", "changes"),
    [
        ((1, 1), 4, 0, 0),
        ((1, 2), 4, 0, 1),
        ((1, 2), 4, 1, 0),
        ((1, 4), 4, 0, 3),
        ((1, 4), 4, 1, 2),
        ((3, 4), 4, 1, 1),
        ((4, 4), 4, 1, 0),
    ],
)
def test_a_ball_survives_until_the_belief_has_too_few_or_another_class_enough(
    quorum, n_own, n_other, changes
):
    labels = np.repeat([0, 1], [n_own, n_other])
    evidence = gather_all(np.linspace(0, 1, len(labels))[None], labels)
    assert Ball(1.0, quorum=quorum).changes(evidence, np.array([0])).tolist() == [changes]


def test_samples_that_are_not_there_are_not_counted_in_an_endless_ball():
    evidence, belief = gather_all(np.array([[1.0, 2.0]]), np.array([0, 0])), np.array([0])
    rule = Ball(np.inf, quorum=(1, 4))
    assert rule.changes(evidence, belief).tolist() == [1]
    stability = rule.removals(evidence, belief)
    assert (stability.at_least.tolist(), stability.exact.tolist()) == ([2], [True])


@pytest.mark.parametrize("rule", [Nearest(1), BallElseNearest(1, 1), BallWithNearest(1, 1)])
def test_of_other_rules_no_change_is_certainly_harmless(rule):
    evidence = gather_all(np.array([[0.1, 0.2, 0.3]]), np.array([0, 0, 0]))
    assert rule.changes(evidence, np.array([0])).tolist() == [0]


def look_changed_in_both(layers, labels, changes):
    """The evidence of two layers, each with distances (n_rows,), after each of some changes.

    A change is a list of (row, class, distance in one layer, in the other); row -1 is a new one.
    """
    n_new = max(len(each) for each in changes)
    tables = [np.tile(np.append(layer, [np.inf] * n_new), (len(changes), 1)) for layer in layers]
    codes = np.tile(np.append(labels, [0] * n_new), (len(changes), 1))
    for at, each in enumerate(changes):
        for n, (row, code, *places) in enumerate(each):
            where = len(labels) + n if row < 0 else row
            codes[at, where] = code
            for table, place in zip(tables, places, strict=True):
                table[at, where] = place
    return [gather_all(table, codes) for table in tables]


def test_a_changed_sample_changes_in_every_layer_at_once():
    rng = np.random.default_rng(0)
    rules = [RelativeBall(2.0, 1.1, quorum=(1, 3)), Ball(1.0, quorum=(1, 3))]
    survived = 0
    for _ in range(60):
        labels = rng.permutation([0, 0, 0, 0, 1, 2])
        layers = [rng.exponential(0.6 + 0.6 * (labels > 0)) for _ in rules]
        evidence = [gather_all(layer[None], labels) for layer in layers]
        known = np.logical_and(
            *(is_known(*each, [0]) for each in zip(evidence, rules, strict=True))
        )
        stability = find_stability(evidence, rules, np.array([0]), known)
        assert known[0] or stability.changes[0] == 0
        rows = range(len(labels))
        singles = [(row, 0, np.inf, np.inf) for row in rows]
        singles += [(row, c, layers[0][row], layers[1][row]) for row in rows for c in range(3)]
        singles += [(-1, c, *rng.choice([0, 0.5, 9], 2)) for c in range(3) for _ in range(3)]
        for n_changes in range(1, stability.changes[0] + 1):
            sets = list(combinations_with_replacement(singles, n_changes))
            after = look_changed_in_both(layers, labels, sets)
            for about, rule in zip(after, rules, strict=True):
                assert is_known(about, rule, 0).all()
            survived += 1
    assert survived > 10
