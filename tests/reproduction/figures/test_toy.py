"""Regions and supports follow from the data, and not for one seed only."""

from dataclasses import fields

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from iknow import Assertion
from reproduction.figures.toy import make_regions, make_supports

IK, IMK, IDK = Assertion.IK, Assertion.IMK, Assertion.IDK


@pytest.fixture(scope="module")
def regions():
    return make_regions(n_cells=60)


@pytest.mark.parametrize("seed", range(6))
def test_the_paper_s_two_examples(seed):
    confused, known = make_regions(n_cells=2, seed=seed).examples
    assert confused.point.tolist() == [2, 2]
    assert (confused.belief, confused.support, confused.assertion) == (1, (0, 1), IMK)
    assert known.point.tolist() == [8, 0]
    assert (known.belief, known.support, known.assertion) == (1, (1,), IK)


def test_regions_follow_from_belief_and_labels_within_reach(regions):
    plane = np.stack(np.meshgrid(regions.x, regions.y), axis=-1)
    for row, column in np.ndindex(regions.assertion.shape):
        place = plane[row, column].astype(np.float32).astype(np.float64)
        steps = regions.points.astype(np.float32).astype(np.float64) - place
        found = set(regions.labels[np.sqrt((steps**2).sum(axis=1)) <= regions.radius].tolist())
        belief = regions.belief[row, column]
        expected = IDK if belief not in found else IK if len(found) == 1 else IMK
        assert regions.assertion[row, column] == expected


def test_all_four_regions_are_there(regions):
    for belief in (0, 1):
        assert ((regions.assertion == IK) & (regions.belief == belief)).mean() > 0.05
    assert (regions.assertion == IMK).mean() > 0.01
    assert (regions.assertion == IDK).mean() > 0.2
    corners = regions.assertion[[0, 0, -1, -1], [0, -1, 0, -1]]
    assert corners.tolist() == [IDK] * 4


@pytest.mark.parametrize("seed", range(12))
def test_one_support_is_pure_one_mixed_one_empty(seed):
    supports = make_supports(seed)
    assert [query.assertion for query in supports.queries] == [IK, IMK, IDK]
    assert [len(query.support) for query in supports.queries] == [1, 2, 0]
    for query in supports.queries:
        distances = cdist(query.point[None], supports.points)[0]
        assert query.neighbors.tolist() == np.flatnonzero(distances <= supports.radius).tolist()
        assert query.support == tuple(sorted(set(supports.labels[query.neighbors].tolist())))
    centers = np.stack([query.point for query in supports.queries])
    assert cdist(centers, centers)[2, :2].min() > 3 * supports.radius  # with words between


def flatten(record):
    """All arrays and numbers of a record, in order."""
    if isinstance(record, np.ndarray | float | int | str):
        return [np.asarray(record)]
    if isinstance(record, tuple):
        return [part for value in record for part in flatten(value)]
    return [part for field in fields(record) for part in flatten(getattr(record, field.name))]


@pytest.mark.parametrize("make", [lambda seed: make_regions(20, seed), make_supports])
def test_a_seed_decides_every_number(make):
    first, again, other = flatten(make(3)), flatten(make(3)), flatten(make(4))
    for left, right in zip(first, again, strict=True):
        np.testing.assert_array_equal(left, right)
    assert any(
        left.shape != right.shape or (left != right).any()
        for left, right in zip(first, other, strict=False)
    )
