"""Matching: the parameter whose coverage is nearest to a target.

Methods are compared fairly at equal coverage. How a rule is matched it knows itself
(`Neighborhood.match`); what it is compared with is a threshold on the highest score.
"""

from __future__ import annotations

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.neighborhood import Neighborhood, says
from iknow.errors import InputError, SelectionError
from iknow.rules import RULES
from iknow.selection.coverage import check_validation
from iknow.selection.selection import Selection, ValidationEvidence, record_selection


def match_coverage(
    evidence: ValidationEvidence,
    belief: Ints,
    y_true: Ints,
    rule: type[Neighborhood],
    coverage: float,
) -> Selection:
    """The setting of a rule whose coverage is nearest to a target.

    evidence: by layer, about n validation samples. belief, y_true: class codes of shape (n,).
    """
    check_validation(evidence, belief, y_true)
    if not 0 < coverage <= 1:
        raise InputError(f"a coverage to match must lie in (0, 1]; got {coverage}")
    if not says(rule, "match"):
        able = " and ".join(name for name, each in RULES.items() if says(each, "match"))
        raise SelectionError(
            f"a coverage can be matched by {able}; {rule.__name__} can be tuned for the largest "
            "coverage: leave coverage out"
        )
    neighborhoods = rule.match(evidence, belief, y_true, coverage)
    return record_selection(evidence, belief, y_true, neighborhoods, method="matched")


def match_threshold(confidence: Floats, coverage: float) -> float:
    """The threshold t for which the fraction of `confidence >= t`, of shape (n,), is nearest."""
    candidates = np.append(np.unique(confidence), np.inf)
    fractions = 1 - np.searchsorted(np.sort(confidence), candidates) / len(confidence)
    return float(candidates[np.abs(fractions - coverage).argmin()])
