"""Matching: the parameter whose coverage is nearest to a target, as a fair comparison needs equal
coverage. A rule knows how to match itself (`Rule.match`); its rival is a threshold on the
highest score.
"""

from __future__ import annotations

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.rule import Rule, speaks_for
from iknow.errors import InputError, SelectionError
from iknow.rules import RULES
from iknow.selection.coverage import check_validation
from iknow.selection.selection import Selection, ValidationEvidence, record_selection


def match_coverage(
    evidence: ValidationEvidence,
    belief: Ints,
    y_true: Ints,
    rule: type[Rule],
    coverage: float,
) -> Selection:
    """Choose the setting of a rule whose coverage is closest to a target.

    Args:
        evidence: Evidence about n validation samples, by layer.
        belief: What the model believes, as class codes of shape (n,).
        y_true: The truth, as class codes of shape (n,).
        rule: One that can be matched, such as `Nearest` or `RelativeBall`.
        coverage: The fraction of IK to match, in (0, 1].

    Examples:
        >>> match_coverage(evidence, belief, y_true, RelativeBall, 0.8).coverage
        0.8
    """
    data = evidence, belief, y_true
    check_validation(*data)
    if not 0 < coverage <= 1:
        raise InputError(f"a coverage to match must lie in (0, 1]; got {coverage}")
    if not speaks_for(rule, "match"):
        able = " and ".join(name for name, each in RULES.items() if speaks_for(each, "match"))
        raise SelectionError(
            f"a coverage can be matched by {able}; {rule.__name__} can be tuned for the largest "
            "coverage: leave coverage out"
        )
    return record_selection(*data, rule.match(*data, coverage), method="matched")


def match_threshold(confidence: Floats, coverage: float) -> float:
    """Return the threshold t for which the fraction of `confidence >= t` is closest to a coverage.

    Args:
        confidence: Confidences such as the highest scores, of shape (n,).
        coverage: The fraction to match.

    Examples:
        >>> match_threshold(np.array([0.5, 0.7, 0.8, 0.9]), 0.5)
        0.8
    """
    candidates = np.append(np.unique(confidence), np.inf)
    fractions = 1 - np.searchsorted(np.sort(confidence), candidates) / len(confidence)
    return float(candidates[np.abs(fractions - coverage).argmin()])
