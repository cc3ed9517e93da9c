"""The contract of a rule, as tests to inherit.

What the rule says of itself is compared with applying its reach, on random training sets in the
plane, some full of ties, with samples removed, relabeled and added, parameters turned and queries
moved, under several quorums if the rule takes one. On a dozen samples every set of changes can be
tried. What a rule does not say is not checked. The rules are for three classes and distances around
1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import FrozenInstanceError, fields, replace
from functools import cache, partial
from itertools import combinations, combinations_with_replacement, pairwise, product
from typing import Any

import numpy as np
import pytest

from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.assertion import Assertion, Reason, find_reasons, make_assertions
from iknow.core.evidence import NO_EXEMPLAR, Evidence
from iknow.core.quorum import ONE, Quorum, Weighed, find_contrast, weigh
from iknow.core.robustness import find_clearance
from iknow.core.rule import (
    ParameterSettings,
    Rule,
    axes_of,
    make_rule,
    parameters_of,
    promise_of,
    speaks_for,
)
from iknow.core.slack import find_margins, find_slack
from iknow.core.support import find_support, justify
from iknow.errors import InputError
from iknow.rules import rule_from_dict, rule_to_dict
from iknow.testing.index import rank_table

QUORUMS: tuple[Quorum, ...] = (ONE, (1, 3), (2, 2), (3, 1))
N_CLASSES = 3
LARGEST_K = 5
ALL = 99  # more than any scene has samples

gather_all = partial(rank_table, n_classes=N_CLASSES, k=ALL, per_class=LARGEST_K)


class Scene:
    """A training set of a few samples in the plane, queries among them, and beliefs about these."""

    def __init__(self, seed: int, n_rows: int = 12, n_queries: int = 8) -> None:
        self.seed, rng = seed, np.random.default_rng(seed)
        places = np.array([[0.0, 0.0], [1.5, 0.0], [0.0, 1.5]])
        # Every fifth time a class has no sample at all.
        self.labels: Ints = rng.integers(0, N_CLASSES - (seed % 5 == 4), n_rows)
        self.train: Floats = places[self.labels] + rng.normal(0, 0.5, (n_rows, 2))
        truth = rng.integers(0, N_CLASSES, n_queries)
        self.queries: Floats = places[truth] + rng.normal(0, 0.5, (n_queries, 2))
        if seed % 2:  # ties everywhere
            self.train, self.queries = np.rint(2 * self.train) / 2, np.rint(2 * self.queries) / 2
        self.belief: Ints = np.where(rng.random(n_queries) < 0.8, truth, rng.integers(0, N_CLASSES))

    def measure(self, places: Floats) -> Floats:
        """Distances from places in the plane, of shape (n, 2), to every sample, (n, n_rows)."""
        distances: Floats = np.sqrt(np.square(places[:, None, :] - self.train).sum(axis=2))
        return distances

    def look(self, queries: Any = None, k: int = ALL, per_class: int = LARGEST_K) -> Evidence:
        """The evidence about places in the plane, by every distance."""
        distances = self.measure(self.queries if queries is None else queries)
        return gather_all(distances, self.labels, k=k, per_class=per_class)

    def look_without(self, i: int) -> tuple[Evidence, Ints]:
        """The evidence about one query without every set of samples, and their sizes."""
        removed = np.array(list(product([False, True], repeat=len(self.labels))))
        rest = np.where(removed, np.inf, self.measure(self.queries[i : i + 1]))
        return gather_all(rest, self.labels), removed.sum(axis=1)

    def look_changed(self, i: int, n_changes: int) -> Evidence:
        """The evidence about one query after every set of changes of this size."""
        return change_all(self.measure(self.queries[i : i + 1])[0], self.labels, n_changes)


def change_all(distances: Floats, labels: Ints, n_changes: int) -> Evidence:
    """The evidence about one query after every set of changes of this size.

    A sample may be removed or get another label; one may be added, of any class, at the query
    itself, at the distance of any other, or beyond all of them. distances, labels: of shape
    (n_rows,).
    """
    n_rows = len(labels)
    places = sorted({0.0, *distances.tolist(), 2 * distances.max() + 1})
    # A row that changes, its distance and class then; instead of getting its own it is removed.
    old = [
        (row, np.inf if code == labels[row] else distances[row], code)
        for row in range(n_rows)
        for code in range(N_CLASSES)
    ]
    new = [(n_rows, place, code) for place in places for code in range(N_CLASSES)]
    sets = [
        [*some, *added]
        for n_new in range(n_changes + 1)
        for some in combinations(old, n_changes - n_new)
        if len({row for row, _, _ in some}) == len(some)
        for added in combinations_with_replacement(new, n_new)
    ]
    table = np.full((len(sets), n_rows + n_changes), np.inf)
    codes = np.zeros(table.shape, dtype=np.int64)
    table[:, :n_rows], codes[:, :n_rows] = distances, labels
    for at, changes in enumerate(sets):
        for n, (row, distance, code) in enumerate(changes):
            where = row + n if row == n_rows else row
            table[at, where], codes[at, where] = distance, code
    return gather_all(table, codes)


def is_known(evidence: Evidence, rule: Rule, belief: Any) -> Bools:
    """Which beliefs the rule makes IK, by applying it."""
    codes = np.broadcast_to(np.asarray(belief), len(evidence))
    support = find_support(evidence, rule, codes)
    known: Bools = make_assertions(codes, justify([support])) == Assertion.IK
    return known


def numbers_around(ends: Any) -> list[float]:
    """0 and the ends themselves, the floats next to them, what lies between, and beyond."""
    finite = sorted({float(end) for end in np.ravel(ends) if 0 <= end < np.inf} | {0.0})
    between = [(low + high) / 2 for low, high in pairwise(finite)]
    beside = [float(np.nextafter(end, to)) for end in finite for to in (-np.inf, np.inf)]
    return sorted({x for x in [*finite, *between, *beside, 2 * finite[-1] + 1] if x >= 0})


class RuleContract:
    """What every rule must do. Inherit, and say which ones, and what they refuse.

    Examples:
        >>> class TestBall(RuleContract):
        ...     def make_rules(self):
        ...         return [Ball(0.6), Ball(1.0)]
        ...     def bad_parameters(self):
        ...         return [{"radius": -1.0}, {"radius": "wide"}]
    """

    def make_rules(self) -> Sequence[Rule]:
        """Rules for three classes, of one type, with some parameters."""
        raise NotImplementedError

    def bad_parameters(self) -> Sequence[Mapping[str, Any]]:
        """Parameters, by name, that must be refused in place of good ones."""
        raise NotImplementedError

    def quorums(self) -> Sequence[Quorum]:
        """The quorums to try; a rule without a parameter for it has a quorum of one."""
        kind = type(self.make_rules()[0])
        return QUORUMS if "quorum" in parameters_of(kind) else (ONE,)

    def make_all(self) -> list[Rule]:
        """The rules under every quorum."""
        some = [quorum for quorum in self.quorums() if quorum != ONE]
        rules = list(self.make_rules())
        return rules + [replace(rule, quorum=each) for each in some for rule in rules]  # type: ignore[type-var]

    def test_it_is_a_frozen_record_that_survives_json(self) -> None:
        rules = self.make_all()
        for rule in rules:
            again = rule_from_dict(json.loads(json.dumps(rule_to_dict(rule))))
            assert (type(again), again, hash(again)) == (type(rule), rule, hash(rule))
            assert repr(rule).startswith(f"{type(rule).__name__}(")
            for name in parameters_of(type(rule)):
                with pytest.raises(FrozenInstanceError):
                    setattr(rule, name, 1)
        assert len(set(rules)) == len(rules)

    def test_what_is_no_parameter_is_refused(self) -> None:
        rule = self.make_rules()[0]
        good = {field.name: getattr(rule, field.name) for field in fields(rule)}  # type: ignore[arg-type]
        assert not set(good) - {name for bad in self.bad_parameters() for name in bad}
        for bad in self.bad_parameters():
            with pytest.raises(InputError, match="must"):
                type(rule)(**{**good, **bad})

    def test_a_query_is_answered_alike_alone_and_whatever_else_the_evidence_holds(self) -> None:
        scene = Scene(0)
        for rule in self.make_all():
            evidence = weigh(scene.look(), rule.quorum, scene.belief)
            reach = rule.reach(evidence)
            assert reach.shape in {(len(evidence),), (len(evidence), N_CLASSES)}
            assert not np.isnan(reach).any()
            least = scene.look(k=rule.n_neighbors, per_class=max(rule.quorum))
            least = weigh(least, rule.quorum, scene.belief)
            np.testing.assert_array_equal(rule.reach(least), reach)
            for i in range(len(evidence)):
                np.testing.assert_array_equal(rule.reach(evidence[i : i + 1]), reach[i : i + 1])

    def test_nothing_beyond_its_horizon_matters(self) -> None:
        """Distances to other classes further away than it promises may as well be inf."""
        for rule, scene, evidence in self._each_scene(40):
            if (horizon := promise_of(rule, "horizon")) is None:
                continue
            rows, own = np.arange(len(evidence)), evidence.believed_distance()
            limits = np.maximum(horizon.fixed, horizon.ratio * np.where(own < np.inf, own, 0.0))
            if horizon.k:
                limits = np.maximum(limits, evidence.neighbor_distance(horizon.k))
            distances = evidence.class_distances.copy()
            distances[distances > limits[:, None]] = np.inf
            distances[rows, scene.belief] = evidence.class_distances[rows, scene.belief]
            near = replace(evidence, distances=distances[:, :, None])
            expected = find_support(evidence, rule, scene.belief)
            np.testing.assert_array_equal(find_support(near, rule, scene.belief), expected)

    def test_its_promises_hold(self) -> None:
        for rule, scene, evidence in self._each_scene(40):
            distances, support = evidence.class_distances, find_support(evidence, rule)
            beyond = distances > promise_of(rule, "empty_beyond")
            assert not support[beyond.all(axis=1)].any()
            # At distance 0 a promise of 0 is none.
            full = (distances <= promise_of(rule, "full_within")) & (distances > 0)
            assert support[full & np.isfinite(distances)].all()
            if rule.reach(evidence).ndim == 1 or speaks_for(type(rule), "lead"):
                known = is_known(evidence, rule, scene.belief)
                clear, lead = find_contrast(evidence, scene.belief)[known], promise_of(rule, "lead")
                assert lead == 0 or (clear.other > lead * clear.own).all()

    def test_the_sign_of_its_margin_is_whether_it_knows(self) -> None:
        for rule, scene, evidence in self._each_scene(20):
            margins = find_margins(evidence, rule, scene.belief)
            assert not np.isnan(margins).any()
            decided, known = margins != 0, is_known(evidence, rule, scene.belief)
            np.testing.assert_array_equal(known[decided], margins[decided] > 0)

    def test_a_sample_is_known_exactly_in_its_box(self) -> None:
        kind = type(self.make_rules()[0])
        for quorum in self.quorums() if axes_of(kind) else ():
            counts = [self._count_in_box(kind, quorum, seed) for seed in range(20)]
            assert np.sum(counts, axis=0).min() > 100

    def test_as_many_removals_as_it_says_are_needed(self) -> None:
        checked = 0
        for scene in (Scene(seed, n_rows=8, n_queries=6) for seed in range(12)):
            without = [scene.look_without(i) for i in range(len(scene.belief))]
            for rule in self.make_all():
                most = max(8, rule.n_neighbors)
                for k, per_class in ((rule.n_neighbors, max(rule.quorum)), (most, 1), (most, ALL)):
                    if per_class < max(rule.quorum):
                        continue
                    evidence = scene.look(k=k, per_class=per_class)
                    stability = promise_of(rule, "removals")(evidence, scene.belief)
                    for i in np.flatnonzero(is_known(evidence, rule, scene.belief)):
                        rest, n_removed = without[i]
                        lost = ~is_known(rest, rule, scene.belief[i])
                        needed = n_removed[lost].min()  # without any sample nothing is known
                        assert 1 <= stability.at_least[i] <= needed, rule
                        assert not stability.exact[i] or stability.at_least[i] == needed, rule
                        checked += 1
        assert checked > 20

    def test_as_many_changes_as_it_says_do_no_harm(self) -> None:
        for scene in (Scene(seed, n_rows=7, n_queries=6) for seed in range(10)):
            changed = cache(scene.look_changed)
            for rule in self.make_all():
                for per_class in (max(rule.quorum), ALL):
                    evidence = scene.look(per_class=per_class)
                    changes = promise_of(rule, "changes")(evidence, scene.belief)
                    for i in np.flatnonzero(is_known(evidence, rule, scene.belief)).tolist():
                        for n_changes in range(1, min(int(changes[i]), 2) + 1):
                            known = is_known(changed(i, n_changes), rule, scene.belief[i])
                            assert known.all(), f"{rule}, seed {scene.seed}, query {i}"

    def test_a_turn_of_the_dial_turns_the_assertion_there_and_nowhere_nearer(self) -> None:
        turns = 0
        for rule, scene, evidence in self._each_scene(4):
            for i, belief in enumerate(scene.belief):
                turns += self._count_turns(evidence[i : i + 1], rule, int(belief))
        assert turns > 20

    def test_nothing_else_is_known_before_the_clearance_is_used_up(self) -> None:
        certified = 0
        for rule, scene, _ in self._each_scene(10):
            rng = np.random.default_rng(scene.seed)
            clearance = find_clearance(scene.look(), rule, scene.belief)
            for i in np.flatnonzero(clearance > 0):
                length = min(clearance[i], 5.0) * np.append(rng.random(20), np.full(20, 0.999))
                angle = rng.uniform(0, 2 * np.pi, 40)
                step = length * np.stack([np.cos(angle), np.sin(angle)])
                moved = scene.look(scene.queries[i] + step.T)
                # Whatever the model then believes.
                for other in set(range(N_CLASSES)) - {int(scene.belief[i])}:
                    assert not is_known(moved, rule, other).any(), f"{rule}, seed {scene.seed}"
                certified += 1
        assert certified > 20

    def test_its_areas_are_where_it_says_so(self) -> None:
        rng = np.random.default_rng(0)
        for rule in self.make_all():
            if (drawing := promise_of(rule, "drawing")()) is None:
                continue
            limits = (0.0, 3.0 * drawing.marks[-1])
            places = rng.uniform(*limits, size=(2000, 2))
            # With any neighbors that they could have: nearer ones too, where one is not enough.
            nearest = places.min(axis=1, keepdims=True) if rule.quorum == ONE else 0.0
            n_behind = max(LARGEST_K, rule.n_neighbors)
            far = 0.5 if rule.n_neighbors <= LARGEST_K else 0.0
            behind = nearest + rng.exponential(far, (2000, n_behind))
            columns = places, np.sort(np.hstack([places, behind])), np.full((2000, 2), NO_EXEMPLAR)
            belief = np.zeros(2000, dtype=np.int64)
            evidence = Weighed(*columns, belief=belief, quorum=rule.quorum)
            reasons = find_reasons(belief, [find_support(evidence, rule)])
            for reason, corners in drawing.areas(limits, limits).items():
                inside = _contains(np.array(corners), places)
                assert set(reasons[inside].tolist()) <= {int(reason)}, Reason(reason).name

    def _each_scene(self, n_seeds: int) -> Iterator[tuple[Rule, Scene, Weighed]]:
        """Every rule with that many scenes, and their evidence as the rule counts it."""
        for rule in self.make_all():
            for scene in map(Scene, range(n_seeds)):
                yield rule, scene, weigh(scene.look(), rule.quorum, scene.belief)

    def _count_in_box(self, kind: type[Rule], quorum: Quorum, seed: int) -> Ints:
        """Compare a box with applying the rule; returns how many were inside and outside."""
        rng, scene = np.random.default_rng(seed), Scene(seed)
        evidence, k = scene.look(), int(rng.integers(1, LARGEST_K + 1))
        weighed = weigh(evidence, quorum, scene.belief)
        sides = kind.box(find_contrast(weighed, scene.belief), k)
        assert len(sides) == len(kind.axes)
        lows, highs = (np.column_stack([side[end] for side in sides]) for end in (0, 1))
        counts = np.zeros(2, dtype=np.int64)
        for _ in range(25):
            near = int(rng.integers(len(lows)))
            corner = [side[int(rng.integers(2))][near] for side in sides]
            ends = [end if np.isfinite(end) else 2.0 for end in corner]
            point = [float(rng.choice(numbers_around(end))) for end in ends]
            try:
                rule = make_rule(kind, k, quorum, **dict(zip(kind.axes, point, strict=True)))
            except InputError:  # no parameters that it takes
                continue
            found = ((lows <= point) & (point < highs)).all(axis=1)
            expected = is_known(evidence, rule, scene.belief)
            assert found.tolist() == expected.tolist(), f"{rule}, seed {seed}"
            counts += [found.sum(), (~found).sum()]
        return counts

    def _count_turns(self, evidence: Weighed, rule: Rule, belief: int) -> int:
        slack = find_slack(evidence, rule, [], belief)
        settings: ParameterSettings | None = promise_of(rule, "settings")(evidence)
        if slack is None or settings is None:
            return 0

        def assertion(setting: Any) -> Assertion:
            justified = justify([settings.support(setting)])
            return Assertion(int(make_assertions(np.array([belief]), justified)[0]))

        applied = make_assertions(np.array([belief]), justify([find_support(evidence, rule)]))
        now = assertion(settings.value)
        assert now == applied[0]
        low = 0.0 if slack.shrink is None else slack.shrink.at
        high = np.inf if slack.grow is None else slack.grow.at
        whole = settings.parameter == "k"
        around = numbers_around([*settings.values, settings.value, low, high])
        for setting in settings.values if whole else around:
            if low <= setting < high:
                assert assertion(setting) == now
        if slack.grow is not None:
            assert assertion(int(high) if whole else high) == slack.grow.becomes != now
        if slack.shrink is not None:
            below = int(low) - 1 if whole else np.nextafter(low, -np.inf)
            assert assertion(below) == slack.shrink.becomes != now
        return (slack.grow is not None) + (slack.shrink is not None)


def _contains(corners: Floats, places: Floats) -> Bools:
    """Which places lie in a polygon: a ray from them crosses its edges an odd number of times."""
    x, y = places.T
    inside = np.zeros(len(places), dtype=bool)
    for (x0, y0), (x1, y1) in zip(corners, np.roll(corners, 1, axis=0), strict=True):
        if y0 != y1:
            inside ^= ((y0 > y) != (y1 > y)) & (x < x0 + (y - y0) * (x1 - x0) / (y1 - y0))
    return inside
