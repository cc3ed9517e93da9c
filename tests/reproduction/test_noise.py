"""The noise that was asked for, and nothing else."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from reproduction.noise import add_gaussian, add_uniform

KINDS = [add_gaussian, add_uniform]


@pytest.mark.parametrize("shape", [(200_000,), (1000, 200), (50, 10, 20, 20)])
def test_normal_noise_is_normal_with_its_deviation(shape):
    X = np.full(shape, 3.0)
    noise = (add_gaussian(X, 0.2, np.random.default_rng(0)) - X).ravel()
    assert noise.shape == (200_000,)
    assert stats.kstest(noise, stats.norm(0, 0.2).cdf).pvalue > 0.01


@pytest.mark.parametrize("shape", [(200_000,), (1000, 200), (50, 10, 20, 20)])
def test_uniform_noise_is_uniform_in_both_directions(shape):
    X = np.full(shape, -1.0)
    noise = (add_uniform(X, 0.3, np.random.default_rng(0)) - X).ravel()
    assert np.abs(noise).max() <= 0.3 + 1e-12
    assert stats.kstest(noise, stats.uniform(-0.3, 0.6).cdf).pvalue > 0.01


@pytest.mark.parametrize("add", KINDS)
def test_every_value_has_noise_of_its_own(add):
    noise = add(np.zeros((300, 40)), 1.0, np.random.default_rng(1))
    assert len(np.unique(noise)) == noise.size
    between = np.corrcoef(noise.T) - np.eye(40)
    assert np.abs(between).max() < 0.3  # 40 features over 300 samples: 5 deviations of 1/√300


@given(
    add=st.sampled_from(KINDS),
    shape=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    dtype=st.sampled_from([np.float16, np.float32, np.float64]),
    limits=st.sampled_from([None, (0.0, 1.0), (-2.0, -1.0)]),
    seed=st.integers(0, 2**32 - 1),
)
def test_shape_and_dtype_stay_and_the_input_is_untouched(add, shape, dtype, limits, seed):
    X = np.random.default_rng(seed).random(shape).astype(dtype)
    before = X.copy()
    first, again = (add(X, 0.5, np.random.default_rng(seed), limits) for _ in range(2))
    assert (first.shape, first.dtype) == (X.shape, X.dtype)
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(X, before)
    assert not np.shares_memory(first, X)
    if limits is not None and first.size:
        assert first.min() >= limits[0]
        assert first.max() <= limits[1]


@pytest.mark.parametrize("add", KINDS)
def test_limits_clip_and_change_nothing_within(add):
    X = np.random.default_rng(0).random((50, 20))
    free = add(X, 0.4, np.random.default_rng(5))
    limited = add(X, 0.4, np.random.default_rng(5), (0.0, 1.0))
    expected = [min(max(value, 0.0), 1.0) for value in free.ravel()]
    np.testing.assert_array_equal(limited.ravel(), expected)
    assert ((limited == 0).sum(), (limited == 1).sum()) > (10, 10)


@pytest.mark.parametrize("add", KINDS)
def test_a_generator_goes_on_and_an_amplitude_scales(add):
    X, rng = np.zeros((5, 4)), np.random.default_rng(3)
    first, second = add(X, 1.0, rng), add(X, 1.0, rng)
    assert not np.isclose(first, second).any()
    np.testing.assert_allclose(add(X, 2.5, np.random.default_rng(3)), 2.5 * first)
    np.testing.assert_array_equal(add(X, 0.0, np.random.default_rng(3)), X)
