"""`iknow assess` on a large table: seconds, seconds of processors, and memory.

    python -m benchmarks.command_line --rows 500000

The table has 20 features as CSV; the model is a network behind a scaler in a joblib file, fitted on
20,000 samples, with the default rule. The result is a CSV with a row each. The target is 30 seconds
on two cores for 500,000 rows; memory is that of a part of the table, whatever its size.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

N_FEATURES = 20
COMMAND = """
import json, resource, sys
from iknow.cli.app import app
try:
    app(sys.argv[1:])
except SystemExit as end:
    code = end.code
used = resource.getrusage(resource.RUSAGE_SELF)
with open("/proc/self/status") as status:  # getrusage would count the parent too
    peak = [int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM")]
print(json.dumps([code or 0, used.ru_utime + used.ru_stime, *peak]))
"""


def make_files(folder: Path, n_rows: int, n_training: int) -> None:
    """Training, validation and new samples as CSV, and a trained network."""
    X, y = make_classification(
        2 * n_training + n_rows, N_FEATURES, n_informative=10, n_classes=4, random_state=0
    )
    header = ",".join([*(f"f{i}" for i in range(N_FEATURES)), "y"])
    ends = {"train": n_training, "val": 2 * n_training, "new": len(X)}
    start = 0
    for name, end in ends.items():
        rows = np.column_stack([X[start:end], y[start:end]])
        formats = ["%.17g"] * N_FEATURES + ["%d"]
        np.savetxt(folder / f"{name}.csv", rows, formats, ",", header=header, comments="")
        start = end
    network = MLPClassifier((64, 32), max_iter=20, random_state=0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=ConvergenceWarning)
        model = make_pipeline(StandardScaler(), network).fit(X[:n_training], y[:n_training])
    joblib.dump(model, folder / "m.joblib")


def run(folder: Path, *words: str) -> dict[str, Any]:
    """Run a command in a process of its own, and measure it."""
    begun = time.perf_counter()
    ended = subprocess.run(
        [sys.executable, "-c", COMMAND, *words], cwd=folder, capture_output=True, text=True
    )
    seconds = time.perf_counter() - begun
    code, processors, peak = json.loads(ended.stdout.splitlines()[-1])
    if code:
        raise RuntimeError(ended.stderr)
    return {"seconds": seconds, "processor_seconds": processors, "peak_mib": peak}


def measure(n_rows: int, n_training: int) -> dict[str, Any]:
    """Fit a bundle, and assess a small and a large table with it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_files(folder, n_rows, n_training)
        with (folder / "new.csv").open() as new, (folder / "few.csv").open("w") as few:
            few.writelines(line for line, _ in zip(new, range(101), strict=False))
        given = ["--label", "y", "--model", "m.joblib"]
        run(folder, "fit", "train.csv", "--validation", "val.csv", *given, "-o", "b.iknow")
        few_rows = run(folder, "assess", "b.iknow", "few.csv", *given, "-o", "few_out.csv")
        rows = run(folder, "assess", "b.iknow", "new.csv", *given, "-o", "out.csv")
        return {
            "rows": n_rows,
            "training_rows": n_training,
            "table_mib": (folder / "new.csv").stat().st_size / 2**20,
            "of_100_rows": few_rows,
            "of_all_rows": rows,
            "rows_per_second": n_rows / rows["seconds"],
        }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--training-rows", type=int, default=20_000)
    asked = parser.parse_args()
    sys.stdout.write(json.dumps(measure(asked.rows, asked.training_rows), indent=1) + "\n")
