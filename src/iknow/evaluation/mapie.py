"""MAPIE's risk control for a softmax threshold, beside our own certificates.

Its `BinaryClassificationController` controls the precision of a binary classifier. Call an answer
"positive" if it is right, and the model's probability for its answer the classifier's: then
precision is the accuracy of what is asserted, and a threshold that controls it certifies that
accuracy.

Of its procedures we take `split_fixed_sequence`, which orders the thresholds by a part of the data
and tests them on the rest, as we do; the plain one corrects for each threshold and certifies less.
The thresholds are quantiles of the scores, as its own even grid from 0 to 0.99 is too coarse for a
network that is nearly always sure. The extra `compare` installs it.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from iknow.core.arrays import Bools, Floats
from iknow.errors import MissingExtraError
from iknow.evaluation.certified import STEPS, split_validation


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
    steps = np.unique(np.quantile(shares[laying], np.linspace(0, 1, STEPS), method="lower"))
    controller = BinaryClassificationController(
        predict_function=lambda column: np.column_stack([1 - column[:, 0], column[:, 0]]),
        risk="precision",
        target_level=accuracy,
        confidence_level=confidence,
        list_predict_params=steps,
        fwer_method="split_fixed_sequence",
    )
    right = (~wrong).astype(np.int64)
    with warnings.catch_warnings():  # it warns where no threshold is valid: we say it ourselves
        warnings.simplefilter("ignore")
        controller.learn_fixed_sequence_order(shares[laying, None], right[laying], binary=True)
        controller.calibrate(shares[testing, None], right[testing])
    best: Any = controller.best_predict_param
    if best is None:
        return float("inf")
    return float(levels[round(float(best) * len(levels)) - 1])
