"""HammingIndex against counting every difference, compiled and not, and how an index is chosen."""

import numpy as np
import pytest

from iknow.errors import InputError
from iknow.metrics import Euclidean, Hamming, Minkowski
from iknow.search import measured
from iknow.search.cells import CpuIndex
from iknow.search.kernels.numba import is_compiled
from iknow.search.layer import index_type
from iknow.search.measured import HammingIndex
from iknow.testing import assert_same_evidence, brute_force
from tests.search.contract import RowIndexContract


def differences(points, place):
    return (points != place).sum(axis=1).astype(np.float64)


class TestHammingIndex(RowIndexContract):
    def make_index(self, activations, labels, n_classes, rows=None):
        return HammingIndex(activations, labels, n_classes, rows=rows)

    def measure(self, points, place):
        return differences(points, place)


class TestWithoutNumba(TestHammingIndex):
    seeds_per_kind = 3

    @pytest.fixture(autouse=True)
    def _without_numba(self, monkeypatch):
        monkeypatch.setattr(measured, "is_compiled", lambda: False)


@pytest.mark.skipif(not is_compiled(), reason="needs the extra fast")
class TestComparing(TestHammingIndex):
    """Every feature of every row, also where looking up would be faster."""

    seeds_per_kind = 3

    @pytest.fixture(autouse=True)
    def _compare(self, monkeypatch):
        monkeypatch.setattr(HammingIndex, "LOOK_UP_BELOW", -1.0)


@pytest.mark.skipif(not is_compiled(), reason="needs the extra fast")
class TestLookingUp(TestHammingIndex):
    """By lists of rows, also where they are long."""

    seeds_per_kind = 3

    @pytest.fixture(autouse=True)
    def _look_up(self, monkeypatch):
        monkeypatch.setattr(HammingIndex, "LOOK_UP_BELOW", 2.0)
        monkeypatch.setattr(HammingIndex, "BYTES_OF_COUNTS", 500)  # few at once


def leaves(seed, n, n_trees=30, n_leaves=6):
    return np.random.default_rng(seed).integers(0, n_leaves, (n, n_trees)).astype(np.float32)


@pytest.mark.parametrize("n_leaves", [2, 6, 400])
@pytest.mark.parametrize("compiled", [True, False])
def test_leaves_with_many_ties_in_several_tiles(compiled, n_leaves, monkeypatch):
    monkeypatch.setattr(measured, "is_compiled", lambda: compiled and is_compiled())
    monkeypatch.setattr(measured, "ROWS_PER_TILE", 70)
    monkeypatch.setattr(measured, "QUERIES_PER_TILE", 9)
    points, queries = leaves(0, 700, n_leaves=n_leaves), leaves(1, 40, n_leaves=n_leaves)
    labels = np.random.default_rng(2).integers(0, 4, 700)
    found = HammingIndex(points, labels, 5).gather(queries, 12, 4)
    expected = brute_force(points, labels, 5, queries, 12, per_class=4, measure=differences)
    assert_same_evidence(found, expected)


def test_rows_that_do_not_fit_are_searched_in_tiles(monkeypatch):
    monkeypatch.setattr(measured, "slices_that_fit", lambda n, size: [slice(0, 1)] * 2)
    points, queries, labels = leaves(0, 90), leaves(1, 8), np.arange(90) % 3
    index = HammingIndex(points, labels, 3)
    assert index._prepared is None
    expected = brute_force(points, labels, 3, queries, 2, measure=differences)
    assert_same_evidence(index.gather(queries, 2), expected)


def test_zero_equals_minus_zero_and_large_leaf_numbers_differ_by_one():
    index = HammingIndex([[0.0, 2.0**24 - 1], [-0.0, 2.0**24 - 2]], [0, 1], 2)
    assert index.gather([[-0.0, 2.0**24 - 1]]).class_distances.tolist() == [[0.0, 1.0]]


def test_counting_is_chosen_for_p_0_on_any_device_and_beside_any_index():
    """Leaves are a default layer: a device or an index for the others must not refuse them."""
    assert index_type(Hamming(), None) is HammingIndex
    assert index_type(Hamming(), "cpu") is HammingIndex
    assert index_type(Hamming(), CpuIndex) is HammingIndex
    assert index_type(Euclidean, None) is CpuIndex
    assert index_type(Euclidean, CpuIndex) is CpuIndex
    with pytest.raises(InputError, match="uses the Euclidean norm"):
        index_type(Minkowski(1.0), "cpu")
