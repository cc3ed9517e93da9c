"""Cosine against scikit-learn, and its bounds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics.pairwise import cosine_distances

from iknow.core.robustness import Movement, find_robust_radii
from iknow.core.support import find_support
from iknow.metrics import Cosine
from iknow.rules import RelativeBall
from iknow.testing import MetricContract, brute_force

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


def test_a_zero_vector_has_no_direction_and_is_like_nothing_but_other_zero_vectors():
    zeros, points = np.zeros((2, 7), dtype=np.float32), some_points(9)
    points[0] = [5, 0, 0, 0, 0, 0, 0]  # the direction nearest to where it is put
    apart = Cosine().distances(zeros, points)
    assert apart.min() == pytest.approx(9, rel=1e-15)
    assert apart.max() <= 11
    assert Cosine().distances(points, points).max() <= 2
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
    others = np.vstack([others, -a, -1e-9 * a])  # all but the zero vector, to which it jumps
    apart = np.linalg.norm(others - a, axis=1)
    (bound,) = Cosine().expansion_at(a)
    ratios = Cosine().distances(a, others)[0] / apart
    assert (ratios <= bound * (1 + 1e-12) + 1e-15 / apart).all()
    assert ratios.max() > bound * (1 - 1e-6)  # the last one, just beyond 0


@given(st.integers(0, 2**32 - 1))
@deterministic
def test_a_point_jumps_only_where_the_bound_has_reached_what_it_says(seed):
    """To the zero vector: it takes a movement as long as the vector itself."""
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((1, 4)) * 10.0 ** rng.integers(-30, 30)
    (bound,) = Cosine().expansion_at(a)
    assert Cosine().distances(a, np.zeros((1, 4)))[0, 0] >= 9
    assert bound * np.linalg.norm(a) >= Cosine().jumps_at == 2
    steps = rng.standard_normal((200, 4))
    steps *= (
        np.linalg.norm(a)
        * rng.uniform(0.9, 0.999999, (200, 1))
        / np.linalg.norm(steps, axis=1, keepdims=True)
    )
    moved = np.vstack([a + steps, a * 1e-6])  # as near to 0 as it comes without reaching it
    assert Cosine().distances(a, moved).max() <= 2


def train_near_zero():
    """Two classes by direction; at the zero vector, and only there, samples of the second class."""
    rng = np.random.default_rng(0)
    angles = np.concatenate([rng.normal(0, 0.05, 40), rng.normal(2.0, 0.05, 40)])
    train = np.stack([np.cos(angles), np.sin(angles)], axis=1) * rng.uniform(0.5, 2, (80, 1))
    train = np.vstack([train, np.zeros((12, 2))]).astype(np.float32)
    return train, np.repeat([0, 1], [40, 52])


@pytest.mark.parametrize("length", [1e-3, 1.0, 50.0])
def test_no_attack_within_the_radius_reaches_the_zero_vector_and_another_class(length):
    """Where the input is the zero vector its point lies far away, among those of another class."""
    train, labels = train_near_zero()
    metric = Cosine()
    query = np.array([[length, 0.01 * length]])
    points, point = metric.transform(train), metric.transform(query)
    evidence = brute_force(points, labels, 2, point, k=10)
    rules = {"input": RelativeBall(1.5, 1.2, 1.5)}
    (stretch,) = metric.expansion_at(query)
    jumping = Movement(1.0, 1e-6, stretch=np.array([stretch]), jumps_at=metric.jumps_at)
    belief = np.array([0])
    (radius,) = find_robust_radii({"input": evidence}, rules, belief, {"input": jumping})
    assert 0 < radius < np.linalg.norm(query)

    def knows_the_second(inputs):
        about = brute_force(points, labels, 2, metric.transform(inputs), k=10)
        code = np.ones(len(inputs), dtype=np.int64)
        return (find_support(about, rules["input"], code) == [False, True]).all(axis=1)

    assert knows_the_second(np.zeros((1, 2))).all()  # the attack is worth trying
    angles = np.linspace(0, 2 * np.pi, 500)
    around = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    moved = np.vstack([query + share * radius * around for share in (0.5, 0.9, 0.999999)])
    toward_zero = query * (1 - np.linspace(0, 1, 50)[:, None] * radius / np.linalg.norm(query))
    for inputs in (moved, toward_zero):
        assert not knows_the_second(inputs).any()


def test_a_clearance_beyond_the_jump_is_cut_there():
    """All other samples are zero vectors: their distance, 9, would certify what jumps at 2."""
    train = np.vstack([np.tile([1.0, 0.0], (12, 1)), np.zeros((12, 2))])
    labels, metric, query = np.repeat([0, 1], 12), Cosine(), np.array([[2.0, 0.0]])
    points = metric.transform(train)
    evidence = {"input": brute_force(points, labels, 2, metric.transform(query), k=10)}
    (stretch,) = metric.expansion_at(query)
    belief, rules = np.array([0]), {"input": RelativeBall(1.0, 1.5)}
    radii = {
        jumps_at: find_robust_radii(
            evidence, rules, belief,
            {"input": Movement(1.0, 0.0, stretch=np.array([stretch]), jumps_at=jumps_at)},
        )[0]
        for jumps_at in (metric.jumps_at, np.inf)
    }  # fmt: skip
    assert radii[metric.jumps_at] <= 2.0 < radii[np.inf]
