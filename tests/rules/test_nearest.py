"""Which k make a sample known under a quorum, compared with applying each k."""

import numpy as np
import pytest

from iknow.core.quorum import find_contrast, weigh
from iknow.rules import BallElseNearest, BallWithNearest, Nearest
from iknow.rules.nearest import known_ks, match_k
from iknow.testing.rule import Scene, is_known

LARGEST = 9
QUORUMS = [(1, 1), (1, 3), (2, 2), (3, 1), (4, 2)]


def look(quorum):
    """Evidence about the same queries in two layers, weighed, and who is known by each k."""
    for seed in range(12):
        scenes = {"hidden": Scene(seed, n_queries=30), "logits": Scene(seed + 100, n_queries=30)}
        belief = scenes["hidden"].belief
        raw = {layer: scene.look(k=LARGEST) for layer, scene in scenes.items()}
        known = [
            np.all([is_known(each, Nearest(k, quorum=quorum), belief) for each in raw.values()], 0)
            for k in range(1, LARGEST + 1)
        ]
        weighed = {layer: weigh(each, quorum, belief) for layer, each in raw.items()}
        yield weighed, belief, np.array(known)


@pytest.mark.parametrize("quorum", QUORUMS, ids=repr)
def test_a_sample_is_known_from_the_first_k_to_the_last(quorum):
    firsts = set()
    for evidence, belief, known in look(quorum):
        first, last = known_ks(evidence, belief)
        for k in range(1, LARGEST + 1):
            np.testing.assert_array_equal((first <= k) & (k <= last), known[k - 1])
        firsts |= set(first[first <= last].tolist())
    # One sample is the nearest at once; several may take more neighbors.
    assert (quorum == (1, 1)) == (firsts == {1})


@pytest.mark.parametrize("quorum", QUORUMS, ids=repr)
def test_the_matched_k_comes_nearest_to_the_coverage(quorum):
    for evidence, belief, known in look(quorum):
        coverages = known.mean(axis=1)
        for wanted in (0.0, 0.1, 0.3, 0.6, 1.0):
            k = match_k(evidence, belief, wanted)
            assert k == 1 + int(np.abs(coverages - wanted).argmin())
            matched = Nearest.match(evidence, belief, belief, wanted)
            assert matched == dict.fromkeys(evidence, Nearest(k, quorum=quorum))


@pytest.mark.parametrize("quorum", QUORUMS, ids=repr)
@pytest.mark.parametrize("rule", [BallElseNearest, BallWithNearest])
def test_the_box_of_a_radius_is_where_it_is_known_for_every_k(rule, quorum):
    """Every radius at which anything can change, and the next one below it."""
    known_somewhere = 0
    for seed in range(4):
        scene = Scene(seed)
        evidence = scene.look()
        contrast = find_contrast(weigh(evidence, quorum, scene.belief), scene.belief)
        places = np.unique(evidence.distances[np.isfinite(evidence.distances)])
        radii = np.unique([0.0, *places, *np.nextafter(places[places > 0], 0), 99.0])
        for k in (1, 2, 4, 7, len(scene.labels)):
            [(low, high)] = rule.box(contrast, k)
            for radius in radii[:: 1 if seed % 2 else 5]:
                made = rule(radius, k, quorum=quorum)
                expected = is_known(evidence, made, scene.belief)
                np.testing.assert_array_equal((low <= radius) & (radius < high), expected)
                known_somewhere += expected.sum()
    assert known_somewhere > 20
