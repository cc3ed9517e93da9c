"""DiskIndex against float64 brute force, and its promises about memory and files."""

import gc
import os
import pickle
import subprocess
import sys
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iknow import pages
from iknow.core.codes import NO_BELIEF
from iknow.core.decision import Scope, decide, scope_of
from iknow.errors import InputError
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall
from iknow.search import disk
from iknow.search.cells import CpuIndex
from iknow.search.disk import DiskIndex
from iknow.search.kernels.numba import is_compiled
from iknow.search.union import Union
from iknow.testing import assert_same_evidence, brute_force
from iknow.testing.index import assert_same_decision
from tests.search.contract import RowIndexContract, assert_complete

NONE = np.empty(0, dtype=np.int64)
RULES = [
    Ball(4.0),
    Ball(2.0, quorum=(3, 1)),
    RelativeBall(9.0, 1.3, quorum=(1, 3)),
    RelativeBall(9.0, 4.0),
    RelativeBall(1.0, 0.5, quorum=(2, 2)),
    Nearest(5, quorum=(1, 3)),
    BallWithNearest(3.0, 4),
    BallElseNearest(3.0, 5, quorum=(3, 2)),
]


@pytest.fixture(params=["compiled", "without numba"])
def _both_ways(request, monkeypatch):
    """With the extra `fast`, and as if it were not installed."""
    if request.param == "compiled":
        pytest.importorskip("numba")
    else:
        monkeypatch.setitem(sys.modules, "numba", None)
    is_compiled.cache_clear()
    yield
    monkeypatch.undo()
    is_compiled.cache_clear()


class TestCompiled(RowIndexContract):
    seeds_per_kind = 2

    def make_index(self, activations, labels, n_classes, rows=None):
        pytest.importorskip("numba")
        return DiskIndex(activations, labels, n_classes, rows=rows)


@pytest.mark.slow
@pytest.mark.usefixtures("_both_ways")
class TestManyBlocks(RowIndexContract):
    seeds_per_kind = 4

    def make_index(self, activations, labels, n_classes, rows=None):
        return DiskIndex(activations, labels, n_classes, rows=rows, block=4, memory=1 << 20)


def clusters(n_rows=5000, n_features=12, n_classes=4, seed=0):
    """Rows in clusters, their labels, and queries near them."""
    rng = np.random.default_rng(seed)
    centers = 6 * rng.standard_normal((3 * n_classes, n_features))
    cluster = rng.integers(len(centers), size=n_rows + 60)
    points = (centers[cluster] + rng.standard_normal((n_rows + 60, n_features))).astype(np.float32)
    return points[:n_rows], cluster[:n_rows] % n_classes, points[n_rows:], cluster[n_rows:] % 4


def problem(kind):
    """More rows than fit into the memory for building, in several chunks of blocks of two."""
    points, labels, queries, belief = clusters(9000)
    queries, belief = queries[:30], belief[:30]
    if kind == "ties":  # in place and in number: more candidates than are noted at once
        points, queries = np.rint(points / 8), np.rint(queries / 8)
    labels[labels == 2] = 3  # class 2 has no rows, class 4 one
    labels[7] = 4
    belief[::5], belief[1::7], belief[2::7] = NO_BELIEF, 2, 4
    return points, labels, queries, belief


@pytest.mark.usefixtures("_both_ways")
@pytest.mark.parametrize("kind", ["clusters", "ties"])
def test_many_blocks_and_parts_answer_as_brute_force(kind):
    points, labels, queries, belief = problem(kind)
    index = DiskIndex(points, labels, 5, block=2, memory=1 << 20)
    expected = brute_force(points, labels, 5, queries, 5, per_class=3)
    assert_same_evidence(index.gather(queries, 5, 3), expected)
    n_within = 0
    for rule in RULES:
        scope = scope_of(rule, belief)
        found = index.search(queries.astype(np.float32), scope)
        assert_complete(found, expected, scope)
        decided = index.decide(queries, rule, belief)
        assert_same_decision(decided, decide(expected, rule, belief))
        n_within += int(decided.support.sum())
    assert 0 < n_within < len(RULES) * decided.support.size


@pytest.mark.usefixtures("_both_ways")
def test_more_equal_rows_than_candidates_are_noted_at_once():
    points, labels = np.ones((9000, 3)), np.arange(9000) % 3
    queries = np.arange(150.0).reshape(50, 3) % 3
    index = DiskIndex(points, labels, 3, block=64)
    expected = brute_force(points, labels, 3, queries, 5, per_class=3)
    assert_same_evidence(index.gather(queries, 5, 3), expected)
    for rule in RULES:
        belief = np.arange(50) % 4 - 1
        decided = index.decide(queries, rule, belief)
        assert_same_decision(decided, decide(expected, rule, belief))


