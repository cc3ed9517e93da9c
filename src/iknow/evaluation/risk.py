"""Risk and coverage: what is asserted and wrong as more and more is asserted.

Sort samples by a score, the most trusted first, and assert them in turn. At each threshold

    coverage          = the share asserted
    generalized risk  = the share asserted and wrong

Both are shares of all samples, so the risk never falls as coverage grows, and the area under the
curve is the AUGRC of Traub and others, "Overcoming Common Flaws in the Evaluation of Selective
Classification Systems" (NeurIPS 2024): the average risk of an undetected error, between 0 and 1/2.
The more usual selective risk is `risk / coverage`.

A threshold asserts equal scores all together. Between two thresholds a share of them, drawn at
random, gives the straight line between the two points; so curve, area and thresholds at a given
coverage do not depend on the order of ties, and every coverage can be met by every method.

**Certified coverage**: how much a score may assert with its accuracy guaranteed. As in
`iknow.selection.guarantee`, a fifth of the validation data lays a sequence of thresholds, towards
more coverage, and the rest tests them in turn by exact binomial tests of "the accuracy of what is
asserted is below the target". The first that fails ends the test, and the last that passed is
certified. The sequence starts at the strictest threshold that looks safe. The surest one would lie
farther on, and if that fails, as the surest of a few samples may, nothing is certified.

MAPIE's risk control does the same for a softmax threshold. Its `BinaryClassificationController`
controls the precision of a binary classifier: that is the accuracy of what is asserted, if an
answer is "positive" when it is right. Its defaults test a hundred thresholds, corrected by
Bonferroni and Holm. We choose the hundred, as quantiles of the scores of the fifth: an even grid is
too coarse for a network that is nearly always sure.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from iknow.core.arrays import Bools, Floats
from iknow.core.assertion import Assertion, may_be_known
from iknow.core.text import as_real, shown
from iknow.errors import InputError, MissingExtraError
from iknow.evaluation.metrics import read_truth
from iknow.selection.guarantee import STEPS, first_to_test, p_values
from iknow.selection.validation import count_from, split_rows


@dataclass(frozen=True, eq=False)
class RiskCoverage:
    """A risk-coverage curve, linear from point to point: the share asserted, `coverage`, ascending
    from 0 to 1, and the share asserted and wrong, `risk`, each of shape (m,).
    """

    coverage: Floats
    risk: Floats

    @property
    def area(self) -> float:
        """The area under the curve of generalized risk, AUGRC."""
        return float(np.trapezoid(self.risk, self.coverage))

    def thinned(self, n_points: int) -> RiskCoverage:
        """Return the curve at `n_points` evenly spaced coverages, for drawing."""
        coverage = np.linspace(0, 1, n_points)
        return RiskCoverage(coverage, np.interp(coverage, self.coverage, self.risk))


def risk_coverage(scores: Floats, wrong: Bools, weights: Floats | None = None) -> RiskCoverage:
    """Compute the curve of generalized risk against coverage.

    Args:
        scores: The higher, the more to be trusted, of shape (n,).
        wrong: Which answers are wrong, of shape (n,).
        weights: How much each sample counts, of shape (n,). Default: all the same.

    Examples:
        >>> curve = risk_coverage(np.array([3.0, 2.0, 1.0]), np.array([False, False, True]))
        >>> curve.risk.round(2)
        array([0.  , 0.  , 0.  , 0.33])
    """
    if scores.ndim != 1 or scores.shape != wrong.shape or len(scores) == 0:
        raise InputError(
            "scores and wrong must both have shape (n,), n >= 1; got "
            f"{scores.shape} and {wrong.shape}"
        )
    if np.isnan(scores).any():
        raise InputError(f"scores must be numbers; {int(np.isnan(scores).sum())} are NaN")
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    ends = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))  # of equal scores
    mass = np.ones(len(scores)) if weights is None else weights[order]
    asserted, missed = (np.cumsum(each)[ends] / mass.sum() for each in (mass, mass * wrong[order]))
    return RiskCoverage(np.append(0.0, asserted), np.append(0.0, missed))


@dataclass(frozen=True)
class Threshold:
    """Assert what scores higher than `value`, and with probability `share` what scores that."""

    value: float
    share: float

    def asserts(self, scores: Floats) -> Floats:
        """Return the probability that each sample is asserted, by its `scores` of shape (n,)."""
        return np.where(scores == self.value, self.share, np.where(scores > self.value, 1.0, 0.0))


def match_coverage(scores: Floats, coverage: float) -> Threshold:
    """Choose the threshold at which a share of samples is asserted, exactly.

    `scores`: of clean samples, of shape (n,). `coverage`: the share to assert, in (0, 1].

    Examples:
        >>> match_coverage(np.array([1.0, 2.0, 2.0, 3.0]), 0.5)
        Threshold(value=2.0, share=0.5)
    """
    if not 0 < coverage <= 1:
        raise InputError(f"a coverage must lie in (0, 1]; got {coverage}")
    wanted = coverage * len(scores)
    ranked = np.sort(scores)[::-1]
    # Rounding must not ask for one more sample than there are.
    value = ranked[min(len(ranked), max(1, int(np.ceil(wanted - 1e-9)))) - 1]
    above, at = int((scores > value).sum()), int((scores == value).sum())
    return Threshold(float(value), float(np.clip((wanted - above) / at, 0.0, 1.0)))


def certify_threshold(
    scores: Floats, wrong: Bools, *, accuracy: float, confidence: float, random_state: int = 0
) -> float:
    """Find the lowest threshold whose accuracy is certified; NaN, which no score reaches, if there
    is none: a score may be inf.

    Args:
        scores: Scores of validation samples, of shape (n,).
        wrong: Which of their answers are wrong, of shape (n,).
        accuracy: The accuracy to certify of what scores at least the threshold.
        confidence: The probability with which the promise holds.
        random_state: Seed of the split.

    Examples:
        >>> scores = np.linspace(0, 1, 1000)
        >>> certify_threshold(scores, scores < 0.25, accuracy=0.95, confidence=0.9) < 0.3
        True
    """
    laying, testing = split_rows(len(scores), random_state)
    first = scores[laying]
    distinct = np.unique(first[np.isfinite(first) | (first > 0)])[::-1]
    if not len(distinct):
        return float("nan")
    picked = np.unique(np.linspace(0, len(distinct) - 1, min(STEPS, len(distinct))).astype(int))
    thresholds = distinct[picked]
    sizes = len(first), len(testing)
    start = first_to_test(count_from(first, thresholds), *sizes, accuracy, confidence)
    thresholds = thresholds[start:]
    counts = count_from(scores[testing], thresholds)
    errors = count_from(scores[testing[wrong[testing]]], thresholds)
    passed = p_values(errors, counts, accuracy) <= 1 - confidence
    n_passed = int(np.argmin(np.append(passed, False)))
    return float(thresholds[n_passed - 1]) if n_passed else float("nan")


THRESHOLDS = 100  # as many as MAPIE tests by default


def certify_by_mapie(
    scores: Floats, wrong: Bools, *, accuracy: float, confidence: float, random_state: int = 0
) -> float:
    """The threshold that MAPIE certifies, as `certify_threshold` does; NaN if there is none."""
    try:
        from mapie.risk_control import BinaryClassificationController
    except ImportError as error:
        raise MissingExtraError("MAPIE's risk control", "compare") from error
    # It takes probabilities: ranks in (0, 1] carry the same order.
    levels = np.unique(scores)
    shares = np.searchsorted(levels, scores, side="right") / len(levels)
    laying, testing = split_rows(len(scores), random_state)
    quantiles = np.quantile(shares[laying], np.linspace(0, 1, THRESHOLDS), method="lower")
    controller = BinaryClassificationController(
        predict_function=lambda column: np.column_stack([1 - column[:, 0], column[:, 0]]),
        risk="precision",
        target_level=accuracy,
        confidence_level=confidence,
        list_predict_params=np.unique(quantiles),
    )
    with warnings.catch_warnings():  # it warns where no threshold is valid: we say it ourselves
        warnings.simplefilter("ignore")
        controller.calibrate(shares[testing, None], (~wrong[testing]).astype(np.int64))
    best: Any = controller.best_predict_param
    return float("nan") if best is None else float(levels[round(float(best) * len(levels)) - 1])


@dataclass(frozen=True)
class CoverageAt:
    """A scorer for `GridSearchCV` and `cross_val_score`: how much can be IK at an accuracy.

    Samples are asserted in the order of their levels, and the score is the largest share that can
    be asserted so that at least `accuracy` of it, above 0 and up to 1, is right; 0 if none can. It
    does not depend on the level that `tune` chose, so a grid over rules, quorums, layers and
    metrics compares what they could do. Samples at level 0 and classes that a certificate bars are
    never asserted. Rules without levels, as the paper's, have only one setting: their score is the
    coverage of IK as they are, or 0 if the accuracy on it is lower. The threshold is chosen on the
    very samples that score, so the number is no promise.

    Examples:
        >>> from sklearn.model_selection import GridSearchCV
        >>> grid = {"quorum": [1, (1, 3)]}
        >>> search = GridSearchCV(
        ...     EpistemicClassifier(LogisticRegression()), grid, scoring=CoverageAt(0.95), cv=3
        ... )
        >>> search.fit(X, y).best_params_
        {'quorum': 1}
    """

    accuracy: float = 0.99

    def __post_init__(self) -> None:
        as_real(self.accuracy, "accuracy", "lie in (0, 1]", lambda number: 0 < number <= 1)

    def __call__(self, estimator: Any, X: Any, y: Any) -> float:
        """Return the largest coverage, from 0 to 1, on labeled samples of shape (n, ...)."""
        if not hasattr(estimator, "assess"):
            raise InputError(
                "CoverageAt scores an EpistemicClassifier, which may wrap a pipeline: "
                f"EpistemicClassifier(pipeline); got {shown(estimator)}"
            )
        assessment = estimator.assess(X)
        right: Bools = read_truth(assessment, y)[1] == assessment.belief_codes
        if assessment.levels is None:
            scores = (assessment.assertion == Assertion.IK).astype(np.float64)
        else:
            able = may_be_known(assessment.belief_codes, assessment.knowable)
            scores = np.where(able, assessment.level, 0.0)
        return largest_coverage(scores, right, self.accuracy)


def largest_coverage(scores: Floats, right: Bools, accuracy: float) -> float:
    """The largest share that a threshold on positive scores asserts with this accuracy.

    scores, right: of shape (n,). Equal scores are asserted together, those of 0 never.
    """
    thresholds = np.unique(scores[scores > 0])
    # Whole numbers on both sides, but for the accuracy: 99 of 100 right is 0.99.
    asserted, correct = count_from(scores, thresholds), count_from(scores[right], thresholds)
    return float(asserted[correct / asserted >= accuracy].max(initial=0) / len(scores))
