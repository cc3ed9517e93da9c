"""Distances for and against, by hand and sample by sample."""

import numpy as np
import pytest
from matplotlib.figure import Figure

from iknow import Assertion, Ball, Nearest
from iknow.errors import InputError
from iknow.evaluation.plots import draw_evidence


@pytest.mark.parametrize("discard", [True, False])
@pytest.mark.parametrize("quorum", [(1, 1), (1, 3), (2, 2)])
def test_each_sample_has_its_two_distances(random_assessment, discard, quorum):
    rules = {"a": Ball(1.0, quorum=quorum), "b": Nearest(2, quorum=quorum)}
    for seed in range(20):
        assessment, _ = random_assessment(seed, rules, discard=discard)
        for layer in rules:
            axes = Figure().subplots()
            draw_evidence(axes, assessment, layer)
            expected = []
            for i, belief in enumerate(assessment.belief_codes):
                ranked = assessment.evidence[layer].distances[i].tolist()
                if assessment.invalid[i]:
                    ranked = [[np.inf] * 3] * 3
                own = ranked.pop(belief)[quorum[0] - 1]
                other = min(nearest[quorum[1] - 1] for nearest in ranked)
                expected.append((np.clip(own, *axes.get_xlim()), np.clip(other, *axes.get_ylim())))
                # Only what is infinite, or 0 on a logarithmic axis, is moved to an edge.
                for side, (low, high) in ((own, axes.get_xlim()), (other, axes.get_ylim())):
                    assert low <= side < high or side in (0, np.inf)
            for assertion, dots in zip(reversed(Assertion), axes.collections, strict=True):
                these = assessment.assertion == assertion
                assert np.asarray(dots.get_offsets()).tolist() == [
                    list(map(float, place))
                    for place, chosen in zip(expected, these, strict=True)
                    if chosen
                ]


def test_an_only_layer_needs_no_name(random_assessment):
    axes = Figure().subplots()
    assessment, _ = random_assessment(0, {"a": Ball(1.0)})
    draw_evidence(axes, assessment)
    assert sum(len(dots.get_offsets()) for dots in axes.collections) == len(assessment)
    assessment, _ = random_assessment(0, {"a": Ball(1.0), "b": Ball(1.0)})
    with pytest.raises(InputError, match=r"one of \['a', 'b'\]; got None"):
        draw_evidence(axes, assessment)
