"""Certified coverage: how much a score may assert with its accuracy guaranteed.

As in `iknow.selection.guarantee`, a fifth of the validation data lays a sequence of thresholds,
towards more coverage, and the rest tests them in turn by exact binomial tests of "the accuracy of
what is asserted is below the target". The first that fails ends the test; the last that passed is
certified, with the probability `confidence` over the draw of the data.

The sequence starts at the strictest threshold that looks safe. The surest one would lie farther on,
and if that fails, as the surest of a few samples may, nothing is certified.

Beside our own certificates stands MAPIE's risk control for a softmax threshold. Its
`BinaryClassificationController` controls the precision of a binary classifier. Call an answer
"positive" if it is right, and the model's probability for its answer the classifier's: then
precision is the accuracy of what is asserted, as we mean it.

Its defaults test a hundred thresholds, corrected by Bonferroni and Holm, which mostly certified
more than its fixed sequences when we tried both. We only choose the hundred: quantiles of the
scores of a fifth of the data, as an even grid from 0 to 0.99 is too coarse for a network that is
nearly always sure; the rest calibrates. The extra `compare` installs it.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from iknow.core.arrays import Bools, Floats, Ints
from iknow.errors import MissingExtraError
from iknow.selection.binomial import p_values
from iknow.selection.guarantee import SHARE_TO_CHOOSE

STEPS = 200  # thresholds to test at most, evenly spaced in coverage
SAFETY = 5  # a threshold looks safe if it is to pass with this much to spare


def split_validation(n_samples: int, random_state: int) -> tuple[Ints, Ints]:
    """The rows that lay the sequence, and fit what is fitted on labels; and those that certify."""
    order = np.random.default_rng(random_state).permutation(n_samples)
    cut = max(1, n_samples // SHARE_TO_CHOOSE)
    return np.sort(order[:cut]), np.sort(order[cut:])


def certify_threshold(
    scores: Floats,
    wrong: Bools,
    *,
    accuracy: float,
    confidence: float,
    random_state: int = 0,
) -> float:
    """Find the lowest threshold whose accuracy is certified; inf if there is none.

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
    laying, testing = split_validation(len(scores), random_state)
    thresholds = _sequence(scores[laying], wrong[laying], len(testing), accuracy, confidence)
    counts, errors = _count(scores[testing], wrong[testing], thresholds)
    passed = p_values(errors, counts, accuracy) <= 1 - confidence
    n_passed = int(np.argmin(np.append(passed, False)))
    return float(thresholds[n_passed - 1]) if n_passed else float("inf")


def _sequence(
    scores: Floats, wrong: Bools, n_testing: int, accuracy: float, confidence: float
) -> Floats:
    """Thresholds from the first safe one towards more coverage, by the samples that lay them."""
    distinct = np.unique(scores[np.isfinite(scores) | (scores > 0)])[::-1]
    if not len(distinct):
        return distinct
    picked = np.unique(np.linspace(0, len(distinct) - 1, min(STEPS, len(distinct))).astype(int))
    thresholds: Floats = distinct[picked]
    counts, errors = _count(scores, wrong, thresholds)
    # As if there were as many samples as will test; one more error than seen, as a stretch without
    # any has not been tried enough to tell.
    scale = n_testing / len(scores)
    expected = np.rint(scale * (errors + 1)).astype(np.int64)
    doubts = p_values(expected, np.rint(scale * counts).astype(np.int64), accuracy)
    safe = doubts <= (1 - confidence) / SAFETY
    return thresholds[int(safe.argmax() if safe.any() else doubts.argmin()) :]


def _count(scores: Floats, wrong: Bools, thresholds: Floats) -> tuple[Ints, Ints]:
    """How many score at least each threshold, and how many of those are wrong."""
    every, missed = np.sort(scores), np.sort(scores[wrong])
    counts = len(every) - np.searchsorted(every, thresholds, side="left")
    return counts, len(missed) - np.searchsorted(missed, thresholds, side="left")


THRESHOLDS = 100  # as many as it tests by default


def certify_by_mapie(
    scores: Floats, wrong: Bools, *, accuracy: float, confidence: float, random_state: int = 0
) -> float:
    """Find the threshold that MAPIE certifies; inf if there is none.

    scores, wrong, accuracy, confidence, random_state: as for `certify_threshold`.
    """
    try:
        from mapie.risk_control import BinaryClassificationController
    except ImportError as error:
        raise MissingExtraError("MAPIE's risk control", "compare") from error
    # It takes probabilities: ranks in (0, 1] carry the same order.
    levels = np.unique(scores)
    shares = np.searchsorted(levels, scores, side="right") / len(levels)
    laying, testing = split_validation(len(scores), random_state)
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
    if best is None:
        return float("inf")
    return float(levels[round(float(best) * len(levels)) - 1])