@pytest.mark.parametrize("kind", ["clusters", "ties"])
def test_removed_and_added_rows_answer_as_brute_force(kind):
    """The nearest rows of half of the queries go, all rows of a class, and some come."""
    points, labels, queries, belief = problem(kind)
    points, labels = points[:3000], labels[:3000]
    near = brute_force(points, labels, 5, queries[::2], per_class=2)
    gone = np.union1d(near.rows, np.flatnonzero(labels == 4))
    gone = gone[gone >= 0]
    base = Union.of(DiskIndex(points, labels, 5, block=16), CpuIndex)
    came = queries[:9] + 0.5, np.arange(9) % 6, 3000 + np.arange(9)
    index = base.changed(gone, *came, 6)
    left = np.setdiff1d(np.arange(3000), gone)
    rows = np.concatenate([left, came[2]])
    now = np.concatenate([points[left], came[0]]), np.concatenate([labels[left], came[1]])
    expected = brute_force(*now, 6, queries, 5, rows, per_class=3)
    assert_same_evidence(index.gather(queries, 5, 3), expected)
    for rule in RULES:
        decided = index.decide(queries, rule, belief)
        assert_same_decision(decided, decide(expected, rule, belief))


def test_a_search_within_a_horizon_stops_early_and_says_so():
    points, labels, queries, belief = clusters()
    index, scope = DiskIndex(points, labels, 4), scope_of(RelativeBall(9.0, 1.3), belief)
    found = index.search(queries, scope)
    assert np.isinf(found.class_distances).any()
    assert np.isfinite(found.complete_below[:, 1]).all()
    assert np.isinf(found.complete_below[:, [0, 2]]).all()
    whole = index.search(queries, scope._replace(horizon=None))
    assert_same_evidence(whole, brute_force(points, labels, 4, queries))
    assert np.isinf(whole.complete_below).all()
    assert all(map(index.decides, RULES))


def test_most_blocks_and_rows_are_neither_read_nor_measured(monkeypatch):
    points, labels, queries, belief = clusters(20_000)
    index = DiskIndex(points, labels, 4, block=32)
    index.gather(queries[:1])
    read, measured = set(), []
    scan, measure = disk.scan, disk.measure_pairs
    monkeypatch.setattr(disk, "scan", lambda coded, queries, pairs, *more: (
        read.update(pairs[:, 0].tolist()), scan(coded, queries, pairs, *more))[1])  # fmt: skip
    monkeypatch.setattr(disk, "measure_pairs", lambda points, queries, query, row: (
        points is index.points and measured.extend(row), measure(points, queries, query, row)
    )[1])  # fmt: skip
    index.decide(queries[:1], RelativeBall(9.0, 1.3, quorum=(1, 3)), belief[:1])
    assert 0 < 32 * len(read) < len(points) / 4
    assert 0 < len(measured) < len(points) / 50


def exact_squared(a, b):
    return sum((Fraction(float(x)) - Fraction(float(y))) ** 2 for x, y in zip(a, b, strict=True))


@pytest.mark.usefixtures("_both_ways")
@given(
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([1e-41, 1e-6, 1.0, 1e30]),
    away=st.sampled_from([0.0, 1e-7, 1.0, 1e5, 1e8]),
    spread=st.sampled_from([0.0, 1e-6, 1.0]),
)
def test_bounds_enclose_every_distance(seed, scale, away, spread):
    """Those of coded rows, for exact distances, computed with fractions."""
    rng = np.random.default_rng(seed)
    n_features = int(rng.integers(1, 20))
    place = rng.standard_normal(n_features)
    rows = scale * (place + spread * rng.standard_normal((5, n_features)))
    query = (scale * (place + away * rng.standard_normal((1, n_features)))).astype(np.float32)
    index = DiskIndex(rows, np.zeros(5, dtype=int), 1)
    lane = disk.Lane(index, query, Scope(5, 5))
    pairs = np.zeros((1, 2), dtype=np.int64)
    assert disk.scan(index._coded, lane.queries, pairs, 0, lane.limits) == 1
    assert int(lane.limits.n_found[0]) == 5  # nothing limits the search
    stored = index.points[index._coded.positions[lane.limits.found[:5, 1]]]
    exact = [exact_squared(row, query[0]) for row in stored]
    for low, squared in zip(lane.limits.low[:5], exact, strict=True):
        assert low <= 0 or Fraction(float(low)) ** 2 <= squared
    for high, squared in zip(lane.limits.upper[0, 0], sorted(exact), strict=True):
        assert Fraction(float(high)) ** 2 >= squared


def test_codes_are_close():
    rows = np.random.default_rng(0).standard_normal((3, 200, 16)).astype(np.float32)
    codes, centers, units, errors, radii = disk.encode(rows)
    back = centers[:, None] + units[:, None, None] * codes
    away = np.linalg.norm(back - rows, axis=2).max(axis=1)
    assert (away <= errors).all()
    assert (errors < radii / 60).all()


