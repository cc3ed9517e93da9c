"""Learned calibrations, beside scikit-learn and MAPIE, and held against populations whose truth is
known.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from sklearn.isotonic import isotonic_regression
from sklearn.linear_model import LogisticRegression

from iknow.core.calibration import find_score
from iknow.selection import Goal, levels, probability
from iknow.selection.levels import choose_level, lay_path
from iknow.selection.probability import calibrate, fit_logistic, learn
from iknow.selection.validation import split
from tests.selection.populations import disagreeing


def draw(rng, n, truth):
    """Levels, confidences and what is right, with how likely that is."""
    level = np.clip(rng.beta(1.5, 1, n) * 1.2, 0, 1)
    level[rng.random(n) < 0.003] = 0
    confidence = rng.normal(4, 3, n)
    likely = truth(level, confidence)
    return level, confidence, rng.random(n) < likely, likely


def smooth(level, confidence):
    return expit(0.8 * confidence + 0.7 * np.log(np.maximum(level, 1e-3)))


def with_wrong_labels(level, confidence):
    return 0.9 * expit(confidence)


def test_the_logistic_regression_is_that_of_scikit_learn():
    level, confidence, right, _ = draw(np.random.default_rng(0), 3000, smooth)
    seen = level > 0
    level, confidence, right = level[seen], confidence[seen], right[seen]
    weights, intercept = fit_logistic(level, confidence, right)
    # Platt's targets, as samples of both kinds with weights.
    n_right, n_wrong = right.sum(), (~right).sum()
    target = np.where(right, (n_right + 1) / (n_right + 2), 1 / (n_wrong + 2))
    features = np.tile(np.column_stack([confidence, np.log(level)]), (2, 1))
    theirs = LogisticRegression(C=1 / (2 * probability.RIDGE), tol=1e-10).fit(
        features, np.repeat([1, 0], len(right)), np.append(target, 1 - target)
    )
    np.testing.assert_allclose([*weights, intercept], [*theirs.coef_[0], *theirs.intercept_], 1e-3)


def test_steps_are_those_of_isotonic_regression_with_a_thousand_samples_of_the_curve():
    level, confidence, right, _ = draw(np.random.default_rng(1), 1500, with_wrong_labels)
    found = calibrate(level, confidence, right)
    seen = level > 0
    weights, intercept = fit_logistic(level[seen], confidence[seen], right[seen])
    score = weights[0] * confidence[seen] + weights[1] * np.log(level[seen])
    step = np.searchsorted(found.bounds, score)
    mixed = []
    for each in range(len(found.bounds) + 1):
        on_it = step == each
        share, curve = right[seen][on_it].mean(), expit(score[on_it] + intercept).mean()
        mixed.append((1500 * share + 1000 * curve) / 2500)
    n, n_right = (~seen).sum(), right[~seen].sum()
    theirs = isotonic_regression(
        [(n_right + 1) / (n + 2), *mixed], sample_weight=[n + 2, *np.bincount(step)]
    )
    np.testing.assert_allclose(found.probabilities, theirs, atol=1e-12)
    assert found.counts.tolist() == [n, *np.bincount(step)]
    assert set(np.bincount(step)) <= {14, 15}  # evenly


def test_more_of_either_never_makes_a_belief_less_likely_right():
    rng = np.random.default_rng(2)
    for seed in range(20):
        n = int(rng.integers(2, 300))
        level, confidence = rng.random(n), rng.normal(size=n) * 4
        level[rng.random(n) < 0.1] = 0
        found = calibrate(level, confidence, rng.random(n) < rng.random())
        if found is None:
            continue
        one, other = (
            np.sort(rng.random((2, 500)), axis=0),
            np.sort(rng.normal(size=(2, 500)), axis=0),
        )
        low = found.probability(one[0], other[0])
        assert (low <= found.probability(one[1], other[1])).all(), seed
        bottom = found.probability(np.zeros(500), other[1] * 100)
        assert (bottom <= low).all(), seed
        assert bottom.min() == bottom.max() == found.probabilities[0]


def errors_of(truth, n):
    """Squared errors of probabilities of new samples: ours, the curve alone, and of Venn-Abers
    predictors of confidence alone, as MAPIE has them.
    """
    venn_abers = pytest.importorskip("mapie._venn_abers").VennAbers()
    rng = np.random.default_rng(3)
    level, confidence, right, _ = draw(rng, n, truth)
    new_level, new_confidence, _, likely = draw(rng, 20_000, truth)
    seen = level > 0
    weights, intercept = fit_logistic(level[seen], confidence[seen], right[seen])
    curve = expit(find_score(weights, new_level, new_confidence) + intercept)
    known, new = (expit(each)[:, None] * [-1, 1] + [1, 0] for each in (confidence, new_confidence))
    venn_abers.fit(known, right.astype(int))
    ours = calibrate(level, confidence, right).probability(new_level, new_confidence)
    told = ours, curve, venn_abers.predict_proba(new)[0][:, 1]
    return [np.mean((each - likely)[new_level > 0] ** 2) for each in told]


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning:mapie")
@pytest.mark.parametrize("n", [200, 1000, 5000])
def test_it_comes_closer_to_a_smooth_truth_than_venn_abers(n):
    ours, _, theirs = errors_of(smooth, n)
    assert ours < 0.004
    assert ours < 0.7 * theirs


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning:mapie")
@pytest.mark.parametrize(("n", "gain"), [(1000, 1.5), (5000, 5)])
def test_steps_correct_the_curve_where_labels_are_wrong_however_sure_the_model_is(n, gain):
    ours, curve, _ = errors_of(with_wrong_labels, n)
    assert gain * ours < curve


def test_without_an_error_it_does_not_claim_that_there_is_never_any():
    n = 200
    found = calibrate(np.linspace(0.01, 1, n), np.linspace(0, 8, n), np.ones(n, dtype=bool))
    assert 0.99 < found.probabilities[-1] < 0.9995
    assert found.probabilities[0] == 0.5  # nobody knows
    _, low, high = found.estimate(found.counts)
    assert low < 0.99
    assert high == 1


def test_only_level_0_and_ties_everywhere():
    right = np.array([True, False, True, True])
    assert calibrate(np.zeros(4), np.zeros(4), right) is None
    found = calibrate(np.ones(4), np.full(4, np.inf), right)
    assert found.counts.tolist() == [0, 4]
    assert found.probabilities[1] == pytest.approx(0.7, abs=0.06)


# Which samples teach it


def test_the_samples_that_did_not_lay_the_path_teach_it_if_there_are_any():
    population = disagreeing(np.linspace(0.0, 0.3, 3000))
    whole = population.draw(np.random.default_rng(0), 1000)
    first, second = split(whole, 0)
    certified = choose_level(Goal(accuracy=0.85), whole, None)
    path = certified.levels
    for found, part in (
        (certified, second),
        (choose_level(Goal(coverage=0.5), whole, None), whole),
        (choose_level(Goal(coverage=0.5), second, first), second),
        (choose_level(Goal(false_alarm=0.2), whole, None), split(whole, 0, share=2)[1]),
    ):
        expected = learn(found.levels, part)
        for name in ("bounds", "probabilities", "counts"):
            np.testing.assert_array_equal(getattr(found.calibration, name), getattr(expected, name))
        assert found.calibration.counts.sum() == len(part)
    assert learn(path, replace(second, y_true=None)) is None


def test_a_certificate_is_the_same_with_and_without_it(monkeypatch):
    population = disagreeing(np.linspace(0.0, 0.3, 3000))
    whole = population.draw(np.random.default_rng(0), 1000)
    goal = Goal(accuracy=0.85)
    found = choose_level(goal, whole, None)
    assert found.calibration is not None
    monkeypatch.setattr(levels, "learn", lambda path, part: None)
    bare = choose_level(goal, whole, None)
    assert bare.calibration is None
    assert found == bare
    assert found.certificate == bare.certificate


# The estimated accuracy


def covered(n, m, n_draws, make):
    """How often the interval holds the accuracy of m samples, on n that are labeled."""
    hits = 0
    for seed in range(n_draws):
        found, level, confidence, right = make(np.random.default_rng(seed), n, m)
        tally = found.tally(level, found.probability(level, confidence))
        _, low, high = found.estimate(tally)
        hits += low <= right.mean() <= high
    return hits / n_draws


def from_truth(truth):
    def make(rng, n, m):
        level, confidence, right, _ = draw(rng, n, truth)
        return calibrate(level, confidence, right), *draw(rng, m, truth)[:3]

    return make


def from_paths(rng, n, m, *, certified=True):
    """All of it: a path, its calibration, and the levels of new samples on it."""
    population = disagreeing(np.linspace(0.0, 0.4, 3000) ** 2)
    whole, new = population.draw(rng, n), population.draw(rng, m)
    laying, teaching = split(whole, 0) if certified else (whole, whole)
    path = lay_path(laying, 0.05)
    found = learn(path, teaching)
    level = path.without_model(path.ranks(new.contrasts, new.confidence))
    return found, level, new.confidence, ~new.wrong


def from_one_set(rng, n, m):
    return from_paths(rng, n, m, certified=False)


MAKERS = [from_truth(smooth), from_truth(with_wrong_labels), from_paths, from_one_set]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize(("n", "m"), [(200, 60), (1000, 1000)])
def test_the_interval_holds_the_accuracy_in_19_of_20_draws(make, n, m):
    # 60 draws of 0.95: fewer than 50 have a probability of 5e-4.
    assert covered(n, m, 60, make) >= 50 / 60


@pytest.mark.slow
@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("n", [150, 2000])
@pytest.mark.parametrize("m", [30, 1000, 10_000])
def test_the_interval_holds_the_accuracy_in_many_draws(make, n, m):
    assert covered(n, m, 200, make) >= 0.91  # of 0.95, fewer have a probability of 5e-3


def test_a_shift_to_what_was_never_seen_lowers_the_estimate_and_widens_it():
    rng = np.random.default_rng(0)
    found, level, confidence, _ = from_truth(smooth)(rng, 2000, 1000)
    usual = found.estimate(found.tally(level, found.probability(level, confidence)))
    level[:500], confidence[:500] = 0, 30.0  # the model is sure of what it has never seen
    probability_now = found.probability(level, confidence)
    shifted = found.estimate(found.tally(level, probability_now))
    assert (probability_now[:500] <= 0.5).all()
    assert shifted[0] < usual[0] - 0.1
    assert shifted[2] - shifted[1] > 0.5
