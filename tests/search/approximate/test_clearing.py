"""The proof behind clearing radii, tried on random evidence against the support itself."""

import numpy as np
import pytest

from iknow.core.evidence import from_ranked
from iknow.core.support import find_support
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall
from iknow.search.approximate.clearing import can_clear, clearing_radii, own_needed

RULES = [
    rule
    for quorum in ((1, 1), (2, 1), (1, 2), (2, 3), (3, 2))
    for rule in (
        Ball(2.0, quorum=quorum),
        Ball((3.0, 2.0, 4.0), quorum=quorum),
        *(RelativeBall(3.0, ratio, quorum=quorum) for ratio in (0.5, 1.0, 1.5)),
        *(Nearest(k, quorum=quorum) for k in (1, 2, 4)),
        *(BallElseNearest(2.0, k, quorum=quorum) for k in (1, 3)),
        *(BallWithNearest(2.0, k, quorum=quorum) for k in (1, 3)),
    )
]


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_no_other_class_within_the_radius_means_the_belief_alone(rule):
    """Whole distances of three classes, so with many ties; the belief's are known up to excess."""
    rng, n = np.random.default_rng(0), 3000
    ranked = rng.integers(0, 9, size=(n, 3, 5)).astype(float)
    ranked[:, 1:] += rng.integers(0, 5, size=(n, 1, 1))
    ranked[rng.random((n, 3, 5)) < 0.1] = np.inf  # fewer samples
    ranked.sort(axis=2)
    neighbors = np.sort(ranked.reshape(n, -1), axis=1)[:, :4]
    evidence = from_ranked(ranked, neighbors, np.zeros(ranked.shape, dtype=np.int64))
    belief = np.zeros(n, dtype=np.int64)
    excess = rng.integers(0, 3, size=(n, 5)) * (rng.random((n, 1)) < 0.5)
    bounds = np.sort(ranked[:, 0] + excess, axis=1)[:, : own_needed(rule)]
    radii = clearing_radii(rule, bounds, belief)
    cleared = np.isfinite(radii) & (ranked[:, 1:, rule.quorum[1] - 1] > radii[:, None]).all(axis=1)
    support = find_support(evidence, rule, belief)
    assert (support[cleared] == [True, False, False]).all()
    known = (support == [True, False, False]).all(axis=1)
    if rule.quorum == (1, 1):  # and much of what is IK is cleared
        assert cleared.sum() > known.sum() / 3


@pytest.mark.parametrize(
    "rule", [Ball(1.0, quorum=2), RelativeBall(1.0, 2.0), Nearest(2), BallWithNearest(1.0, 2)]
)
def test_what_is_clear_is_cleared(rule):
    """The radius is finite where it may be, so that the law above says something."""
    own = np.array([[0.5, 0.75, 2.0]])[:, : own_needed(rule)]
    assert clearing_radii(rule, own, np.array([0]))[0] <= 1.0


def test_a_subclass_may_have_another_reach():
    class Wider(Ball):
        def reach(self, evidence):
            return 2 * super().reach(evidence)

    assert can_clear(Ball(1.0))
    assert not can_clear(Wider(1.0))
