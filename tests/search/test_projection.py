"""Coordinates that bound distances from below: never too far apart, and the best few."""

import numpy as np
import pytest

from iknow.search.projection import Coordinates, Projection, choose_coordinates, find_directions
from iknow.testing.index import KINDS, Problem


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("huge", "tiny")])
def test_shadows_are_no_further_apart_than_the_points(kind):
    for seed in range(10):
        problem = Problem(kind, seed)
        rows, queries = problem.points.astype(np.float32), problem.queries.astype(np.float32)
        n = rows.shape[1]
        projection = Projection(rows, min(2, n), min(5, n))
        near, far = projection.show_rows(rows)
        asked = projection.show(queries)
        true = np.linalg.norm(rows.astype(float)[None] - queries.astype(float)[:, None], axis=2)
        allowed = true * projection.stretch + asked.slack[:, None]
        pairs = (near, asked.near, 1.0, 0.0), (far, asked.far, projection.unit, projection.blur)
        for shown, seen, unit, blur in pairs:
            apart = np.linalg.norm(shown.astype(float)[None] - seen.astype(float)[:, None], axis=2)
            assert (apart * unit <= allowed + blur * unit)[asked.safe].all()


def test_directions_are_those_of_the_largest_spread():
    rng = np.random.default_rng(0)
    sample = rng.standard_normal((500, 30)) * 0.7 ** np.arange(30)
    directions = find_directions(sample - sample.mean(axis=0), 6)
    np.testing.assert_allclose(directions.T @ directions, np.eye(6), atol=1e-12)
    left = np.linalg.svd(sample - sample.mean(axis=0))[2][:6]
    assert np.linalg.norm(left @ directions) ** 2 > 5.99


@pytest.mark.parametrize(
    ("n_features", "decay", "projected"),
    [(8, 0.5, False), (40, 0.7, True), (40, 1.0, False), (200, 1.0, True)],
)
def test_few_features_are_projected_only_if_some_directions_show_most(n_features, decay, projected):
    rows = np.random.default_rng(0).standard_normal((500, n_features)) * decay ** np.arange(
        n_features
    )
    found = choose_coordinates(rows.astype(np.float32))
    assert isinstance(found, Projection) == projected
    assert isinstance(found, Coordinates)
