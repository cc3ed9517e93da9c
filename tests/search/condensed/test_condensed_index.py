"""Bounds and answers of a `CondensedIndex`, beside those of all rows by `DenseIndex`."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iknow.core.assertion import Assertion, make_assertions
from iknow.core.justification import justify
from iknow.core.neighborhood import Neighborhood
from iknow.errors import InputError
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall
from iknow.search.condensed.codes import Codes, make_codes
from iknow.search.condensed.index import CondensedIndex
from iknow.search.cpu.dense_index import DenseIndex
from iknow.search.cpu.projection import find_directions

COLUMNS = ("class_distances", "neighbor_distances", "further_distances")
N_CLASSES = 4  # the last one has no rows


def make_points(rng: np.random.Generator, n: int, n_features: int) -> np.ndarray:
    """Rows with ties, copies, near copies, a far one, in a subspace or far from the origin."""
    points = rng.normal(size=(n, n_features))
    kind = rng.integers(6)
    if kind == 0:
        points = np.rint(2 * points) / 2
    elif kind == 1:
        points[n // 2 :] = points[: n - n // 2] + rng.choice([0.0, 1e-6], (n - n // 2, 1))
    elif kind == 2:
        points[0] *= 1e6
    elif kind == 3:
        points[:, n_features // 2 :] = 0.0
    elif kind == 4:
        points = 1e4 + points
    else:
        points[:] = points[0]
    return (points * 10.0 ** rng.integers(-30, 17)).astype(np.float32)


def make_pair(
    seed: int, n: int = 60, n_features: int = 5
) -> tuple[CondensedIndex, DenseIndex, np.ndarray]:
    """A condensed index, all of its rows, and queries near and far."""
    rng = np.random.default_rng(seed)
    points, labels = make_points(rng, n, n_features), rng.integers(0, N_CLASSES - 1, n)
    labels.sort()
    center = points.mean(axis=0, dtype=np.float64)
    directions = find_directions(points - center, int(rng.integers(0, n_features + 1)))
    kept, rows = rng.random(n) < rng.choice([0.0, 0.2, 1.0]), np.arange(n)
    codes = make_codes(points[~kept], labels[~kept], rows[~kept], center, directions)
    index = CondensedIndex(
        points[kept], labels[kept], N_CLASSES, rows[kept], codes=codes, make=DenseIndex
    )
    scale = points.std()
    queries = [points[:5], points[5:15] + scale * rng.normal(size=(10, n_features))]
    queries += [points[15:20] + 0.1 * scale * rng.normal(size=(5, n_features)), points[:1] * 1e3]
    return index, DenseIndex(points, labels, N_CLASSES), np.concatenate(queries).astype(np.float32)


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_distances_lie_between_the_bounds(seed: int) -> None:
    index, whole, queries = make_pair(seed)
    found, true = index.gather(queries, 7, 3), whole.gather(queries, 7, 3)
    for column in COLUMNS:
        assert (getattr(found.least, column) <= getattr(true, column)).all()
        assert (getattr(found, column) >= getattr(true, column)).all()
        absent = [np.isinf(getattr(each, column)[:-1]) for each in (found, true)]
        np.testing.assert_array_equal(*absent)  # the last query may be too far for any bound
    rows = found.exemplars[np.isfinite(found.class_distances)]
    assert (rows >= 0).all()


@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_answers_are_those_of_all_rows_or_idk(seed: int) -> None:
    rng = np.random.default_rng(seed)
    index, whole, queries = make_pair(seed)
    belief = rng.integers(0, N_CLASSES, len(queries))
    distances = whole.gather(queries, 1).class_distances[:, :3]
    radius, quorum = float(rng.choice(distances.ravel())), (1, int(rng.integers(1, 4)))
    rules: list[Neighborhood] = [
        Ball(radius, quorum=quorum),
        Ball(tuple(radius * np.array([1.0, 0.5, 2.0, 1.0]))),
        Nearest(3, quorum=quorum),
        BallElseNearest(radius, 3, quorum=quorum),
        BallWithNearest(radius, 3, quorum=quorum),
        RelativeBall(radius, 1.1, quorum=quorum),
    ]
    for rule in rules:
        supports = [each.find_support(queries, rule, belief) for each in (whole, index)]
        true, told = (np.asarray(make_assertions(belief, justify([each]))) for each in supports)
        assert ((told == true) | (told == Assertion.IDK)).all(), rule
        decided = [each.decide(queries, rule, belief) for each in (whole, index)]
        np.testing.assert_array_equal(decided[1].support, supports[1])
        assert (decided[1].contrast.own >= decided[0].contrast.own).all()
        assert (decided[1].contrast.other <= decided[0].contrast.other).all()


def test_with_all_directions_bounds_are_tight_and_answers_mostly_the_same() -> None:
    """Otherwise IDK for everything would pass."""
    rng = np.random.default_rng(0)
    points, labels = rng.normal(size=(300, 6)).astype(np.float32), np.sort(np.arange(300) % 3)
    center, rows = points.mean(axis=0, dtype=np.float64), np.arange(300)
    codes = make_codes(points, labels, rows, center, find_directions(points - center, 6))
    none = points[:0], labels[:0]
    index = CondensedIndex(*none, 3, rows[:0], codes=codes, make=DenseIndex)
    queries, belief = rng.normal(size=(200, 6)), rng.integers(0, 3, 200)
    found, true = index.gather(queries, 4, 2), DenseIndex(points, labels, 3).gather(queries, 4, 2)
    for column in COLUMNS:
        assert (getattr(found, column) - getattr(found.least, column)).max() < 2e-3
    np.testing.assert_array_equal(found.exemplars, true.exemplars)
    rule = RelativeBall(2.0, 1.05, quorum=(1, 2))
    same = index.find_support(queries, rule, belief) == DenseIndex(points, labels, 3).find_support(
        queries, rule, belief
    )
    assert same.all(axis=1).mean() > 0.97


def test_a_query_beyond_float32_of_the_codes_is_known_by_nothing() -> None:
    index, _, _ = make_pair(1)
    queries = np.full((1, 5), 3e38, dtype=np.float32)
    found = index.gather(queries, 2, 2)
    assert (found.least.class_distances[:, 0] >= 0).all()
    assert not index.find_support(queries, RelativeBall(1.0, 1.0), np.array([0])).any()


def test_directions_must_be_orthonormal_and_k_within_all_rows() -> None:
    index, whole, queries = make_pair(3)
    codes = index.codes
    bad = codes.directions + 0.1 if codes.directions.size else np.ones((5, 1))
    with pytest.raises(InputError, match="orthonormal"):
        Codes(codes.center, bad, codes.values, 1.0, 0.0, 1.0, codes.labels, codes.rows)
    assert index.gather(queries, whole.n_rows).n_neighbors == whole.n_rows
    with pytest.raises(InputError, match="neighbors"):
        index.gather(queries, whole.n_rows + 1)
    index.warm_up()
