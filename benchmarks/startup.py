"""What comes before the first answer: importing the library and loading a bundle."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.racing import best_of, timed
from benchmarks.recording import Recorder
from benchmarks.records import LOAD, Quantity
from benchmarks.synthetic import Shape, draw_clustered
from iknow.classifier.estimator import EpistemicClassifier
from iknow.models import PrecomputedModel
from iknow.rules import Ball

REPEATS = 5
FIRST = "load and first answer"
STATEMENTS = {
    "iknow": "import iknow",
    "sklearn.neighbors": "import sklearn.neighbors",
    "iknow, and a first answer": (
        "import numpy; from iknow.search.cells import CpuIndex;"
        "a = numpy.eye(100, dtype=numpy.float32);"
        "CpuIndex(a, numpy.arange(100) % 10, 10).gather(a)"
    ),
}


def measure_startup(bundle: Shape, repeats: int, record: Recorder) -> None:
    """Times of imports, each in fresh processes, and of loading a bundle."""
    _measure_imports(repeats, record)
    _measure_bundle(bundle, record)


def _measure_imports(repeats: int, record: Recorder) -> None:
    times = dict.fromkeys(("", *STATEMENTS.values()), np.inf)
    for turn in range(repeats):
        record.say(f"startup: importing, turn {turn + 1} of {repeats}")
        for statement in times:
            times[statement] = min(times[statement], timed(partial(_child, statement))[1])
    loads_torch = _child("import iknow, sys; print('torch' in sys.modules)").strip() == "True"
    for name, statement in STATEMENTS.items():
        beyond = 1e3 * (times[statement] - times[""])
        note = ("loads torch" if loads_torch else "without torch") if name == "iknow" else ""
        record.add(Quantity("import", "startup", "import", name, beyond, "ms", note))


def _child(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def _measure_bundle(shape: Shape, record: Recorder) -> None:
    record.say(f"startup: a bundle of {shape.n_rows:,} × {shape.n_features}")
    points, labels, queries, _, _ = draw_clustered(shape)
    scores = np.eye(shape.n_classes, dtype=np.float32)
    classifier = EpistemicClassifier(
        PrecomputedModel(), rule=Ball(1.0), progress=False, batch_size=1 << 16
    )
    classifier.fit((scores[labels], {"layer": points}), labels)
    name = f"{shape.n_rows:,} × {shape.n_features}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bench.iknow"
        saved = timed(lambda: classifier.save(path))[1]
        record.add(Quantity("bundle", name, "save", "iknow", 1e3 * saved, "ms"))
        query = (scores[:1], {"layer": queries[:1]})
        load = best_of(lambda: EpistemicClassifier.load(path), REPEATS)
        record.add(Quantity("bundle", name, LOAD, "iknow", 1e3 * load, "ms"))
        first = best_of(lambda: EpistemicClassifier.load(path).assess(query), 2)
        record.add(Quantity("bundle", name, FIRST, "iknow", 1e3 * first, "ms"))
