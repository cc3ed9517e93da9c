"""Metrics against scipy, and their records."""

import json
import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import cdist

from iknow.errors import InputError, LayerError
from iknow.metrics import (
    Euclidean,
    Hamming,
    Metric,
    Minkowski,
    Weighted,
    metric_from_dict,
    metric_to_dict,
    register_metric,
)
from iknow.metrics.defaults import SHORT_NAMES
from iknow.metrics.metric import check_promises
from iknow.search.cells import CpuIndex
from iknow.search.measured import MinkowskiIndex
from iknow.testing import MetricContract


def some_points(seed=0, n_features=6):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((15, n_features)), rng.standard_normal((9, n_features))


@pytest.mark.parametrize("p", [1, 1.5, 2, 3, 17, math.inf])
def test_minkowski_distances_are_scipys(p):
    a, b = some_points()
    metric = "chebyshev" if p == math.inf else "minkowski"
    expected = cdist(a, b, metric, **({} if p == math.inf else {"p": p}))
    np.testing.assert_allclose(Minkowski(p).distances(a, b), expected, rtol=1e-13)


def test_powers_of_large_and_small_differences_do_not_leave_the_range():
    for size in (1e-30, 1e30):
        found = Minkowski(40).distances([[0.0, 0.0]], [[3 * size, 3 * size]])
        np.testing.assert_allclose(found, 3 * size * 2 ** (1 / 40), rtol=1e-14)
    assert Minkowski(3).distances([[1.0]], [[1.0]]).tolist() == [[0.0]]


def test_weighted_distances_are_those_of_the_quadratic_form():
    a, b = some_points()
    matrix = np.random.default_rng(1).standard_normal((6, 4))
    expected = cdist(a, b, "mahalanobis", VI=matrix @ matrix.T)
    np.testing.assert_allclose(Weighted(matrix).distances(a, b), expected, rtol=1e-12)


def test_an_index_over_transformed_activations_finds_the_metrics_distances():
    a, b = some_points()
    labels = np.arange(15) % 2
    for metric in (Minkowski(1), Euclidean, Weighted(np.diag([1.0, 2, 3, 4, 5, 6])[:, :4])):
        points, queries = metric.transform(a), metric.transform(b)
        index = (
            CpuIndex(points, labels, 2)
            if metric.p == 2
            else MinkowskiIndex(points, labels, 2, p=metric.p)
        )
        found = index.gather(queries).class_distances
        expected = metric.distances(b, a)
        for code in (0, 1):
            np.testing.assert_allclose(
                found[:, code], expected[:, labels == code].min(axis=1), rtol=1e-5
            )


@pytest.mark.parametrize("p", [1, 1.5, 2, 3, math.inf])
def test_expansion_is_the_largest_ratio_to_the_l2_distance(p):
    n = 5
    expansion = Minkowski(p).expansion(n)
    directions = np.random.default_rng(0).standard_normal((2000, n))
    directions = np.vstack([directions, np.ones(n), np.eye(n)])  # one of the last attains it
    ratios = Minkowski(p).distances(directions, np.zeros((1, n)))[:, 0] / np.linalg.norm(
        directions, axis=1
    )
    assert ratios.max() == pytest.approx(expansion, rel=1e-12)


def test_expansion_of_a_weighted_metric_is_the_norm_of_its_map():
    matrix = np.random.default_rng(1).standard_normal((6, 4))
    metric = Weighted(matrix)
    top = np.linalg.svd(matrix)[0][:, :1].T
    assert metric.distances(top, np.zeros((1, 6)))[0, 0] == pytest.approx(metric.expansion(6))
    assert metric.expansion(6) == pytest.approx(np.linalg.norm(matrix, 2))


@pytest.mark.parametrize("metric", [Minkowski(1), Euclidean, Minkowski(2.5), Minkowski(math.inf)])
def test_a_minkowski_metric_goes_through_strict_json(metric):
    text = json.dumps(metric.to_dict(), allow_nan=False)
    assert metric_from_dict(json.loads(text), metric.arrays()) == metric


def test_a_weighted_metric_goes_through_json_and_an_array_without_pickle(tmp_path):
    metric = Weighted(np.arange(6.0).reshape(3, 2))
    np.save(tmp_path / "map.npy", metric.arrays()["map"], allow_pickle=False)
    arrays = {"map": np.load(tmp_path / "map.npy", allow_pickle=False)}
    again = metric_from_dict(json.loads(json.dumps(metric.to_dict())), arrays)
    assert isinstance(again, Weighted)
    np.testing.assert_array_equal(again.map, metric.map)


