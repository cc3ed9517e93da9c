"""Changes: how many wrong samples an IK survives, compared with trying every set of them.

That as many do no harm is in the contract of every rule. Here: that one more can.
"""

from itertools import combinations_with_replacement

import numpy as np
import pytest

from iknow.core.slack import find_stability
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall
from iknow.testing.rule import ALL, N_CLASSES, Scene, change_all, gather_all, is_known

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


# Familiarity: how far the tenth nearest sample is


@pytest.fixture
def third_is_enough(monkeypatch):
    """Familiar by three samples instead of ten, so that every set of changes can be tried."""
    monkeypatch.setattr("iknow.rules.relative_ball.NEIGHBORS", 3)


SEEN = [
    lambda quorum: RelativeBall(np.inf, 0.0, 0.8, quorum=quorum),
    lambda quorum: RelativeBall(1.5, 1.0, 1.0, quorum=quorum),
    lambda quorum: RelativeBall(np.inf, 1.3, 0.6, quorum=quorum),
]


@pytest.mark.parametrize("make", SEEN)
def test_a_familiar_ik_survives_what_it_says_whatever_is_changed(make, third_is_enough):
    found, decided = set(), 0
    for seed in range(10):
        scene = Scene(seed, n_rows=7, n_queries=6)
        evidence, tried = scene.look(per_class=ALL), {}
        for rule in map(make, QUORUMS):
            changes = rule.changes(evidence, scene.belief)
            unbound = make(rule.quorum).__class__(rule.radius, rule.ratio, quorum=rule.quorum)
            decided += (changes < unbound.changes(evidence, scene.belief)).sum()
            for i in np.flatnonzero(is_known(evidence, rule, scene.belief)):
                for n_changes in range(1, min(int(changes[i]), 2) + 1):
                    if (i, n_changes) not in tried:
                        tried[i, n_changes] = scene.look_changed(int(i), n_changes)
                    assert is_known(tried[i, n_changes], rule, scene.belief[i]).all(), rule
                found.add(int(changes[i]))
    assert found >= {0, 1}
    assert decided  # the neighbors decide somewhere


@pytest.mark.parametrize("make", SEEN)
def test_as_many_samples_must_go_as_removals_says_until_nothing_like_it_is_left(
    make, third_is_enough
):
    checked, decided = 0, 0
    for seed in range(8):
        scene = Scene(seed, n_rows=8, n_queries=6)
        evidence = scene.look(per_class=ALL)
        for rule in map(make, QUORUMS[:4]):
            stability = rule.removals(evidence, scene.belief)
            for i in np.flatnonzero(is_known(evidence, rule, scene.belief)):
                rest, n_removed = scene.look_without(int(i))
                needed = n_removed[~is_known(rest, rule, scene.belief[i])].min()
                assert 1 <= stability.at_least[i] <= needed
                assert not stability.exact[i] or stability.at_least[i] == needed
                checked += 1
                near = (evidence.neighbor_distances[i] <= rule.seen).sum()
                decided += needed == near - 2
    assert checked > 20
    assert decided > 5


@pytest.mark.parametrize("seed", range(4))
def test_no_random_attack_with_as_many_changes_does_harm_to_what_ten_samples_make_familiar(seed):
    """The true ten, on sets too large for every change: the nearest are removed or relabeled."""
    rng = np.random.default_rng(seed)
    attacked = 0
    for _ in range(40):
        labels = rng.integers(0, N_CLASSES, 40)
        distances = rng.exponential(1 + 2.0 * (labels > 0))
        evidence, belief = gather_all(distances[None], labels, per_class=ALL), np.array([0])
        for quorum in ((1, 3), (2, 4), (3, 3)):
            seen = float(np.sort(distances)[9 + rng.integers(4)])
            rule = RelativeBall(np.inf, rng.choice([0.0, 0.3]), seen, quorum=quorum)
            if not is_known(evidence, rule, belief)[0]:
                continue
            assert evidence.n_neighbors >= rule.n_neighbors
            most = int(rule.changes(evidence, belief)[0])
            least = gather_all(distances[None], labels, k=rule.n_neighbors, per_class=ALL)
            assert rule.changes(least, belief).tolist() == [most]
            nearest = np.argsort(distances)
            own = nearest[labels[nearest] == 0]
            for rows in (nearest[:most], own[:most]):
                removed = np.where(np.isin(np.arange(40), rows), np.inf, distances)
                moved = np.where(np.isin(np.arange(40), rows), 1, labels)
                for table, codes in ((removed, labels), (distances, moved)):
                    about = gather_all(table[None], codes, per_class=ALL)
                    assert is_known(about, rule, belief).all()
                attacked += most > 0
    assert attacked > 5
