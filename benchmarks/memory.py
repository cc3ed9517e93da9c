"""Memory of a process as the system counts it, and of a search in a fresh one.

On Linux the system's peak can be reset; elsewhere we measure the growth of that of the whole life.
Run as a program it reads a question and writes the answer, both JSON: how much an index holds, and
how much a search needs on top.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import Shape, draw_clustered, draw_isotropic
from benchmarks.race import tell
from benchmarks.records import CELLS, DENSE, EXTRA_MEMORY, HELD_MEMORY, Quantity, Results
from iknow.errors import IknowError
from iknow.rules import Ball
from iknow.search.cells import CpuIndex

STATUS, STATM = Path("/proc/self/status"), Path("/proc/self/statm")
CLEAR, SET_PEAK_BACK = Path("/proc/self/clear_refs"), "5"
MIB = 1 << 20


def measure_memory(cases: Sequence[tuple[Shape, int]], results: Results) -> None:
    """Measure each case and index in a fresh process; dense also finds k neighbor distances."""
    for shape, k in cases:
        name = f"{shape.n_rows:,} × {shape.n_features}, {shape.n_classes:,} classes"
        for contestant in (DENSE, CELLS):
            tell(f"memory: {name}, {contestant}")
            found = ask_child(shape, k, contestant)
            note = f"{shape.n_queries:,} queries"
            note += f", k = {k}" if k and contestant == DENSE else ""
            sizes = {
                EXTRA_MEMORY: found["extra"],
                HELD_MEMORY: found["held"],
                "activations": shape.n_rows * shape.n_features * 4,
            }
            for what, size in sizes.items():
                each = Quantity("memory", name, what, contestant, size / MIB, "MiB", note)
                results.quantities.append(each)


def ask_child(shape: Shape, k: int, contestant: str) -> dict[str, int]:
    """The bytes that `probe` measures in a fresh process."""
    question = json.dumps({"shape": asdict(shape), "k": k, "contestant": contestant})
    command = [sys.executable, "-m", "benchmarks.memory"]
    done = subprocess.run(command, input=question, capture_output=True, text=True, check=False)
    if done.returncode:
        why = done.stderr.strip() or done.returncode
        raise IknowError(f"the process that measures memory failed: {why}")
    found: dict[str, int] = json.loads(done.stdout)
    return found


def probe(shape: Shape, k: int, contestant: str) -> dict[str, int]:
    """Bytes that an index holds, and that a search needs at its peak beyond index and result."""
    draw = draw_isotropic if shape.isotropic else draw_clustered
    few = draw_clustered(Shape(CpuIndex.FEWEST_ROWS, 4, 2, 10))
    CpuIndex(few[0], few[1], 2).warm_up()  # the compiler's memory is not counted
    points, labels, queries, _, _ = draw(shape)
    start = peak_growth(resident)[0] - points.nbytes
    index = CpuIndex(points, labels, shape.n_classes)
    del points, labels  # do not count what the index does not use

    def search(n: int) -> int:
        if contestant == CELLS:
            belief = np.zeros(n, dtype=np.int64)
            return int(index.decide(queries[:n], Ball(1.0), belief).support.nbytes)
        found = index.gather(queries[:n], k)
        parts = (found.class_distances, found.neighbor_distances, found.exemplars)
        return sum(each.nbytes for each in parts)

    search(1)
    held = peak_growth(resident)[0] - start
    result, grown = peak_growth(lambda: search(len(queries)))
    return {"extra": max(0, grown - result), "held": held}


def peak_growth(work: Callable[[], Any]) -> tuple[Any, int]:
    """The result of a call, and by how many bytes memory grew at its peak."""
    gc.collect()
    with suppress(AttributeError, OSError, TypeError):  # not glibc
        ctypes.CDLL(None).malloc_trim(0)  # memory kept for later would hide what a call needs
    try:
        CLEAR.write_text(SET_PEAK_BACK)
        before = resident()
    except OSError:
        before = lifelong_peak()
    result = work()
    return result, max(0, _peak() - before)


def resident() -> int:
    """Bytes of memory that this process holds now; 0 if unknown."""
    if not STATM.exists():
        return 0
    return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _peak() -> int:
    if not STATUS.exists():
        return lifelong_peak()
    lines = STATUS.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def lifelong_peak() -> int:
    """The largest resident set of this process so far, in bytes."""
    import resource  # Windows does not have it

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    question = json.load(sys.stdin)
    print(json.dumps(probe(Shape(**question["shape"]), question["k"], question["contestant"])))
