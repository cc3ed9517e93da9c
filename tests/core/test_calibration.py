"""Calibrations: a probability that rises with level and confidence, and the estimated accuracy."""

from dataclasses import replace

import numpy as np
import pytest

from iknow.core.calibration import Calibration
from iknow.errors import InputError

STAIRS = Calibration(
    weights=(1.0, 0.5),
    bounds=np.array([-1.0, 2.0]),
    probabilities=np.array([0.25, 0.25, 0.75, 0.98]),
    counts=np.array([4, 40, 100, 300]),
)


def test_a_probability_is_that_of_the_step_its_score_is_on():
    level = np.array([1.0, 1.0, 1.0, 1.0, np.exp(-2.0), 0.0])
    odds = np.array([-1.5, -1.0, 1.9, 2.0, 2.5, 40.0])
    expected = [0.25, 0.75, 0.75, 0.98, 0.75, 0.25]
    assert STAIRS.probability(level, odds).tolist() == expected


def test_no_confidence_is_too_large_and_at_level_0_none_helps():
    odds = np.array([np.inf, -np.inf, 1e300])
    assert STAIRS.probability(np.ones(3), odds).tolist() == [0.98, 0.25, 0.98]
    lowest = replace(STAIRS, probabilities=np.array([0.1, 0.25, 0.75, 0.98]))
    assert lowest.probability(np.zeros(3), odds).tolist() == [0.1] * 3


def test_a_tally_knows_level_0_from_a_step_of_the_same_probability():
    level = np.array([0.0, 0.2, 1.0, 1.0, 0.5])
    probability = np.array([0.25, 0.25, 0.75, 0.98, np.nan])
    assert STAIRS.tally(level, probability).tolist() == [1, 1, 1, 1]


def test_the_accuracy_is_the_mean_and_its_interval_narrows_with_more_samples():
    tally = np.array([0, 10, 50, 140])
    p = np.repeat(STAIRS.probabilities, tally)
    accuracy, low, high = STAIRS.estimate(tally)
    assert accuracy == pytest.approx(p.mean())
    # By hand: the chance of these samples, and of those that each step was learned from.
    variance = p * (1 - p)
    learned = (0.05**2 * variance[0] / 40) + (0.25**2 * variance[10] / 100)
    learned += 0.7**2 * variance[-1] / 300
    reach = 1.96 * np.sqrt(variance.sum() / 200**2 + learned) + 0.5 / 200
    assert (low, high) == pytest.approx((p.mean() - reach, p.mean() + reach))
    _, lower, higher = STAIRS.estimate(100 * tally)
    assert low < lower < higher < high
    assert np.isnan(STAIRS.estimate(np.zeros(4, dtype=np.int64))).all()


def test_what_resembles_nothing_has_an_accuracy_that_nobody_knows():
    certain = replace(STAIRS, counts=np.array([10**6] * 4))
    assert certain.estimate(np.array([1000, 0, 0, 0]))[1:] == (0.0, 1.0)
    _, low, high = certain.estimate(np.array([500, 0, 0, 500]))
    assert high - low > 0.7
    _, low, high = certain.estimate(np.array([0, 500, 0, 500]))
    assert high - low < 0.06


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"weights": (-1.0, 0.0)}, "numbers >= 0"),
        ({"weights": (np.nan, 0.0)}, "numbers >= 0"),
        ({"counts": np.array([4, -1, 0, 0])}, "numbers >= 0"),
        ({"bounds": np.array([2.0, -1.0])}, "ascend"),
        ({"bounds": np.array([0.0, np.inf])}, "ascend"),
        ({"bounds": np.array([0.0])}, "one bound"),
        ({"probabilities": np.array([0.5, 0.4, 0.6, 0.7])}, "ascend"),
        ({"probabilities": np.array([0.5, 0.6, 0.7, 1.1])}, "ascend"),
        ({"probabilities": np.array([0.5, np.nan, 0.7, 0.8])}, "ascend"),
        ({"counts": np.array([4, 3])}, "one probability"),
    ],
)
def test_what_is_no_calibration_is_refused(wrong, words):
    with pytest.raises(InputError, match=words):
        replace(STAIRS, **wrong)
