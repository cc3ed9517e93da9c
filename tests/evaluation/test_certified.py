"""Certificates, by simulation: they hold as often as promised, and are not idle."""

import numpy as np
import pytest
from scipy.stats import binom

from iknow.evaluation.risk import certify_threshold
from iknow.selection.validation import split_rows


def draw(n, rng):
    """Scores in [0, 1]; an answer of score s is wrong with probability (1 - s) / 5."""
    scores = rng.random(n)
    return scores, rng.random(n) < (1 - scores) / 5


def true_accuracy(threshold):
    return 1 - (1 - min(threshold, 1.0)) / 10  # the mean of (1 - s) / 5 above the threshold


def test_a_promise_is_broken_rarely():
    rng = np.random.default_rng(0)
    broken = certified = 0
    for seed in range(400):
        threshold = certify_threshold(
            *draw(3000, rng), accuracy=0.95, confidence=0.8, random_state=seed
        )
        certified += np.isfinite(threshold)
        broken += np.isfinite(threshold) and true_accuracy(threshold) < 0.95
    assert certified > 300
    assert broken <= binom.ppf(0.999, 400, 0.2)


def test_it_certifies_nearly_all_that_is_true():
    threshold = certify_threshold(
        *draw(40_000, np.random.default_rng(1)), accuracy=0.95, confidence=0.95
    )
    assert 0.5 < threshold < 0.6  # at 0.5 the accuracy is 0.95


def test_the_last_that_passes_before_the_first_that_fails():
    """Against the test written out: a gap in the middle ends the sequence, whatever follows."""
    n = 2000
    scores = np.linspace(1, 0, n)
    wrong = np.zeros(n, dtype=bool)
    wrong[1000:1200] = True
    threshold = certify_threshold(scores, wrong, accuracy=0.95, confidence=0.95)
    laying, testing = split_rows(n, 0)
    assert sorted([*laying, *testing]) == list(range(n))
    taken = testing[scores[testing] >= threshold]
    assert binom.cdf(wrong[taken].sum(), len(taken), 0.05) <= 0.05
    assert scores[1200] < threshold < scores[900]


@pytest.mark.parametrize("n", [1, 2, 20])
def test_too_few_samples_certify_nothing(n):
    found = certify_threshold(
        np.arange(float(n)), np.zeros(n, dtype=bool), accuracy=0.99, confidence=0.95
    )
    assert np.isnan(found)


def test_what_is_always_wrong_is_never_certified():
    found = certify_threshold(
        np.arange(500.0), np.ones(500, dtype=bool), accuracy=0.9, confidence=0.95
    )
    assert np.isnan(found)


def test_where_nothing_is_certified_not_even_an_infinite_score_is_asserted():
    scores = np.where(np.arange(120) % 2, np.inf, 0.0)  # a forest whose trees all agree
    found = certify_threshold(scores, np.zeros(120, dtype=bool), accuracy=0.98, confidence=0.95)
    assert not (scores >= found).any()


def test_answers_that_are_none_are_never_asserted():
    scores = np.where(np.arange(2000) % 2, -np.inf, 1.0)
    found = certify_threshold(scores, np.arange(2000) % 2 == 1, accuracy=0.9, confidence=0.95)
    assert found == 1.0
