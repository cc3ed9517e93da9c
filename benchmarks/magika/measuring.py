"""Measuring: one deal of the projects → how much each method asserts, and how much of it is wrong.

Figures are shares of a set's files. The rest follows from them: of a share `asserted` of which
`wrong` is wrong, with `error` the model's share of wrong answers in all, the accuracy of what is
asserted is 1 - wrong / asserted, and elsewhere 1 - (error - wrong) / (1 - asserted).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.magika.files import File
from benchmarks.magika.methods import Methods
from benchmarks.magika.network import Network, Said
from benchmarks.magika.sets import split, spoil
from benchmarks.magika.table import COVERAGES, TEST
from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.codes import positions_of
from iknow.evaluation.risk import risk_coverage

UNSEEN, FOREIGN = "no evidence", "no class"
DIGITS = 6


def measure(model: Network, files: Sequence[File], said: Said, seed: int) -> dict[str, Any]:
    """The figures of one deal; `said` is what the network says of the files."""
    parts, codes = split(files, seed), _codes(model, [file.kind for file in files])
    methods = Methods(
        (said[parts.evidence], codes[parts.evidence]),
        (said[parts.validation], codes[parts.validation]),
        model.config,
    )
    rows = {TEST: parts.test, UNSEEN: parts.unseen, FOREIGN: parts.foreign}
    sets = {name: (said[each], codes[each]) for name, each in rows.items() if len(each)}
    for name, (contents, kinds) in spoil([files[row] for row in parts.test], seed).items():
        if contents:
            sets[name] = model.ask(contents), _codes(model, kinds)
    wrong = {name: each.belief != truth for name, (each, truth) in sets.items()}
    clean = methods.score(sets[TEST][0])
    return {
        "seed": seed,
        "files": {name: len(each) for name, each in vars(parts).items()},
        "n": {name: len(each) for name, each in wrong.items()},
        "error": {name: round(float(each.mean()), DIGITS) for name, each in wrong.items()},
        "augrc": {
            name: round(risk_coverage(scores, wrong[TEST]).area, DIGITS)
            for name, scores in clean.items()
        },
        "equal_coverage": _by_method(
            {
                name: _at_coverages(methods.at_equal_coverage(each), wrong[name])
                for name, (each, _) in sets.items()
            }
        ),
        "as_they_come": _by_method(
            {
                name: {
                    method: _count(asserts, wrong[name])
                    for method, asserts in methods.as_they_come(each).items()
                }
                for name, (each, _) in sets.items()
            }
        ),
        "note": methods.tuned["by default"].selection_.note,
    }


def _at_coverages(
    asserts: Mapping[str, Sequence[Floats | None]], wrong: Bools
) -> dict[str, dict[str, Any]]:
    return {
        method: {
            str(coverage): None if each is None else _count(each, wrong)
            for coverage, each in zip(COVERAGES, row, strict=True)
        }
        for method, row in asserts.items()
    }


def _count(asserts: Floats, wrong: Bools) -> dict[str, float]:
    shares = {"asserted": asserts.mean(), "wrong": (asserts * wrong).mean()}
    return {name: round(float(share), DIGITS) for name, share in shares.items()}


def _by_method(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Sets by method, from methods by set."""
    methods = list(next(iter(found.values())))
    return {method: {name: row[method] for name, row in found.items()} for method in methods}


def _codes(model: Network, kinds: Sequence[str]) -> Ints:
    """Codes of types, of shape (n,); of one that the model does not have, one that is no class."""
    return positions_of(np.array(kinds), model.labels)
