"""Distances for and against, by hand and sample by sample."""

import numpy as np
import pytest

from iknow import Ball, Nearest
from iknow.errors import InputError
from iknow.evaluation.curves import evidence_scatter


@pytest.mark.parametrize("discard", [True, False])
@pytest.mark.parametrize("quorum", [(1, 1), (1, 3), (2, 2)])
def test_each_sample_has_its_two_distances(random_assessment, discard, quorum):
    rules = {"a": Ball(1.0, quorum=quorum), "b": Nearest(2, quorum=quorum)}
    for seed in range(20):
        assessment, _ = random_assessment(seed, rules, discard=discard)
        for layer, rule in rules.items():
            scatter = evidence_scatter(assessment, layer)
            assert (scatter.layer, scatter.rule) == (layer, rule)
            np.testing.assert_array_equal(scatter.assertion, assessment.assertion)
            for i, belief in enumerate(assessment.belief_codes):
                ranked = assessment.evidence[layer].distances[i].tolist()
                if assessment.invalid[i]:
                    ranked = [[np.inf] * 3] * 3
                assert scatter.own[i] == ranked.pop(belief)[quorum[0] - 1]
                assert scatter.other[i] == min(nearest[quorum[1] - 1] for nearest in ranked)


def test_an_only_layer_needs_no_name(random_assessment):
    assessment, _ = random_assessment(0, {"a": Ball(1.0)})
    assert evidence_scatter(assessment).layer == "a"
    assessment, _ = random_assessment(0, {"a": Ball(1.0), "b": Ball(1.0)})
    with pytest.raises(InputError, match=r"one of \['a', 'b'\]; got None"):
        evidence_scatter(assessment)
