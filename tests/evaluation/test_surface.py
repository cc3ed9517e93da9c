"""The coverage surface against an assessment made anew at every grid point."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iknow import Assertion, Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall
from iknow.errors import InputError
from iknow.evaluation.surface import coverage_surface

GRID = [0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0]
"""All distances there are, and radii between and beyond them."""


def count_known(assessment, first, second, radii):
    def at(layer, radius):
        rule = assessment.neighborhoods[layer]
        if isinstance(rule, BallElseNearest | BallWithNearest):
            return type(rule)(radius, rule.k, quorum=rule.quorum)
        return Ball(radius, quorum=rule.quorum)

    changed = {first: at(first, radii[0]), second: at(second, radii[1])}
    other = assessment.under({**assessment.neighborhoods, **changed})
    return int((other.assertion == Assertion.IK).sum())


RULES = [
    {"a": Ball(1.0), "b": Ball(0.5)},
    {"a": Ball(1.0), "b": Ball(0.5), "c": Ball(1.5)},
    {"a": Nearest(1), "b": RelativeBall(1.0, 2.0), "c": Nearest(2)},
    {"a": BallElseNearest(1.0, 2), "b": BallWithNearest(0.5, 2)},
    {"a": RelativeBall(1.0, 1.5, quorum=(1, 3)), "b": BallElseNearest(0.5, 2, quorum=2)},
    {"a": BallWithNearest(1.0, 1), "b": Ball([0.5, 1.0, 1.5]), "c": Ball([1.5, 1.0, 1.5])},
]


@pytest.mark.parametrize("rules", RULES, ids=lambda rules: "-".join(map(repr, rules.values())))
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10_000), discard=st.booleans())
def test_every_grid_point_is_what_an_assessment_there_says(random_assessment, rules, seed, discard):
    assessment, _ = random_assessment(seed, rules, discard=discard)
    surface = coverage_surface(assessment, ["b", "a"], radii=(GRID, GRID[:-1]))
    expected = [[count_known(assessment, "b", "a", (x, y)) for x in GRID] for y in GRID[:-1]]
    np.testing.assert_array_equal(surface.counts, expected)
    np.testing.assert_array_equal(surface.f_ik, surface.counts / len(assessment))
    # Between the numbers that distances are taken from, nothing changes: the grid has it all.
    best = np.max(expected)
    assert surface.best_count == best
    assert surface.best_f_ik == best / len(assessment)
    if best:
        assert count_known(assessment, "b", "a", surface.best) == best
    else:
        assert surface.best is None


@pytest.mark.parametrize("rules", RULES[:2])
def test_what_is_not_finite_is_never_known_whatever_its_evidence(random_assessment, rules):
    assessment, _ = random_assessment(0, rules, n=2000, discard=False)
    surface = coverage_surface(assessment, ["a", "b"], radii=([1.0], [0.5]))
    everything = coverage_surface(
        replace(assessment, invalid=np.zeros(2000, dtype=bool)), ["a", "b"], radii=([1.0], [0.5])
    )
    assert surface.counts == count_known(assessment, "a", "b", (1.0, 0.5)) < everything.counts


def test_two_layers_need_no_names(random_assessment):
    assessment, _ = random_assessment(3, {"a": Ball(1.0), "b": Ball(0.5)})
    named = coverage_surface(assessment, ["a", "b"])
    unnamed = coverage_surface(assessment)
    assert unnamed.layers == named.layers == ("a", "b")
    np.testing.assert_array_equal(unnamed.counts, named.counts)
    assert unnamed.chosen == (1.0, 0.5)


@pytest.mark.parametrize("rule", [Nearest(1), Ball([1.0, 1.0, 2.0])])
def test_radii_in_use_are_told_only_where_there_is_one(random_assessment, rule):
    assessment, _ = random_assessment(3, {"a": Ball(1.0), "b": rule})
    assert coverage_surface(assessment).chosen is None


def test_the_grid_reaches_from_nothing_to_where_nearly_all_has_ended(random_assessment):
    assessment, _ = random_assessment(1, {"a": Ball(1.0), "b": Ball(0.5)}, n=400)
    surface = coverage_surface(assessment, resolution=50)
    assert surface.counts.shape == (50, 50)
    for radii, best in zip((surface.x, surface.y), surface.best, strict=True):
        assert (np.diff(radii) > 0).all()
        assert radii[0] == 0
        assert best < radii[-1] == 2.5
    # What has no other class at all never ends; all else has.
    assert surface.counts[-1, -1] < 0.5 * surface.best_count


def test_the_grid_reaches_all_samples_even_if_none_ever_ceases_to_be_known(random_assessment):
    assessment, _ = random_assessment(1, {"a": Ball(1.0), "b": Ball(0.5)}, n=100)
    for evidence in assessment.evidence.values():
        own = evidence.class_distances[range(100), assessment.belief_codes]
        evidence.class_distances[:] = np.inf
        evidence.class_distances[range(100), assessment.belief_codes] = own
    surface = coverage_surface(assessment)
    assert surface.counts[-1, -1] == surface.best_count > 0


def test_distances_of_many_magnitudes_get_even_ratios(random_assessment):
    assessment, _ = random_assessment(1, {"a": Ball(1.0), "b": Ball(0.5)}, n=400)
    distances = assessment.evidence["a"].class_distances
    distances[:] = 10.0 ** (4 * distances - 8)
    surface = coverage_surface(assessment, resolution=40)
    np.testing.assert_allclose(np.diff(np.log(surface.x)), np.diff(np.log(surface.x))[0])
    np.testing.assert_allclose(np.diff(surface.y), surface.y[1])


def test_nothing_known_anywhere_is_a_flat_surface(random_assessment):
    assessment, _ = random_assessment(0, {"a": Ball(1.0), "b": Ball(1.0)})
    for evidence in assessment.evidence.values():
        evidence.class_distances[:] = 1.0
    surface = coverage_surface(assessment)
    assert surface.best is None
    assert surface.best_f_ik == 0
    assert not surface.counts.any()


@pytest.mark.parametrize("layers", [None, ["a"], ["a", "a"], ["a", "z"], ["a", "b", "c"]])
def test_other_than_two_layers_are_refused(random_assessment, layers):
    assessment, _ = random_assessment(0, {"a": Ball(1.0), "b": Ball(1.0), "c": Ball(1.0)})
    with pytest.raises(InputError, match=r"two whose radii vary, out of \['a', 'b', 'c'\]; got"):
        coverage_surface(assessment, layers)


@pytest.mark.parametrize("radii", [[1.0, 0.5], [-1.0, 1.0], [0.0, np.inf], [[1.0]], [], [1.0, 1.0]])
def test_radii_that_are_no_grid_are_refused(random_assessment, radii):
    assessment, _ = random_assessment(0, {"a": Ball(1.0), "b": Ball(1.0)})
    with pytest.raises(InputError, match="ascending order"):
        coverage_surface(assessment, radii=([1.0], radii))
