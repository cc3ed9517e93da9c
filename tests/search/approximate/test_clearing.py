"""The proof behind clearing radii, tried on random evidence against the support itself."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iknow.core.evidence import from_ranked
from iknow.core.support import find_support
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall
from iknow.search.approximate.clearing import can_clear, clearing_radii, own_needed

NUMBERS = st.integers(0, 6)  # many ties


@st.composite
def rules(draw):
    radius, ratio = float(draw(NUMBERS)), draw(st.sampled_from([0.5, 1.0, 1.5, 2.0]))
    k, quorum = draw(st.integers(1, 4)), (draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    return draw(
        st.sampled_from(
            [
                Ball(radius, quorum=quorum),
                Ball((radius, 2.0, 4.0), quorum=quorum),
                RelativeBall(radius, ratio, quorum=quorum),
                Nearest(k, quorum=quorum),
                BallElseNearest(radius, k, quorum=quorum),
                BallWithNearest(radius, k, quorum=quorum),
            ]
        )
    )


@given(
    rules(),
    st.lists(st.lists(NUMBERS, min_size=1, max_size=5), min_size=3, max_size=3),
    st.lists(NUMBERS, min_size=5, max_size=5),
)
@settings(max_examples=400, deadline=None)
def test_no_other_class_within_the_radius_means_the_belief_alone(rule, classes, excess):
    """Distances of three classes; those of the belief, 0, are known up to an excess."""
    ranked = np.full((1, 3, 5), np.inf)
    for code, distances in enumerate(classes):
        ranked[0, code, : len(distances)] = np.sort(distances)
    neighbors = np.sort(ranked.reshape(1, -1))[:, :4]
    evidence = from_ranked(ranked, neighbors, np.zeros(ranked.shape, dtype=np.int64))
    belief = np.array([0])
    bounds = np.sort(ranked[:, 0] + excess)[:, : own_needed(rule)]
    radius = clearing_radii(rule, bounds, belief)[0]
    if np.isfinite(radius) and (ranked[0, 1:, rule.quorum[1] - 1] > radius).all():
        assert find_support(evidence, rule, belief).tolist() == [[True, False, False]]


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
