"""Boxes against applying the rule: a sample is IK exactly at the points inside its box."""

import itertools

import numpy as np
import pytest

from iknow.core.rule import axes_of, has_k
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall
from iknow.selection.exact.boxes import Objective, sample_boxes

RULES = [Ball, BallElseNearest, BallWithNearest, RelativeBall]


def numbers_around(ends, smallest):
    """The ends themselves, the floats next to them, the middles between, and the extremes."""
    ends = sorted({end for end in ends if np.isfinite(end)} | {smallest})
    middles = [(a + b) / 2 for a, b in itertools.pairwise(ends)]
    beside = [np.nextafter(end, to) for end in ends for to in (0, np.inf)]
    return sorted({x for x in [*ends, *middles, *beside, 2 * ends[-1] + 1] if x >= smallest})


@pytest.mark.parametrize("exact", [True, False], ids=["ties", "real numbers"])
@pytest.mark.parametrize("rule", RULES)
def test_a_sample_is_ik_exactly_at_the_points_in_its_box(rule, exact, problem_of):
    n_inside = n_outside = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        problem = problem_of(seed, n_layers=1 + seed % 3, exact=exact)
        lows, highs = sample_boxes(problem.evidence, problem.belief, rule, problem.k)
        layers, right = tuple(problem.evidence), problem.belief == problem.y_true
        objective = Objective(layers, rule, problem.k, lows, highs, right)
        names = rule.axes * len(layers)
        assert lows.shape == highs.shape == (len(problem.belief), len(names))
        choices = [numbers_around([*lows[:, i], *highs[:, i]], 0.0) for i in range(len(names))]
        for _ in range(15):
            point = np.array([rng.choice(numbers) for numbers in choices])
            if rng.random() < 0.5:  # near some sample's corner, so that many are inside
                i = rng.integers(len(lows))
                point = np.where(np.isfinite(lows[i]), lows[i], point)
            inside = ((lows <= point) & (point < highs)).all(axis=1)
            neighborhoods = objective.neighborhoods(point)
            known = problem.known(neighborhoods)
            assert inside.tolist() == known.tolist(), f"seed {seed}: {neighborhoods}"
            n_inside, n_outside = n_inside + inside.sum(), n_outside + (~inside).sum()
    assert min(n_inside, n_outside) > 200


def test_a_ratio_that_just_reaches_the_other_class_by_rounding_is_outside(evidence_of):
    """other / own, times own, is not always other: the box must end where the rule says."""
    rng = np.random.default_rng(0)
    distances = np.sort(rng.random((500, 2)), axis=1)
    evidence, belief = {"a": evidence_of(distances)}, np.zeros(500, dtype=int)
    _, highs = sample_boxes(evidence, belief, RelativeBall)
    own, other = distances.T
    assert (highs[:, 1] * own >= other).all()
    assert (np.nextafter(highs[:, 1], 0) * own < other).all()
    assert (highs[:, 1] != other / own).any()


def test_the_box_of_a_relative_ball_when_distances_are_zero_equal_or_infinite(evidence_of):
    evidence = {"a": evidence_of([[0, 1], [0, 0], [2, 2], [2, np.inf], [np.inf, 2], [3, 2]])}
    lows, highs = sample_boxes(evidence, np.zeros(6, dtype=int), RelativeBall)
    assert lows.tolist() == [[0, 0], [0, 0], [2, 0], [2, 0], [np.inf, 0], [3, 0]]
    assert highs[:, 0].tolist() == [np.inf] * 6  # so the fifth is never inside
    assert np.delete(highs[:, 1], 4).tolist() == [np.inf, 0, 1, np.inf, 2 / 3]


@pytest.mark.parametrize("rule", RULES)
def test_a_point_stands_for_one_neighborhood_per_layer(rule):
    nothing = np.empty((0, 2 * len(rule.axes)))
    point = np.array([2.0, 3.0, 4.0, 5.0][: 2 * len(rule.axes)])
    objective = Objective(("a", "b"), rule, 7, nothing, nothing, np.empty(0, dtype=int))
    found = objective.neighborhoods(point)
    if rule is RelativeBall:
        assert found == {"a": RelativeBall(2, 3), "b": RelativeBall(4, 5)}
    else:
        shared = (7,) if has_k(rule) else ()
        assert found == {"a": rule(2, *shared), "b": rule(3, *shared)}


def test_nearest_has_no_parameter_to_choose():
    assert not axes_of(Nearest)
