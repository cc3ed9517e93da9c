"""Calibration: how likely a belief is right, given its level and the model's confidence.

One score orders the predictions. Confidence is a voice of the level too, and most often decides it;
so beside it the score takes what the voices of the layers say (`Levels.without_model`):

    score = a · confidence + b · ln(level without it)    a, b >= 0

A table of steps (`iknow.selection.probability`) gives a probability that only rises with it. At
level 0 nothing like the sample was seen, and confidence means nothing: there the probability is
that of the lowest step.

**The accuracy of samples without labels** is estimated by their mean probability. What it is of
these m samples differs from that by chance, and so does each step's probability, learned from n_s
samples, from what is true there. With w_s the share of the m samples on step s the variances are

    sum of w_s p_s (1 - p_s) / m     and     sum of w_s² p_s (1 - p_s) / n_s

Steps of equal probability count as one. What is true at level 0 nobody knows, as these samples
resemble none: the second variance takes 1/4 there, the largest possible, and n_s = 1. The interval
takes 1.96 standard deviations and half a sample. It holds for samples that come like those the
calibration was learned from.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.errors import InputError

MOST_ODDS = 50.0  # of a model that is certain: a log-odds that exp still tells from inf


@dataclass(frozen=True, eq=False)
class Calibration:
    """Probabilities by score, and how many labeled samples each was learned from."""

    weights: tuple[float, float]  # a and b: of the confidence, and of the logarithm
    bounds: Floats  # between the scores of two steps, ascending, of shape (n_steps - 1,)
    probabilities: Floats  # of each step, the first at level 0, ascending, of shape (n_steps + 1,)
    counts: Ints  # of labeled samples in each, of shape (n_steps + 1,)

    def __post_init__(self) -> None:
        p, shapes = self.probabilities, (self.probabilities.shape, self.counts.shape)
        if self.bounds.ndim != 1 or set(shapes) != {(len(self.bounds) + 2,)}:
            raise InputError(
                "a calibration needs one probability and one count more than steps, and one bound "
                f"less; got shapes {shapes} and {self.bounds.shape}"
            )
        ascend = (np.diff(p) >= 0).all() and (np.diff(self.bounds) >= 0).all()
        if not (ascend and p[0] >= 0 and p[-1] <= 1 and np.isfinite(self.bounds).all()):
            raise InputError(
                "the probabilities of a calibration must ascend from 0 to 1 at most, and its "
                "bounds be ascending numbers"
            )
        if (self.counts < 0).any() or not all(0 <= each < np.inf for each in self.weights):
            raise InputError("the counts and weights of a calibration must be numbers >= 0")

    def probability(self, level: Floats, confidence: Floats) -> Floats:
        """How likely each belief is right, of shape (n,).

        level: that without the model, 0 where the level is, of shape (n,), as
        `Levels.without_model` gives it. confidence: of shape (n,), as `log_odds` gives it.
        """
        score = find_score(self.weights, level, confidence)
        step = 1 + np.searchsorted(self.bounds, score, side="right")
        return np.asarray(self.probabilities[np.where(level > 0, step, 0)])

    def tally(self, level: Floats, probability: Floats) -> Ints:
        """How many of n samples are on each step, of shape (n_steps + 1,); those of NaN, without a
        belief, on none. probability: as `probability` gives it.
        """
        level, p = level[~np.isnan(probability)], probability[~np.isnan(probability)]
        step = np.where(level > 0, 1 + np.searchsorted(self.probabilities[1:], p), 0)
        return np.bincount(step, minlength=len(self.counts))

    def estimate(self, tally: Ints) -> tuple[float, float, float]:
        """The accuracy of samples without labels, and its 95% interval, from how many are on each
        step; NaN without any.
        """
        m, p = int(tally.sum()), self.probabilities
        if not m:
            return np.nan, np.nan, np.nan
        block = np.append(0, 1 + np.unique(p[1:], return_inverse=True)[1])  # level 0 by itself
        variance, share = p * (1 - p), tally / m
        chance = (share * variance).sum() / m
        variance[0] = 0.25
        of_block = np.bincount(block, share) ** 2 * variance[np.unique(block, return_index=True)[1]]
        learned = np.append(1, np.maximum(np.bincount(block, self.counts)[1:], 1))
        spread = chance + (of_block / learned).sum()
        accuracy, reach = float(share @ p), float(1.96 * np.sqrt(spread) + 0.5 / m)
        return accuracy, max(accuracy - reach, 0.0), min(accuracy + reach, 1.0)


def find_score(weights: tuple[float, float], level: Floats, confidence: Floats) -> Floats:
    """What orders n predictions, of shape (n,); at level 0 it means nothing."""
    odds = np.clip(confidence, -MOST_ODDS, MOST_ODDS)
    ordinary = np.log(np.where(level > 0, level, 1.0))
    return np.asarray(weights[0] * odds + weights[1] * ordinary)
