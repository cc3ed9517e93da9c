"""The contract of an index of ours, which also decides and says how far its lists are complete."""

import pickle
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from iknow.core.arrays import Floats32, Ints
from iknow.core.codes import NO_BELIEF
from iknow.core.decision import Decision, Scope, decide, is_enough, scope_of
from iknow.core.evidence import NO_EXEMPLAR, Evidence
from iknow.core.rule import Rule
from iknow.errors import InputError
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall
from iknow.search.index import RowIndex
from iknow.testing import KINDS, IndexContract, Problem, assert_same_evidence
from iknow.testing.index import assert_same_decision


def assert_complete(found: Evidence, whole: Evidence, scope: Scope) -> None:
    """Every row strictly nearer than `complete_below` is listed as in the whole evidence."""
    m, k, limits = found.per_class, found.n_neighbors, found.complete_below
    near, neighbors = whole.distances[:, :, :m], whole.neighbor_distances[:, :k]
    assert scope.belief is not None
    is_own = np.arange(found.n_classes) == scope.belief[:, None]
    limit = np.where(is_own, limits[:, :1], limits[:, 1:2])[..., None]
    room = np.where(is_own, scope.own, scope.other)[..., None]
    due = (near < limit) & (np.arange(m) < room)
    np.testing.assert_array_equal(found.distances[due], near[due])
    np.testing.assert_array_equal(found.rows[due], whole.rows[:, :, :m][due])
    due = neighbors < limits[:, 2:]
    np.testing.assert_array_equal(found.neighbor_distances[due], neighbors[due])


def rules_at_ties(evidence: Evidence, k: int, seed: int) -> list[Rule]:
    """Rules of every kind whose reaches are distances of the evidence, or nearly so."""
    rng, ranked = np.random.default_rng(seed), evidence.distances
    radius = float(rng.choice(ranked[np.isfinite(ranked)]))
    ordered = np.sort(evidence.class_distances, axis=1)
    with np.errstate(all="ignore"):
        ratios = ordered[:, 1] / ordered[:, 0]
    ratio = float(min(ratios[np.isfinite(ratios)], default=1.5))
    return [
        Ball(radius),
        Ball(radius, quorum=(2, 3)),
        Nearest(k),
        Nearest(k, quorum=(2, 2)),
        BallElseNearest(radius, k),
        BallWithNearest(radius, k),
        RelativeBall(radius, ratio),
        RelativeBall(radius, 0.7, quorum=(3, 2)),
        RelativeBall(radius, ratio, quorum=(1, 3)),
    ]


def random_problem(
    n_rows: int = 2000, n_features: int = 10, n_classes: int = 5, n_queries: int = 50, seed: int = 0
) -> tuple[Floats32, Ints, Floats32]:
    """Points, labels and queries without structure."""
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((n_rows, n_features)).astype(np.float32)
    queries = rng.standard_normal((n_queries, n_features)).astype(np.float32)
    return points, rng.integers(n_classes, size=n_rows), queries


