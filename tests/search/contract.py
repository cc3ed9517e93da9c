"""The contract of an index of ours, which also decides and says how far its lists are complete."""

from collections.abc import Iterator

import numpy as np
import pytest

from iknow.core.arrays import Ints
from iknow.core.codes import NO_BELIEF
from iknow.core.decision import Scope, decide, is_enough, scope_of
from iknow.core.evidence import Evidence
from iknow.core.rule import Rule
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
