"""Sweeps against counting, at every point of the grid, the rectangles around it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from iknow.selection.exact.depth import deepest_point
from iknow.selection.exact.sweep import deepest_of_intervals, deepest_of_rectangles


def depths(low, high, weight, size):
    """The depth of every point, of the shape `size`, one box at a time."""
    total = np.zeros(size)
    for a, b, w in zip(low.tolist(), high.tolist(), weight.tolist(), strict=True):
        total[tuple(slice(*ends) for ends in zip(a, b, strict=True))] += w
    return total


@st.composite
def boxes(draw, n_axes):
    """Boxes of which many share sides, some are empty, and some end where space does."""
    size = [draw(st.integers(1, 9)) for _ in range(n_axes)]
    n = draw(st.integers(1, 20))
    sides = [
        [sorted((draw(st.integers(0, end)), draw(st.integers(0, end)))) for end in size]
        for _ in range(n)
    ]
    weight = draw(st.lists(st.integers(-5, 6), min_size=n, max_size=n))
    ends = np.array(sides).reshape(n, n_axes, 2)
    return ends[:, :, 0], ends[:, :, 1], np.array(weight, dtype=float), np.array(size)


@given(boxes(1))
def test_the_deepest_place_of_intervals_is_the_first_of_the_deepest(case):
    low, high, weight, size = case
    expected = depths(low, high, weight, size)
    found = deepest_of_intervals(low[:, 0], high[:, 0], weight, int(size[0]))
    assert found == (expected.argmax(), expected.max())


@given(boxes(2))
def test_the_deepest_point_of_rectangles_is_the_first_of_the_deepest(case):
    low, high, weight, size = case
    expected = depths(low, high, weight, size)
    point, depth = deepest_of_rectangles(low, high, weight, size)
    assert depth == expected.max() == expected[point]
    # Between two events along the first axis nothing changes: the first of equals begins at one.
    events = np.unique(np.concatenate([[0], low[:, 0], high[:, 0]]))
    assert point[0] == next(x for x in events if expected[x].max() == depth)
    assert point[1] == expected[point[0]].argmax()


def crossed_slabs(n, n_axes, rng):
    """Slabs across all of space, each thin along one axis: hardly a cell can be dropped."""
    lows, highs = np.zeros((n, n_axes)), np.full((n, n_axes), 2.0)
    thin = np.arange(n), np.arange(n) % n_axes
    lows[thin] = rng.random(n)
    highs[thin] = lows[thin] + 0.5 * n_axes / n
    return lows, highs


def test_crossed_slabs_are_proven_whatever_the_time_limit():
    """What a slab adds on one axis is independent of the other: the two maxima add up."""
    lows, highs = crossed_slabs(3000, 2, np.random.default_rng(0))
    weights = np.random.default_rng(1).integers(1, 9, size=3000)
    found = deepest_point(lows, highs, weights, time_limit=0)
    expected = 0
    for axis in range(2):
        own = np.arange(3000) % 2 == axis
        low, high = lows[own, axis], highs[own, axis]
        inside = (low[:, None] <= low) & (low < high[:, None])
        expected += (weights[own, None] * inside).sum(axis=0).max()
    assert found.value == found.bound == expected


@pytest.mark.parametrize("n", [4_001, 9_000])
def test_many_rectangles_are_as_deep_as_the_best_of_their_own_corners(n):
    """The deepest point of boxes without negative weights is at two of their low sides."""
    rng = np.random.default_rng(n)
    lows = np.round(rng.gamma(4, 0.25, size=(n, 2)), 2)
    highs = lows * np.exp(rng.normal(0.5, 0.4, size=(n, 2)))
    weights = rng.integers(1, 4, size=n)
    found = deepest_point(lows, highs, weights)
    x, y = (np.unique(lows[:, axis]) for axis in (0, 1))
    marks = np.zeros((len(x) + 1, len(y) + 1))
    inhabited = (lows < highs).all(axis=1)
    ends = [
        [np.searchsorted(places, side[inhabited, axis]) for side in (lows, highs)]
        for axis, places in enumerate((x, y))
    ]
    for i, j in np.ndindex(2, 2):
        np.add.at(marks, (ends[0][i], ends[1][j]), (-1) ** (i + j) * weights[inhabited])
    assert found.value == found.bound == marks.cumsum(axis=0).cumsum(axis=1).max()
