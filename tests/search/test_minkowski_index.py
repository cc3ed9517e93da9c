"""MinkowskiIndex against an oracle of plain loops, and its promises about ties and memory."""

import math
import tracemalloc

import numpy as np
import pytest

from iknow.core.evidence import NO_EXEMPLAR, merge_evidence
from iknow.errors import InputError
from iknow.search import measured as tiles
from iknow.search.cells import CpuIndex
from iknow.search.measured import MinkowskiIndex
from iknow.search.threads import n_cores
from iknow.testing import assert_same_evidence
from iknow.testing.index import KINDS, Problem
from tests.oracles import evidence_of
from tests.search.contract import RowIndexContract

POWERS = [1.0, 1.5, 3.0, 6.0, 7.0, 40.0, math.inf]


def loop_distance(a, b, p):
    """The ℓp distance in exact-looking steps: scaled, summed without rounding, one at a time."""
    sizes = [abs(float(x) - float(y)) for x, y in zip(a, b, strict=True)]
    largest = max(sizes)
    if math.isinf(p) or largest == 0:
        return largest
    return largest * math.fsum((size / largest) ** p for size in sizes) ** (1 / p)


def loop_evidence(points, labels, n_classes, queries, k, p):
    """Distances (n_queries, n_rows) and the evidence they make, by loops."""
    points, queries = np.float32(points), np.float32(queries)
    table = np.array([[loop_distance(q, x, p) for x in points] for q in queries])
    return table, evidence_of(table, labels, n_classes, k)


class TestMaximum(RowIndexContract):
    """The norm that is no sum, whose order would matter to the last bit."""

    seeds_per_kind = 2

    def measure(self, points, place):
        return np.abs(points - place).max(axis=1)

    def make_index(self, activations, labels, n_classes, rows=None):
        return MinkowskiIndex(activations, labels, n_classes, rows=rows, p=math.inf)


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("kind", KINDS)
def test_evidence_equals_that_of_loops(kind, p):
    for seed in range(3):
        problem = Problem(kind, seed)
        table, expected = loop_evidence(
            problem.points, problem.labels, problem.n_classes, problem.queries, problem.k, p
        )
        index = MinkowskiIndex(problem.points, problem.labels, problem.n_classes, p=p)
        found = index.gather(problem.queries, problem.k)
        np.testing.assert_allclose(found.class_distances, expected.class_distances, rtol=1e-13)
        np.testing.assert_allclose(
            found.neighbor_distances, expected.neighbor_distances, rtol=1e-13
        )
        # Where two samples are equally near but for rounding, either may be the exemplar.
        for i, code in zip(*np.nonzero(found.exemplars != expected.exemplars), strict=True):
            assert table[i, found.exemplars[i, code]] == pytest.approx(
                expected.class_distances[i, code], rel=1e-13, abs=0
            )


@pytest.mark.parametrize("p", POWERS)
def test_of_equally_near_samples_the_lowest_row_is_the_exemplar(p, monkeypatch):
    monkeypatch.setattr(tiles, "ROWS_PER_TILE", 2)  # the ties lie in several tiles
    points = np.array([[1.0], [-1.0], [1.0], [1.0], [-1.0], [2.0]])
    index = MinkowskiIndex(points, np.array([1, 0, 1, 0, 0, 1]), 2, p=p)
    evidence = index.gather([[0.0]], k=6)
    assert evidence.exemplars.tolist() == [[1, 0]]
    assert evidence.class_distances.tolist() == [[1.0, 1.0]]
    assert evidence.neighbor_distances.tolist() == [[1.0] * 5 + [2.0]]


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("kind", KINDS)
def test_tiles_batches_and_shards_do_not_matter(kind, p, monkeypatch):
    problem = Problem(kind, seed=2)
    points, labels, n_classes = problem.training
    k, queries = min(problem.k, len(points) // 3), problem.queries
    index = MinkowskiIndex(*problem.training, p=p)
    whole = index.gather(queries, k)
    monkeypatch.setattr(tiles, "ROWS_PER_TILE", 5)
    monkeypatch.setattr(tiles, "QUERIES_PER_TILE", 2)
    assert_same_evidence(index.gather(queries, k), whole)
    for i in range(len(queries)):
        assert_same_evidence(index.gather(queries[i : i + 1], k), whole[i : i + 1])
    shards = np.array_split(np.random.default_rng(0).permutation(len(points)), 3)
    parts = [
        MinkowskiIndex(points[rows], labels[rows], n_classes, rows=rows, p=p).gather(queries, k)
        for rows in shards
        if len(rows)
    ]
    assert_same_evidence(merge_evidence(parts), whole)


def test_with_p_2_it_agrees_with_the_dense_index():
    problem = Problem("plain", seed=5)
    arguments = problem.points, problem.labels, problem.n_classes
    found = MinkowskiIndex(*arguments, p=2).gather(problem.queries, 2)
    expected = CpuIndex(*arguments).gather(problem.queries, 2)
    np.testing.assert_allclose(found.class_distances, expected.class_distances, rtol=1e-13)
    np.testing.assert_array_equal(found.exemplars, expected.exemplars)


@pytest.mark.parametrize("p", [1.0, math.inf])
def test_memory_stays_far_below_the_matrix_of_all_distances(p):
    rng = np.random.default_rng(0)
    points = rng.standard_normal((60_000, 4), dtype=np.float32)
    labels = np.sort(rng.integers(10, size=60_000))
    queries = rng.standard_normal((1_000, 4), dtype=np.float32)
    index = MinkowskiIndex(points, labels, 10, p=p)
    tracemalloc.start()
    try:
        evidence = index.gather(queries, k=3)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    tile = 8 * tiles.QUERIES_PER_TILE * tiles.ROWS_PER_TILE
    assert peak < 4 * n_cores() * tile + 4 * points.nbytes
    some = [0, 999]
    _, expected = loop_evidence(points, labels, 10, queries[some], 3, p)
    np.testing.assert_allclose(evidence[some].class_distances, expected.class_distances, rtol=1e-13)


def test_classes_without_samples_have_no_exemplar():
    index = MinkowskiIndex([[0.0], [3.0]], [0, 2], 4)
    evidence = index.gather([[1.0]])
    assert evidence.class_distances.tolist() == [[1.0, np.inf, 2.0, np.inf]]
    assert evidence.exemplars.tolist() == [[0, NO_EXEMPLAR, 1, NO_EXEMPLAR]]
    assert (index.n_rows, index.n_features, index.n_classes, index.p) == (2, 1, 4, 1.0)


@pytest.mark.parametrize("p", [0.5, 0, -1, math.nan, "1", True, None])
def test_p_below_1_is_refused(p):
    with pytest.raises(InputError, match="p must be a number from 1 to inf"):
        MinkowskiIndex([[0.0]], [0], 1, p=p)
