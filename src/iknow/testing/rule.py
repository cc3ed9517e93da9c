"""The contract of a rule, as tests to inherit.

What the rule says of itself is compared with applying its reach, on random training sets in the
plane, some full of ties, with samples removed, parameters turned and queries moved. What it does
not say is not checked. The rules are for three classes and distances around 1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import FrozenInstanceError, fields
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.assertion import Assertion, Reason, find_reasons, make_assertions
from iknow.core.contrast import find_contrast
from iknow.core.evidence import NO_EXEMPLAR, Evidence
from iknow.core.justification import justify
from iknow.core.neighborhood import Neighborhood, axes_of, make_rule, parameters_of
from iknow.core.overriding import said
from iknow.core.quorum import ONE
from iknow.core.robustness import find_clearance
from iknow.core.slack import Dial, find_slack
from iknow.core.support import find_support
from iknow.errors import InputError
from iknow.rules import neighborhood_from_dict, neighborhood_to_dict

N_CLASSES = 3
LARGEST_K = 5


class Scene:
    """A training set of a few samples in the plane, queries among them, and beliefs about these."""

    def __init__(self, seed: int, n_rows: int = 12, n_queries: int = 8) -> None:
        rng = np.random.default_rng(seed)
        places = np.array([[0.0, 0.0], [1.5, 0.0], [0.0, 1.5]])
        # Every fifth time a class has no sample at all.
        self.labels: Ints = rng.integers(0, N_CLASSES - (seed % 5 == 4), n_rows)
        self.train: Floats = places[self.labels] + rng.normal(0, 0.5, (n_rows, 2))
        truth = rng.integers(0, N_CLASSES, n_queries)
        self.queries: Floats = places[truth] + rng.normal(0, 0.5, (n_queries, 2))
        if seed % 2:  # ties everywhere
            self.train, self.queries = np.rint(2 * self.train) / 2, np.rint(2 * self.queries) / 2
        self.belief: Ints = np.where(rng.random(n_queries) < 0.8, truth, rng.integers(0, N_CLASSES))

    def look(self, queries: Any = None, k: int = 99) -> Evidence:
        """The evidence about places in the plane, by every distance."""
        places = self.queries if queries is None else queries
        return self._gather(np.sqrt(np.square(places[:, None, :] - self.train).sum(axis=2)), k)

    def look_without(self, i: int) -> tuple[Evidence, Ints]:
        """The evidence about one query without every set of samples, and their sizes."""
        removed = np.array(list(product([False, True], repeat=len(self.labels))))
        distances = np.sqrt(np.square(self.queries[i] - self.train).sum(axis=1))
        return self._gather(np.where(removed, np.inf, distances), 99), removed.sum(axis=1)

    def _gather(self, distances: Floats, k: int) -> Evidence:
        """distances: to each training row, of shape (n, n_rows); inf if it was removed."""
        of_class = self.labels == np.arange(N_CLASSES)[:, None]
        nearest = np.where(of_class, distances[:, None, :], np.inf).min(axis=2)
        padded = np.pad(np.sort(distances), ((0, 0), (0, LARGEST_K)), constant_values=np.inf)
        return Evidence(nearest, padded[:, :k], np.where(np.isinf(nearest), NO_EXEMPLAR, 0))


def is_known(evidence: Evidence, rule: Neighborhood, belief: Any) -> Bools:
    """Which beliefs the rule makes IK, by applying it."""
    support = find_support(evidence, rule)
    known: Bools = make_assertions(np.asarray(belief), justify([support])) == Assertion.IK
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

    def make_rules(self) -> Sequence[Neighborhood]:
        """Rules for three classes, of one type, with some parameters."""
        raise NotImplementedError

    def bad_parameters(self) -> Sequence[Mapping[str, Any]]:
        """Parameters, by name, that must be refused in place of good ones."""
        raise NotImplementedError

    def test_it_is_a_frozen_record_that_survives_json(self) -> None:
        rules = self.make_rules()
        for rule in rules:
            again = neighborhood_from_dict(json.loads(json.dumps(neighborhood_to_dict(rule))))
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
        for rule in self.make_rules():
            evidence = Scene(0).look()
            reach = rule.reach(evidence)
            assert reach.shape in {(len(evidence),), (len(evidence), N_CLASSES)}
            assert not np.isnan(reach).any()
            least = Scene(0).look(k=rule.n_neighbors)
            np.testing.assert_array_equal(rule.reach(least), reach)
            for i in range(len(evidence)):
                np.testing.assert_array_equal(rule.reach(evidence[i : i + 1]), reach[i : i + 1])

    def test_its_promises_hold(self) -> None:
        for rule in self.make_rules():
            rule.check_classes(N_CLASSES)
            for seed in range(40):
                evidence = Scene(seed).look()
                distances, support = evidence.class_distances, find_support(evidence, rule)
                some, there = support.any(axis=1, keepdims=True), np.isfinite(distances)
                beyond = distances > np.asarray(said(rule, "empty_beyond"))
                assert not support[beyond.all(axis=1)].any()
                # At distance 0 a promise of 0 is none.
                full = (distances <= said(rule, "full_within")) & (distances > 0)
                assert support[full & there].all()
                if not rule.reaches_by_class:
                    lead = said(rule, "lead") * evidence.nearest_distance()[:, None]
                    assert support[some & there & (distances <= lead)].all()
                if (radius := said(rule, "decided_within")) is not None:
                    inside = (distances <= np.asarray(radius)) & there
                    decided = inside.any(axis=1)
                    np.testing.assert_array_equal(support[decided], inside[decided])

    def test_a_sample_is_known_exactly_in_its_box(self) -> None:
        rule = type(self.make_rules()[0])
        inside = outside = 0
        for seed in range(40) if axes_of(rule) else ():
            rng, scene = np.random.default_rng(seed), Scene(seed)
            evidence, k = scene.look(), int(rng.integers(1, LARGEST_K + 1))
            sides = rule.box(find_contrast(evidence, scene.belief), k)
            assert len(sides) == len(rule.axes)
            lows, highs = (np.column_stack([side[end] for side in sides]) for end in (0, 1))
            for _ in range(25):
                near = int(rng.integers(len(lows)))
                corner = [side[int(rng.integers(2))][near] for side in sides]
                ends = [end if np.isfinite(end) else 2.0 for end in corner]
                point = [float(rng.choice(numbers_around(end))) for end in ends]
                try:
                    setting = make_rule(rule, k, ONE, **dict(zip(rule.axes, point, strict=True)))
                except InputError:  # no parameters that it takes
                    continue
                expected = is_known(evidence, setting, scene.belief)
                found = ((lows <= point) & (point < highs)).all(axis=1)
                assert found.tolist() == expected.tolist(), f"{setting}, seed {seed}"
                inside, outside = inside + found.sum(), outside + (~found).sum()
        assert not axes_of(rule) or min(inside, outside) > 100

    def test_as_many_removals_as_it_says_are_needed(self) -> None:
        checked = 0
        for rule in self.make_rules():
            for seed in range(12):
                scene = Scene(seed, n_rows=8, n_queries=6)
                for k in (rule.n_neighbors, 8):
                    evidence = scene.look(k=k)
                    known = is_known(evidence, rule, scene.belief)
                    stability = said(rule, "removals")(evidence, scene.belief)
                    for i in np.flatnonzero(known):
                        rest, n_removed = scene.look_without(int(i))
                        lost = ~is_known(rest, rule, np.full(len(rest), scene.belief[i]))
                        needed = n_removed[lost].min()  # without any sample nothing is known
                        assert 1 <= stability.at_least[i] <= needed
                        assert not stability.exact[i] or stability.at_least[i] == needed
                        checked += 1
        assert checked > 20

    def test_a_turn_of_the_dial_turns_the_assertion_there_and_nowhere_nearer(self) -> None:
        turns = 0
        for rule in self.make_rules():
            for seed in range(6):
                evidence = Scene(seed).look()
                for i, belief in enumerate(Scene(seed).belief):
                    turns += self._count_turns(evidence[i : i + 1], rule, int(belief))
        assert turns > 20

    def test_nothing_else_is_known_before_the_clearance_is_used_up(self) -> None:
        certified = 0
        for rule in self.make_rules():
            for seed in range(20):
                rng, scene = np.random.default_rng(seed), Scene(seed)
                clearance = find_clearance(scene.look(), rule, scene.belief)
                for i in np.flatnonzero(clearance > 0):
                    length = min(clearance[i], 5.0) * np.append(rng.random(20), np.full(20, 0.999))
                    angle = rng.uniform(0, 2 * np.pi, 40)
                    step = length * np.stack([np.cos(angle), np.sin(angle)])
                    support = find_support(scene.look(scene.queries[i] + step.T), rule)
                    alone = support.sum(axis=1) == 1
                    assert not (alone & ~support[:, scene.belief[i]]).any()
                    certified += 1
        assert certified > 20

    def test_its_areas_are_where_it_says_so(self) -> None:
        rng = np.random.default_rng(0)
        for rule in self.make_rules():
            if (drawing := said(rule, "drawing")()) is None:
                continue
            limits = (0.0, 3.0 * drawing.marks[-1])
            places = rng.uniform(*limits, size=(2000, 2))
            # With any neighbors that they could have.
            behind = places.min(axis=1, keepdims=True) + rng.exponential(0.5, (2000, LARGEST_K))
            neighbors = np.sort(np.hstack([places, behind]), axis=1)
            evidence = Evidence(places, neighbors, np.full(places.shape, NO_EXEMPLAR))
            belief = np.zeros(2000, dtype=np.int64)
            reasons = find_reasons(belief, [find_support(evidence, rule)])
            for reason, corners in drawing.areas(limits, limits).items():
                inside = _contains(np.array(corners), places)
                assert set(reasons[inside].tolist()) <= {int(reason)}, Reason(reason).name

    def _count_turns(self, evidence: Evidence, rule: Neighborhood, belief: int) -> int:
        slack = find_slack(evidence, rule, [], belief)
        dial: Dial | None = said(rule, "dial")(evidence)
        if slack is None or dial is None:
            return 0

        def assertion(setting: Any) -> Assertion:
            justified = justify([dial.support(setting)])
            return Assertion(int(make_assertions(np.array([belief]), justified)[0]))

        applied = make_assertions(np.array([belief]), justify([find_support(evidence, rule)]))
        now = assertion(dial.value)
        assert now == applied[0]
        low = 0.0 if slack.shrink is None else slack.shrink.at
        high = np.inf if slack.grow is None else slack.grow.at
        whole = dial.parameter == "k"
        around = numbers_around([*dial.settings, dial.value, low, high])
        for setting in dial.settings if whole else around:
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
