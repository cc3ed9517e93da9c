import numpy as np
import pytest

from iknow.evaluation.compare import draw_weights, interval


def test_a_resample_draws_as_many_samples_as_there_are():
    weights = draw_weights(50, np.random.default_rng(0), resamples=300)
    assert weights.shape == (300, 50)
    np.testing.assert_array_equal(weights.sum(axis=1), 50)
    assert weights.var() == pytest.approx(1 - 1 / 50, rel=0.1)  # binomial


def test_an_interval_covers_the_truth_as_often_as_promised():
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        sample = rng.random(100) < 0.3
        means = draw_weights(100, rng) @ sample / 100
        low, high = interval(means, 0.9)
        hits += low <= 0.3 <= high
    assert 165 <= hits <= 195
