"""MAPIE's risk control for a softmax threshold, beside our own certificates.

Its `BinaryClassificationController` controls the precision of a binary classifier. Call an answer
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

from iknow.core.arrays import Bools, Floats
from iknow.errors import MissingExtraError
from iknow.selection.validation import split_rows

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
    if best is None:
        return float("inf")
    return float(levels[round(float(best) * len(levels)) - 1])
