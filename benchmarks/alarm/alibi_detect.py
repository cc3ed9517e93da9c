"""alibi-detect's online detectors, in an environment of their own: it takes an older numpy.

    python -m benchmarks.alarm.alibi_detect STREAMS.npz OUT.json

They are set up by an expected run time without drift (ERT), which is no bound on ever ringing: we
ask for the length of a quiet stream, as longer ones take more bootstraps than minutes allow.
CVMDriftOnline looks at one number per sample, through windows of two lengths.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from alibi_detect.cd import CVMDriftOnline

WINDOWS = [20, 80]
ERT = 4_000
BOOTSTRAPS = 5_000


def ring(reference: Any, stream: Any) -> int | None:
    np.random.seed(0)  # its only seed  # noqa: NPY002
    detector = CVMDriftOnline(
        reference, ert=ERT, window_sizes=WINDOWS, n_bootstraps=BOOTSTRAPS, verbose=False
    )
    for i, value in enumerate(stream, 1):
        if detector.predict(np.asarray([value]))["data"]["is_drift"]:
            return i
    return None


def main(streams: str, out: str) -> None:
    found: dict[str, Any] = {"version": f"alibi-detect {version('alibi-detect')}", "rang": {}}
    with np.load(streams, allow_pickle=False) as arrays:
        for key in sorted({name.rsplit("/", 1)[0] for name in arrays}):
            found["rang"][key] = {
                "alibi-detect CVM": ring(arrays[f"{key}/reference"], arrays[f"{key}/stream"])
            }
    Path(out).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
