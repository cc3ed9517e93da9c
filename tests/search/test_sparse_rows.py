"""Search among rows that are mostly zeros, by the contract of every index."""

import numpy as np
import pytest
from scipy.sparse import random_array

from iknow.rules import Ball, Nearest, RelativeBall
from iknow.search import measured
from iknow.search.cells import CpuIndex
from iknow.search.measured import SparseRows
from iknow.testing import assert_same_evidence, brute_force
from tests.search.contract import RowIndexContract


class TestSparseRows(RowIndexContract):
    """Of rows of any kind, even if few of their numbers are zero."""

    seeds_per_kind = 6

    @pytest.fixture(autouse=True)
    def every_row_is_sparse(self, monkeypatch):
        monkeypatch.setattr(SparseRows, "FEWEST_FEATURES", 0)
        monkeypatch.setattr(SparseRows, "LEAST_ZEROS", -1.0)

    def make_index(self, activations, labels, n_classes, rows=None):
        index = CpuIndex(activations, labels, n_classes, rows=rows)
        assert index.n_rows == 0 or isinstance(index._products, SparseRows)
        return index


def make_rows(n, seed):
    rng = np.random.default_rng(seed)
    rows = random_array((n, 600), density=0.02, rng=rng).toarray()
    rows[::17] = 0  # texts without a known word
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    return (rows / np.where(norms > 0, norms, 1)).astype(np.float32)


@pytest.fixture(params=[1, 1 << 14, 32 << 20], ids=["one by one", "a few", "all at once"])
def at_once(request, monkeypatch):
    monkeypatch.setattr(measured, "BYTES_PER_TILE", request.param)


@pytest.mark.usefixtures("at_once")
def test_rows_like_those_of_texts_are_searched_exactly():
    points, queries = make_rows(300, 0), np.vstack([make_rows(40, 1), make_rows(300, 0)[:20]])
    labels = np.random.default_rng(2).integers(4, size=300)
    index = CpuIndex(points, labels, 5)  # the last class has no rows
    assert isinstance(index._products, SparseRows)
    found = index.gather(queries, 7, per_class=3)
    assert_same_evidence(found, brute_force(points, labels, 5, queries, 7, per_class=3))
    belief = np.zeros(len(queries), dtype=int)
    for rule in (Ball(1.2), Nearest(5), RelativeBall(1.3, 1.01, quorum=(1, 3))):
        other = CpuIndex(np.hstack([points, 1e-30 * np.ones((300, 300))]), labels, 5)
        assert not other._is_sparse
        wide = np.hstack([queries, 1e-30 * np.ones((len(queries), 300))])
        expected = other.decide(wide, rule, belief).support
        found = index.decide(queries, rule, belief).support  # wide sums round in another order
        np.testing.assert_array_equal(found, expected)
    index.warm_up()


def test_only_wide_rows_of_zeros_are_taken_for_sparse():
    rows = make_rows(300, 0)
    assert SparseRows.pay_for(rows)
    assert not SparseRows.pay_for(rows[:, :100])
    assert not SparseRows.pay_for(rows[:0])
    assert not SparseRows.pay_for(
        np.random.default_rng(0).normal(size=(50, 600)).astype(np.float32)
    )