def test_a_sorted_mapped_array_is_used_in_place_and_others_are_written_to_disk(tmp_path):
    points, labels, queries, _ = clusters(300)
    order = np.argsort(labels, kind="stable")
    np.save(tmp_path / "points.npy", points[order])
    mapped = np.load(tmp_path / "points.npy", mmap_mode="r")
    index = DiskIndex(mapped, labels[order], 4)
    assert np.shares_memory(index.points, mapped)
    other = DiskIndex(points, labels, 4, rows=np.arange(300))
    assert pages.find_map(other.points) is not None
    np.testing.assert_array_equal(other.points, points[order])
    assert_same_evidence(
        index.gather(queries, 2), brute_force(mapped, labels[order], 4, queries, 2)
    )
    unsorted = DiskIndex(np.load(tmp_path / "points.npy", mmap_mode="r"), labels[order][::-1], 4)
    assert pages.find_map(unsorted.points) is not None


@pytest.mark.slow
def test_pages_of_a_mapped_file_are_given_back(tmp_path):
    """Searching a file of 256 MiB takes far less memory, counting what is mapped."""
    program = """
import numpy as np, resource, sys
from iknow.search.disk import DiskIndex
rng = np.random.default_rng(0)
points = np.lib.format.open_memmap(sys.argv[1], mode="w+", dtype=np.float32, shape=(1 << 20, 64))
for part in np.split(points, 64):
    part[:] = rng.standard_normal((1 << 14, 1), dtype=np.float32)
    part += 0.01 * rng.standard_normal(part.shape, dtype=np.float32)
labels = np.repeat(np.arange(4), 1 << 18)
del points, part
index = DiskIndex(np.zeros((9, 64)), np.arange(9) % 4, 4)
index.gather(np.zeros((1, 64)))  # compiled
status = lambda name: 1024 * int(
    next(l for l in open("/proc/self/status") if l.startswith(name)).split()[1])
open("/proc/self/clear_refs", "w").write("5")
before = status("VmHWM")
index = DiskIndex(np.load(sys.argv[1], mmap_mode="r"), labels, 4, memory=1 << 26)
index.gather(rng.standard_normal((20, 64)), 3)
print(status("VmHWM") - before)
"""
    if not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("only Linux counts the peak of a while")
    command = [sys.executable, "-c", program, str(tmp_path / "points.npy")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert int(said) < 180 << 20


def test_maps_that_may_be_written_to_are_left_alone(tmp_path):
    np.save(tmp_path / "some.npy", np.zeros(9000))
    mine = np.load(tmp_path / "some.npy", mmap_mode="c")
    mine[:] = 1.0
    pages.release(mine)
    assert mine.sum() == 9000
    assert pages.find_map(mine) is None
    assert pages.find_map(np.zeros(3)) is None


def test_nothing_is_left_in_the_folder(tmp_path):
    points, labels, queries, _ = clusters(300)
    index = DiskIndex(points, labels, 4, folder=tmp_path / "new" / "folder")
    index.gather(queries)
    assert list((tmp_path / "new" / "folder").iterdir()) == []
    n_open = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else 0
    del index
    gc.collect()
    assert not n_open or len(os.listdir("/proc/self/fd")) < n_open


def test_bad_options_are_refused_with_the_fact():
    make = partial(DiskIndex, np.zeros((3, 2)), np.array([0, 1, 1]), 2)
    with pytest.raises(InputError, match="folder must be the name of a folder; got 3"):
        make(folder=3)
    with pytest.raises(InputError, match="memory must be a whole number of bytes >= 1,048,576"):
        make(memory=1000)
    for block in (0, 3, 2.0, "8"):
        with pytest.raises(InputError, match="block must be a power of two"):
            make(block=block)


def test_a_pickle_holds_the_rows_and_the_options(tmp_path):
    points, labels, queries, _ = clusters(300)
    index = DiskIndex(points, labels, 4, folder=tmp_path, block=8, memory=1 << 21)
    before = index.gather(queries, 2)
    again = pickle.loads(pickle.dumps(index))
    assert (again.folder, again.block, again.memory) == (tmp_path, 8, 1 << 21)
    assert pages.find_map(again.points) is not None
    assert_same_evidence(again.gather(queries, 2), before)


def test_items_are_taken_a_few_pages_at_a_time(tmp_path, monkeypatch):
    np.save(tmp_path / "some.npy", np.arange(50_000.0))
    mapped = np.load(tmp_path / "some.npy", mmap_mode="r")
    monkeypatch.setattr(pages, "AROUND", 1000)
    monkeypatch.setattr(pages, "MAPPED_AT_ONCE", 10_000)
    near, far = np.arange(7, 2000), np.arange(0, 50_000, 500)
    assert len(pages.cut(mapped, near)) in (3, 4)  # 16 kB each, with itself
    assert max(part.stop - part.start for part in pages.cut(mapped, far)) <= 10
    for items in (near, far, near[:0], far[:1]):
        np.testing.assert_array_equal(pages.take(mapped, items), items)
    assert pages.cut(np.zeros(9), near) == [slice(0, len(near))]
