"""Details: the evidence behind an answer, in plain values."""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.core.codes import for_json
from iknow.core.evidence import NO_EXEMPLAR, distances_for_and_against
from iknow.explain.assessment import Assessment


def describe_evidence(assessment: Assessment) -> list[dict[str, Any]]:
    """For each of n samples, by layer: the distances for and against, the reach, what is found
    within it, and the training rows nearest of the believed class and of the nearest other.
    """
    rows = np.arange(len(assessment))
    answered, labels = assessment.answered, for_json(assessment.classes)
    codes = np.where(answered, assessment.belief_codes, 0)
    told: list[dict[str, Any]] = [{} for _ in rows]
    for layer, weighed in assessment.weighed.items():
        own, other = distances_for_and_against(weighed, codes)
        reach = assessment.neighborhoods[layer].reach(weighed)
        reach = reach[rows, codes] if reach.ndim == 2 else reach
        others = weighed.class_distances.copy()
        others[rows, codes] = np.inf
        against = others.argmin(axis=1)
        for i in rows:
            told[i][layer] = {
                "for": _number(own[i]) if answered[i] else None,
                "for_row": _row(weighed.exemplars[i, codes[i]]) if answered[i] else None,
                "against": _number(other[i]),
                "against_row": _row(weighed.exemplars[i, against[i]]),
                "against_class": labels[against[i]] if np.isfinite(others[i, against[i]]) else None,
                "reach": _number(reach[i]),
                "supported": [labels[c] for c in np.flatnonzero(assessment.supports[layer][i])],
            }
    return told


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _row(value: Any) -> int | None:
    return None if value == NO_EXEMPLAR else int(value)
