import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

from benchmarks.synthetic import Shape, draw_clustered, draw_isotropic, make_case

DRAWS = [draw_clustered, draw_isotropic]


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize("n_features", [1, 2, 9])
def test_shapes_and_types(draw, n_features):
    points, labels, queries, y_true, belief = draw(Shape(300, n_features, 4, 50), extra=7)
    assert (points.shape, points.dtype) == ((300, n_features), np.float32)
    assert (queries.shape, queries.dtype) == ((57, n_features), np.float32)
    assert labels.shape == (300,)
    assert y_true.shape == belief.shape == (57,)
    assert set(np.unique(labels)) == {0, 1, 2, 3}
    assert np.isfinite(points).all()


@pytest.mark.parametrize("draw", DRAWS)
def test_the_seed_decides(draw):
    first, again = (draw(Shape(50, 3, 2, 10, seed=5)) for _ in range(2))
    other = draw(Shape(50, 3, 2, 10, seed=6))
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert (first[0] != other[0]).any()


def share_of_variance_near(points, n=200, dimensions=8):
    """The share of the spread around a point, among its neighbours, that few directions explain."""
    near = NearestNeighbors(n_neighbors=40).fit(points).kneighbors(points[:n])[1]
    shares = []
    for rows in near:
        values = np.linalg.svd(points[rows] - points[rows].mean(axis=0), compute_uv=False) ** 2
        shares.append(values[:dimensions].sum() / values.sum())
    return np.mean(shares)


def test_clusters_are_flat_and_isotropic_clouds_are_not():
    shape = Shape(20_000, 40, 10, 1)
    assert share_of_variance_near(draw_clustered(shape)[0]) > 0.9
    assert share_of_variance_near(draw_isotropic(shape)[0]) < 0.6


def test_some_beliefs_are_wrong_and_some_queries_are_pushed():
    points, _, queries, y_true, belief = draw_clustered(Shape(20_000, 32, 10, 2_000))
    assert 0.02 < (y_true != belief).mean() < 0.08
    near = NearestNeighbors(n_neighbors=1).fit(points).kneighbors(queries)[0][:, 0]
    assert 0.05 < (near > 3.2).mean() < 0.15


def test_a_case_has_a_mix_of_assertions():
    case = make_case("c", Shape(3_000, 16, 5, 400))
    (layer,) = case.layers
    distances = np.linalg.norm(layer.queries[:, None] - layer.points[None], axis=2)
    support = np.stack(
        [(distances[:, case.labels == c] <= layer.radius).any(axis=1) for c in range(5)], axis=1
    )
    assertions = case.assert_about(slice(None), [support])
    shares = np.bincount(assertions, minlength=3) / len(assertions)
    assert (shares > 0.02).all(), shares
    facts = case.describe(assertions)
    assert facts.facts["assertions"]["IK"] == pytest.approx(shares[2])
    assert facts.layers == {"layer": 16}
