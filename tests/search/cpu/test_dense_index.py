"""DenseIndex against float64 brute force, and its promises about memory and storage."""

import os
import pickle
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from iknow import pages
from iknow.core.assertion import Assertion, make_assertions
from iknow.core.justification import justify
from iknow.core.support import find_support
from iknow.errors import InputError
from iknow.rules import Ball, Nearest
from iknow.search.cpu import dense_index as dense
from iknow.search.cpu.dense_index import DenseIndex
from iknow.search.kernels.numpy import BYTES_FOR_MINIMA, NumpyBlocks
from iknow.search.threads import n_cores
from iknow.testing import IndexContract, assert_same_evidence, brute_force


class TestCompiled(IndexContract):
    def make_index(self, activations, labels, n_classes, rows=None):
        pytest.importorskip("numba")
        return DenseIndex(activations, labels, n_classes, rows=rows)


class TestWithNumpyAlone(IndexContract):
    @pytest.fixture(autouse=True)
    def _without_the_extra(self, monkeypatch):
        monkeypatch.setattr(dense, "is_compiled", lambda: False)

    def make_index(self, activations, labels, n_classes, rows=None):
        index = DenseIndex(activations, labels, n_classes, rows=rows)
        assert isinstance(index._search, NumpyBlocks)
        return index


class TestInParts(IndexContract):
    """Free memory for a few rows alone: each search is made of many."""

    @pytest.fixture(autouse=True)
    def _with_little_memory(self, monkeypatch):
        monkeypatch.setattr(pages, "free_memory", lambda: 10_000)

    def make_index(self, activations, labels, n_classes, rows=None):
        return DenseIndex(activations, labels, n_classes, rows=rows)


def test_rows_beyond_the_free_memory_are_never_prepared_at_once(monkeypatch):
    points, labels = sorted_problem(n_rows=1000)
    whole = DenseIndex(points, labels, 3).gather(points[:40], 5)
    monkeypatch.setattr(pages, "free_memory", lambda: 20_000)
    index = DenseIndex(points, labels, 3)
    prepared = []
    make = DenseIndex._make_search
    monkeypatch.setattr(
        DenseIndex, "_make_search", lambda self: prepared.append(self.n_rows) or make(self)
    )
    assert_same_evidence(index.gather(points[:40], 5), whole)
    assert len(prepared) > 3
    assert sum(prepared) == 1000
    assert max(prepared) * points.shape[1] * 4 < 20_000 / 2


def sorted_problem(n_rows=300, n_features=5, n_classes=3, seed=0):
    """Points that need neither converting nor sorting."""
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((n_rows, n_features)).astype(np.float32)
    return points, np.sort(rng.integers(n_classes, size=n_rows))


def test_memory_stays_far_below_the_matrix_of_all_distances(monkeypatch):
    # What is compiled allocates where this tracing does not see it: see tests/search/test_panels.py
    monkeypatch.setattr(dense, "is_compiled", lambda: False)
    rng = np.random.default_rng(0)
    n_rows, n_queries, n_features = 200_000, 2_000, 8
    points = rng.standard_normal((n_rows, n_features), dtype=np.float32)
    labels = np.sort(rng.integers(10, size=n_rows))
    queries = rng.standard_normal((n_queries, n_features), dtype=np.float32)
    index = DenseIndex(points, labels, 10)
    tracemalloc.start()
    try:
        evidence = index.gather(queries, k=5)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    all_distances = n_rows * n_queries * 4  # 1.6 GB in float32
    # The index's own matrix, and for each core a batch's minima and what is made of them.
    assert peak < 4 * points.nbytes + n_cores() * 6 * BYTES_FOR_MINIMA
    assert peak < all_distances / 3
    some = [0, 999, 1999]
    assert_same_evidence(evidence[some], brute_force(points, labels, 10, queries[some], 5))


def test_sorted_float32_points_are_used_without_a_copy():
    points, labels = sorted_problem()
    index = DenseIndex(points, labels, 3)
    assert np.shares_memory(index.points, points)
    assert np.shares_memory(index.labels, labels)


def test_a_memory_mapped_array_stays_one(tmp_path):
    points, labels = sorted_problem()
    np.save(tmp_path / "points.npy", points)
    mapped = np.load(tmp_path / "points.npy", mmap_mode="r")
    index = DenseIndex(mapped, labels, 3)
    assert isinstance(index.points.base, np.memmap)
    assert np.shares_memory(index.points, mapped)
    assert_same_evidence(index.gather(points, 2), brute_force(points, labels, 3, points, 2))


