"""Compiled search: its sums to the bit, its bounds against float64, its memory."""

import subprocess
import sys

import numpy as np
import pytest

numba = pytest.importorskip("numba", reason="compiled search is the extra `fast`")

from iknow.search.cells import CpuIndex  # noqa: E402
from iknow.search.kernels.numba.products import (  # noqa: E402
    find_block_minima,
    limit_for,
    limit_terms,
    measure,
)
from iknow.search.kernels.numba.search import PackedRows, ProductSearch, cut_evenly  # noqa: E402
from iknow.search.kernels.numba.vectors import LANES, QUERIES_AT_ONCE, scan_panel  # noqa: E402
from iknow.testing import assert_same_evidence, brute_force  # noqa: E402
from iknow.testing.index import KINDS, Problem  # noqa: E402


@numba.njit
def scan(panels, start, n_terms, queries, i, values):
    return scan_panel(panels, start, n_terms, queries, i, np.float32(0), values)


@pytest.mark.parametrize(
    "n_features", [1, 2, 7, 8, 9, 15, 16, 127, 128, 129, 136, 255, 256, 257, 263, 784, 1023, 3072]
)
def test_distances_are_summed_as_numpy_sums_them(n_features):
    rng = np.random.default_rng(n_features)
    scale = 10.0 ** rng.integers(-3, 4, size=n_features)
    points = (rng.standard_normal((50, n_features)) * scale).astype(np.float32)
    query = (rng.standard_normal(n_features) * scale).astype(np.float32)
    expected = np.sqrt(np.square(points.astype(float) - query.astype(float)).sum(axis=1))
    np.testing.assert_array_equal(
        [measure(query[None], 0, points, row) for row in range(50)], expected
    )


def problem_of(kind, seed):
    problem = Problem(kind, seed)
    points, queries = problem.points.astype(np.float32), problem.queries.astype(np.float32)
    index = CpuIndex(points, problem.labels, problem.n_classes)
    search = ProductSearch(PackedRows(index, index.points), index.n_classes)
    true = np.sqrt(
        np.square(index.points.astype(float)[None] - queries.astype(float)[:, None]).sum(axis=2)
    )
    return index, search, queries, true


@pytest.mark.parametrize("kind", KINDS)
def test_no_bound_of_a_row_exceeds_the_limit_for_its_distance(kind):
    for seed in range(20):
        index, search, queries, true = problem_of(kind, seed)
        pack, placed = search.packed.pack, search.packed.place(queries, queries)
        minima = find_block_minima(pack.panels, search.blocks.starts, placed.points)
        values = np.empty(LANES, dtype=np.float32)
        size = (index.n_features + 1) * LANES
        panels = np.arange(search.packed.n_panels)
        block_of = np.searchsorted(search.blocks.starts, panels, side="right") - 1
        for i in range(len(queries)):
            terms = limit_terms(pack.scale, pack.error, pack.underflow, placed.squared[i])
            for panel in panels:
                scan(pack.panels, panel * size, index.n_features, placed.points, i, values)
                for slot, value in enumerate(values):
                    row = pack.slots[panel * LANES + slot]
                    if row >= 0:
                        limit = limit_for(true[i, row], *terms)
                        assert value <= limit
                        group, place = divmod(i, QUERIES_AT_ONCE)
                        assert minima[group, block_of[panel], place] <= limit


def test_bounds_are_tight_enough_to_rule_out_nearly_everything():
    rng = np.random.default_rng(0)
    points = rng.standard_normal((4000, 32)).astype(np.float32) + 100
    index = CpuIndex(points, np.sort(rng.integers(3, size=4000)), 3)
    search = ProductSearch(PackedRows(index, index.points), index.n_classes)
    moved = points[:50] + np.float32(0.01)
    pack, queries = search.packed.pack, search.packed.place(moved, moved)
    minima = find_block_minima(pack.panels, search.blocks.starts, queries.points)
    for i in range(50):
        nearest = np.sqrt(np.square(index.points - queries.given[i]).sum(axis=1)).min()
        terms = limit_terms(pack.scale, pack.error, pack.underflow, queries.squared[i])
        bounds = minima[i // QUERIES_AT_ONCE, :, i % QUERIES_AT_ONCE]
        assert (bounds <= limit_for(nearest, *terms)).sum() <= 2


def test_bits_mark_the_slots_within_the_limit_and_those_that_are_no_numbers():
    @numba.njit
    def bits_of(panels, queries, limit, values):
        return scan_panel(panels, 0, 3, queries, 1, limit, values)

    panels = np.zeros((4, LANES), dtype=np.float32)
    panels[0] = np.arange(LANES)
    panels[1, 5], panels[2, 6] = -10, np.nan
    values = np.empty(LANES, dtype=np.float32)
    queries = np.array([[0, 0, 0], [1, 1, 1]], dtype=np.float32)
    bits = bits_of(panels.reshape(-1), queries, np.float32(2), values)
    assert [slot for slot in range(LANES) if int(bits) >> slot & 1] == [0, 1, 2, 5, 6]
    assert values[5] == -5
    assert values[9] == 9


@pytest.mark.parametrize("most", [1, 5, 6, 100, 510])
@pytest.mark.parametrize("n", [0, 1, 5, 6, 7, 100, 1021])
def test_batches_cover_all_queries_once(n, most):
    parts = list(cut_evenly(n, most))
    assert [i for part in parts for i in range(part.start, part.stop)] == list(range(n))
    assert all(0 < part.stop - part.start < most + QUERIES_AT_ONCE for part in parts)


@pytest.mark.parametrize("n_features", [130, 300])
def test_many_features_and_mapped_read_only_rows(tmp_path, n_features):
    rng = np.random.default_rng(0)
    points = rng.standard_normal((700, n_features)).astype(np.float32)
    labels = np.sort(rng.integers(4, size=700))
    np.save(tmp_path / "points.npy", points)
    index = CpuIndex(np.load(tmp_path / "points.npy", mmap_mode="r"), labels, 4)
    queries = rng.standard_normal((23, n_features)).astype(np.float32)
    assert_same_evidence(index.gather(queries, 7), brute_force(points, labels, 4, queries, 7))


def test_equal_rows_by_the_thousand_give_the_lowest_number():
    """The activations of a layer that is dead for most inputs."""
    points = np.zeros((20_000, 8), dtype=np.float32)
    points[::100, 0] = 1
    labels = np.sort(np.arange(20_000) % 3)
    evidence = CpuIndex(points, labels, 3).gather(points[:200], 4)
    starts = np.searchsorted(labels, np.arange(3))
    zeros = np.array([next(i for i in range(s, 20_000) if points[i, 0] == 0) for s in starts])
    np.testing.assert_array_equal(evidence.exemplars[1], zeros)
    assert (evidence.class_distances == 0).all()
    assert (evidence.neighbor_distances == 0).all()


EXTRA_MEMORY = """
import resource, numpy as np
from iknow.search.cells import CpuIndex  # noqa: E402
rng = np.random.default_rng(0)
points = rng.standard_normal((400_000, 16), dtype=np.float32)
queries = rng.standard_normal((4_000, 16), dtype=np.float32)
index = CpuIndex(points, np.sort(rng.integers(10, size=400_000)), 10)
index.gather(queries[:1])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
index.gather(queries)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="sizes are in Linux's units")
def test_extra_memory_is_bounded():
    """All distances would take 6.4 GB."""
    found = subprocess.run(
        [sys.executable, "-c", EXTRA_MEMORY], capture_output=True, text=True, check=True
    )
    assert float(found.stdout) < 256
