"""Peak memory of a search beyond index and result, each measured in its own process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict

from benchmarks.recording import Recorder
from benchmarks.records import CELLS, DENSE, EXTRA_MEMORY, HELD_MEMORY, Quantity
from benchmarks.synthetic import Shape
from iknow.errors import IknowError

MIB = 1 << 20


def measure_memory(cases: Sequence[tuple[Shape, int]], record: Recorder) -> None:
    """Measure each case and index in a fresh process; dense also finds k neighbor distances."""
    for shape, k in cases:
        name = f"{shape.n_rows:,} × {shape.n_features}, {shape.n_classes:,} classes"
        for contestant in (DENSE, CELLS):
            record.say(f"memory: {name}, {contestant}")
            found = ask_child(shape, k, contestant)
            note = f"{shape.n_queries:,} queries"
            note += f", k = {k}" if k and contestant == DENSE else ""
            sizes = {
                EXTRA_MEMORY: found["extra"],
                HELD_MEMORY: found["held"],
                "activations": shape.n_rows * shape.n_features * 4,
            }
            for what, size in sizes.items():
                record.add(Quantity("memory", name, what, contestant, size / MIB, "MiB", note))


def ask_child(shape: Shape, k: int, contestant: str) -> dict[str, int]:
    """The bytes that `benchmarks.probe` measures in a fresh process."""
    question = json.dumps({"shape": asdict(shape), "k": k, "contestant": contestant})
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.probe"],
        input=question,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise IknowError(
            f"the process that measures memory failed: {done.stderr.strip() or done.returncode}"
        )
    found: dict[str, int] = json.loads(done.stdout)
    return found
