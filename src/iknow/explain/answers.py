"""Answers: what an assessment says about each sample, in plain values. No evidence is gathered."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from iknow.core.arrays import Floats
from iknow.core.codes import for_json

if TYPE_CHECKING:
    from iknow.explain.assessment import Assessment


def as_plain(assessment: Assessment) -> dict[str, Any]:
    """Lists that JSON has words for; see `Assessment.to_dict`."""
    labels = for_json(assessment.classes)
    scores = belief_scores(assessment).tolist()
    answers = zip(assessment.belief_codes, assessment.answered, strict=True)
    return {
        "classes": labels,
        "belief": [labels[code] if answered else None for code, answered in answers],
        "score": [score if isfinite(score) else None for score in scores],
        "assertion": [assertion.name for assertion in assessment.assertion],
        "reason": [reason.name for reason in assessment.reason],
        "justified": [[labels[c] for c in np.flatnonzero(row)] for row in assessment.justification],
    }


def belief_scores(assessment: Assessment) -> Floats:
    """The model's score of its belief, of shape (n,); NaN where it gave none."""
    scores = assessment.scores[np.arange(len(assessment)), assessment.belief_codes]
    return np.where(assessment.answered, scores, np.nan)
