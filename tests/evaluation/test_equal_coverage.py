import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iknow.errors import InputError
from iknow.evaluation.risk import match_coverage, risk_coverage

scores = st.lists(
    st.sampled_from([-np.inf, 0.0, 0.5, 1.0, 2.0, np.inf]), min_size=1, max_size=30
).map(np.array)
coverages = st.floats(0.01, 1.0)


@given(scores, coverages)
def test_every_coverage_is_met_exactly(scores, coverage):
    threshold = match_coverage(scores, coverage)
    assert threshold.asserts(scores).mean() == pytest.approx(coverage)


@given(scores, coverages, st.integers(0, 2**32 - 1))
def test_it_lies_on_the_risk_coverage_curve(scores, coverage, seed):
    wrong = np.random.default_rng(seed).random(len(scores)) < 0.5
    missed = (match_coverage(scores, coverage).asserts(scores) * wrong).mean()
    curve = risk_coverage(scores, wrong)
    assert missed == pytest.approx(np.interp(coverage, curve.coverage, curve.risk))


def test_without_ties_it_is_a_plain_threshold():
    scores = np.arange(8.0)
    threshold = match_coverage(scores, 0.75)
    assert (threshold.value, threshold.share) == (2.0, 1.0)
    np.testing.assert_array_equal(threshold.asserts(scores), scores >= 2)


@pytest.mark.parametrize("coverage", [0, -0.5, 1.01, np.nan])
def test_a_coverage_is_a_share(coverage):
    with pytest.raises(InputError, match="coverage"):
        match_coverage(np.arange(3.0), coverage)
