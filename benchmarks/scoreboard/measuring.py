"""Measuring: from the scores of all methods to the figures of one problem and seed.

For every cell and method: the share asserted and wrong at each coverage (None where a coverage is
not reached), the share asserted, and the AUGRC of the cell and the clean test data together, each
counting half. For the problem: the coverage that can be certified, and how far a model of wrong
labels can be trusted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.scoreboard.cells import CLEAN, WRONG_LABELS
from benchmarks.scoreboard.methods import COVERAGES, IKNOW, Methods, Scored
from iknow.core.arrays import Bools, Floats
from iknow.evaluation.peers import Softmax
from iknow.evaluation.risk import (
    RiskCoverage,
    Threshold,
    certify_threshold,
    match_coverage,
    risk_coverage,
)

ACCURACIES = (0.99, 0.95)
CONFIDENCE = 0.95
POINTS = 41  # of a mean curve

Arrays = dict[str, Floats | Bools]


def measure(methods: Methods, seed: int) -> tuple[dict[str, Any], Arrays]:
    """The figures of a variant, and what MAPIE certifies by, where it can be installed."""
    variant = methods.variant
    val, clean = methods.score(*variant.validation), methods.score(*variant.clean)
    limits = {name: _limits(val.scores[name]) for name in val.scores}
    cells, curves = {}, []
    for name, cell in variant.cells.items():
        if not len(cell[0]):
            continue
        scored = clean if name in (CLEAN, WRONG_LABELS) else methods.score(*cell)
        cells[name], drawn = _measure_cell(limits, clean, scored)
        curves.append(drawn)
    record: dict[str, Any] = {
        "model_error": float(clean.wrong[IKNOW].mean()),
        "left_out": sorted(methods.iknow.selection_.left_out),
        "cells": cells,
        "curves": {
            name: np.mean([each[name].risk for each in curves], axis=0).round(5).tolist()
            for name in limits
        },
    }
    if variant.name == "unseen":
        return record, {}
    record["certified"] = {
        str(accuracy): {
            IKNOW: methods.certify(accuracy),
            Softmax.name: _certify_softmax(val, clean, accuracy, seed),
        }
        for accuracy in (ACCURACIES if variant.name == "plain" else ACCURACIES[:1])
    }
    record["best"] = {name: _largest_coverage(clean, name, ACCURACIES[0]) for name in limits}
    softmax = Softmax.name
    return record, {
        "val": val.scores[softmax], "val_wrong": val.wrong[softmax],
        "test": clean.scores[softmax], "test_wrong": clean.wrong[softmax],
    }  # fmt: skip


def _limits(scores: Floats) -> list[Threshold | None]:
    """A threshold for each coverage; None where too few can be asserted at all."""
    found = [match_coverage(scores, coverage) for coverage in COVERAGES]
    return [None if limit.value == -np.inf else limit for limit in found]


def _measure_cell(
    limits: dict[str, list[Threshold | None]], clean: Scored, cell: Scored
) -> tuple[dict[str, Any], dict[str, RiskCoverage]]:
    wrong: dict[str, list[float | None]] = {}
    asserted: dict[str, list[float | None]] = {}
    areas, curves = {}, {}
    for name, row in limits.items():
        scores, missed = cell.scores[name], cell.wrong[name]
        taken = [None if limit is None else limit.asserts(scores) for limit in row]
        wrong[name] = [None if t is None else round(float((t * missed).mean()), 6) for t in taken]
        asserted[name] = [None if t is None else round(float(t.mean()), 6) for t in taken]
        curve = _join(name, clean, cell)
        areas[name], curves[name] = round(curve.area, 6), curve.thinned(POINTS)
    error = float(cell.wrong[IKNOW].mean())
    figures = {
        "n": len(cell.wrong[IKNOW]), "error": error, "wrong": wrong, "asserted": asserted,
        "augrc": areas,
    }  # fmt: skip
    return figures, curves


def _join(name: str, clean: Scored, cell: Scored) -> RiskCoverage:
    """The curve of a cell and the clean test data, each of the same weight."""
    if cell is clean:
        return risk_coverage(cell.scores[name], cell.wrong[name])
    parts = (clean, cell)
    weights = np.concatenate([np.full(len(p.wrong[name]), 1 / len(p.wrong[name])) for p in parts])
    return risk_coverage(
        np.concatenate([part.scores[name] for part in parts]),
        np.concatenate([part.wrong[name] for part in parts]),
        weights,
    )


def _certify_softmax(val: Scored, clean: Scored, accuracy: float, seed: int) -> dict[str, float]:
    name = Softmax.name
    limit = certify_threshold(
        val.scores[name], val.wrong[name],
        accuracy=accuracy, confidence=CONFIDENCE, random_state=seed,
    )  # fmt: skip
    return certified(clean.scores[name], clean.wrong[name], limit)


def certified(scores: Floats, wrong: Bools, limit: float) -> dict[str, float]:
    """Coverage and accuracy of what scores at least a limit."""
    known = scores >= limit
    right = float((~wrong[known]).mean()) if known.any() else 1.0
    return {"coverage": float(known.mean()), "accuracy": right}


def _largest_coverage(scored: Scored, name: str, accuracy: float) -> float:
    """The largest coverage whose accuracy is as wanted on these very samples, without a promise."""
    curve = risk_coverage(scored.scores[name], scored.wrong[name])
    scores = scored.scores[name]
    possible = float((scores > -np.inf).mean())
    fine = (curve.risk <= (1 - accuracy) * curve.coverage) & (curve.coverage <= possible)
    return float(curve.coverage[fine].max())
