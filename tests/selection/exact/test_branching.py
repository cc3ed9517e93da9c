"""Cells under limits of time and memory: bounds stay honest, and the limits are kept."""

import tracemalloc

import numpy as np
import pytest

from iknow.errors import InputError
from iknow.selection.exact import cells, depth
from iknow.selection.exact.depth import deepest_point
from tests.selection.exact.test_depth import depth_at, largest_depth, random_boxes
from tests.selection.exact.test_sweep import crossed_slabs


@pytest.mark.parametrize(("parts", "waiting"), [(8, 1 << 20), (8, 60), (1 << 20, 60), (1, 1)])
def test_with_little_memory_bounds_are_honest_and_what_is_proven_is_true(
    parts, waiting, monkeypatch
):
    monkeypatch.setattr(cells, "GRID_SIZE", 300)
    monkeypatch.setattr(cells, "MOST_PARTS", parts)
    monkeypatch.setattr(depth, "MOST_WAITING", waiting)
    monkeypatch.setattr(depth, "GUESSES", 1)
    n_proven = 0
    for seed in range(120):
        lows, highs, weights = random_boxes(seed, 3, signed=bool(seed % 2))
        best = largest_depth(lows, highs, weights)
        found = deepest_point(lows, highs, weights)
        if found.point is None:
            assert best <= 0 or not found.proven
            continue
        assert depth_at(found.point, lows, highs, weights) == found.value <= best <= found.bound
        n_proven += found.proven
    if waiting == 1 << 20:  # fewer pieces at a time take longer, and find all the same
        assert n_proven > 80


class Clock:
    """A clock that moves by a tenth of a second whenever somebody looks at it."""

    def __init__(self, monkeypatch):
        self.looks = 0
        monkeypatch.setattr(cells.time, "monotonic", self)

    def __call__(self):
        self.looks += 1
        return self.looks / 10


@pytest.mark.parametrize("n_axes", [3, 6, 10])
def test_the_deadline_is_looked_at_within_a_round_and_ends_it(n_axes, monkeypatch):
    lows, highs = crossed_slabs(300, n_axes, np.random.default_rng(0))
    monkeypatch.setattr(cells, "CORNERS_AT_ONCE", 600)
    rounds = []
    refine = depth.refine

    def count(*arguments):
        rounds.append(1)
        result = refine(*arguments)
        rounds.append(2)
        return result

    monkeypatch.setattr(depth, "refine", count)
    clock = Clock(monkeypatch)
    found = deepest_point(lows, highs, np.ones(300), time_limit=0.5)
    assert clock.looks < 12
    assert rounds == [1]  # begun and left
    assert 0 < found.value <= found.bound == 300


@pytest.mark.parametrize("n_axes", [3, 5])
def test_memory_is_bounded_where_hardly_a_cell_can_be_dropped(n_axes, monkeypatch):
    lows, highs = crossed_slabs(2000, n_axes, np.random.default_rng(0))
    for name, size in (
        ("GRID_SIZE", 1 << 13),
        ("MOST_PARTS", 1 << 15),
        ("CORNERS_AT_ONCE", 1 << 15),
    ):
        monkeypatch.setattr(cells, name, size)
    monkeypatch.setattr(depth, "GRID_SIZE", 1 << 13)
    monkeypatch.setattr(depth, "CORNERS_PER_ROUND", 1 << 17)
    monkeypatch.setattr(depth, "MOST_WAITING", 1 << 16)
    Clock(monkeypatch)
    tracemalloc.start()
    found = deepest_point(lows, highs, np.ones(2000), time_limit=30)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 << 20
    assert found.value < found.bound


def test_without_time_to_find_a_gain_it_is_not_said_that_there_is_none():
    """Every low corner but one lies in a box that costs more than it gains."""
    lows = np.zeros((3, 3))
    lows[0] = 1.0
    highs = np.full((3, 3), 5.0)
    highs[1:] = [[3.0, 5.0, 5.0], [5.0, 5.0, 3.0]]
    weights = np.array([1, -5, -5])
    assert deepest_point(lows, highs, weights).value == 1
    nothing = deepest_point(lows, highs, weights, time_limit=0)
    assert nothing.point is None
    assert not nothing.proven
    nothing = deepest_point(lows, highs, np.array([-1, -5, 0]))
    assert nothing.point is None
    assert nothing.proven


@pytest.mark.parametrize("limit", [-1, float("nan"), "60", None, True])
def test_a_time_limit_is_a_number_of_seconds(limit):
    with pytest.raises(InputError, match=r"time_limit must be a number of seconds >= 0; got"):
        deepest_point(np.zeros((1, 1)), np.ones((1, 1)), np.ones(1), limit)


def test_a_deadline_counts_down():
    soon = cells.Deadline(1000)
    assert 999 < soon.left() <= 1000
    assert cells.Deadline(0).left() == 0
    assert cells.Deadline(np.inf).left() == np.inf
    with pytest.raises(TimeoutError):
        cells.Deadline(0).check()
