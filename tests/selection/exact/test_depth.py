"""The deepest point against trying every combination of the boxes' ends."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iknow.errors import SelectionError
from iknow.selection.exact import cells, depth
from iknow.selection.exact.depth import _between, deepest_point, profile

AXES = [1, 2, 3]


def depth_at(point, lows, highs, weights):
    """Total weight of the boxes around a point, one box and one axis at a time."""
    total = 0
    for low, high, weight in zip(lows.tolist(), highs.tolist(), weights.tolist(), strict=True):
        if all(a <= x < b for a, x, b in zip(low, point, high, strict=True)):
            total += weight
    return total


def gains_nothing(found):
    """Whether it is proven that no point gains more by its boxes than it loses."""
    return found.point is None and found.proven and found.value == found.bound == 0


def largest_depth(lows, highs, weights):
    """Depth changes only where a box begins or ends, so their combinations are all that matters."""
    return _largest_from(0, list(zip(lows.tolist(), highs.tolist(), weights.tolist(), strict=True)))


def _largest_from(axis, boxes):
    """Try every end on this axis, then on the next ones with the boxes that are left."""
    if not boxes or axis == len(boxes[0][0]):
        return sum(weight for _, _, weight in boxes)
    ends = {end for low, high, _ in boxes for end in (low[axis], high[axis]) if end < np.inf}
    return max(
        _largest_from(axis + 1, [box for box in boxes if box[0][axis] <= end < box[1][axis]])
        for end in ends
    )


def random_boxes(seed, n_axes, signed=False):
    """Boxes with whole-numbered ends, so that many tie; some are empty, some without an end."""
    rng = np.random.default_rng(seed)
    largest, n = int(rng.integers(2, 60 // n_axes)), int(rng.integers(1, 25))
    lows = rng.integers(0, largest, size=(n, n_axes)).astype(float)
    highs = lows + rng.integers(0, largest, size=(n, n_axes)) - (rng.random((n, n_axes)) < 0.05)
    highs[rng.random((n, n_axes)) < 0.1] = np.inf
    weights = rng.integers(-4 if signed else 1, 2 + 5 * int(rng.integers(2)), size=n)
    if not signed:
        lows[0], highs[0] = 0.0, 1.0  # at least one box has an inside
    return lows, highs, weights


@pytest.fixture
def rounds(monkeypatch):
    """Coarse grids and few boxes at a time, so that small problems take many rounds: their list."""
    seen = []
    refine = depth.refine

    def count(*arguments):
        seen.append(len(arguments[0]))
        return refine(*arguments)

    def use(n_axes):
        monkeypatch.setattr(cells, "GRID_SIZE", 3)  # every cell is cut in two on every axis
        monkeypatch.setattr(depth, "GRID_SIZE", 3 * 4**n_axes)  # three cells a round
        monkeypatch.setattr(depth, "CORNERS_PER_ROUND", 12 << n_axes)
        monkeypatch.setattr(depth, "GUESSES", 1)
        monkeypatch.setattr(depth, "refine", count)
        return seen

    return use


@pytest.mark.parametrize(("n_axes", "n_problems"), [(1, 250), (2, 250), (3, 200), (4, 40)])
@pytest.mark.parametrize("coarse", [True, False], ids=["many rounds", "one grid"])
def test_the_depth_found_is_the_largest_over_all_combinations_of_ends(
    n_axes, n_problems, coarse, rounds
):
    seen = rounds(n_axes) if coarse else []
    for seed in range(n_problems if coarse else n_problems // 5):
        lows, highs, weights = random_boxes(seed, n_axes)
        found = deepest_point(lows, highs, weights)
        assert found.point.shape == (n_axes,)
        expected = largest_depth(lows, highs, weights)
        assert found.value == expected, f"seed {seed}"
        assert depth_at(found.point, lows, highs, weights) == expected, f"seed {seed}"
        assert found.proven
        assert found.bound == found.value
    if coarse:
        assert (len(seen) > 2 * n_problems) == (n_axes > 2)  # one sweep does for two axes


@pytest.mark.parametrize(("n_axes", "n_problems"), [(1, 120), (2, 120), (3, 120), (4, 30)])
@pytest.mark.parametrize("coarse", [True, False], ids=["many rounds", "one grid"])
def test_with_negative_weights_too_or_it_is_said_that_no_point_gains(
    n_axes, n_problems, coarse, rounds
):
    if coarse:
        rounds(n_axes)
    else:
        n_problems //= 2
    n_found = n_refused = 0
    for seed in range(n_problems):
        lows, highs, weights = random_boxes(seed, n_axes, signed=True)
        expected = largest_depth(lows, highs, weights)
        if expected <= 0:
            assert gains_nothing(deepest_point(lows, highs, weights))
            n_refused += 1
            continue
        found = deepest_point(lows, highs, weights)
        assert found.value == found.bound == expected, f"seed {seed}"
        assert depth_at(found.point, lows, highs, weights) == expected, f"seed {seed}"
        n_found += 1
    assert n_found >= n_problems / 4
    assert n_refused >= n_problems / 20


def test_where_every_gain_is_lost_again_no_point_gains():
    lows, highs = np.array([[1.0, 1.0], [0.0, 0.0]]), np.array([[2.0, 2.0], [3.0, 3.0]])
    assert gains_nothing(deepest_point(lows, highs, np.array([2, -2])))
    assert deepest_point(lows, highs, np.array([3, -2])).value == 1


def test_depth_may_grow_where_a_box_of_negative_weight_ends():
    lows, highs = np.array([[0.0], [0.0]]), np.array([[8.0], [4.0]])
    found = deepest_point(lows, highs, np.array([1, -1]))
    assert (found.point.tolist(), found.value) == ([6.0], 1)


@pytest.mark.parametrize("n_axes", AXES)
def test_the_depth_found_is_the_largest_for_real_numbers_too(n_axes, rounds):
    rounds(n_axes)
    for seed in range(30):
        rng = np.random.default_rng(seed)
        n = {1: 30, 2: 20, 3: 10}[n_axes]
        lows = rng.random((n, n_axes))
        highs = lows + rng.random((n, n_axes)) - 0.1
        weights = rng.random(n) + 0.01
        if not (lows < highs).all(axis=1).any():
            continue
        found = deepest_point(lows, highs, weights)
        expected = largest_depth(lows, highs, weights)
        assert found.value == pytest.approx(expected, rel=1e-12)
        assert depth_at(found.point, lows, highs, weights) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("n_axes", AXES)
def test_the_order_of_the_boxes_does_not_matter(n_axes, rounds):
    rounds(n_axes)
    for seed in range(60):
        lows, highs, weights = random_boxes(seed, n_axes, signed=bool(seed % 3 == 0))
        order = np.random.default_rng(seed).permutation(len(lows))
        found = deepest_point(lows, highs, weights)
        if found.point is None:
            continue
        again = deepest_point(lows[order], highs[order], weights[order])
        np.testing.assert_array_equal(again.point, found.point)
        assert (again.value, again.bound) == (found.value, found.bound)


# The middle of the plateau


def stretch_around(point, axis, lows, highs, weights):
    """The ends of the stretch along an axis that is as deep as the point, one place at a time."""
    places = sorted({*lows[:, axis].tolist(), *highs[:, axis].tolist()})

    def depth_with(x):
        return depth_at([*point[:axis], x, *point[axis + 1 :]], lows, highs, weights)

    here = depth_with(point[axis])
    low = high = max(place for place in places if place <= point[axis])
    assert depth_with(low) == here
    for place in reversed([place for place in places if place < low]):
        if depth_with(place) != here:
            break
        low = place
    for place in [place for place in places if place > high]:
        high = place
        if np.isinf(place) or depth_with(place) != here:
            break
    assert depth_with(np.nextafter(low, -np.inf)) < here
    assert np.isinf(high) or depth_with(high) < here
    assert np.isinf(high) or depth_with(np.nextafter(high, -np.inf)) == here
    return low, high


@pytest.mark.parametrize("n_axes", AXES)
def test_the_point_is_in_the_middle_of_its_plateau_on_every_axis_where_no_two_are_alike(n_axes):
    for seed in range(100):
        lows, highs, weights = random_boxes(seed, n_axes)
        weights = 2 ** np.arange(len(weights))  # so no two sets of boxes weigh the same
        point = deepest_point(lows, highs, weights).point.tolist()
        for axis in range(n_axes):
            low, high = stretch_around(point, axis, lows, highs, weights)
            assert point[axis] == (low if np.isinf(high) else (low + high) / 2)


@pytest.mark.parametrize("n_axes", AXES)
def test_a_plateau_may_run_through_several_boxes(n_axes):
    n_long = 0
    for seed in range(100):
        lows, highs, weights = random_boxes(seed, n_axes)
        point = deepest_point(lows, highs, np.minimum(weights, 2)).point.tolist()
        low, high = stretch_around(point, n_axes - 1, lows, highs, np.minimum(weights, 2))
        assert point[-1] == (low if np.isinf(high) else (low + high) / 2)
        around = (lows <= point).all(axis=1) & (point < highs).all(axis=1)
        n_long += low < lows[around, -1].max() or high > highs[around, -1].min()
    assert n_long >= 3


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
        assert low <= _between(low, high) < high


def test_the_middle_of_adjacent_floats_is_the_lower_one():
    for low in (0.0, 1.0, 0.1, 5e-324, 1e308):
        assert _between(low, np.nextafter(low, np.inf)) == low


@pytest.mark.parametrize("n_axes", AXES)
def test_adjacent_floats_still_give_a_point_inside_the_box(n_axes):
    low = 0.3
    lows, highs = np.full((1, n_axes), low), np.full((1, n_axes), np.nextafter(low, 1))
    found = deepest_point(lows, highs, np.array([1]))
    np.testing.assert_array_equal(found.point, [low] * n_axes)
    assert found.value == 1


# Time


@pytest.mark.parametrize("n_axes", [3, 4])
def test_when_time_is_up_the_best_so_far_comes_with_an_honest_bound(n_axes, rounds):
    seen = rounds(n_axes)
    n_unproven = n_worse = 0
    for seed in range(120):
        lows, highs, weights = random_boxes(seed, n_axes)
        found = deepest_point(lows, highs, weights, time_limit=0)
        best = largest_depth(lows, highs, weights)
        assert depth_at(found.point, lows, highs, weights) == found.value <= best <= found.bound
        assert found.proven == (found.bound == found.value)
        assert found.value == best or not found.proven
        n_unproven += not found.proven
        n_worse += found.value < best
    assert len(seen) == 0
    assert n_unproven >= 24
    assert n_worse >= 6


# Small things


def test_a_heavy_box_outweighs_two_light_ones():
    lows, highs = np.array([[0.0], [0.0], [5.0]]), np.array([[1.0], [1.0], [6.0]])
    assert deepest_point(lows, highs, np.array([1, 1, 1])).point == [0.5]
    assert deepest_point(lows, highs, np.array([1, 1, 3])).point == [5.5]


def test_boxes_that_only_touch_have_no_point_in_common():
    lows, highs = np.array([[0.0, 0.0], [1.0, 0.0]]), np.array([[1.0, 1.0], [2.0, 1.0]])
    found = deepest_point(lows, highs, np.array([1, 2]))
    assert (found.point.tolist(), found.value) == ([1.5, 0.5], 2)


@pytest.mark.parametrize("n_axes", AXES)
def test_without_any_inhabited_box_there_is_no_deepest_point(n_axes):
    ones, nothing = np.ones((3, n_axes)), np.empty((0, n_axes))
    assert gains_nothing(deepest_point(ones, ones, np.ones(3, dtype=int)))
    assert gains_nothing(deepest_point(nothing, nothing, np.empty(0, dtype=int)))


def test_a_box_that_is_empty_on_one_axis_only_does_not_count():
    lows, highs = np.array([[0.0, 3.0], [5.0, 5.0]]), np.array([[4.0, 3.0], [6.0, 6.0]])
    np.testing.assert_array_equal(deepest_point(lows, highs, np.array([9, 1])).point, [5.5, 5.5])


def test_the_profile_along_an_axis_is_the_depth_at_each_place_and_after_it():
    for seed in range(100):
        lows, highs, weights = random_boxes(seed, 1, signed=bool(seed % 2))
        low, high = lows[:, 0], np.maximum(lows, highs)[:, 0]
        places, values = profile(low, high, weights)
        assert places.tolist() == sorted({*low.tolist(), *high.tolist()})
        for i, (place, value) in enumerate(zip(places, values, strict=True)):
            after = place if i + 1 == len(places) else np.nextafter(places[i + 1], -np.inf)
            for x in (place, after):
                inside = [w for a, b, w in zip(low, high, weights, strict=True) if a <= x < b]
                assert value == sum(inside)


def test_the_profile_of_nothing_is_empty():
    places, values = profile(np.empty(0), np.empty(0), np.empty(0))
    assert (places.size, values.size) == (0, 0)


def test_more_axes_than_can_be_counted_are_refused_before_work_starts():
    corners = np.zeros((3, 11))
    with pytest.raises(SelectionError, match="11 parameters are too many"):
        deepest_point(corners, corners + 1, np.ones(3))
