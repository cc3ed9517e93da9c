"""Robust scales against scikit-learn; tables with gaps against distances written out by value."""

import math

import numpy as np
import pytest
from sklearn.preprocessing import RobustScaler

from iknow.errors import InputError
from iknow.metrics import Cosine, Euclidean, Scaled, Table
from iknow.metrics.table import NEW
from iknow.testing import MetricContract


class TestScaled(MetricContract):
    def make_metric(self):
        return Scaled()


def fit(*columns):
    table = np.column_stack(columns)
    return Scaled().fit(table, np.zeros(len(table), dtype=int))


def test_features_that_vary_smoothly_are_scaled_as_by_scikit_learn():
    rng = np.random.default_rng(0)
    # With 4k + 1 samples the quartiles are values that occur.
    table = rng.standard_normal((401, 5)) * [1e-6, 0.1, 1, 30, 1e7] + [0, 5, -3, 1e4, 1e9]
    oracle = RobustScaler(unit_variance=True).fit(table)
    metric = Scaled().fit(table, np.zeros(401))
    np.testing.assert_allclose(metric.scale, oracle.scale_, rtol=1e-12)
    np.testing.assert_allclose(metric.center, oracle.center_, rtol=1e-12)
    expected = Euclidean.distances(oracle.transform(table[:9]), oracle.transform(table))
    np.testing.assert_allclose(metric.distances(table[:9], table), expected, rtol=1e-9)


def test_outliers_do_not_matter():
    rng = np.random.default_rng(1)
    clean = rng.standard_normal(1001)
    dirty = clean.copy()
    dirty[:50] = 1e30
    assert fit(dirty).scale[0] == pytest.approx(fit(clean).scale[0], rel=0.1)


@pytest.mark.parametrize("share", [0.001, 0.1, 0.24, 0.25, 0.26, 0.5, 0.76, 0.999])
def test_a_flag_has_the_scale_1_however_rare(share):
    flag = (np.arange(1000) < 1000 * share).astype(np.float32)
    assert fit(flag).scale.tolist() == [1.0]


@pytest.mark.parametrize("share", [0.05, 0.24, 0.26, 0.4])
def test_an_amount_that_is_mostly_0_has_the_scale_of_the_typical_amount(share):
    amounts = np.where(np.arange(1000) < 1000 * share, np.geomspace(100, 1e4, 1000), 0.0)
    typical = np.median(amounts[amounts > 0])
    assert fit(amounts).scale[0] == pytest.approx(typical, rel=1e-9)


def test_a_query_that_differs_in_a_constant_feature_stands_out():
    rng = np.random.default_rng(2)
    metric = fit(rng.standard_normal(200), 1e-3 * rng.standard_normal(200), np.full(200, 0.1))
    assert metric.scale[2] == metric.scale[1] == metric.scale.min()
    same, other = np.array([[0.0, 0.0, 0.1]]), np.array([[0.0, 0.0, 0.11]])
    assert metric.distances(same, other)[0, 0] == pytest.approx(10, rel=0.2)
    assert metric.expansion(3) == pytest.approx(1 / metric.scale[1])  # the bound is no worse
    assert fit(np.full(5, 7.0), np.zeros(5)).scale.tolist() == [1.0, 1.0]


def test_timestamps_keep_what_varies():
    seconds = np.float32(1.7e9) + 128 * np.arange(4001, dtype=np.float32)  # as far apart as float32
    metric = fit(seconds)
    points = metric.transform(seconds[:, None]).astype(np.float32)
    exact = (np.float64(seconds) - metric.center) / metric.scale
    np.testing.assert_allclose(points[:, 0], exact, rtol=2**-24)
    without_center = (np.float64(seconds) / metric.scale).astype(np.float32)
    lost = np.abs(without_center - np.float64(seconds) / metric.scale).max()
    assert lost > 100 * np.abs(points[:, 0] - exact).max()


def test_no_query_leaves_the_range_of_float32():
    metric = fit(1e-40 * np.arange(9.0))
    points = metric.transform(np.array([[3e38], [-3e38]], dtype=np.float32))
    assert np.isfinite(points.astype(np.float32)).all()
    assert points[0, 0] == -points[1, 0] > 1e38


def test_what_was_scaled_can_be_shown_as_it_was():
    rng = np.random.default_rng(3)
    table = (rng.standard_normal((50, 3)) * [1e-3, 1, 1e4] + [0, 5, 1e6]).astype(np.float32)
    metric = Scaled().fit(table, np.zeros(50))
    restored = metric.restore(metric.transform(table))
    np.testing.assert_allclose(restored, table, rtol=2**-22, atol=1e-9)
    assert Cosine().restore(Cosine().transform(table)) is None


