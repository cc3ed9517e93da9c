"""An assessment as columns for a file, one row per sample, with distances for and against."""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.core.arrays import Bools, Labels
from iknow.core.assertion import Assertion, Reason, Word
from iknow.core.evidence import NO_EXEMPLAR, distances_for_and_against
from iknow.explain.assessment import Assessment
from iknow.tables.columns import Coded


def assertion_columns(assessment: Assessment) -> dict[str, Any]:
    """The columns of an assessment, whose words are kept once each.

    With a quorum the distances are those to the samples that complete it.
    """
    rows = np.arange(len(assessment))
    answered = assessment.belief_codes >= 0
    codes = np.where(answered, assessment.belief_codes, 0)
    columns: dict[str, Any] = {
        "belief": Coded(_plain(assessment.classes), assessment.belief_codes),
        "assertion": _worded(assessment.assertion, Assertion),
        "reason": _worded(assessment.reason, Reason),
        **_level_columns(assessment),
        "justified": _justified(assessment.justification, assessment.classes),
    }
    for layer, evidence in assessment.weighed.items():
        own, other = distances_for_and_against(evidence, codes)
        nearest = evidence.nearest_distance()  # without a belief, every class is another class
        columns[f"{layer}:for"] = np.where(answered, own, np.inf)
        exemplars = evidence.exemplars[rows, codes]
        columns[f"{layer}:for_row"] = np.where(answered, exemplars, NO_EXEMPLAR)
        columns[f"{layer}:against"] = np.where(answered, other, nearest)
        reach = assessment.neighborhoods[layer].reach(evidence)
        columns[f"{layer}:reach"] = reach[rows, codes] if reach.ndim == 2 else reach
    return columns


def _plain(classes: Labels) -> Labels:
    """Labels as a file can hold them: numbers and text as they are, others as text."""
    if classes.dtype.kind in "biufU":
        return classes
    return np.array([str(label) for label in classes.tolist()])


def _worded(codes: Any, words: type[Word]) -> Coded:
    names = [""] * (max(words) + 1)
    for word in words:
        names[word] = word.name
    return Coded(np.array(names), np.asarray(codes, dtype=np.int64))


def _level_columns(assessment: Assessment) -> dict[str, Any]:
    """The level of each prediction and what holds it down, if there are levels."""
    if assessment.levels is None:
        return {}
    places = {str(voice): i for i, voice in enumerate(assessment.levels.voices())}
    codes = np.array([places[voice] for voice in assessment.weakest.tolist()], dtype=np.int64)
    return {"level": assessment.level, "weakest": Coded(np.array(list(places)), codes)}


def _justified(justification: Bools, classes: Labels) -> Coded:
    """The justified classes, with | between them; few sets of classes occur."""
    packed = np.packbits(justification, axis=1)
    as_bytes = np.ascontiguousarray(packed).view(np.dtype((np.void, packed.shape[1])))[:, 0]
    _, first, codes = np.unique(as_bytes, return_index=True, return_inverse=True)
    labels = np.array([str(label) for label in classes.tolist()])
    return Coded(np.array(["|".join(labels[row]) for row in justification[first]]), codes)
