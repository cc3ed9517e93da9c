"""DiskIndex against float64 brute force, and its promises about memory and files."""

import errno
import gc
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from iknow import pages
from iknow.core.decision import decide
from iknow.errors import InputError
from iknow.rules import Ball, RelativeBall
from iknow.search.disk import coded_rows, dividing, scanning, scratch
from iknow.search.disk.disk_index import DiskIndex
from iknow.testing import IndexContract, assert_same_evidence, brute_force
from iknow.testing.index import assert_same_decision


class TestCompiled(IndexContract):
    seeds_per_kind = 2

    def make_index(self, activations, labels, n_classes, rows=None):
        pytest.importorskip("numba")
        return DiskIndex(activations, labels, n_classes, rows=rows)


@pytest.mark.slow
class TestManyBlocks(IndexContract):
    """Blocks of four rows, a few in a chunk, built from parts of a few, with few candidates."""

    seeds_per_kind = 4

    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch):
        monkeypatch.setattr(coded_rows, "BLOCKS_PER_CHUNK", 64)
        monkeypatch.setattr(coded_rows, "COPIES", 1 << 11)
        monkeypatch.setattr(scanning, "CANDIDATES", 256)

    def make_index(self, activations, labels, n_classes, rows=None):
        pytest.importorskip("numba")
        return DiskIndex(activations, labels, n_classes, rows=rows, block=4, memory=1 << 20)


@pytest.mark.slow
class TestWithoutCompiling(TestManyBlocks):
    seeds_per_kind = 2

    @pytest.fixture(autouse=True)
    def _without_the_extra(self, monkeypatch):
        monkeypatch.setattr(scanning, "is_compiled", lambda: False)
        monkeypatch.setattr(dividing, "is_compiled", lambda: False)


def clusters(n_rows=5000, n_features=12, n_classes=4, seed=0):
    """Rows in clusters, their labels, and queries near them."""
    rng = np.random.default_rng(seed)
    centers = 6 * rng.standard_normal((3 * n_classes, n_features))
    cluster = rng.integers(len(centers), size=n_rows + 60)
    points = (centers[cluster] + rng.standard_normal((n_rows + 60, n_features))).astype(np.float32)
    return points[:n_rows], cluster[:n_rows] % n_classes, points[n_rows:], cluster[n_rows:] % 4


@pytest.mark.parametrize("compiled", [True, False])
def test_many_blocks_and_parts_answer_as_brute_force(monkeypatch, compiled):
    if not compiled:
        monkeypatch.setattr(scanning, "is_compiled", lambda: False)
        monkeypatch.setattr(dividing, "is_compiled", lambda: False)
    monkeypatch.setattr(coded_rows, "BLOCKS_PER_CHUNK", 50)
    monkeypatch.setattr(coded_rows, "COPIES", 200)  # parts of about a hundred rows
    monkeypatch.setattr(scanning, "CANDIDATES", 64)
    points, labels, queries, belief = clusters()
    index = DiskIndex(points, labels, 4, block=16, memory=1 << 20)
    expected = brute_force(points, labels, 4, queries, 5, per_class=3)
    assert_same_evidence(index.gather(queries, 5, 3), expected)
    for rule in (Ball(4.0), RelativeBall(9.0, 1.3, quorum=(1, 3)), RelativeBall(9.0, 4.0)):
        found = index.decide(queries, rule, belief)
        assert_same_decision(found, decide(expected, rule, belief))
        assert 0 < found.support.sum() < found.support.size


def test_most_blocks_and_rows_are_neither_read_nor_measured(monkeypatch):
    points, labels, queries, belief = clusters(20_000)
    index = DiskIndex(points, labels, 4, block=32)
    index.gather(queries[:1])
    seen = {"rows": 0, "measured": 0}
    load, measure = scanning.load, scanning.Hunt.measure
    monkeypatch.setattr("iknow.search.disk.search.load", lambda coded, blocks: _count(
        seen, "rows", load(coded, blocks)))  # fmt: skip
    monkeypatch.setattr(scanning.Hunt, "measure", lambda self, stored, queries, query, *more: (
        seen.update(measured=seen["measured"] + len(query)),
        measure(self, stored, queries, query, *more)))  # fmt: skip
    index.decide(queries[:1], RelativeBall(9.0, 1.3, quorum=(1, 3)), belief[:1])
    assert 0 < seen["rows"] < len(points) / 4
    assert 0 < seen["measured"] < len(points) / 50


def _count(seen, name, loaded):
    seen[name] += len(loaded.codes)
    return loaded


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
from iknow.search.disk.disk_index import DiskIndex
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


def test_a_disk_without_room_is_told_before_anything_is_written(tmp_path, monkeypatch):
    points, labels, *_ = clusters(300)
    usage = scratch.shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(scratch.shutil, "disk_usage", lambda folder: usage)
    with pytest.raises(InputError, match=r"needs room for 14,400 bytes; 1,000 are free: choose"):
        DiskIndex(points, labels, 4, folder=tmp_path)


def test_a_disk_that_fills_up_meanwhile_is_told(tmp_path):
    file = scratch.ScratchFile(tmp_path)
    real = file._file
    file._file = FullDisk(real)
    with pytest.raises(InputError, match="is full: make room, or choose"):
        file.write(np.zeros(9), 0)


class FullDisk:
    def __init__(self, real):
        self.seek = real.seek

    def write(self, content):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_bad_options_are_refused_with_the_fact(tmp_path):
    (tmp_path / "file").write_text("")
    arguments = np.zeros((3, 2)), np.array([0, 1, 1]), 2
    with pytest.raises(InputError, match="cannot be used as a folder"):
        DiskIndex(*arguments, folder=tmp_path / "file")
    with pytest.raises(InputError, match="folder must be the name of a folder; got 3"):
        DiskIndex(*arguments, folder=3)
    with pytest.raises(InputError, match="memory must be a whole number of bytes >= 1,048,576"):
        DiskIndex(*arguments, memory=1000)
    for block in (0, 3, 2.0, "8"):
        with pytest.raises(InputError, match="block must be a power of two"):
            DiskIndex(*arguments, block=block)


def test_a_pickle_holds_the_rows_and_the_options(tmp_path):
    points, labels, queries, _ = clusters(300)
    index = DiskIndex(points, labels, 4, folder=tmp_path, block=8, memory=1 << 21)
    before = index.gather(queries, 2)
    again = pickle.loads(pickle.dumps(index))
    assert (again.folder, again.block, again.memory) == (tmp_path, 8, 1 << 21)
    assert pages.find_map(again.points) is not None
    assert_same_evidence(again.gather(queries, 2), before)


def test_concurrent_searches_of_a_fresh_index_all_get_the_same_answer():
    points, labels, queries, _ = clusters(2000)
    expected = brute_force(points, labels, 4, queries, 2)
    index = DiskIndex(points, labels, 4, block=16)
    with ThreadPoolExecutor(4) as pool:
        for answer in pool.map(lambda _: index.gather(queries, 2), range(8)):
            assert_same_evidence(answer, expected)


def test_an_empty_index_gives_no_evidence():
    index = DiskIndex(np.empty((0, 3)), np.empty(0, dtype=int), 2)
    assert np.isinf(index.gather(np.zeros((4, 3))).class_distances).all()
    assert not index.decide(np.zeros((2, 3)), Ball(1.0), np.array([0, 1])).support.any()


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
