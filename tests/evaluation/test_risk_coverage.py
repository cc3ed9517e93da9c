"""Curves and areas against brute force over all thresholds, and against scikit-learn's AUROC."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from iknow.errors import InputError
from iknow.evaluation.risk import risk_coverage

samples = st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=30).map(
    lambda pairs: (
        np.array([score for score, _ in pairs], dtype=float),
        np.array([wrong for _, wrong in pairs]),
    )
)


@given(samples)
def test_each_point_is_a_threshold(sample):
    scores, wrong = sample
    curve = risk_coverage(scores, wrong)
    expected = [(0.0, 0.0)]
    for threshold in sorted(set(scores), reverse=True):
        taken = scores >= threshold
        expected.append((taken.mean(), (taken & wrong).mean()))
    np.testing.assert_allclose(np.column_stack([curve.coverage, curve.risk]), expected)


@given(samples)
def test_the_area_by_all_pairs(sample):
    """AUGRC is the chance that, of two samples, one is wrong and asserted before the other.

    Draw the one that sets the threshold, then one that may be missed: of equal scores either is
    first. A wrong sample against itself counts half as well, which makes the finite area exact.
    """
    scores, wrong = sample
    n, total = len(scores), 0.0
    for threshold in range(n):
        for missed in range(n):
            if wrong[missed]:
                total += (scores[missed] > scores[threshold]) + 0.5 * (
                    scores[missed] == scores[threshold]
                )
    assert risk_coverage(scores, wrong).area == pytest.approx(total / n**2)


@given(samples.filter(lambda sample: 0 < sample[1].sum() < len(sample[1])))
def test_the_area_by_the_papers_formula(sample):
    """Traub and others, equation 8: AUGRC = (1 - AUROC) acc (1 - acc) + (1 - acc)² / 2."""
    scores, wrong = sample
    accuracy = 1 - wrong.mean()
    auroc = roc_auc_score(~wrong, scores)
    expected = (1 - auroc) * accuracy * (1 - accuracy) + (1 - accuracy) ** 2 / 2
    assert risk_coverage(scores, wrong).area == pytest.approx(expected)


@given(samples, st.integers(0, 2**32 - 1))
def test_the_order_of_samples_does_not_matter(sample, seed):
    scores, wrong = sample
    order = np.random.default_rng(seed).permutation(len(scores))
    assert risk_coverage(scores[order], wrong[order]).area == pytest.approx(
        risk_coverage(scores, wrong).area
    )


@given(samples, st.integers(0, 2**32 - 1))
def test_a_weight_is_a_number_of_copies(sample, seed):
    scores, wrong = sample
    weights = np.random.default_rng(seed).integers(0, 3, size=len(scores))
    weights[0] += 1  # at least one sample
    copied = risk_coverage(np.repeat(scores, weights), np.repeat(wrong, weights))
    assert risk_coverage(scores, wrong, weights.astype(float)).area == pytest.approx(copied.area)


def test_a_curve_is_thinned_to_even_coverages():
    curve = risk_coverage(np.array([3.0, 2.0, 1.0, 0.0]), np.array([False, True, False, True]))
    np.testing.assert_allclose(curve.thinned(3).coverage, [0, 0.5, 1])
    np.testing.assert_allclose(curve.thinned(3).risk, [0, 0.25, 0.5])


def test_the_best_and_the_worst_order():
    wrong = np.arange(10) < 3
    assert risk_coverage(-wrong.astype(float), wrong).area == pytest.approx(0.3**2 / 2)
    assert risk_coverage(wrong.astype(float), wrong).area == pytest.approx(0.3 - 0.3**2 / 2)


@pytest.mark.parametrize(
    ("scores", "wrong"),
    [([], []), ([1.0, 2.0], [True]), ([[1.0]], [[True]]), ([np.nan], [True])],
)
def test_what_cannot_be_ranked_is_refused(scores, wrong):
    with pytest.raises(InputError):
        risk_coverage(np.array(scores, dtype=float), np.array(wrong, dtype=bool))
