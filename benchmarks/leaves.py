"""Leaves: whether a model of trees is judged better by its input, by its leaves, or by both.

    IKNOW_DATA=DATA python -m benchmarks.leaves --out docs/figures/leaves.json

Every set of layers scores the answers of the same trained model, by levels. The threshold of each
is chosen on clean validation data, so that all assert equally much; then we count what is asserted
and wrong in cells of clean, shifted and foreign data (the shifts are those of
`benchmarks.scoreboard`; no answer is right about foreign data, far data, and a class that was kept
from training). The default layers were chosen by the datasets of `DESIGN` alone.

Where values are missing, "input" stands for the layer "table", with its flags of gaps.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine, make_classification
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    RandomForestClassifier,
)

from benchmarks.scoreboard.data import shift_table
from iknow import metrics
from iknow.classifier.estimator import EpistemicClassifier
from iknow.core.arrays import Bools, Floats, Floats32, Ints
from iknow.core.level import log_odds
from iknow.errors import SelectionError
from iknow.evaluation.risk import match_coverage
from iknow.models import PrecomputedModel
from iknow.models.model import Observation
from iknow.models.sklearn import SklearnModel
from iknow.selection import levels as level_choice
from reproduction.data.datasets import read_grid_stability_12
from reproduction.markdown import table_lines

COVERAGES = (0.6, 0.75, 0.9)
MAY_GO = "both, or leaves"  # the input is left out where it often disagrees with the model
LAYERS = {
    "input": ("input",),
    "leaves": ("leaves",),
    "both": ("input", "leaves"),
    MAY_GO: ("input", "leaves"),
}
SOFTMAX = "softmax"
GAPS = {"none": 0.0, "gaps": 0.2}
"""Shares of values that are missing; half of the features lose their largest values first."""

Cell = tuple[Floats32, Ints | None]
Table = tuple[Floats32, Ints]


def synthetic(seed: int, n_classes: int) -> Table:
    """A made-up table of twenty features, six of them informative, 2% of the labels wrong."""
    x, y = make_classification(
        3000, 20, n_informative=6, n_redundant=4, n_classes=n_classes, n_clusters_per_class=2,
        flip_y=0.02, class_sep=1.2, random_state=seed,
    )  # fmt: skip
    return x.astype(np.float32), y


def grid() -> Table:
    part = read_grid_stability_12().train
    return part.X.astype(np.float32), np.unique(part.y, return_inverse=True)[1]


def bundled(load: Callable[..., Any]) -> Callable[[], Table]:
    def read() -> Table:
        x, y = load(return_X_y=True)
        return x.astype(np.float32), y

    return read


DESIGN: dict[str, Callable[[], Table]] = {
    "grid": grid,
    "made, 2 classes": lambda: synthetic(0, 2),
    "made, 4 classes": lambda: synthetic(1, 4),
}
HELD_OUT: dict[str, Callable[[], Table]] = {
    "breast cancer": bundled(load_breast_cancer),
    "wine": bundled(load_wine),
    "digits": bundled(load_digits),
    "made, 3 classes": lambda: synthetic(2, 3),
}


def boosted(package: str, name: str, **settings: Any) -> Callable[[int], Any]:
    # By name: who has only one of the packages can still run the others' rows.
    return lambda seed: getattr(import_module(package), name)(random_state=seed, **settings)


MODELS: dict[str, Callable[[int], Any]] = {
    "random forest": lambda seed: RandomForestClassifier(100, random_state=seed),
    "extra trees": lambda seed: ExtraTreesClassifier(100, random_state=seed),
    "gradient boosting": lambda seed: GradientBoostingClassifier(random_state=seed),
    "xgboost": boosted("xgboost", "XGBClassifier", n_estimators=100, n_jobs=1),
    "lightgbm": boosted("lightgbm", "LGBMClassifier", n_estimators=100, n_jobs=1, verbose=-1),
    "catboost": boosted(
        "catboost", "CatBoostClassifier", iterations=100, thread_count=1, verbose=0,
        allow_writing_files=False,
    ),
}  # fmt: skip
TAKE_GAPS = ("random forest", "xgboost", "lightgbm", "catboost")


@dataclass(frozen=True, eq=False)
class Parts:
    """A dataset split by the seed; the labels of foreign cells are None."""

    train: Table
    val: Table
    cells: dict[str, Cell]


def split(table: Table, seed: int, unseen: int | None) -> Parts:
    """40% training, 30% validation, 30% test, at most 2,000, 2,000 and 1,000 samples."""
    rng = np.random.default_rng(seed)
    x, y = table
    order = rng.permutation(len(x))
    ends = int(0.4 * len(x)), int(0.7 * len(x))
    rows = [
        part[:most] for part, most in zip(np.split(order, ends), (2000, 2000, 1000), strict=True)
    ]
    if unseen is not None:
        gone = x[rows[2]][y[rows[2]] == unseen]
        (a, b), (c, d) = [(x[r][y[r] != unseen], y[r][y[r] != unseen]) for r in rows[:2]]
        codes = np.unique(b)
        parts = (a, np.searchsorted(codes, b)), (c, np.searchsorted(codes, d))
        return Parts(*parts, {"unseen class": (gone, None)})
    training, test, truth = x[rows[0]], x[rows[2]], y[rows[2]]
    cells: dict[str, Cell] = {"clean": (test, truth)}
    cells |= {name: (each, truth) for name, each in shift_table(test, training, seed).items()}
    directions = rng.standard_normal(test.shape)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    away = 3 * np.sqrt(test.shape[1]) * training.std(axis=0) * directions
    cells["far away"] = (test + away.astype(np.float32), None)
    low, high = training.min(axis=0), training.max(axis=0)
    cells["uniform"] = (rng.uniform(low, high, test.shape).astype(np.float32), None)
    return Parts((training, y[rows[0]]), (x[rows[1]], y[rows[1]]), cells)


def punch(x: Floats32, training: Floats32, share: float, seed: int) -> Floats32:
    """The same with gaps: at random in half of the features, the largest values in the others."""
    rng = np.random.default_rng(seed)
    gone = rng.random(x.shape) < share
    by_size = np.arange(x.shape[1]) % 2 == 1
    gone[:, by_size] = x[:, by_size] > np.quantile(training[:, by_size], 1 - share, axis=0)
    return np.where(gone, np.float32(np.nan), x)


def measure(make: Callable[[int], Any], table: Table, seed: int, gaps: float) -> dict[str, Any]:
    """The share asserted and wrong at each coverage, by cell and by layers."""
    found: dict[str, Any] = {}
    classes = np.unique(table[1])
    without = [None, int(classes[seed % len(classes)])] if len(classes) > 2 else [None]
    for unseen in without:
        parts = split(table, seed, unseen)
        raw, y = parts.train

        def with_gaps(x: Floats32, part: int, raw: Floats32 = raw) -> Floats32:
            return punch(x, raw, gaps, 10 * seed + part) if gaps else x

        x = with_gaps(raw, 0)
        model, first = SklearnModel(make(seed).fit(x, y)), "table" if gaps else "input"

        def observe(x: Floats32, model: SklearnModel = model, first: str = first) -> Observation:
            return model.observe(x, (first, "leaves"))

        train, val = observe(x), observe(with_gaps(parts.val[0], 1))
        cells = {
            name: (observe(with_gaps(each, 2)), truth)
            for name, (each, truth) in parts.cells.items()
        }
        for name in (*LAYERS, SOFTMAX):
            score = confidence if name == SOFTMAX else levels(name, first, train, y, val)
            limits = [match_coverage(score(val), coverage) for coverage in COVERAGES]
            for cell, (said, truth) in cells.items():
                wrong: Bools = np.ones(len(said), bool) if truth is None else said.belief != truth
                scores = score(said)
                shares = [float((limit.asserts(scores) * wrong).mean()) for limit in limits]
                found.setdefault(cell, {})[name] = [round(share, 5) for share in shares]
    return found


def levels(
    name: str, first: str, train: Observation, y: Ints, val: Observation
) -> Callable[[Observation], Floats]:
    """What levels say by some layers."""
    layers = [first if layer == "input" else layer for layer in LAYERS[name]]
    metric = {"table": metrics.Table()} if "table" in layers else None
    ec = EpistemicClassifier(PrecomputedModel(), layers, metric=metric, progress=False)
    with patch.object(level_choice, "LEAVES", None if name == MAY_GO else "leaves"):
        try:
            ec.fit(train, y).tune(val, coverage=0.75)  # levels are the same whatever the coverage
        except SelectionError:  # no validation sample can be IK: all are alike
            return lambda said: np.zeros(len(said))
    return lambda said: ec.assess(said).level


def confidence(said: Observation) -> Floats:
    return log_odds(said.scores, said.belief, True)


def run(seeds: int, datasets: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The figures of every dataset, model, kind of gaps and seed, as they come."""
    for name in datasets:
        table = {**DESIGN, **HELD_OUT}[name]()
        for model, make in MODELS.items():
            for gaps, share in GAPS.items():
                if share and model not in TAKE_GAPS:
                    continue
                for seed in range(seeds):
                    begun = time.monotonic()
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        cells = measure(make, table, seed, share)
                    took = round(time.monotonic() - begun, 1)
                    yield f"{name}|{model}|{gaps}|{seed}", {"seconds": took, "cells": cells}


