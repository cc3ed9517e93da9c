"""Gapped against the same distance written out, value by value."""

import math

import numpy as np
import pytest

from iknow.errors import InputError
from iknow.metrics import Gapped, Scaled
from iknow.metrics.gapped import NEW
from iknow.testing import MetricContract


class TestGapped(MetricContract):
    n_features = 6

    def make_metric(self):
        return Gapped()

    def _draw(self, seed, n, size):
        """Values and flags, as the layer holds them."""
        rng = np.random.default_rng(seed)
        values = (size * rng.standard_normal((n, 3))).astype(np.float32).astype(np.float64)
        gaps = rng.random((n, 3)) < 0.3
        return np.column_stack([np.where(gaps, 0.0, values), gaps])


def table(seed, n=200, d=4, share=0.2):
    rng = np.random.default_rng(seed)
    values = rng.normal([5, 0, 100, -3], [1, 0.01, 30, 2], (n, d))
    values[rng.random((n, d)) < share] = np.nan
    return values


def layer(values):
    gaps = np.isnan(values)
    return np.column_stack([np.where(gaps, 0.0, values), gaps])


def test_distances_equal_those_written_out():
    training, a, b = table(0), table(1, 5), table(2, 6)
    metric = Gapped().fit(layer(training), np.zeros(200))
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
    training, a = table(0, share=0), table(1, 9, share=0)
    expected = Scaled().fit(training, None).distances(a, training)
    found = Gapped().fit(layer(training), None).distances(layer(a), layer(training))
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_gap_where_training_has_none_is_further_than_anything_ordinary():
    training = table(0, share=0)
    metric = Gapped().fit(layer(training), None)
    query = training[:1].copy()
    query[0, 2] = np.nan
    assert metric.distances(layer(query), layer(training)).min() >= NEW


def test_a_value_that_training_never_has_is_measured_in_the_smallest_scale():
    training = table(0)
    training[:, 0] = np.nan
    metric = Gapped().fit(layer(training), None)
    assert metric.scale[0] == metric.scale[1:].min()
    assert np.isfinite(metric.transform(layer(table(1, 3)))).all()


def test_an_odd_number_of_activations_and_use_before_fit_are_refused():
    with pytest.raises(InputError, match=r"shape \(n, 2 d\)"):
        Gapped().fit(np.zeros((3, 5)), None)
    with pytest.raises(InputError, match="is not fitted"):
        Gapped().transform(np.zeros((3, 4)))
    with pytest.raises(InputError, match="positive"):
        Gapped(np.zeros(2), np.ones(2), np.array([1.0, 0.0]))
