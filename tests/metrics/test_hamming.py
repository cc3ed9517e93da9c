"""Hamming against scipy's own, and what it promises: nothing about movement."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import cdist

from iknow.metrics import Hamming, metric_from_dict, metric_to_dict
from iknow.metrics.registry import SHORT_NAMES
from iknow.testing import MetricContract


class TestHamming(MetricContract):
    def make_metric(self):
        return Hamming()


@given(arrays(np.int64, (7, 5), elements=st.integers(0, 3)))
def test_distances_are_scipys_share_times_the_number_of_features(leaves):
    found = Hamming().distances(leaves[:3], leaves[3:])
    np.testing.assert_allclose(found, 5 * cdist(leaves[:3], leaves[3:], "hamming"), rtol=1e-12)
    assert (found == np.rint(found)).all()


def test_it_has_a_short_name_and_is_kept_in_bundles():
    assert SHORT_NAMES["hamming"] == Hamming()
    assert metric_from_dict(metric_to_dict(Hamming())) == Hamming()


def test_no_movement_is_bounded():
    assert math.isinf(Hamming().expansion(3))
    assert np.isinf(Hamming().expansion_at(np.zeros((2, 3)))).all()


@pytest.mark.parametrize("values", [[[np.nan, 1.0]], [["a", "b"]]])
def test_what_is_no_number_is_refused(values):
    with pytest.raises(ValueError, match="must be"):
        Hamming().distances(values, values)
