"""Evidently's drift test on windows of a stream, in an environment of its own.

    python -m benchmarks.alarm.evidently STREAMS.npz OUT.json

After every window of 250 samples a report compares the window with the reference, as a scheduled
job would: Kolmogorov-Smirnov, drift below its default of p < 0.05, and at p < 0.001.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from evidently import DataDefinition, Dataset, Report
from evidently.metrics import ValueDrift

WINDOW = 250
LIMITS = {"evidently KS, p < 0.05": 0.05, "evidently KS, p < 0.001": 0.001}


def p_value(reference: Any, window: Any) -> float:
    report = Report([ValueDrift(column="x", method="ks")])
    snapshot = report.run(window, reference)
    return float(snapshot.dict()["metrics"][0]["value"])


def as_dataset(values: Any) -> Any:
    frame = pd.DataFrame({"x": values})
    return Dataset.from_pandas(frame, data_definition=DataDefinition(numerical_columns=["x"]))


def ring(reference: Any, stream: Any) -> dict[str, int | None]:
    known, rang = as_dataset(reference), dict.fromkeys(LIMITS)
    for last in range(WINDOW, len(stream) + 1, WINDOW):
        p = p_value(known, as_dataset(stream[last - WINDOW : last]))
        for name, limit in LIMITS.items():
            if rang[name] is None and p < limit:
                rang[name] = last
        if None not in rang.values():
            break
    return rang


def main(streams: str, out: str) -> None:
    found: dict[str, Any] = {"version": f"Evidently {version('evidently')}", "rang": {}}
    with np.load(streams, allow_pickle=False) as arrays:
        for key in sorted({name.rsplit("/", 1)[0] for name in arrays}):
            found["rang"][key] = ring(arrays[f"{key}/reference"], arrays[f"{key}/stream"])
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