def summarize(runs: dict[str, Any]) -> dict[str, Any]:
    """The means of all runs: of each cell of a dataset, and of all cells of a model on it."""
    shares: dict[tuple[str, ...], list[Any]] = {}
    for key, cells in runs.items():
        dataset, model, gaps, _ = key.split("|")
        for cell, row in cells.items():
            for name, values in row.items():
                for group, member in (("by cell", cell), ("by model", model)):
                    shares.setdefault((group, f"{dataset}, {gaps}", member, name), []).append(
                        values
                    )
    found: dict[str, Any] = {}
    for (group, problem, member, name), rows in shares.items():
        place = found.setdefault(group, {}).setdefault(problem, {}).setdefault(member, {})
        place[name] = np.mean(rows, axis=0).round(4).tolist()
    return found


def tables(found: dict[str, Any]) -> str:
    """The shares asserted and wrong, in percent at each coverage, as Markdown."""
    names = [*LAYERS, SOFTMAX]
    by_dataset: list[list[str]] = []
    by_cell: dict[tuple[str, str], list[Any]] = {}
    for problem, rows in found["by cell"].items():
        dataset, _, gaps = problem.rpartition(", ")
        part = "design" if dataset in DESIGN else "held out"
        table = {cell: [row[name] for name in names] for cell, row in rows.items()}
        by_dataset.append([f"{dataset} ({part})", gaps, *_words(list(table.values()))])
        for cell, shares in table.items():
            by_cell.setdefault((f"{cell} ({part})", gaps), []).append(shares)
    lines = [[*key, *_words(shares)] for key, shares in sorted(by_cell.items())]
    return "\n".join(
        [
            *table_lines(["dataset", "gaps", *names], by_dataset, (0, 1)), "",
            *table_lines(["cell", "gaps", *names], lines, (0, 1)), "",
        ]
    )  # fmt: skip


def _words(shares: list[Any]) -> list[str]:
    """The means over the first axis, a word for each set of layers."""
    return [" / ".join(f"{100 * s:.1f}" for s in row) for row in np.mean(shares, axis=0)]


def main(arguments: list[str] | None = None) -> None:
    """Measure all, and write after each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.leaves", description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    everything = [*DESIGN, *HELD_OUT]
    parser.add_argument("--only", nargs="*", choices=everything, default=everything)
    asked = parser.parse_args(arguments)
    runs: dict[str, Any] = {}
    for name, record in run(asked.seeds, asked.only):
        runs[name] = record["cells"]
        print(name, record["seconds"], "s", flush=True)
        found = {"coverages": COVERAGES, "seeds": asked.seeds, **summarize(runs)}
        asked.out.write_text(json.dumps(found) + "\n", "utf-8")
    print(tables(json.loads(asked.out.read_text("utf-8"))))


if __name__ == "__main__":
    main()
