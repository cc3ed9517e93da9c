"""Measuring: from the scores of all methods to the figures of one problem and seed.

`iknow.evaluation.compare` counts: for every cell and method the share asserted and wrong at each
coverage, the share asserted, and the AUGRC of the cell and the clean test data together, each
counting half. Where too few score above -inf to reach a coverage, there is None. For the problem we
add the coverage that can be certified, beside that of the same test on the model's confidence.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.scoreboard.cells import CLEAN, WRONG_LABELS
from benchmarks.scoreboard.methods import COVERAGES, IKNOW, Methods, share_of
from iknow.core.arrays import Floats
from iknow.core.level import NEARNESS
from iknow.evaluation.compare import tabulate
from iknow.evaluation.peers import Softmax
from iknow.evaluation.risk import certify_threshold

ACCURACIES = (0.95, 0.98, 0.99)
CONFIDENCE = 0.95


def measure(methods: Methods, seed: int) -> dict[str, Any]:
    """The figures of a variant."""
    variant, names = methods.variant, methods.names
    val, test = (methods.score(*part) for part in (variant.validation, variant.clean))
    cells = {
        name: test if name in (CLEAN, WRONG_LABELS) else methods.score(*cell)
        for name, cell in variant.cells.items()
        if len(cell[0])
    }
    scored = [test, *(each for each in cells.values() if each is not test)]
    told = tabulate(names, val, scored, COVERAGES, ACCURACIES[-1], CONFIDENCE, seed)
    possible = (val.scores > -np.inf).mean(axis=1)
    reached = possible[:, None] >= np.array(COVERAGES) - 1e-9

    def told_of(shares: Floats) -> list[list[float | None]]:
        """Shares of shape (n_methods, n_coverages), None where a coverage is not reached."""
        rows = zip(shares.tolist(), reached.tolist(), strict=True)
        return [[round(v, 6) if ok else None for v, ok in zip(*row, strict=True)] for row in rows]

    levels = methods.iknow.selection_.levels
    assert levels is not None
    of_classes = {voice.layer for voice in levels.voices if voice.name == NEARNESS}
    record: dict[str, Any] = {
        "model_error": float(test.wrong_of(0).mean()),
        "left_out": sorted({*levels.layers} - of_classes),  # of what is said about classes
        "methods": list(names),
        "cells": {},
    }
    places = [next(i for i, one in enumerate(scored) if one is each) for each in cells.values()]
    for name, s in zip(cells, places, strict=True):
        record["cells"][name] = {
            "n": told.sizes[s],
            "error": float(told.errors[s]),
            "wrong": told_of(told.wrong[:, s]),
            "asserted": told_of(told.asserted[:, s]),
            "augrc": told.augrc[:, s].round(6).tolist(),
        }
    if variant.name == "unseen":
        return record
    m = names.index(Softmax.name)
    record["certified"] = {}
    for accuracy in ACCURACIES:
        limit = certify_threshold(
            val.scores[m], val.wrong_of(m), accuracy=accuracy, confidence=CONFIDENCE,
            random_state=seed,
        )  # fmt: skip
        record["certified"][str(accuracy)] = {
            IKNOW: methods.certify(accuracy),
            Softmax.name: share_of(test.scores[m] >= limit, test.wrong_of(m)),
        }
    return record
