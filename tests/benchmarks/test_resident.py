"""The probe sees an allocation of known size."""

import subprocess
import sys
import time

import numpy as np
import pytest

from benchmarks import memory, resident
from benchmarks.memory import ask_child
from benchmarks.probe import probe
from benchmarks.records import CELLS, DENSE
from benchmarks.synthetic import Shape, draw_clustered
from iknow.errors import IknowError
from iknow.rules import Ball
from iknow.search.cells import CpuIndex

MIB = 1 << 20
pytestmark = [
    pytest.mark.slow,  # processes of their own
    pytest.mark.skipif(
        not resident.STATM.exists(), reason="only Linux tells the memory of a process"
    ),
]


def allocate(mib, hold=0.0):
    """Touch so much memory, keep it for some seconds, and let go of it."""
    memory = np.ones(mib * MIB, dtype=np.uint8)
    time.sleep(hold)
    return int(memory[0])


@pytest.mark.parametrize("way", ["peak of the system", "samples"])
@pytest.mark.parametrize("mib", [40, 200])
def test_memory_that_was_given_back_is_seen(monkeypatch, tmp_path, way, mib):
    hold = 0.0
    if way == "samples":
        hold = 0.5  # on a busy machine the thread that looks may come late
        monkeypatch.setattr(resident, "CLEAR", tmp_path / "no such folder" / "clear_refs")
    result, grown = resident.peak_growth(lambda: allocate(mib, hold))
    assert result == 1
    assert 0.9 * mib * MIB < grown < 1.1 * mib * MIB + 8 * MIB


def test_an_earlier_peak_does_not_count():
    allocate(300)
    assert resident.peak_growth(lambda: None)[1] < 20 * MIB


def test_errors_come_through(monkeypatch, tmp_path):
    monkeypatch.setattr(resident, "CLEAR", tmp_path / "no such folder" / "clear_refs")
    with pytest.raises(ZeroDivisionError):
        resident.peak_growth(lambda: 1 / 0)


def test_a_child_measures_an_index():
    found = ask_child(Shape(50_000, 64, 5, 300), 0, DENSE)
    stored = 50_000 * 64 * 4
    assert 0.8 * stored < found["held"] < 20 * stored
    assert 0 <= found["extra"] < 256 * MIB


@pytest.mark.parametrize("contestant", [DENSE, CELLS])
def test_the_result_is_not_counted(contestant):
    """10,000 × 500 distances and exemplars take 76 MiB; the mask of a support takes 5 MiB."""
    result = 10_000 * 500 * (16 if contestant == DENSE else 1)
    shape = Shape(1_000, 2, 500, 10_000)
    extra = probe(shape, 0, contestant)["extra"]
    assert 0 <= extra < 256 * MIB
    counted = resident.peak_growth(lambda: search(shape, contestant))[1]
    assert counted > 0.9 * result


def search(shape, contestant):
    points, labels, queries, _, _ = draw_clustered(shape)
    if contestant == DENSE:
        return CpuIndex(points, labels, shape.n_classes).gather(queries)
    belief = np.zeros(len(queries), dtype=np.int64)
    return CpuIndex(points, labels, shape.n_classes).decide(queries, Ball(1.0), belief).support


def test_a_child_that_fails_says_why(monkeypatch):
    failed = subprocess.CompletedProcess([], 1, "", "MemoryError: too much\n")
    monkeypatch.setattr(memory.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(IknowError, match="MemoryError: too much"):
        ask_child(Shape(10, 2, 2, 2), 0, DENSE)


def test_the_lifelong_peak_is_in_bytes():
    if sys.platform == "win32":
        pytest.skip("Windows does not tell it")
    assert resident._lifelong_peak() > 20 * MIB
