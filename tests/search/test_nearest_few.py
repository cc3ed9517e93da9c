"""The nearest few of each class: laws that hold for every search on CPUs, against plain loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iknow.core.evidence import Evidence, merge_evidence
from iknow.search.cells import CpuIndex
from iknow.search.kernels.numba import is_compiled
from iknow.search.kernels.numpy import NumpyBlocks, lowest_few
from iknow.search.measured import MinkowskiIndex
from iknow.testing import assert_same_evidence
from tests.oracles import evidence_of, gather

N_CLASSES = 3


class NumpyIndex(CpuIndex):
    @property
    def _products(self):
        return NumpyBlocks(self)


class Sorted(CpuIndex):
    """Its rows lie in cells, however few they are."""

    FEWEST_ROWS = 1


def taxicab(*training, rows=None):
    return MinkowskiIndex(*training, rows=rows, p=1.0)


def compiled(kind):
    return pytest.param(kind, marks=pytest.mark.skipif(not is_compiled(), reason="no numba"))


WAYS = [compiled(CpuIndex), compiled(Sorted), NumpyIndex, taxicab]


@st.composite
def problems(draw):
    """Rows and queries on a coarse grid, where equal rows and exact ties are everywhere.

    Few or many of each class: up to several blocks, in which the m nearest are scattered.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_rows, n_features = draw(st.sampled_from([1, 2, 7, 40, 300])), draw(st.integers(1, 4))
    width = draw(st.sampled_from([0, 1, 3, 50]))
    points = rng.integers(-width, width + 1, size=(n_rows, n_features)).astype(np.float64)
    labels = rng.integers(rng.integers(1, N_CLASSES + 1), size=n_rows)
    queries = rng.integers(-width, width + 1, size=(4, n_features)).astype(np.float64)
    return points, labels, queries, draw(st.sampled_from([2, 3, 5, 20, 400])), rng


def expected_of(make, points, labels, queries, m):
    if make is taxicab:
        table = np.abs(queries[:, None] - points).sum(axis=2)
        return evidence_of(table, labels, N_CLASSES, 1, per_class=m)
    return gather(points, labels, queries, N_CLASSES, 1, per_class=m)


@pytest.mark.parametrize("make", WAYS)
@settings(max_examples=50, deadline=None)
@given(problem=problems())
def test_they_are_those_of_plain_loops_in_any_order_of_rows_or_parts(make, problem):
    points, labels, queries, m, rng = problem
    expected = expected_of(make, points, labels, queries, m)
    assert_same_evidence(make(points, labels, N_CLASSES).gather(queries, 1, m), expected)
    order = rng.permutation(len(points))
    shuffled = make(points[order], labels[order], N_CLASSES, rows=order)
    for fewer in {1, 2, m - 1, m} - {0}:
        first = Evidence(
            expected.distances[:, :, :fewer],
            expected.neighbor_distances,
            expected.rows[:, :, :fewer],
        )
        assert_same_evidence(shuffled.gather(queries, 1, fewer), first)
    parts = [part for part in np.array_split(order, 3) if len(part)]
    found = [
        make(points[part], labels[part], N_CLASSES, rows=part).gather(queries, 1, m)
        for part in parts
    ]
    assert_same_evidence(merge_evidence(found), expected)


@given(
    table=st.lists(st.lists(st.integers(0, 3), min_size=6, max_size=6), max_size=5),
    m=st.integers(1, 6),
)
def test_the_lowest_few_are_those_of_a_stable_sort(table, m):
    numbers = np.array(table, dtype=np.float64).reshape(-1, 6)
    order = np.argsort(numbers, axis=1, kind="stable")[:, :m]
    lowest, columns = lowest_few(numbers, m)
    np.testing.assert_array_equal(columns, order)
    np.testing.assert_array_equal(lowest, np.take_along_axis(numbers, order, axis=1))
