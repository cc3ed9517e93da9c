import numpy as np
import pytest

from benchmarks.statistics import growth_exponent, percentile
from iknow.errors import InputError


@pytest.mark.parametrize(
    ("percent", "expected"), [(50, 50), (99, 99), (100, 100), (1, 1), (0.5, 1), (50.5, 51)]
)
def test_a_percentile_is_one_of_the_values(percent, expected):
    values = [float(each) for each in np.random.default_rng(0).permutation(np.arange(1, 101))]
    assert percentile(values, percent) == expected


@pytest.mark.parametrize("percent", [1, 25, 50, 90, 99, 100])
@pytest.mark.parametrize("n", [1, 2, 7, 100])
def test_a_percentile_is_numpys_inverted_cdf(percent, n):
    values = np.random.default_rng(n).normal(size=n)
    expected = np.percentile(values, percent, method="inverted_cdf")
    assert percentile(values.tolist(), percent) == expected


@pytest.mark.parametrize(("values", "percent"), [([], 50), ([1.0], 0), ([1.0], 101)])
def test_a_percentile_of_nothing_is_an_error(values, percent):
    with pytest.raises(InputError, match="percentile"):
        percentile(values, percent)


@pytest.mark.parametrize("exponent", [-0.5, 0, 0.3, 1, 2])
def test_the_exponent_of_a_power_law_is_found(exponent):
    sizes = [10.0, 30.0, 100.0, 1e6]
    assert growth_exponent(sizes, [7 * n**exponent for n in sizes]) == pytest.approx(exponent)


def test_the_exponent_is_the_slope_of_least_squares():
    rng = np.random.default_rng(0)
    sizes, costs = rng.uniform(1, 100, 6), rng.uniform(1, 100, 6)
    slope = np.polyfit(np.log(sizes), np.log(costs), 1)[0]
    assert growth_exponent(sizes.tolist(), costs.tolist()) == pytest.approx(slope)


def test_one_size_does_not_grow():
    with pytest.raises(InputError, match="two sizes"):
        growth_exponent([5.0, 5.0], [1.0, 2.0])
