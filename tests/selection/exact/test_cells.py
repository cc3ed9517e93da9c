"""Bounds on cells against asking every point in them."""

import itertools

import numpy as np
import pytest

from iknow.selection.exact import cells
from iknow.selection.exact.cells import Boxes, Deadline, refine, whole_space

NO_HURRY = Deadline(np.inf)


def random_boxes(seed, n_axes):
    """Boxes of whole numbers in a space of some size; half of the time with negative weights."""
    rng = np.random.default_rng(seed)
    size = rng.integers(1, {1: 60, 2: 14, 3: 7}[n_axes], size=n_axes)
    n = int(rng.integers(1, 25))
    low = rng.integers(0, size, size=(n, n_axes))
    high = low + rng.integers(1, 1 + (size + 1) // 2, size=(n, n_axes))
    weight = rng.integers(-3 if seed % 2 else 1, 5, size=n).astype(float)
    weight[0] = 1.0
    return Boxes(low, high, weight), size


def points_of(low, high):
    return itertools.product(*[range(a, b) for a, b in zip(low, high, strict=True)])


def value_at(point, boxes):
    total = 0.0
    for low, high, weight in zip(
        boxes.low.tolist(), boxes.high.tolist(), boxes.weight.tolist(), strict=True
    ):
        if all(a <= x < b for a, x, b in zip(low, point, high, strict=True)):
            total += weight
    return total


def covers(low, high, cell_low, cell_high):
    return all(a <= c and d <= b for a, b, c, d in zip(low, high, cell_low, cell_high, strict=True))


def meets(low, high, cell_low, cell_high):
    return all(a < d and c < b for a, b, c, d in zip(low, high, cell_low, cell_high, strict=True))


def assert_cells_are_honest(found, boxes, values):
    """Bounds, weights inside and lists of boxes are what a look at every point says."""
    ends = list(zip(boxes.low.tolist(), boxes.high.tolist(), strict=True))
    for i in range(len(found)):
        cell = found.low[i].tolist(), found.high[i].tolist()
        assert found.bound[i] >= max(values[point] for point in points_of(*cell))
        inside = sum(
            weight
            for box, weight in zip(ends, boxes.weight.tolist(), strict=True)
            if covers(*box, *cell)
        )
        assert found.inside[i] == inside
        part = {j for j, box in enumerate(ends) if meets(*box, *cell) and not covers(*box, *cell)}
        listed = found.boxes[found.starts[i] : found.starts[i + 1]].tolist()
        assert len(listed) == len(part)
        assert set(listed) == part


@pytest.mark.parametrize("n_axes", [1, 2, 3])
def test_every_round_keeps_all_that_may_be_better_and_bounds_it(n_axes, monkeypatch):
    n_rounds = 0
    for seed in range(60):
        coarse = int(np.random.default_rng(seed).integers(2, 5))  # pieces on an axis, at least
        monkeypatch.setattr(cells, "GRID_SIZE", coarse**n_axes)
        boxes, size = random_boxes(seed, n_axes)
        values = {point: value_at(point, boxes) for point in points_of([0] * n_axes, size.tolist())}
        waiting, best = whole_space(boxes, size), -np.inf
        while len(waiting):
            n_rounds += 1
            value, corner, children = refine(waiting, boxes, best, NO_HURRY)
            assert value == values[tuple(corner.tolist())]
            best_before, best = best, max(best, value)
            better = {
                point
                for i in range(len(waiting))
                for point in points_of(waiting.low[i].tolist(), waiting.high[i].tolist())
                if values[point] > best
            }
            kept = [
                point
                for i in range(len(children))
                for point in points_of(children.low[i].tolist(), children.high[i].tolist())
            ]
            assert len(set(kept)) == len(kept)  # no part of space is looked at twice
            assert better <= set(kept)
            assert (children.bound > max(best_before, value)).all()
            assert_cells_are_honest(children, boxes, values)
            waiting = children
        assert best == max(values.values())
    assert n_rounds > 100


@pytest.mark.parametrize("n_axes", [1, 2, 3])
def test_the_best_to_beat_drops_what_cannot_beat_it(n_axes):
    for seed in range(20):
        boxes, size = random_boxes(seed, n_axes)
        top = max(value_at(p, boxes) for p in points_of([0] * n_axes, size.tolist()))
        _, _, children = refine(whole_space(boxes, size), boxes, best=top, deadline=NO_HURRY)
        assert (children.bound > top).all()
        _, _, children = refine(
            whole_space(boxes, size), boxes, best=boxes.weight.clip(0).sum(), deadline=NO_HURRY
        )
        assert len(children) == 0


def test_cells_taken_apart_and_joined_again_keep_their_boxes(monkeypatch):
    monkeypatch.setattr(cells, "GRID_SIZE", 20)
    n_cells = 0
    for seed in range(40):
        boxes, size = random_boxes(seed, 2)
        _, _, found = refine(whole_space(boxes, size), boxes, best=-np.inf, deadline=NO_HURRY)
        n_cells += len(found)
        order = np.random.default_rng(seed).permutation(len(found))
        cut = len(found) // 2
        again = found.take(order[:cut]).join(found.take(order[cut:]))
        assert len(again) == len(found)
        for new, old in enumerate(order):
            for name in ("low", "high", "bound", "inside"):
                np.testing.assert_array_equal(getattr(again, name)[new], getattr(found, name)[old])
            np.testing.assert_array_equal(
                again.boxes[again.starts[new] : again.starts[new + 1]],
                found.boxes[found.starts[old] : found.starts[old + 1]],
            )
    assert n_cells > 40
