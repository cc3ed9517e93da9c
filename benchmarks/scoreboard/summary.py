"""Summary: means over seeds, cells and problems of what the runs recorded.

A run holds a record for each variant, in which lists by method follow the order of "methods".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.scoreboard.cells import CLEAN, WRONG_LABELS
from benchmarks.scoreboard.problems import PROBLEMS, Problem
from iknow.core.arrays import Floats

GROUPS: dict[str, tuple[Problem, ...]] = {
    f"{kind}, {mark}": tuple(
        problem
        for problem in PROBLEMS.values()
        if problem.is_network == (kind == "networks") and problem.held_out == (mark == "held out")
    )
    for kind in ("networks", "trees")
    for mark in ("design", "held out")
}
VARIANTS = ("plain", "noisy", "unseen")
OURS, CONFIDENCE, ENSEMBLE = "iknow", "softmax", "ensemble of three"

Cell = tuple[str, str]


class Summary:
    """The results of all runs, by problem and seed."""

    def __init__(self, results: dict[str, Any]) -> None:
        self.coverages: list[float] = results["coverages"]
        self.runs: dict[str, dict[str, Any]] = results["runs"]

    @classmethod
    def read(cls, path: Path) -> Summary:
        return cls(json.loads(path.read_text("utf-8")))

    def problems(self, group: str | None = None) -> list[Problem]:
        """Those that were run, in the order of their list."""
        wanted = PROBLEMS.values() if group is None else GROUPS[group]
        return [problem for problem in wanted if problem.name in self.runs]

    def cells(self, problems: Iterable[Problem]) -> list[Cell]:
        """All (problem, cell) that some seed measured."""
        found: dict[Cell, None] = {}
        for problem in problems:
            for run in self.runs[problem.name].values():
                for part in _parts_of(run):
                    found |= dict.fromkeys((problem.name, name) for name in part["cells"])
        return list(found)

    def strange(self, problem: Problem) -> list[Cell]:
        """The cells of other data than the model was trained for."""
        return [cell for cell in self.cells([problem]) if cell[1] not in (CLEAN, WRONG_LABELS)]

    def clean(self, problem: Problem, method: str) -> Floats:
        """Share of clean test data asserted and wrong at each coverage."""
        return self.wrong((problem.name, CLEAN), method)

    def augrc_clean(self, problem: Problem, method: str) -> float:
        """On clean test data alone."""
        return self._augrc((problem.name, CLEAN), method)

    def augrc_all(self, problem: Problem, method: str) -> float:
        """The mean over strange cells, each with clean data, half and half."""
        return float(np.mean([self._augrc(cell, method) for cell in self.strange(problem)]))

    def peers(self, problem: Problem) -> list[str]:
        """The other methods that ask one model."""
        return [name for name in self.methods([problem]) if name not in (OURS, ENSEMBLE)]

    def methods(self, problems: Sequence[Problem]) -> list[str]:
        """Methods that apply to all of the problems, iknow first."""
        runs = [run for problem in problems for run in self.runs[problem.name].values()]
        names = [list(map(_plain, run["plain"]["methods"])) for run in runs]
        return [name for name in names[0] if all(name in each for each in names)]

    def wrong(self, cell: Cell, method: str) -> Floats:
        """Share asserted and wrong at each coverage, the mean of seeds; NaN where not reached."""
        return self._shares(cell, method, "wrong")

    def asserted(self, cell: Cell, method: str) -> Floats:
        """Share asserted, likewise."""
        return self._shares(cell, method, "asserted")

    def _shares(self, cell: Cell, method: str, what: str) -> Floats:
        rows = [
            [np.nan if value is None else value for value in row]
            for row in self._found(cell, what, method)
        ]
        means: Floats = np.mean(np.array(rows, dtype=np.float64), axis=0)
        return means

    def mean_right(self, problems: Sequence[Problem], method: str) -> Floats:
        """Share asserted and right, the mean over the cells in which an answer can be right."""
        cells = [cell for cell in self.cells(problems) if self.error(cell) < 1]
        shares = [self.asserted(cell, method) - self.wrong(cell, method) for cell in cells]
        means: Floats = np.mean(shares, axis=0)
        return means

    def _augrc(self, cell: Cell, method: str) -> float:
        return float(np.mean(self._found(cell, "augrc", method)))

    def error(self, cell: Cell) -> float:
        """The model's own share of wrong answers."""
        parts = (part for run in self.runs[cell[0]].values() for part in _parts_of(run))
        found = [part["cells"][cell[1]]["error"] for part in parts if cell[1] in part["cells"]]
        return float(np.mean(found))

    def mean_wrong(self, problems: Sequence[Problem], method: str) -> Floats:
        """The mean over all cells at each coverage; NaN if a cell is not reached."""
        means: Floats = np.mean([self.wrong(cell, method) for cell in self.cells(problems)], axis=0)
        return means

    def certified(self, problem: str, variant: str, accuracy: str, method: str) -> Floats | None:
        """Mean coverage and accuracy on test data, or None if it was not measured."""
        rows = [
            run[variant]["certified"].get(accuracy, {}).get(method)
            for run in self.runs[problem].values()
        ]
        if any(row is None for row in rows):
            return None
        means: Floats = np.mean([[row["coverage"], row["accuracy"]] for row in rows], axis=0)
        return means

    def _found(self, cell: Cell, what: str, method: str) -> list[Any]:
        """What each seed found of a method in a cell."""
        return [
            part["cells"][cell[1]][what][[*map(_plain, part["methods"])].index(method)]
            for run in self.runs[cell[0]].values()
            for part in _parts_of(run)
            if cell[1] in part["cells"]
        ]


def _parts_of(run: dict[str, Any]) -> list[dict[str, Any]]:
    return [run[name] for name in VARIANTS if name in run]


def _plain(name: str) -> str:
    """Without a hidden layer two peers look at the input; they are still the same methods."""
    return name.removesuffix(" (input)") if not name.startswith("Trust") else name