class RowIndexContract(IndexContract):
    """What every `RowIndex` must do."""

    @pytest.mark.parametrize("kind", KINDS)
    def test_decisions_at_exact_ties_equal_those_of_brute_force(self, kind: str) -> None:
        """The reach is one of the distances: one bit of error would change the support."""
        for seed, index, problem, whole, belief in self._asked_with_belief(kind):
            turn = KINDS.index(kind) + seed  # asking all rules every time would take long
            for rule in rules_at_ties(whole, whole.n_neighbors, seed)[turn % 3 :: 3]:
                found = index.decide(problem.queries, rule, belief)
                assert_same_decision(found, decide(whole, rule, belief))

    @pytest.mark.parametrize("kind", KINDS)
    def test_lists_are_complete_as_far_as_they_say(self, kind: str) -> None:
        """A search that stops early lists every row strictly nearer than it says, and no other."""
        for seed, index, problem, whole, belief in self._asked_with_belief(kind):
            for rule in rules_at_ties(whole, whole.n_neighbors, seed)[seed % 3 :: 3]:
                scope = scope_of(rule, belief)
                points = np.ascontiguousarray(problem.queries, dtype=np.float32)
                found = index.search(points, scope)
                assert is_enough(found, scope).all()
                assert_complete(found, whole, scope)

    def test_an_empty_index_gives_no_evidence(self) -> None:
        index = self.make_index(np.empty((0, 3)), np.empty(0, dtype=int), 2)
        assert isinstance(index, RowIndex)
        evidence = index.gather(np.zeros((4, 3)), per_class=3)
        assert evidence.distances.shape == (4, 2, 3)
        assert np.isinf(evidence.distances).all()
        assert (evidence.rows == NO_EXEMPLAR).all()
        for rule in (Ball(1.0), Ball(np.inf), RelativeBall(9.0, 1.5, quorum=(1, 3))):
            belief = np.array([0, 1, NO_BELIEF, 0])
            assert not index.decide(np.zeros((4, 3)), rule, belief).support.any()
        index.warm_up()

    def test_row_numbers_must_be_one_per_row(self) -> None:
        with pytest.raises(InputError, match=r"rows must have shape \(3,\); got \(2,\)"):
            self.make_index(np.zeros((3, 1)), np.array([0, 1, 1]), 2, rows=np.arange(2))

    def test_concurrent_searches_of_a_fresh_index_all_get_the_same_answer(self) -> None:
        problem = Problem("integer grid", seed=5)
        asked = problem.queries, 2, 3
        expected = self._brute_force(*problem.training, *asked[:2], per_class=3)
        index = self.make_index(*problem.training)
        assert isinstance(index, RowIndex)
        rule = RelativeBall(2.0, 1.2, quorum=(1, 3))
        belief = np.arange(len(problem.queries)) % problem.n_classes
        decided = decide(expected, rule, belief)
        together = threading.Barrier(4)

        def search(number: int) -> tuple[Evidence, Decision]:
            if number < 4:
                together.wait(60)
            first = index.gather(*asked) if number % 2 else None
            decision = index.decide(problem.queries, rule, belief)
            return first or index.gather(*asked), decision

        with ThreadPoolExecutor(4) as pool:
            for evidence, decision in pool.map(search, range(8)):
                assert_same_evidence(evidence, expected)
                assert_same_decision(decision, decided)

    def test_a_pickle_answers_alike_and_holds_nothing_derived(self) -> None:
        problem = Problem("plain", seed=6)
        index, asked = self.make_index(*problem.training), (problem.queries, 2, 3)
        fresh = len(pickle.dumps(index))
        before = index.gather(*asked)
        again = pickle.loads(pickle.dumps(index))
        assert_same_evidence(again.gather(*asked), before)
        assert len(pickle.dumps(index)) <= fresh

    def test_read_only_rows_and_queries_are_searched_without_a_warning(self) -> None:
        problem = Problem("plain", seed=7)
        points, queries = (each.astype(np.float32) for each in (problem.points, problem.queries))
        order = np.argsort(problem.labels, kind="stable")
        points, labels = points[order], problem.labels[order]
        points.flags.writeable = queries.flags.writeable = False
        found = self.make_index(points, labels, problem.n_classes).gather(queries, 1, 2)
        expected = self._brute_force(points, labels, problem.n_classes, queries, 1, per_class=2)
        assert_same_evidence(found, expected)

    def _asked_with_belief(
        self, kind: str
    ) -> Iterator[tuple[int, RowIndex, Problem, Evidence, Ints]]:
        for seed in range(self.seeds_per_kind):
            problem = Problem(kind, seed)
            k, n = max(1, problem.k), len(problem.queries)
            index = self.make_index(*problem.training)
            whole = self._brute_force(*problem.training, problem.queries, k, per_class=3)
            assert_same_evidence(index.gather(problem.queries, k, per_class=3), whole)
            belief = np.random.default_rng(seed).integers(NO_BELIEF, problem.n_classes, size=n)
            assert isinstance(index, RowIndex)
            yield seed, index, problem, whole, belief
