"""Cosine against scikit-learn, and its bounds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics.pairwise import cosine_distances

from iknow.metrics import Cosine
from iknow.testing import MetricContract

deterministic = settings(derandomize=True, deadline=None, max_examples=200)


class TestCosine(MetricContract):
    def make_metric(self):
        return Cosine()


class TestOfOneFeature(MetricContract):
    n_features = 1

    def make_metric(self):
        return Cosine()


def some_points(n, seed=0):
    return np.random.default_rng(seed).standard_normal((n, 7)).astype(np.float32)


def test_half_the_squared_distance_is_scikit_learns():
    a, b = some_points(20), some_points(30, seed=1) * np.logspace(-9, 9, 30)[:, None]
    found = Cosine().distances(a, b) ** 2 / 2
    np.testing.assert_allclose(found, cosine_distances(np.float64(a), b), atol=1e-14)


@pytest.mark.parametrize("size", [1e-45, 1e-38, 1e-20, 1e20, 1e38])
def test_no_length_of_float32_over_or_underflows(size):
    points = np.array([[1, 2, -2], [0, 1, 0], [3, 3, 3]]) * size
    with np.errstate(over="ignore"):
        points = np.minimum(points, np.finfo(np.float32).max).astype(np.float32)
    found = Cosine().transform(np.float64(points))
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, rtol=1e-15)
    assert np.array_equal(np.sign(found), np.sign(points))
    mixed = np.array([[1e-45, 3e38], [3e38, 3e38]], dtype=np.float32)
    np.testing.assert_allclose(Cosine().transform(mixed), [[0, 1], [0.5**0.5] * 2], atol=1e-7)


@given(st.integers(0, 2**32 - 1), st.integers(-60, 60))
@deterministic
def test_only_the_direction_counts(seed, exponent):
    points = some_points(5, seed)
    scaled = np.float64(points) * 2.0**exponent  # exact
    rounded = Cosine().transform(scaled).astype(np.float32)
    np.testing.assert_array_equal(rounded, Cosine().transform(points))


def test_many_rows_are_transformed_as_few_are(monkeypatch):
    points = some_points(50)
    whole = Cosine().transform(points)
    assert whole.dtype == np.float32
    monkeypatch.setattr("iknow.metrics.metric.NUMBERS_AT_ONCE", 30)
    np.testing.assert_array_equal(Cosine().transform(points), whole)
    np.testing.assert_allclose(Cosine().transform(np.float64(points)), whole, rtol=1e-7)


def test_a_zero_vector_has_no_direction_and_is_as_far_from_all():
    zeros, points = np.zeros((2, 7), dtype=np.float32), some_points(9)
    np.testing.assert_allclose(Cosine().distances(zeros, points), 1.0, rtol=1e-15)
    assert not Cosine().distances(zeros, zeros).any()
    assert np.isinf(Cosine().expansion_at(zeros)).all()
    assert Cosine().transform(np.zeros((0, 7))).shape == (0, 7)


def test_what_is_not_finite_has_no_bound():
    strange = np.array([[np.nan, 1.0], [np.inf, 1.0], [-np.inf, np.nan]])
    assert np.isinf(Cosine().expansion_at(strange)).all()


@given(st.integers(0, 2**32 - 1))
@deterministic
def test_the_expansion_holds_for_all_others_and_is_the_smallest(seed):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((1, 4)) * 10.0 ** rng.integers(-6, 6)
    length = np.linalg.norm(a)
    others = a + length * rng.standard_normal((50, 4)) * np.logspace(-6, 2, 50)[:, None]
    others = np.vstack([others, np.zeros((1, 4)), -a, -1e-9 * a])
    apart = np.linalg.norm(others - a, axis=1)
    (bound,) = Cosine().expansion_at(a)
    ratios = Cosine().distances(a, others)[0] / apart
    assert (ratios <= bound * (1 + 1e-12) + 1e-15 / apart).all()
    assert ratios.max() > bound * (1 - 1e-6)  # the last one, just beyond 0
