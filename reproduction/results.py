"""Results: kept seed by seed, so that an interrupted run resumes where it stopped.

Each finished seed of an experiment is one file, `runs/NAME-SEED.json`, written in one step, with
its setup. A damaged file, or one from another setup or with other methods, does not count: the
seed runs again.
`results.csv` collects them: the columns and terms of the paper's tables, and `seed`; an accuracy
over no samples is empty. The column `table` says where the paper prints the cell: in "main", in
"supplement" (a cell in both has a row for each), or nowhere, "extra".
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterable
from dataclasses import astuple
from pathlib import Path
from typing import Any

from iknow.storage.files import write_bytes
from reproduction.methods import METHODS
from reproduction.protocol import Cell, Outcome
from reproduction.setups import Setup
from reproduction.tables import find_tables

COLUMNS = ("table", "dataset", "layers", "method", "perturbation", "metric", "value", "seed")
DIGITS = 6


def store(folder: Path, setup: Setup, outcome: Outcome) -> None:
    """Keep a finished seed."""
    document = {
        "setup": setup.to_dict(),
        "seed": outcome.seed,
        "facts": outcome.facts,
        "cells": [astuple(cell) for cell in outcome.cells],
    }
    content = _dump(document)
    sealed = {"sha256": hashlib.sha256(content.encode()).hexdigest(), "content": document}
    write_bytes(_path(folder, setup, outcome.seed), _dump(sealed).encode())


def recall(folder: Path, setup: Setup, seed: int) -> Outcome | None:
    """The outcome of a seed that finished with exactly this setup, or None."""
    try:
        sealed = json.loads(_path(folder, setup, seed).read_text("utf-8"))
        document = sealed["content"]
        if hashlib.sha256(_dump(document).encode()).hexdigest() != sealed["sha256"]:
            return None
        if document["setup"] != json.loads(_dump(setup.to_dict())) or document["seed"] != seed:
            return None
        cells = [Cell(*cell) for cell in document["cells"]]
        if {cell.method for cell in cells} != set(METHODS):
            return None
        return Outcome(setup.name, seed, cells, document["facts"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def to_csv(outcomes: Iterable[Outcome]) -> bytes:
    """All cells as a table, in the order of the outcomes."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for outcome in outcomes:
        for cell in outcome.cells:
            value = "" if cell.value is None else f"{cell.value:.{DIGITS}f}"
            key = (cell.layers, cell.method, cell.perturbation, cell.metric)
            tables = find_tables(outcome.name, *key)
            for table in tables or ("extra",):
                writer.writerow((table, outcome.name, *key, value, outcome.seed))
    return text.getvalue().encode()


def read_csv(path: Path) -> list[Outcome]:
    """The outcomes in a results.csv, without facts."""
    cells: dict[tuple[str, int], dict[Cell, None]] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            value = float(row["value"]) if row["value"] else None
            cell = Cell(row["layers"], row["method"], row["perturbation"], row["metric"], value)
            cells.setdefault((row["dataset"], int(row["seed"])), {})[cell] = None
    return [Outcome(name, seed, list(found), {}) for (name, seed), found in cells.items()]


def _path(folder: Path, setup: Setup, seed: int) -> Path:
    quick = "" if setup.max_samples is None else "-quick"  # must not replace a full run
    return folder / "runs" / f"{setup.name}-{seed}{quick}.json"


def _dump(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"))
