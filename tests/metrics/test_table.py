"""Robust scales against scikit-learn; tables with gaps against distances written out by value."""

import math

import numpy as np
import pytest
from sklearn.preprocessing import RobustScaler

from iknow.errors import InputError
from iknow.metrics import Cosine, Euclidean, Scaled, Table
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
    assert metric.distances(layer(query), layer(training)).min() >= 30


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
    for weight in ([1.0, 0.0], [1.0]):
        with pytest.raises(InputError, match=r"a Table needs .* scales and weights positive"):
            Table(np.zeros(2), np.ones(2), np.array(weight), np.zeros(2), new=np.array([30.0]))


# Categories


class TestTableWithCategories(MetricContract):
    n_features = 6

    def make_metric(self):
        return Table()

    def _draw(self, seed, n, size):
        """Numbers, categories and a column of names, with gaps in each."""
        rng = np.random.default_rng(seed)
        kinds = np.tile([0.0, 2.0, 2.0], (n, 1))
        values = np.column_stack(
            [
                (size * rng.standard_normal(n)).astype(np.float32),
                rng.integers(0, 5, n),
                rng.integers(0, 2**24, n),
            ]
        ).astype(np.float64)
        gaps = rng.random((n, 3)) < 0.2
        return np.column_stack([np.where(gaps, 0.0, values), np.where(gaps, 1.0, kinds)])


GAP = None
MOST = 256


def encoded(rows):
    """What the layer holds: gaps are None, categories ints in lists, numbers floats."""
    values = [[each[0] if isinstance(each, list) else each or 0.0 for each in row] for row in rows]
    flags = [
        [1.0 if each is GAP else 2.0 if isinstance(each, list) else 0.0 for each in row]
        for row in rows
    ]
    return np.column_stack([np.array(values, dtype=float), flags])


def column_distance(training, left, right, spread, new):
    """The squared distance that one column adds, by the definition; training: its cells there."""
    there = [each for each in training if each is not GAP]
    codes = [each[0] for each in there if isinstance(each, list)]
    distinct = set(codes)
    if len(distinct) > max(20, len(codes) / 2):
        return 0.0  # names say nothing about what is alike
    # Of the same frequency, the smaller code.
    common = sorted(distinct, key=lambda code: (-codes.count(code), code))[:MOST]
    center, scale = spread

    def describe(cell):
        """Where a cell lies on the line of its column, its gap and its category."""
        if cell is GAP:
            return 0.0, 1.0 if any(each is GAP for each in training) else 2 * new, None
        if isinstance(cell, list):
            known = cell[0] in distinct
            return 0.0 if known else new, 0.0, cell[0] if cell[0] in common else None
        return new if codes else (cell - center) / scale, 0.0, None

    (x, gap, category), (z, other_gap, other_category) = describe(left), describe(right)
    named = 0.0
    if category != other_category:
        named = 0.5 * (category is not None) + 0.5 * (other_category is not None)
    return (x - z) ** 2 + (gap - other_gap) ** 2 + named


def some_cells(rng, n, n_codes, gaps, strange):
    """A column of numbers, of few categories, of many, and of names."""
    rows = []
    for _ in range(n):
        row = [
            float(np.float32(rng.normal(5, 2))),
            [int(rng.integers(3))],
            [int(min(rng.geometric(0.02), n_codes))],
            [int(rng.integers(2**24))],
        ]
        for j in range(4):
            if rng.random() < gaps[j]:
                row[j] = GAP
            elif rng.random() < strange:
                row[j] = [999] if j == 0 else 7.0 if j == 1 else [10**6 + j]
        rows.append(row)
    return rows


@pytest.mark.parametrize("seed", range(6))
def test_distances_of_categories_gaps_and_what_is_new_equal_those_written_out(seed, monkeypatch):
    monkeypatch.setattr("iknow.metrics.table.MOST_CATEGORIES", 10)
    monkeypatch.setitem(globals(), "MOST", 10)
    rng = np.random.default_rng(seed)
    training = some_cells(rng, 300, 60, (0.2, 0.0, 0.1, 0.1), strange=0.0)
    a, b = (some_cells(rng, 25, 60, [0.2] * 4, strange=0.2) for _ in range(2))
    b += training[:10]
    metric = Table().fit(encoded(training), None)
    assert metric.kind.tolist() == [0, 1, 1, 2]
    numbers = np.array([row[0] for row in training if row[0] is not GAP])
    spread = Scaled().fit(numbers[:, None], None)
    ends = spread.center[0], spread.scale[0]
    new = max(30.0, 2 * np.abs((numbers - ends[0]) / ends[1]).max())
    assert metric.new.tolist() == [new]

    def distance(x, z):
        columns = zip(zip(*training, strict=True), x, z, strict=True)
        return math.sqrt(sum(column_distance(*each, ends, new) for each in columns))

    expected = [[distance(x, z) for z in b] for x in a]
    found = metric.distances(encoded(a), encoded(b))
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


def test_two_categories_are_as_far_apart_as_two_numbers_that_differ_by_a_scale():
    metric = Table().fit(encoded([[[1], 0.0], [[2], 1.0]] * 20), None)
    same, other, number = encoded([[[1], 0.0], [[2], 0.0], [[1], 1.0]])
    apart = metric.distances(same[None], np.stack([other, number]))
    np.testing.assert_allclose(apart, [[1.0, 1.0 / metric.scale[1]]])


@pytest.mark.parametrize("far", [1.0, 100.0, 1e6])
def test_what_is_new_is_further_than_any_training_value_is_from_its_median(far):
    rows = [[float(i % 7), [i % 3]] for i in range(60)] + [[far, [0]]]
    metric, training = Table().fit(encoded(rows), None), encoded(rows)
    ordinary = np.abs(metric.transform(training)[:, 0]).max()
    queries = encoded([[[5], [0]], [3.0, [77]], [3.0, 1.0], [GAP, [0]], [3.0, GAP]])
    apart = metric.distances(queries, training).min(axis=1)
    assert (apart >= (max(30, 2 * ordinary) - ordinary) * (1 - 1e-12)).all()


def test_a_column_of_names_says_nothing_and_one_of_few_values_is_kept():
    rng = np.random.default_rng(0)
    names = [[[int(code)], [i % 20], float(i % 5)] for i, code in enumerate(rng.permutation(90))]
    metric = Table().fit(encoded(names), None)
    assert metric.kind.tolist() == [2, 1, 0]
    strange = encoded([[[12345], [1], 2.0], [GAP, [1], 2.0], [7.0, [1], 2.0]])
    assert not metric.distances(strange, strange).any()
    # Up to 20 values may be categories, even if each occurs once.
    assert Table().fit(encoded([[[i]] for i in range(20)]), None).kind.tolist() == [1]
    assert Table().fit(encoded([[[i]] for i in range(21)]), None).kind.tolist() == [2]


def test_a_column_of_categories_needs_some():
    """A forged record is refused before it is asked."""
    one = np.ones(1)
    with pytest.raises(InputError, match="a Table needs"):
        Table(one, one, one, kind=one, new=one)
