"""The deepest point against trying every combination of low ends."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iknow.errors import SelectionError
from iknow.selection.depth import _middle, _SegmentTree, deepest_point


def depth_at(point, lows, highs, weights):
    """Total weight of the boxes around a point, one box and one axis at a time."""
    total = 0
    for low, high, weight in zip(lows, highs, weights, strict=True):
        if all(a <= x < b for a, x, b in zip(low, point, high, strict=True)):
            total += weight
    return total


def largest_depth(lows, highs, weights):
    """The depth over all combinations of distinct low ends: moving down to one loses no box."""
    axes = [sorted(set(lows[:, axis])) for axis in range(lows.shape[1])]
    return max(depth_at(corner, lows, highs, weights) for corner in itertools.product(*axes))


def plateau_of(point, lows, highs):
    around = [
        i
        for i in range(len(lows))
        if all(a <= x < b for a, x, b in zip(lows[i], point, highs[i], strict=True))
    ]
    return lows[around].max(axis=0), highs[around].min(axis=0)


def random_boxes(seed, n_axes):
    """Boxes with whole-numbered ends, so that many tie; some are empty, some without an end."""
    rng = np.random.default_rng(seed)
    n, largest = int(rng.integers(1, 16)), int(rng.integers(2, 9))
    lows = rng.integers(0, largest, size=(n, n_axes)).astype(float)
    highs = lows + rng.integers(-1, largest, size=(n, n_axes))
    highs[rng.random((n, n_axes)) < 0.15] = np.inf
    lows[0], highs[0] = 0.0, 1.0  # at least one box has an inside
    weights = rng.integers(1, 2 + 5 * int(rng.integers(2)), size=n)
    return lows, highs, weights


@pytest.mark.parametrize("n_axes", [1, 2])
def test_the_depth_found_is_the_largest_over_all_combinations_of_low_ends(n_axes):
    for seed in range(400):
        lows, highs, weights = random_boxes(seed, n_axes)
        point = deepest_point(lows, highs, weights)
        assert point.shape == (n_axes,)
        expected = largest_depth(lows, highs, weights)
        assert depth_at(point, lows, highs, weights) == expected, f"seed {seed}"


@pytest.mark.parametrize("n_axes", [1, 2])
def test_the_depth_found_is_the_largest_for_real_numbers_too(n_axes):
    for seed in range(60):
        rng = np.random.default_rng(seed)
        lows = rng.random((20, n_axes))
        highs = lows + rng.random((20, n_axes)) - 0.1
        weights = 21 + rng.integers(0, 2, size=20)
        point = deepest_point(lows, highs, weights)
        expected = largest_depth(lows, highs, weights)
        assert depth_at(point, lows, highs, weights) == expected


@pytest.mark.parametrize("n_axes", [1, 2])
def test_the_point_lies_inside_its_plateau_and_in_the_middle_where_that_has_one(n_axes):
    for seed in range(200):
        lows, highs, weights = random_boxes(seed, n_axes)
        point = deepest_point(lows, highs, weights)
        low, high = plateau_of(point, lows, highs)
        for x, a, b in zip(point, low, high, strict=True):
            if np.isinf(b):
                assert x == a
            else:
                assert a < x < b
                assert x == (a + b) / 2


@pytest.mark.parametrize("n_axes", [1, 2])
def test_the_order_of_the_boxes_does_not_matter(n_axes):
    for seed in range(200):
        lows, highs, weights = random_boxes(seed, n_axes)
        order = np.random.default_rng(seed).permutation(len(lows))
        np.testing.assert_array_equal(
            deepest_point(lows[order], highs[order], weights[order]),
            deepest_point(lows, highs, weights),
        )


def test_a_heavy_box_outweighs_two_light_ones():
    lows, highs = np.array([[0.0], [0.0], [5.0]]), np.array([[1.0], [1.0], [6.0]])
    assert deepest_point(lows, highs, np.array([1, 1, 1])) == [0.5]
    assert deepest_point(lows, highs, np.array([1, 1, 3])) == [5.5]


def test_boxes_that_only_touch_have_no_point_in_common():
    lows, highs = np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[1.0, 1.0], [2.0, 1.0]])
    point = deepest_point(lows, highs, np.array([1, 2]))
    np.testing.assert_array_equal(point, [1.5, 0.5])


def test_without_any_inhabited_box_there_is_no_deepest_point():
    with pytest.raises(SelectionError, match="no box to be inside of"):
        deepest_point(np.ones((3, 2)), np.ones((3, 2)), np.ones(3, dtype=int))
    with pytest.raises(SelectionError, match="no box to be inside of"):
        deepest_point(np.empty((0, 1)), np.empty((0, 1)), np.empty(0, dtype=int))


def test_a_box_that_is_empty_on_one_axis_only_does_not_count():
    lows, highs = np.array([[0.0, 3.0], [5.0, 5.0]]), np.array([[4.0, 3.0], [6.0, 6.0]])
    np.testing.assert_array_equal(deepest_point(lows, highs, np.array([9, 1])), [5.5, 5.5])


def test_three_axes_are_refused():
    with pytest.raises(SelectionError, match="one and two layers; got 3"):
        deepest_point(np.zeros((2, 3)), np.ones((2, 3)), np.ones(2, dtype=int))


@given(
    st.floats(min_value=0, max_value=1e300),
    st.one_of(st.floats(min_value=0, max_value=1e300), st.just(np.inf), st.integers(1, 3)),
)
def test_the_middle_never_leaves_its_half_open_interval(low, more):
    """more: a distance, or as a whole number so many floats further."""
    high = low
    if isinstance(more, int):
        for _ in range(more):
            high = np.nextafter(high, np.inf)
    else:
        high = low + more
    if low < high:
        middle = _middle(np.array([low]), np.array([high]))[0]
        assert low <= middle < high


def test_the_middle_of_adjacent_floats_is_the_lower_one():
    for low in (0.0, 1.0, 0.1, 5e-324, 1e308):
        high = np.nextafter(low, np.inf)
        assert _middle(np.array([low]), np.array([high]))[0] == low


def test_adjacent_floats_still_give_a_point_inside_the_box():
    low = 0.3
    lows, highs = np.full((1, 2), low), np.full((1, 2), np.nextafter(low, 1))
    np.testing.assert_array_equal(deepest_point(lows, highs, np.array([1])), [low, low])


@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 13])
def test_the_segment_tree_holds_the_largest_of_a_plain_list(n):
    rng = np.random.default_rng(n)
    tree, plain = _SegmentTree(n), [0] * n
    for _ in range(300):
        start, stop = sorted(rng.integers(0, n + 1, size=2).tolist())
        if start == stop:
            continue
        weight = int(rng.integers(-3, 4))
        tree.add(start, stop, weight)
        for i in range(start, stop):
            plain[i] += weight
        assert tree.deepest == max(plain)
