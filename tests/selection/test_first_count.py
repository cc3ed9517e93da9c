"""Where a sequence of tests begins, and that it breaks no promise wherever errors are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from iknow.evaluation.risk import certify_threshold
from iknow.selection.guarantee import first_count, least_samples


def errors_allowed(count, accuracy, confidence):
    """By trying all numbers of errors; -1 where not even none is allowed."""
    chances = binom.cdf(range(count + 1), count, 1 - accuracy)
    return max((e for e, chance in enumerate(chances) if chance <= 1 - confidence), default=-1)


def first_by_hand(n, accuracy, confidence):
    allowed = [errors_allowed(count, accuracy, confidence) for count in range(1, n + 1)]
    in_a_fifth = max([-1, *allowed[: n // 5]])
    return 1 + next(i for i, each in enumerate(allowed) if each >= max(in_a_fifth, 0))


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 150),
    st.sampled_from([0.3, 0.5, 0.8, 0.9, 0.95]),
    st.sampled_from([0.5, 0.8, 0.9, 0.99]),
)
def test_as_many_errors_are_allowed_as_fit_into_the_surest_fifth(more, accuracy, confidence):
    n = least_samples(accuracy, confidence) + more
    assert first_count(n, accuracy, confidence) == first_by_hand(n, accuracy, confidence)


@pytest.mark.parametrize(("accuracy", "confidence"), [(0.9, 0.9), (0.99, 0.95), (0.5, 0.5)])
def test_few_samples_begin_where_none_may_be_wrong_and_many_within_a_fifth(accuracy, confidence):
    least = least_samples(accuracy, confidence)
    assert first_count(least, accuracy, confidence) == least
    for n in (5 * least, 20 * least, 100 * least):
        found = first_count(n, accuracy, confidence)
        assert least <= found <= n // 5
        # One sample less allows one error less.
        fewer = errors_allowed(found - 1, accuracy, confidence)
        assert fewer < errors_allowed(n // 5, accuracy, confidence)


@pytest.mark.parametrize("n", [0, 1, 3])
def test_fewer_samples_than_any_certificate_takes_begin_at_one(n):
    assert first_count(n, 0.99, 0.95) >= 1


# The promise of the sequence, against populations of scores


def exactly_at(n, limit):
    return np.full(n, limit)


def surest_are_worst(n, limit):
    """Errors are among the surest tenth, and all together exactly at the limit."""
    errors, worst = np.zeros(n), max(n // 10, int(np.ceil(limit * n)))
    errors[:worst] = limit * n / worst
    return errors


def worse_than_the_limit_up_to_a_fifth(n, limit):
    """Where the sequence begins it is a little too bad, and then better, up to the limit."""
    errors = np.full(n, 0.0)
    errors[: n // 5] = 1.3 * limit
    errors[n // 5 :] = limit * (n - 1.3 * (n // 5)) / (n - n // 5)
    return errors


def never_good(n, limit):
    """In bands, above the limit and at it in turn."""
    return np.where(np.arange(n) // (n // 10) % 2, limit, 1.2 * limit)


@pytest.mark.parametrize("n_values", [4, 12, 1000], ids=lambda n: f"{n} values")
@pytest.mark.parametrize(
    "make", [exactly_at, surest_are_worst, worse_than_the_limit_up_to_a_fifth, never_good]
)
@pytest.mark.parametrize(
    ("accuracy", "confidence", "n"), [(0.8, 0.8, 120), (0.9, 0.9, 400), (0.5, 0.5, 40)]
)
def test_false_certificates_are_as_rare_as_promised(make, n_values, accuracy, confidence, n):
    """1,500 draws of scores, many of them ties; nothing is above the target."""
    kinds, rng, broken = 1000, np.random.default_rng(0), 0
    error = make(kinds, 1 - accuracy)
    value = -np.floor(np.arange(kinds) * n_values / kinds)  # the surest first
    below = np.array([error[value >= each].mean() for each in value]) >= 1 - accuracy - 1e-12
    assert below.any()
    for seed in range(1500):
        drawn = rng.integers(kinds, size=n)
        wrong = rng.random(n) < error[drawn]
        threshold = certify_threshold(
            value[drawn], wrong, accuracy=accuracy, confidence=confidence, random_state=seed
        )
        broken += np.isfinite(threshold) and bool(below[value == threshold].any())
    test = binomtest(int(broken), 1500, 1 - confidence, alternative="greater")
    assert test.pvalue > 1e-4, f"{broken} of 1500 certificates were false"


def test_the_simulation_sees_a_sequence_that_breaks_its_promise(monkeypatch):
    """The best of all thresholds, instead of those before the first that fails."""
    monkeypatch.setattr(np, "argmin", lambda passed: np.flatnonzero(passed).max(initial=-1) + 1)
    with pytest.raises(AssertionError, match="certificates were false"):
        test_false_certificates_are_as_rare_as_promised(exactly_at, 1000, 0.8, 0.8, 120)
