"""Whitening against scikit-learn's Ledoit-Wolf and numpy's Mahalanobis distances."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.covariance import ledoit_wolf

from iknow.errors import InputError
from iknow.metrics import Weighted, Whitened
from iknow.testing import MetricContract


class TestWhitened(MetricContract):
    n_features = 6

    def make_metric(self):
        return Whitened()


class TestBarelyShrunk(MetricContract):
    n_features = 4

    def make_metric(self):
        # Of so many samples next to nothing is shrunk.
        return Weighted(Whitened().fit(*some_classes(20_000, 4)).map)


def some_classes(n=300, n_features=5, n_classes=3, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, n_classes, n)
    noise = rng.standard_normal((n, n_features)) @ rng.standard_normal((n_features, n_features))
    values = 9 * rng.standard_normal((n_classes, n_features))[labels] + noise
    return values * 10.0 ** np.arange(n_features), labels  # of unlike units


def residuals(values, labels):
    means = np.array([values[labels == code].mean(axis=0) for code in range(labels.max() + 1)])
    return values - means[labels]


@pytest.mark.parametrize("n", [12, 40, 300])
def test_distances_are_mahalanobis_for_the_ledoit_wolf_covariance(n):
    values, labels = some_classes(n)
    left = residuals(values, labels)
    spread = np.sqrt((left**2).mean(axis=0))
    shrunk, share = ledoit_wolf(left / spread, assume_centered=True)
    assert 0.001 < share < 0.9
    inverse = np.linalg.inv(shrunk * np.outer(spread, spread))
    expected = cdist(values[:9], values, "mahalanobis", VI=inverse)
    found = Whitened().fit(values, labels).distances(values[:9], values)
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_distances_do_not_depend_on_units():
    values, labels = some_classes()
    units = np.array([1e-9, 1e9, 1, 4, 1e-3])
    found = Whitened().fit(values, labels).distances(values[:5], values)
    other = Whitened().fit(values * units, labels).distances(values[:5] * units, values * units)
    np.testing.assert_allclose(found, other, rtol=1e-8)


def test_a_constant_feature_neither_explodes_nor_vanishes():
    values, labels = some_classes()
    constant = np.full((300, 1), 0.1) + labels[:, None]  # within classes
    wide = np.hstack([values, constant, np.full((300, 1), 1e6)])
    metric = Whitened().fit(wide, labels)
    spread = np.sqrt((residuals(values, labels) ** 2).mean(axis=0))
    start = wide[:1]
    for column in (5, 6):
        step = np.zeros((1, 7))
        step[0, column] = spread.min()
        assert metric.distances(start, start + step)[0, 0] == pytest.approx(1, rel=1e-6)
    np.testing.assert_allclose(  # the others are measured as before
        metric.map[:5, :5], Whitened().fit(values, labels).map, rtol=1e-7, atol=1e-12
    )


@pytest.mark.parametrize("n", [2, 3, 5])
def test_fewer_samples_than_features_are_enough(n):
    values, _ = some_classes(n, n_features=8)
    for labels in (np.zeros(n, dtype=int), np.arange(n) % 2):
        metric = Whitened().fit(values, labels)
        assert np.isfinite(metric.map).all()
        assert np.linalg.matrix_rank(metric.map * metric.map.std() ** -1) > 0
        moved = metric.distances(values[:1], values[:1] + np.eye(8) * 10.0 ** np.arange(8))
        assert (moved > 0).all()


def test_one_sample_per_class_gives_the_euclidean_distance():
    values, _ = some_classes(6)
    metric = Whitened().fit(values, np.arange(6))
    np.testing.assert_array_equal(metric.map, np.eye(5))


def test_the_order_of_samples_and_the_names_of_classes_do_not_matter():
    values, labels = some_classes()
    order = np.random.default_rng(1).permutation(300)
    expected = Whitened().fit(values, labels).map
    other = Whitened().fit(values[order], np.array([7, 0, 30])[labels[order]]).map
    np.testing.assert_allclose(other, expected, rtol=1e-9, atol=1e-15)


def test_without_fit_it_says_so():
    for use in (
        lambda: Whitened().transform(np.eye(2)),
        lambda: Whitened().expansion(2),
        lambda: Whitened().rounding(2),
    ):
        with pytest.raises(InputError, match="Whitened is not fitted"):
            use()
    assert repr(Whitened().fit(*some_classes())) == "Whitened(5 features)"


def test_bad_data_is_refused_with_the_fact():
    with pytest.raises(InputError, match=r"with labels of shape \(n,\); got \(3, 2\) and \(2,\)"):
        Whitened().fit(np.ones((3, 2)), [0, 1])
    with pytest.raises(InputError, match="activations must be finite"):
        Whitened().fit(np.array([[1.0], [np.inf]]), [0, 0])
    with pytest.raises(InputError, match="9,000 features, too large beyond 8,192"):
        Whitened().fit(np.ones((2, 9000), dtype=np.float32), [0, 1])