def test_without_fit_it_says_so():
    for use in (lambda: Scaled().transform(np.eye(2)), lambda: Scaled().expansion(2)):
        with pytest.raises(InputError, match=r"Scaled is not fitted: use what its fit\("):
            use()
    assert (repr(Scaled()), repr(fit(np.arange(5.0)))) == ("Scaled()", "Scaled(1 features)")


def test_bad_data_is_refused_with_the_fact():
    with pytest.raises(InputError, match="activations must be finite; 1 entries are not"):
        fit(np.array([1.0, np.nan]))
    with pytest.raises(InputError, match=r"of shape \(n, n_features\); got \(0, 3\)"):
        Scaled().fit(np.empty((0, 3)), [])
    with pytest.raises(InputError, match=r"a positive scale.*the smallest scale 0"):
        Scaled(np.zeros(2), np.array([1.0, 0.0]))
    with pytest.raises(InputError, match=r"center of the metric Scaled must be a real 2D array"):
        Scaled(np.zeros((2, 3)), np.ones((2, 3)))
    with pytest.raises(InputError, match=r"got shapes \(2,\) and \(1,\)"):
        Scaled(np.zeros(2), np.ones(1))
    with pytest.raises(
        InputError, match=r"shape \(n, 1\) as the metric was made for; got \(2, 2\)"
    ):
        fit(np.arange(5.0)).transform(np.eye(2))


class TestTable(MetricContract):
    n_features = 6

    def make_metric(self):
        return Table()

    def _draw(self, seed, n, size):
        """Values and flags, as the layer holds them."""
        rng = np.random.default_rng(seed)
        values = (size * rng.standard_normal((n, 3))).astype(np.float32).astype(np.float64)
        gaps = rng.random((n, 3)) < 0.3
        return np.column_stack([np.where(gaps, 0.0, values), gaps])


def some_table(seed, n=200, d=4, share=0.2):
    rng = np.random.default_rng(seed)
    values = rng.normal([5, 0, 100, -3], [1, 0.01, 30, 2], (n, d))
    values[rng.random((n, d)) < share] = np.nan
    return values


def layer(values):
    gaps = np.isnan(values)
    return np.column_stack([np.where(gaps, 0.0, values), gaps])


def test_distances_equal_those_written_out():
    training, a, b = some_table(0), some_table(1, 5), some_table(2, 6)
    metric = Table().fit(layer(training), np.zeros(200))
    spreads = [Scaled().fit(c[~np.isnan(c), None], None) for c in training.T]

    def distance(x, z):
        total = 0.0
        for i, spread in enumerate(spreads):
            left, right = (
                0.0 if math.isnan(v) else (v - spread.center[0]) / spread.scale[0]
                for v in (x[i], z[i])
            )
            total += (left - right) ** 2 + (math.isnan(x[i]) != math.isnan(z[i]))
        return math.sqrt(total)

    expected = [[distance(x, z) for z in b] for x in a]
    np.testing.assert_allclose(metric.distances(layer(a), layer(b)), expected, rtol=1e-12)


def test_without_gaps_distances_are_those_of_scaled():
    training, a = some_table(0, share=0), some_table(1, 9, share=0)
    expected = Scaled().fit(training, None).distances(a, training)
    found = Table().fit(layer(training), None).distances(layer(a), layer(training))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_gap_where_training_has_none_is_further_than_anything_ordinary():
    training = some_table(0, share=0)
    metric = Table().fit(layer(training), None)
    query = training[:1].copy()
    query[0, 2] = np.nan
    assert metric.distances(layer(query), layer(training)).min() >= NEW


def test_a_value_that_training_never_has_is_measured_in_the_smallest_scale():
    training = some_table(0)
    training[:, 0] = np.nan
    metric = Table().fit(layer(training), None)
    assert metric.scale[0] == metric.scale[1:].min()
    assert np.isfinite(metric.transform(layer(some_table(1, 3)))).all()


def test_an_odd_number_of_activations_and_use_before_fit_are_refused():
    with pytest.raises(InputError, match=r"shape \(n, 2 d\)"):
        Table().fit(np.zeros((3, 5)), None)
    with pytest.raises(InputError, match="is not fitted"):
        Table().transform(np.zeros((3, 4)))
    with pytest.raises(InputError, match=r"a positive weight.*the smallest scale or weight 0"):
        Table(np.zeros(2), np.ones(2), np.array([1.0, 0.0]))