def test_a_weighted_metric_keeps_a_copy_that_cannot_change():
    matrix = np.eye(2)
    metric = Weighted(matrix)
    matrix[0, 0] = 9
    assert metric.map[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        metric.map[0, 0] = 5


@pytest.mark.parametrize("p", [0.5, 0, -1, math.nan, "1", True, None])
def test_p_below_1_is_refused(p):
    with pytest.raises(InputError, match="p must be a number from 1 to inf"):
        Minkowski(p)


def test_bad_maps_activations_and_records_are_refused():
    with pytest.raises(InputError, match=r"real 2D array; got float64 of shape \(3,\)"):
        Weighted(np.ones(3))
    with pytest.raises(InputError, match="must be finite; 1 entries are not"):
        Weighted([[1.0, np.nan]])
    with pytest.raises(InputError, match=r"shape \(n, 2\).*got \(4, 3\)"):
        Weighted(np.eye(2)).transform(np.zeros((4, 3)))
    with pytest.raises(InputError, match=r"a Weighted metric cannot be made of .*'map'"):
        metric_from_dict({"metric": "Weighted"})
    with pytest.raises(InputError, match=r"a Minkowski metric cannot be made of .*'p'"):
        metric_from_dict({"metric": "Minkowski"})
    for record in ({"metric": "Angular"}, {}, {"metric": ["Minkowski"]}):
        with pytest.raises(InputError, match=r"only Minkowski, .*Weighted.*register_metric"):
            metric_from_dict(record)


@register_metric
@dataclass(frozen=True)
class Logarithmic(Metric):
    """Of one's own: small differences count most near 0."""

    scale: float
    p = 1.0

    def transform(self, activations):
        values = np.asarray(activations).astype(np.float64)
        return np.sign(values) * np.log1p(np.abs(values) / self.scale)

    def expansion(self, n_features):
        return math.sqrt(n_features) / self.scale

    def rounding(self, n_features):
        return (2.0**-24 + 2.0**-48) * math.sqrt(n_features) / self.scale

    def to_dict(self):
        return {"metric": "Logarithmic", "scale": self.scale}


class TestTaxicab(MetricContract):
    def make_metric(self):
        return Minkowski(1)


class TestEuclidean(MetricContract):
    def make_metric(self):
        return Euclidean


class TestCubic(MetricContract):
    n_features = 3

    def make_metric(self):
        return Minkowski(3)


class TestLargest(MetricContract):
    def make_metric(self):
        return Minkowski(math.inf)


class TestWeighted(MetricContract):
    n_features = 6

    def make_metric(self):
        return Weighted(np.random.default_rng(7).standard_normal((6, 4)))


class TestLogarithmic(MetricContract):
    def make_metric(self):
        return Logarithmic(0.5)


class Hasty(Logarithmic):
    def expansion(self, n_features):
        return 0.99 * super().expansion(n_features)

    def rounding(self, n_features):
        return super().rounding(n_features) / 8


@register_metric
class Forgetful(Logarithmic):
    def __init__(self, scale=1.0):
        object.__setattr__(self, "scale", scale)

    def to_dict(self):
        return {"metric": "Forgetful"}


@pytest.mark.parametrize(
    ("metric", "test"),
    [
        (Hasty(0.5), "test_no_pair_breaks_the_expansion"),
        (Hasty(0.5), "test_no_activation_breaks_the_rounding"),
        (Forgetful(2.0), "test_its_record_and_arrays_make_the_same_metric_again"),
    ],
    ids=["expansion", "rounding", "record"],
)
def test_the_contract_finds_a_promise_that_is_a_little_too_good(metric, test):
    contract = MetricContract()
    contract.make_metric = lambda: metric
    with pytest.raises((AssertionError, LayerError)):
        getattr(contract, test)()


def test_a_transform_set_on_one_object_is_not_what_its_type_promised():
    check_promises(Logarithmic(1.0))
    metric = Logarithmic(1.0)
    object.__setattr__(metric, "transform", lambda activations: 100 * activations)
    with pytest.raises(LayerError, match="replaces its method 'transform'"):
        check_promises(metric)


def test_only_metrics_are_registered_and_no_name_stands_for_two():
    with pytest.raises(InputError, match="must be a subclass of Metric"):
        register_metric(Euclidean)
    assert register_metric(Weighted) is Weighted
    other = type("Weighted", (Weighted,), {"__module__": "elsewhere"})
    with pytest.raises(
        InputError, match=r"Weighted of iknow\.metrics\.table is already registered"
    ):
        register_metric(other)
    with pytest.raises(InputError, match=r"register_metric\(Hasty\) before you save"):
        metric_to_dict(Hasty(1.0))
    register_metric(Hasty)  # and yet its record is of what it inherits from
    with pytest.raises(InputError, match="reads back as a different one: its to_dict must return"):
        metric_to_dict(Hasty(1.0))


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
