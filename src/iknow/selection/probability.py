"""Learning a calibration: how likely a belief is right, from samples whose labels are known.

    1. a logistic regression of right on the confidence and the logarithm of the level without it,
       neither with a negative weight, orders the samples by one score (`iknow.core.calibration`);
    2. samples of neighboring scores form steps, and isotonic regression corrects the curve there: a
       network may be sure of its errors, and labels may be wrong however sure it is.

Each step is pulled towards the curve, as if that had observed `PRIOR` samples more, spread over all
steps. The curve aims at (n + 1) / (n + 2) and 1 / (n + 2) in place of 1 and 0, as Platt has it.
Level 0 is a step by itself, the lowest, with even odds as two samples more: what resembles nothing
is not more likely right than wrong, unless ordinary samples at level 0 say so.

Samples that certify may teach this too, as a probability has no influence on what is IK. Where the
same samples laid the path, each ranks among those that include it, so what is learned is a little
optimistic, by about one in n.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import isotonic_regression, minimize
from scipy.special import expit, log_expit

from iknow.core.arrays import Bools, Floats
from iknow.core.calibration import Calibration, find_score
from iknow.core.level import Levels
from iknow.selection.validation import Validation

STEPS = 100  # at most, of as many samples each, but for equals
PRIOR = 1000  # samples that the logistic regression counts as
RIDGE = 1e-3  # on its weights, which keeps them finite where it separates right from wrong


def learn(path: Levels, part: Validation) -> Calibration | None:
    """The calibration of labeled samples on a path; None without labels."""
    if part.y_true is None:
        return None
    level = path.without_model(path.ranks(part.contrasts, part.confidence))
    confidence = np.zeros(len(part)) if part.confidence is None else part.confidence
    return calibrate(level, confidence, ~part.wrong)


def calibrate(level: Floats, confidence: Floats, right: Bools) -> Calibration | None:
    """The calibration of n samples; None if all are at level 0.

    level, confidence: as for `Calibration.probability`. right: mask of shape (n,) of the beliefs
    that are right.
    """
    seen = level > 0
    if not seen.any():
        return None
    n, n_unseen, right_unseen = len(right), int((~seen).sum()), int(right[~seen].sum())
    weights, intercept = fit_logistic(level[seen], confidence[seen], right[seen])
    score = find_score(weights, level[seen], confidence[seen])
    order = np.argsort(score, kind="stable")
    score, label = score[order], right[seen][order]
    last = np.linspace(0, len(score), min(STEPS, len(score)) + 1)[1:].astype(np.int64) - 1
    ends = np.unique(np.searchsorted(score, score[last], side="right"))  # equals share a step
    starts = np.append(0, ends[:-1])
    counts = ends - starts
    share = np.add.reduceat(label, starts, dtype=np.float64) / counts
    expected = np.add.reduceat(expit(score + intercept), starts) / counts
    mixed = (n * share + PRIOR * expected) / (n + PRIOR)
    lowest = (right_unseen + 1) / (n_unseen + 2)
    fit = isotonic_regression(np.append(lowest, mixed), weights=np.append(n_unseen + 2, counts)).x
    return Calibration(
        weights=weights,
        bounds=(score[starts[1:]] + score[ends[:-1] - 1]) / 2,
        probabilities=np.clip(fit, 0.0, 1.0),
        counts=np.append(n_unseen, counts).astype(np.int64),
    )


def fit_logistic(
    level: Floats, confidence: Floats, right: Bools
) -> tuple[tuple[float, float], float]:
    """The weights for `find_score`, and the intercept: right with probability expit of their sum.

    The arguments are of shape (n,), with levels above 0.
    """
    parts = [find_score(unit, level, confidence) for unit in ((1.0, 0.0), (0.0, 1.0))]
    features = np.column_stack([*parts, np.ones(len(level))])
    n_right, n = int(right.sum()), len(right)
    target = np.where(right, (n_right + 1) / (n_right + 2), 1 / (n - n_right + 2))

    def surprise(weights: Floats) -> tuple[float, Floats]:
        odds = features @ weights
        lost = target * log_expit(odds) + (1 - target) * log_expit(-odds)
        slope = features.T @ (expit(odds) - target) + 2 * RIDGE * weights
        return float(RIDGE * weights @ weights - lost.sum()), slope

    bounds = [(0, None), (0, None), (None, None)]
    found = minimize(surprise, [1.0, 0.0, 0.0], jac=True, bounds=bounds, method="L-BFGS-B").x
    return (float(found[0]), float(found[1])), float(found[2])
