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

import magika
import numpy as np
from scipy.special import softmax

from benchmarks.magika.files import OTHER, File, collect
from benchmarks.magika.measuring import measure
from benchmarks.magika.methods import MODES, named_by_magika
from benchmarks.magika.network import Magika, Network
from benchmarks.magika.table import RESULTS

CHECKED = 200  # files
CLOSE = 1e-4  # magika runs the same graph, one file at a time


def check_same(model: Network, files: Sequence[File]) -> None:
    """Compare labels, scores and what each mode gives, on files spread over all of them."""
    some = [files[row] for row in np.linspace(0, len(files) - 1, CHECKED).astype(int)]
    said = model.ask([file.content for file in some])
    labels, scores = model.labels[said.belief], softmax(said.logits, axis=1).max(axis=1)
    for mode in MODES:
        own = magika.Magika(prediction_mode=magika.PredictionMode[f"{mode.upper()}_CONFIDENCE"])
        results = [own.identify_bytes(file.content) for file in some]
        named = named_by_magika(said, model.config, mode)
        for result, label, score, is_named in zip(results, labels, scores, named, strict=True):
            if str(result.dl.label) != label or abs(result.score - score) > CLOSE:
                raise AssertionError(
                    f"our copy of the network says {label} ({score:.4f}), and magika "
                    f"{result.dl.label} ({result.score:.4f}): is its graph of another form?"
                )
            # Where magika is not sure of a text it says "txt", which may be the label too.
            if (str(result.output.label) == label) != is_named and label != "txt":
                raise AssertionError(
                    f"in its mode of {mode} confidence magika says {result.output.label} for "
                    f"{label} ({score:.4f}): have the modes changed?"
                )


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
