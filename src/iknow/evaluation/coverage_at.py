"""Coverage at an accuracy: one number to compare classifiers by, as scikit-learn's searches need.

Samples are asserted in the order of their levels, equal ones together, the highest first. The score
is the largest share that can be asserted so that the beliefs asserted are right with at least the
given accuracy; 0 if none can. It depends on the order of the levels alone, not on the level that
`tune` chose, so a grid over rules, quorums, layers and metrics compares what they could do.

Samples at level 0 are never IK, and a certificate for each class bars some classes: neither is ever
asserted. Rules without levels, as those of the paper's rules, have only one setting: their
score is the coverage of IK as they are, or 0 if the accuracy on it is lower.

The threshold is chosen on the very samples that score, so the number is no promise: `tune` makes
those.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from iknow.core.arrays import Bools, Floats
from iknow.core.assertion import Assertion, may_be_known
from iknow.core.codes import positions_of
from iknow.core.text import as_real, shown
from iknow.errors import InputError
from iknow.evaluation.metrics import evaluate
from iknow.evaluation.risk_coverage import rank_ties


@dataclass(frozen=True)
class CoverageAt:
    """A scorer, `scorer(estimator, X, y)`, of the coverage at an accuracy; see `coverage_at`."""

    accuracy: float

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """Return the largest coverage, from 0 to 1, on labeled samples of shape (n, ...)."""
        if not hasattr(estimator, "assess"):
            raise InputError(
                "coverage_at scores an EpistemicClassifier, which may wrap a pipeline: "
                f"EpistemicClassifier(pipeline); got {shown(estimator)}"
            )
        assessment = estimator.assess(X)
        report = evaluate(assessment, y)  # which checks the labels
        right = positions_of(report.y_true, assessment.classes) == assessment.belief_codes
        if assessment.levels is None:
            known = assessment.assertion == Assertion.IK
            return largest_coverage(known.astype(np.float64), right, self.accuracy)
        barred = ~may_be_known(assessment.belief_codes, assessment.knowable)
        return largest_coverage(np.where(barred, 0.0, assessment.level), right, self.accuracy)


def coverage_at(accuracy: float = 0.99) -> CoverageAt:
    """Make a scorer for `GridSearchCV` and `cross_val_score`: how much can be IK at an accuracy.

    Args:
        accuracy: The least accuracy on what is asserted, above 0 and up to 1.

    Returns:
        A function of a fitted `EpistemicClassifier`, of samples and labels.

    Examples:
        >>> from sklearn.model_selection import GridSearchCV
        >>> grid = {"quorum": [1, (1, 3)]}
        >>> search = GridSearchCV(
        ...     EpistemicClassifier(LogisticRegression()), grid, scoring=coverage_at(0.95), cv=3
        ... )
        >>> search.fit(X, y).best_params_
        {'quorum': 1}
    """
    return CoverageAt(
        as_real(accuracy, "accuracy", "lie in (0, 1]", lambda number: 0 < number <= 1)
    )


def largest_coverage(scores: Floats, right: Bools, accuracy: float) -> float:
    """The largest share that a threshold on positive scores asserts with this accuracy.

    scores, right: of shape (n,). Equal scores are asserted together, those of 0 never.

    Examples:
        >>> scores = np.array([0.9, 0.5, 0.5, 0.1, 0.0])
        >>> largest_coverage(scores, np.array([True, True, False, True, True]), 0.75)
        0.8
    """
    order, ends = rank_ties(scores)
    asserted = np.arange(1, len(scores) + 1)
    n_right = np.cumsum(right[order])
    # Whole numbers on both sides, but for the accuracy: 99 of 100 right is 0.99.
    enough = n_right / asserted >= accuracy
    thresholds = ends[(scores[order] > 0)[ends] & enough[ends]]
    return float(asserted[thresholds[-1]] / len(scores)) if len(thresholds) else 0.0
