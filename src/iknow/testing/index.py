"""The contract of an index, as tests to inherit.

A new backend is tested by a class with one method:

    class TestMyIndex(IndexContract):
        def make_index(self, activations, labels, n_classes, rows=None):
            return MyIndex(activations, labels, n_classes, rows=rows)

The oracle is float64 brute force on the stored float32 activations, in ℓ2 unless the class says how
to `measure`. Distances are compared bit for bit: each must be what float64 makes of its two points,
whatever else is in the batch.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

import numpy as np
import pytest

from iknow.core.arrays import Floats, Ints
from iknow.core.decision import Decision
from iknow.core.evidence import Evidence, empty_evidence, merge_evidence
from iknow.errors import InputError
from iknow.search.index import Index

SEVERAL = (3, 2, 20, 5)  # samples of each class; many classes of a problem have fewer


def euclidean(points: Floats, place: Floats) -> Floats:
    """The distances of points of shape (n, n_features) from a place."""
    distances: Floats = np.sqrt(np.square(points - place).sum(axis=1))
    return distances


def brute_force(
    activations: Any,
    labels: Any,
    n_classes: int,
    queries: Any,
    k: int = 0,
    rows: Any = None,
    per_class: int = 1,
    measure: Callable[[Floats, Floats], Floats] = euclidean,
) -> Evidence:
    """Evidence by measuring every distance in float64, one query at a time."""
    points, places = (
        np.asarray(each).astype(np.float32).astype(np.float64) for each in (activations, queries)
    )
    table = np.array([measure(points, place) for place in places])
    return rank_table(
        table.reshape(len(places), len(points)), labels, n_classes, k, per_class, rows
    )


def rank_table(
    distances: Floats, labels: Any, n_classes: int, k: int = 0, per_class: int = 1, rows: Any = None
) -> Evidence:
    """Evidence from a table of distances, of shape (n, n_rows); inf where there is no sample.

    labels: class codes of shape (n_rows,), or (n, n_rows) if they differ between queries. rows:
    numbers of the samples, of shape (n_rows,). Default: 0, 1, ...
    """
    numbers = np.broadcast_to(
        np.arange(distances.shape[1]) if rows is None else rows, distances.shape
    )
    order = np.lexsort((numbers, distances), axis=1)
    columns = distances, np.broadcast_to(labels, distances.shape), numbers
    ranked, codes, numbers = (np.take_along_axis(each, order, axis=1) for each in columns)
    found = empty_evidence(len(ranked), n_classes, k, per_class)
    found.neighbor_distances[:, : ranked.shape[1]] = ranked[:, :k]
    for code in range(n_classes):
        members = (codes == code) & (ranked < np.inf)
        rank = np.cumsum(members, axis=1) - 1
        query, place = np.nonzero(members & (rank < per_class))
        at = query, code, rank[query, place]
        found.distances[at], found.rows[at] = ranked[query, place], numbers[query, place]
    return found


def assert_same_evidence(actual: Evidence, expected: Evidence) -> None:
    """Equal to the last bit, exemplars included."""
    for part in ("distances", "rows", "neighbor_distances"):
        np.testing.assert_array_equal(getattr(actual, part), getattr(expected, part), part)


def assert_same_decision(actual: Decision, expected: Decision) -> None:
    """Equal to the last bit, exemplars included."""
    for part in ("contrast.own", "contrast.other", "contrast.quorum", "exemplars", "support"):
        found, wanted = (attrgetter(part)(each) for each in (actual, expected))
        np.testing.assert_array_equal(found, wanted, part)


class Problem:
    """A training set and queries of one awkward kind."""

    def __init__(self, kind: str, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.n_classes = int(rng.integers(2, 6))
        n_rows, n_queries = int(rng.integers(2, 120)), int(rng.integers(1, 25))
        n_features = 1 if kind == "one feature" else int(rng.integers(2, 12))
        self.points: Floats = rng.standard_normal((n_rows, n_features))
        self.queries: Floats = rng.standard_normal((n_queries, n_features))
        self.labels: Ints = rng.integers(self.n_classes, size=n_rows)
        self.k = int(rng.integers(0, min(8, n_rows) + 1))
        self.per_class = SEVERAL[seed % len(SEVERAL)]
        self._distort(kind, rng)

        self.training = self.points, self.labels, self.n_classes

    def _distort(self, kind: str, rng: np.random.Generator) -> None:
        if kind == "far from the origin":
            shift = 1e4 * rng.standard_normal(self.points.shape[1])
            self.points, self.queries = self.points + shift, self.queries + shift
        elif kind == "two far clusters":
            self.points[::2] += 1e4
            self.queries[::2] += 1e4
        elif kind == "integer grid":  # exact ties everywhere
            self.points, self.queries = np.rint(self.points), np.rint(self.queries)
        elif kind == "duplicates":
            self.points = self.points[rng.integers(3, size=len(self.points)) % len(self.points)]
            self.queries[::2] = self.points[0]
        elif kind == "near ties":
            direction = self.points / np.linalg.norm(self.points, axis=1, keepdims=True)
            self.points = direction * (1 + 1e-7 * rng.integers(-3, 4, size=(len(direction), 1)))
            self.queries *= 1e-7
        elif kind in ("huge", "tiny"):
            scale = 1e37 if kind == "huge" else 1e-41
            self.points, self.queries = scale * self.points, scale * self.queries
        elif kind == "mixed magnitudes":
            self.points = self.points * 10.0 ** rng.integers(-12, 12, size=(len(self.points), 1))
            self.queries = self.queries * 10.0 ** rng.integers(-12, 30, size=(len(self.queries), 1))
        elif kind == "constant feature":
            self.points[:, 0] = self.queries[:, 0] = 1e6
        elif kind == "empty class":
            self.labels = np.minimum(self.labels, self.n_classes - 2)
        elif kind == "queries from training":
            self.queries = self.points[rng.integers(len(self.points), size=len(self.queries))]


KINDS = [
    "plain", "far from the origin", "two far clusters", "integer grid", "duplicates", "near ties",
    "huge", "tiny", "mixed magnitudes", "constant feature", "empty class", "queries from training",
    "one feature",
]  # fmt: skip


class IndexContract:
    """What every index must do. Inherit, and say how to make one."""

    seeds_per_kind = 12  # training sets of each awkward kind; of every other one rows are shuffled

    def measure(self, points: Floats, place: Floats) -> Floats:
        """The distances, in float64, of points of shape (n, n_features) from a place."""
        return euclidean(points, place)

    def _brute_force(self, *arguments: Any, **options: Any) -> Evidence:
        return brute_force(*arguments, **{**options, "measure": self.measure})

    def make_index(self, activations: Any, labels: Any, n_classes: int, rows: Any = None) -> Index:
        raise NotImplementedError

    @pytest.mark.parametrize("kind", KINDS)
    def test_evidence_equals_float64_brute_force(self, kind: str) -> None:
        """Of the nearest of each class, and of the nearest few, whatever the order of the rows."""
        for seed in range(self.seeds_per_kind):
            problem, order = Problem(kind, seed), None
            (points, labels, n_classes), asked = problem.training, (problem.queries, problem.k)
            if seed % 2:
                order = np.random.default_rng(seed).permutation(len(points))
                points, labels = points[order], labels[order]
            index = self.make_index(points, labels, n_classes, rows=order)
            for per_class in (1, problem.per_class):
                expected = self._brute_force(*problem.training, *asked, per_class=per_class)
                assert_same_evidence(index.gather(*asked, per_class=per_class), expected)

    def test_a_larger_problem_of_many_blocks_and_tasks(self) -> None:
        rng = np.random.default_rng(0)
        points = rng.standard_normal((6000, 16)) + 50
        labels = rng.integers(7, size=6000)
        queries = rng.standard_normal((1100, 16)) + 50
        index = self.make_index(points, labels, 7)
        some = rng.choice(1100, size=60, replace=False)
        for per_class in (1, 3, 20):
            evidence = index.gather(queries, 12, per_class)
            expected = self._brute_force(points, labels, 7, queries[some], 12, per_class=per_class)
            assert_same_evidence(evidence[some], expected)

    def test_equal_rows_come_in_the_order_of_their_numbers(self) -> None:
        """The activations of a layer that is dead for most inputs."""
        points = np.zeros((900, 8))
        points[::9, 0] = 1
        labels, numbers = np.arange(900) % 3, np.random.default_rng(0).permutation(900)
        evidence = self.make_index(points, labels, 3, rows=numbers).gather(points[:20], 2, 7)
        expected = self._brute_force(points, labels, 3, points[:20], 2, numbers, per_class=7)
        assert_same_evidence(evidence, expected)

    @pytest.mark.parametrize("kind", KINDS)
    def test_merged_shards_equal_the_whole(self, kind: str) -> None:
        problem = Problem(kind, seed=2)
        points, labels, n_classes = problem.training
        k = min(problem.k, len(points) // 3)
        shards = np.array_split(np.random.default_rng(0).permutation(len(points)), 3)
        indexes = [
            self.make_index(points[rows], labels[rows], n_classes, rows=rows)
            for rows in shards
            if len(rows)
        ]
        asked = problem.queries, k, problem.per_class
        merged = merge_evidence([index.gather(*asked) for index in indexes])
        assert_same_evidence(merged, self.make_index(*problem.training).gather(*asked))

    def test_a_query_is_answered_alike_alone_and_in_a_batch(self) -> None:
        problem = Problem("plain", seed=3)
        index = self.make_index(*problem.training)
        for per_class in (1, 3):
            batch = index.gather(problem.queries, 1, per_class)
            for i in range(len(problem.queries)):
                alone = index.gather(problem.queries[i : i + 1], 1, per_class)
                assert_same_evidence(alone, batch[i : i + 1])

    def test_no_queries_give_empty_evidence(self) -> None:
        index = self.make_index(np.zeros((3, 2)), np.array([0, 1, 1]), 4)
        assert isinstance(index, Index)
        evidence = index.gather(np.empty((0, 2)), 1, per_class=5)
        assert evidence.class_distances.shape == (0, 4)
        assert evidence.neighbor_distances.shape == (0, 1)
        assert evidence.distances.shape == (0, 4, 5)

    def test_bad_input_is_refused_with_the_fact(self) -> None:
        points, labels = np.zeros((3, 2)), np.array([0, 1, 1])
        for fact, activations, codes, n_classes in (
            (r"one per row; got \(2,\)", points, labels[:2], 2),
            ("class codes from 0 to 0", points, labels, 1),
            (r"shape \(n, n_features\)", points[0], labels, 2),
            ("row 1 is not", np.array([[0.0], [np.nan], [1.0]]), labels, 2),
            ("row 2 is not", np.array([[0.0], [1.0], [1e300]]), labels, 2),
        ):
            with pytest.raises(InputError, match=fact):
                self.make_index(activations, codes, n_classes)
        index, query = self.make_index(points, labels, 2), np.zeros((1, 2))
        asked: list[tuple[str, Any, dict[str, Any]]] = [
            ("2 features as the index has; got 3", np.zeros((1, 3)), {}),
            ("queries must be finite", np.full((1, 2), np.inf), {}),
            ("k=4 neighbors were asked for", query, {"k": 4}),
            ("k must be >= 0", query, {"k": -1}),
        ]
        fact = "per_class must be a whole number >= 1; got"
        asked += [(fact, query, {"per_class": each}) for each in (0, -1, 1.0, True, "2")]
        for fact, queries, options in asked:
            with pytest.raises(InputError, match=fact):
                index.gather(queries, **options)
