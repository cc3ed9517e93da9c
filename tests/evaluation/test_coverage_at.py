"""Coverage at an accuracy, against every threshold tried in turn."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_iris, make_blobs
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from iknow import Assertion, Ball, EpistemicClassifier, evaluate
from iknow.errors import InputError
from iknow.evaluation import CoverageAt
from iknow.evaluation.risk import largest_coverage


def try_every_threshold(scores, right, accuracy):
    """The largest share asserted of all thresholds above 0 that keep the accuracy; slow."""
    best = 0.0
    for threshold in scores[scores > 0]:
        asserted = scores >= threshold
        if right[asserted].mean() >= accuracy:
            best = max(best, asserted.mean())
    return best


@given(
    st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=25),
    st.sampled_from([0.01, 0.5, 2 / 3, 0.75, 0.9, 1.0]),
)
def test_it_is_the_best_of_all_thresholds(samples, accuracy):
    scores = np.array([score / 5 for score, _ in samples])
    right = np.array([each for _, each in samples])
    expected = try_every_threshold(scores, right, accuracy)
    assert largest_coverage(scores, right, accuracy) == pytest.approx(expected, abs=1e-12)
    order = np.random.default_rng(0).permutation(len(scores))
    assert largest_coverage(scores[order], right[order], accuracy) == pytest.approx(expected)


@pytest.fixture(scope="module")
def overlapping():
    return make_blobs(400, 2, centers=3, cluster_std=1.3, random_state=0)


@pytest.fixture(scope="module")
def levels(overlapping):
    X, y = overlapping
    model = LogisticRegression().fit(X[:150], y[:150])
    ec = EpistemicClassifier(FrozenEstimator(model), progress=False).fit(X[:150], y[:150])
    return ec.tune(X[150:300], y[150:300])


@pytest.mark.parametrize("accuracy", [0.8, 0.9, 0.95, 1.0])
def test_levels_are_asserted_from_the_highest_on(levels, overlapping, accuracy):
    X, y = overlapping[0][300:], overlapping[1][300:]
    assessment = levels.assess(X)
    expected = try_every_threshold(assessment.level, assessment.belief == y, accuracy)
    assert CoverageAt(accuracy)(levels, X, y) == pytest.approx(expected)
    if accuracy < 1:
        assert expected > 0.1


def test_it_does_not_depend_on_the_level_that_was_chosen(levels, overlapping):
    X, y = overlapping[0][300:], overlapping[1][300:]
    few = copy.copy(levels).tune(overlapping[0][150:300], coverage=0.2)
    many = copy.copy(levels).tune(overlapping[0][150:300], coverage=0.9)
    known = [(each.assess(X).assertion == Assertion.IK).mean() for each in (few, many)]
    assert known[1] - known[0] > 0.3
    assert CoverageAt(0.9)(few, X, y) == CoverageAt(0.9)(many, X, y) > known[0]


@pytest.mark.parametrize("accuracy", [0.5, 0.9, 1.0])
def test_without_levels_the_coverage_counts_if_it_is_accurate(overlapping, accuracy):
    X, y = overlapping
    ec = EpistemicClassifier.paper(GaussianNB(), progress=False).fit(X[:300], y[:300])
    truth = np.where(np.arange(100) % 12, y[300:], (y[300:] + 1) % 3)
    report = evaluate(ec.assess(X[300:]), truth)
    expected = report.f_ik if report.a_ik >= accuracy else 0.0
    assert CoverageAt(accuracy)(ec, X[300:], truth) == pytest.approx(expected)
    assert 0 < report.f_ik < 1
    assert 0.5 < report.a_ik < 1


def test_classes_that_a_certificate_bars_are_never_asserted(overlapping):
    X, y = overlapping
    model = LogisticRegression().fit(X[:150], y[:150])
    ec = EpistemicClassifier(FrozenEstimator(model), progress=False).fit(X[:150], y[:150])
    seen = np.flatnonzero((y[150:300] < 2) | (np.arange(150) < 15)) + 150  # few of class 2
    ec.tune(X[seen], y[seen], accuracy=0.8, each_class=True)
    a = ec.assess(X[300:])
    barred = ~np.isin(a.belief_codes, a.knowable)
    assert barred.any()
    asserted = (a.level > 0) & ~barred
    right = a.belief[asserted] == y[300:][asserted]
    assert CoverageAt(right.mean())(ec, X[300:], y[300:]) == asserted.mean()


def test_nothing_known_scores_nothing(overlapping):
    X, y = overlapping
    ec = EpistemicClassifier(
        FrozenEstimator(GaussianNB().fit(X, y)), rule=Ball(0.0), progress=False
    ).fit(X[:300], y[:300])
    assert not (ec.assess(X[300:]).assertion == Assertion.IK).any()
    assert CoverageAt(0.5)(ec, X[300:], y[300:]) == 0.0


def test_a_grid_over_quorums_and_layers_finds_the_best():
    X, y = load_iris(return_X_y=True)
    noisy = y.copy()
    wrong = np.random.default_rng(0).choice(len(y), 15, replace=False)
    noisy[wrong] = (noisy[wrong] + 1) % 3
    scorer = CoverageAt(0.85)
    steps = make_pipeline(StandardScaler(), LogisticRegression())
    ec = EpistemicClassifier(steps, ["standardscaler", "output"], progress=False)
    search = GridSearchCV(ec, {"quorum": [1, (1, 3)]}, scoring=scorer, cv=3).fit(X, noisy)
    by_hand = [
        cross_val_score(ec.set_params(quorum=quorum), X, noisy, scoring=scorer, cv=3)
        for quorum in (1, (1, 3))
    ]
    means = search.cv_results_["mean_test_score"]
    np.testing.assert_allclose(means, np.mean(by_hand, axis=1))
    assert search.best_index_ == int(means.argmax())
    assert means[0] != means[1]
    assert search.score(X, noisy) == scorer(search.best_estimator_, X, noisy)


@pytest.mark.parametrize("wrong", [0, -1, 1.01, float("nan"), "0.9", None, True])
def test_an_accuracy_that_is_none_is_refused(wrong):
    with pytest.raises(InputError, match=r"accuracy must lie in \(0, 1\]"):
        CoverageAt(wrong)


def test_it_travels_to_other_processes_and_shows_what_it_is():
    assert pickle.loads(pickle.dumps(CoverageAt(0.9))) == CoverageAt(0.9)
    assert repr(CoverageAt(0.9)) == "CoverageAt(accuracy=0.9)"


def test_wrong_labels_and_estimators_are_refused(levels, overlapping):
    X, y = overlapping
    with pytest.raises(InputError, match="y_true must hold one label for each"):
        CoverageAt()(levels, X, y[:-1])
    with pytest.raises(InputError, match=r"may wrap a pipeline: .*; got .*LogisticRegression"):
        CoverageAt()(LogisticRegression().fit(X, y), X, y)
