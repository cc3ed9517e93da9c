"""Measures iknow around magika: python -m benchmarks.magika FOLDER ... [--out FILE]

Every subfolder of a FOLDER is a project, such as a clone of a repository. It needs
`pip install magika==1.0.3 onnx onnxruntime`, and takes about a minute for 2,000 files.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.magika.checking import check_same
from benchmarks.magika.collecting import OTHER, collect
from benchmarks.magika.measuring import measure
from benchmarks.magika.onnx import Magika
from benchmarks.magika.table import RESULTS

SEEDS = range(5)


def main(arguments: Sequence[str] | None = None) -> None:
    """Collect, ask, deal and measure five times, and write the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.magika", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    model = Magika()
    files = collect(given.folders, model.types, model.read)
    check_same(model, files)
    print(f"{len(files):,} files; asking the network about them")
    said = model.ask([file.content for file in files])
    known = np.array([not file.kind.startswith(OTHER) for file in files])
    kinds = np.array([file.kind for file in files])
    record: dict[str, Any] = {
        "magika": version("magika"),
        "projects": sorted({file.project for file in files}),
        "files": int(known.sum()),
        "types": len(set(kinds[known])),
        "foreign_files": int((~known).sum()),
        "foreign_types": sorted(kind.removeprefix(OTHER) for kind in set(kinds[~known])),
        "classes": len(model.labels),
        "accuracy": float((model.labels[said.belief] == kinds)[known].mean()),
        "runs": [],
    }
    for seed in SEEDS:
        print(f"deal {seed + 1} of {len(SEEDS)}")
        record["runs"].append(measure(model, files, said, seed))
    given.out.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
