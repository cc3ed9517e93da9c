"""Boxes at their ends; that a sample is IK exactly inside is in the contract of every rule."""

import numpy as np
import pytest

from iknow.core.rule import has_k
from iknow.rules import Ball, BallElseNearest, BallWithNearest, RelativeBall
from iknow.selection.exact.boxes import Objective, sample_boxes

RULES = [Ball, BallElseNearest, BallWithNearest, RelativeBall]


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
    least = float(np.nextafter(0, 1))  # with the ratio 0 no other class contradicts
    assert lows.tolist() == [[0, 0], [0, 0], [2, 0], [2, 0], [np.inf, 0], [3, 0]]
    assert highs[:, 0].tolist() == [np.inf] * 6  # so the fifth is never inside
    assert np.delete(highs[:, 1], 4).tolist() == [np.inf, least, 1, np.inf, 2 / 3]


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
