"""Bisectors against brute force in exact or wider arithmetic, and under attack."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from iknow.core import bisector
from iknow.core.bisector import find_crossings


def random_case(seed, n_rows=60, n_features=3, n_queries=8):
    """Clusters of three classes, some points far off or twice there, about an origin far away."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, n_rows)
    centers = rng.normal(0, 3, (3, n_features))
    points = centers[labels] + rng.normal(0, rng.choice([0.1, 1.0, 3.0]), (n_rows, n_features))
    queries = centers[rng.integers(0, 3, n_queries)] + rng.normal(size=(n_queries, n_features))
    points[1] = points[0]
    queries[0] = points[2]
    offset = rng.choice([0.0, 1e3, 1e6])
    belief = rng.integers(0, 3, n_queries)
    return (
        (points + offset).astype(np.float32),
        labels,
        (queries + offset).astype(np.float32),
        belief,
    )


def brute_force(points, labels, queries, belief, n_own=None):
    """The definition, in long doubles, from all pairs; n_own: only so many nearest own points."""
    points, queries = points.astype(np.longdouble), queries.astype(np.longdouble)
    found = []
    for query, code in zip(queries, belief, strict=True):
        squared = ((points - query) ** 2).sum(axis=1)
        own = np.flatnonzero(labels == code)
        own = own[np.argsort(squared[own], kind="stable")][:n_own]
        worst = np.inf
        for other in np.flatnonzero(labels != code):
            lead = (np.sqrt(squared[other]) - np.sqrt(squared[own].min())) / 2
            apart = np.sqrt(((points[other] - points[own]) ** 2).sum(axis=1))
            with np.errstate(invalid="ignore"):
                lengths = (squared[other] - squared[own]) / (2 * apart)
            worst = min(worst, max(lead, np.nan_to_num(lengths, nan=-np.inf).max()))
        found.append(worst)
    return np.array(found)


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), n_features=st.sampled_from([1, 2, 5, 40]))
def test_crossings_are_those_of_the_definition_and_never_more(seed, n_features):
    points, labels, queries, belief = random_case(seed, n_features=n_features)
    found = find_crossings(points, labels, queries, belief)
    every = brute_force(points, labels, queries, belief)
    few = brute_force(points, labels, queries, belief, bisector.OWN_POINTS)
    assert (found <= np.maximum(every, 0)).all()
    np.testing.assert_allclose(found[few > 1e-3], few[few > 1e-3].astype(float), rtol=1e-4)


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6))
def test_nobody_who_moves_less_finds_another_class_nearer(seed):
    """The attacker walks towards every other point, to where the definition says it must be."""
    points, labels, queries, belief = random_case(seed, n_rows=30, n_features=2)
    found = find_crossings(points, labels, queries, belief)
    rng = np.random.default_rng(seed)
    exact = points.astype(np.float64)
    for query, code, length in zip(queries.astype(np.float64), belief, found, strict=True):
        if not 0 < length < np.inf:
            continue
        steps = np.concatenate([exact - query, rng.normal(size=(50, 2))])
        steps /= np.maximum(np.linalg.norm(steps, axis=1, keepdims=True), 1e-300)
        for share in (0.5, 0.99, 1 - 1e-12):
            moved = query + share * length * steps
            distances = np.linalg.norm(moved[:, None] - exact, axis=2)
            own = distances[:, labels == code].min(axis=1)
            assert (distances[:, labels != code].min(axis=1) >= own * (1 - 1e-13)).all()


def test_for_two_points_it_is_the_way_to_the_hyperplane_between_them():
    """Where it ends, they are equally near; the bound from distances alone ends long before."""
    points = np.array([[0, 3], [4, 0]], dtype=np.float32)
    labels, query = np.array([0, 1]), np.array([[0, 0]], dtype=np.float32)
    (length,) = find_crossings(points, labels, query, np.array([0]))
    assert length == pytest.approx((16 - 9) / (2 * 5), rel=1e-12)
    assert length > 1.3 * (4 - 3) / 2
    direction = np.array([4, -3]) / 5
    for share, is_nearer in ((1 - 1e-9, False), (1 + 1e-9, True)):
        to_own, to_other = np.linalg.norm(points - share * length * direction, axis=1)
        assert (to_other < to_own) == is_nearer


def test_rounding_is_on_the_safe_side_where_points_almost_coincide():
    """Fractions say what is true: two points 2^-30 apart, seen from 1 away along their line."""
    gap = 2.0**-30
    points = np.array([[1.0, 0], [1.0, gap]], dtype=np.float32)
    labels = np.array([0, 1])
    query = np.array([[0.25, -0.5]], dtype=np.float32)
    (length,) = find_crossings(points, labels, query, np.array([0]))
    z = [Fraction(float(v)) for v in query[0]]
    squared = [
        sum((Fraction(float(v)) - c) ** 2 for v, c in zip(p, z, strict=True)) for p in points
    ]
    true = (squared[1] - squared[0]) / (2 * Fraction(gap))
    assert 0 < length < true
    assert length > 0.4 * float(true)


def test_classes_without_points():
    points, labels = np.eye(3, dtype=np.float32), np.array([0, 0, 1])
    queries = np.zeros((3, 3), dtype=np.float32)
    assert find_crossings(points, labels, queries, np.array([2, -1, 2])).tolist() == [-math.inf] * 3
    assert find_crossings(points[:2], labels[:2], queries, np.array([0, 0, 0])).tolist() == (
        [math.inf] * 3
    )
    assert (find_crossings(points, labels, queries, np.array([0, 1, 0])) <= 0).all()


def test_neither_blocks_nor_the_order_of_the_others_change_anything(monkeypatch):
    points, labels, queries, belief = random_case(7, n_rows=400, n_features=6, n_queries=30)
    whole = find_crossings(points, labels, queries, belief)
    monkeypatch.setattr(bisector, "DISTANCES_AT_ONCE", 1000)
    monkeypatch.setattr(bisector, "NUMBERS_KEPT", 0)
    monkeypatch.setattr(bisector, "FEW_OTHERS", 2)
    monkeypatch.setattr(bisector, "OTHERS_AT_ONCE", 3)
    parts = find_crossings(points, labels, queries, belief)
    np.testing.assert_allclose(parts, whole, rtol=1e-9)


def test_on_digits_it_is_half_as_much_again():
    images, targets = load_digits(return_X_y=True)
    train, test, labels, belief = train_test_split(
        (images / 16).astype(np.float32), targets, test_size=400, stratify=targets, random_state=0
    )
    found = find_crossings(train, labels, test, belief)
    distances = np.linalg.norm(test[:, None].astype(np.float64) - train, axis=2)
    own = np.where(labels == belief[:, None], distances, np.inf).min(axis=1)
    other = np.where(labels != belief[:, None], distances, np.inf).min(axis=1)
    ahead = other > own
    gain = found[ahead] / ((other - own)[ahead] / 2)
    assert ahead.mean() > 0.97
    assert np.median(gain) == pytest.approx(1.48, abs=0.01)
    assert gain.min() == pytest.approx(1.16, abs=0.01)
