import json
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import betaln
from scipy.stats import binom

from iknow.errors import InputError
from iknow.serve.monitor import AccuracyMonitor
from iknow.serve.monitor.accuracy import ODDS, _factors, bound_errors
from iknow.serve.monitor.martingale import play, start
from tests.serve.monitor.streams import is_at_most


@pytest.mark.parametrize("allowed", [0.001, 0.01, 0.2, 0.5])
def test_no_bet_gains_while_the_accuracy_holds(allowed):
    right, wrong = _factors(allowed)
    for truth in (0.0, allowed / 2, allowed):
        assert (truth * wrong + (1 - truth) * right <= 1 + 1e-12).all()
    assert (right > 0).all()
    assert right[0] == wrong[0] == 1


def rates(n, length, seed):
    """Error probabilities that change and depend on the past, never above 0.05."""
    rng = np.random.default_rng(seed)
    chance = np.full(n, 0.05)
    for _ in range(length):
        wrong = rng.random(n) < chance
        yield wrong, chance
        chance = np.where(wrong, 0.05, np.where(rng.random(n) < 0.1, 0.01, chance))


@pytest.mark.slow
def test_the_alarm_keeps_its_rate_while_the_accuracy_holds():
    n, rate = 10_000, 0.05
    highest, (stakes, exponents) = np.zeros(n), start((n,), len(ODDS))
    for t, (wrong, _) in enumerate(rates(n, 600, 0)):
        factors = _factors(0.05)[wrong.astype(int)][None]
        stakes, exponents, found = play(stakes, exponents, factors, t)
        highest = np.maximum(highest, found[0])
    assert is_at_most(int((highest >= -np.log2(rate)).sum()), n, rate)
    assert (highest >= -np.log2(0.5)).any()


@pytest.mark.slow
def test_the_confidence_sequence_covers_at_all_times_even_if_the_accuracy_changes():
    n, alpha, length = 2_000, 0.1, 150
    tables = np.array([[bound_errors(k, t, alpha) for k in range(31)] for t in range(length + 1)])
    errors, total, missed = np.zeros(n, int), np.zeros(n), np.zeros(n, bool)
    for t, (wrong, chance) in enumerate(rates(n, length, 1), 1):
        errors, total = errors + wrong, total + chance
        low, high = tables[t, np.minimum(errors, 30)].T
        missed |= (total / t < low - 1e-12) | ((total / t > high + 1e-12) & (errors <= 30))
    assert is_at_most(int(missed.sum()), n, alpha)


def robbins(errors, n, alpha):
    """Robbins' interval with a uniform prior, by trying out all averages."""
    m = np.linspace(1e-6, 1 - 1e-6, 20_001)
    logs = betaln(errors + 1, n - errors + 1) - errors * np.log(m) - (n - errors) * np.log1p(-m)
    kept = m[logs < np.log(1 / alpha)]
    return kept.min(), kept.max()


@pytest.mark.parametrize(("errors", "n"), [(0, 100), (5, 1000), (50, 1000), (300, 1000), (9, 10)])
def test_the_interval_is_about_as_wide_as_that_of_robbins(errors, n):
    low, high = bound_errors(errors, n, 0.05)
    theirs = robbins(errors, n, 0.05)
    assert low <= errors / n <= high
    assert (high - low) < 1.5 * (theirs[1] - theirs[0])


@settings(max_examples=12)
@given(st.integers(1, 500), st.data())
def test_an_interval_excludes_what_a_single_look_would(n, data):
    """Valid at all times, so never narrower than the exact interval for one look."""
    errors = data.draw(st.integers(0, n))
    low, high = bound_errors(errors, n, 0.05)
    assert binom.sf(errors - 1, n, low) <= 0.025 or low == 0
    assert binom.cdf(errors, n, high) <= 0.025 or high == 1
    if errors < n:
        assert high > bound_errors(errors, n, 0.2)[1] - 1e-12


def test_nothing_is_known_without_labels():
    report = AccuracyMonitor(0.99).report()
    assert (report.low, report.high, report.accuracy, report.alarmed) == (0, 1, None, False)
    assert bound_errors(0, 0, 0.05) == (0, 1)


def test_it_rings_after_the_accuracy_fell_late():
    rng, delays = np.random.default_rng(0), []
    for _ in range(10):
        monitor = AccuracyMonitor(0.98)
        assert monitor.update(rng.random(5_000) > 0.01) == ()
        (alarm,) = monitor.update(rng.random(1_000) > 0.1)
        delays.append(alarm.sample - 5_000)
        assert monitor.update(np.zeros(50, bool)) == (), "it rings once"
    assert np.median(delays) < 150
    assert monitor.report().alarmed_at == alarm.sample


def test_without_a_certificate_it_only_estimates():
    monitor = AccuracyMonitor(None)
    assert monitor.update(np.zeros(500, bool)) == ()
    report = monitor.report()
    assert (report.right, report.accuracy, report.evidence) == (0, 0.0, 1.0)
    assert 0 <= report.low <= report.high < 0.05


@settings(max_examples=15)
@given(st.lists(st.integers(0, 80), max_size=4))
def test_restarts_change_no_bit(cuts):
    right = np.random.default_rng(0).random(80) > 0.2
    whole = AccuracyMonitor(0.9)
    alarms = whole.update(right)
    monitor, found = AccuracyMonitor(0.9), ()
    edges = [0, *sorted(cuts), 80]
    for first, last in pairwise(edges):
        monitor = AccuracyMonitor.from_dict(json.loads(json.dumps(monitor.to_dict())))
        found += monitor.update(right[first:last])
    assert monitor.to_dict() == whole.to_dict()
    assert found == alarms


@pytest.mark.parametrize("wrong", [[1, 0], [0.5], True, [[True]], ["x"], [None]])
def test_labels_must_be_booleans(wrong):
    monitor = AccuracyMonitor(0.9)
    with pytest.raises(InputError, match="booleans"):
        monitor.update(wrong)
    assert monitor.report().samples == 0


@pytest.mark.parametrize("certified", [0, 1, 1.5, np.nan, "x", True])
def test_a_certificate_lies_between_0_and_1(certified):
    with pytest.raises(InputError):
        AccuracyMonitor(certified)


@pytest.mark.parametrize(
    ("key", "value"),
    [("format", 0), ("samples", -1), ("errors", 5), ("gamblers", None)],
)
def test_a_damaged_state_is_refused(key, value):
    record = AccuracyMonitor(0.9).to_dict()
    with pytest.raises(InputError):
        AccuracyMonitor.from_dict({**record, key: value})
    with pytest.raises(InputError):
        AccuracyMonitor.from_dict([])