def test_unsorted_points_are_sorted_in_a_copy_and_the_users_array_is_left_alone():
    points, labels = sorted_problem()
    order = np.random.default_rng(1).permutation(len(points))
    mine, my_labels = points[order].copy(), labels[order].copy()
    index = DenseIndex(mine, my_labels, 3)
    index.gather(points[:5], 3)
    assert not np.shares_memory(index.points, mine)
    np.testing.assert_array_equal(mine, points[order])
    np.testing.assert_array_equal(my_labels, labels[order])
    np.testing.assert_array_equal(index.points, mine[index.rows])


def test_a_pickle_holds_the_points_and_nothing_derived():
    points, labels = sorted_problem(n_rows=20_000)
    index = DenseIndex(points, labels, 3)
    before = index.gather(points[:20], 4)
    assert "_search" in vars(index)  # the search has derived something by now
    pickled = pickle.dumps(index)
    assert len(pickled) < points.nbytes + labels.nbytes + index.rows.nbytes + 2000
    again = pickle.loads(pickled)
    sizes = {"n_rows", "n_features", "n_classes"}
    assert set(vars(again)) == {"points", "labels", "rows"} | sizes
    assert_same_evidence(again.gather(points[:20], 4), before)


@pytest.mark.parametrize("seed", range(5))
def test_assertions_agree_with_those_from_scipys_distances(seed):
    """On generic data no distance is within rounding of the radius, so scipy decides alike."""
    rng = np.random.default_rng(seed)
    n_classes, k = 4, 6
    labels = rng.integers(n_classes, size=500)
    points = (rng.standard_normal((500, 7)) + labels[:, None]).astype(np.float32)
    queries = (rng.standard_normal((120, 7)) + rng.integers(4, size=(120, 1))).astype(np.float32)
    belief = rng.integers(n_classes, size=120)
    distances = cdist(queries.astype(float), points.astype(float))
    radius = float(np.median(distances.min(axis=1)))
    evidence = DenseIndex(points, labels, n_classes).gather(queries, k)
    np.testing.assert_allclose(
        evidence.neighbor_distances, np.sort(distances, axis=1)[:, :k], rtol=1e-12
    )
    for rule, reach in [
        (Ball(radius), np.full(120, radius)),
        (Nearest(k), np.sort(distances, axis=1)[:, k - 1] * (1 + 1e-12)),
    ]:
        found = make_assertions(belief, justify([find_support(evidence, rule)]))
        expected = []
        for i in range(120):
            near = {int(labels[j]) for j in range(500) if distances[i, j] <= reach[i]}
            if belief[i] not in near:
                expected.append(Assertion.IDK)
            else:
                expected.append(Assertion.IK if len(near) == 1 else Assertion.IMK)
        assert found.tolist() == expected
        assert len(set(expected)) == 3


def test_row_numbers_must_be_one_per_row():
    with pytest.raises(InputError, match=r"rows must have shape \(3,\); got \(2,\)"):
        DenseIndex(np.zeros((3, 1)), np.array([0, 1, 1]), 2, rows=np.arange(2))


def test_an_empty_index_gives_no_evidence():
    index = DenseIndex(np.empty((0, 3)), np.empty(0, dtype=int), 2)
    evidence = index.gather(np.zeros((4, 3)))
    assert np.isinf(evidence.class_distances).all()
    assert (evidence.exemplars == -1).all()


def test_concurrent_searches_of_a_fresh_index_all_get_the_same_answer():
    points, labels = sorted_problem(n_rows=4000)
    expected = DenseIndex(points, labels, 3).gather(points[:50], 3)
    index = DenseIndex(points, labels, 3)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: index.gather(points[:50], 3), range(8)))
    for answer in answers:
        assert_same_evidence(answer, expected)


def test_a_numba_that_cannot_be_loaded_is_told_and_done_without(tmp_path):
    (tmp_path / "numba.py").write_text("raise ImportError('Numba needs another NumPy')")
    program = """
import warnings, numpy as np
from iknow.search.cpu.cell_index import CellIndex
from iknow.rules import Ball
points = np.zeros((4, 2), dtype=np.float32)
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    found = CellIndex(points, np.array([0, 0, 1, 1]), 2).find_support(points, Ball(1.0))
assert found.all()
print([str(each.message) for each in told])
"""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    found = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert "numba cannot be loaded" in found.stdout
    assert "Numba needs another NumPy" in found.stdout
    assert found.stdout.count("not compiled") == 1
