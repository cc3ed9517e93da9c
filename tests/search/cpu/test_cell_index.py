"""CellIndex: the supports of brute force, by walking and by sweeping, in every awkward case."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iknow.core.support import find_support
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall
from iknow.search.cpu import cell_index as cells
from iknow.search.cpu.cell_index import CellIndex
from iknow.search.cpu.dense_index import DenseIndex
from iknow.search.cpu.packed import LANES
from iknow.testing import IndexContract, brute_force
from iknow.testing.index import KINDS, Problem

pytest.importorskip("numba")

WAYS = {"walk": 0.0, "sweep": np.inf}


class TestCellIndex(IndexContract):
    def make_index(self, activations, labels, n_classes, rows=None):
        return CellIndex(activations, labels, n_classes, rows=rows)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", KINDS)
def test_each_way_alone_decides_exact_ties_as_brute_force_does(monkeypatch, way, kind):
    monkeypatch.setattr(cells, "cost_of_a_step", lambda _: WAYS[way])
    monkeypatch.setattr(cells, "TRIAL", 1)
    TestCellIndex().test_supports_at_exact_ties_equal_those_of_brute_force(kind)


def clustered(n_rows, n_features=8, n_classes=3, seed=0, n_clusters=12, spread=0.1):
    """Rows in clusters, class by class, and queries near some of them and far from all."""
    rng = np.random.default_rng(seed)
    centers = rng.standard_normal((n_classes, n_clusters, n_features))
    labels = np.sort(rng.integers(n_classes, size=n_rows))
    near = centers[labels, rng.integers(n_clusters, size=n_rows)]
    points = (near + spread * rng.standard_normal((n_rows, n_features))).astype(np.float32)
    queries = points[rng.integers(n_rows, size=200)] + spread * rng.standard_normal(
        (200, n_features)
    )
    queries[::10] += 5
    return points, labels, queries.astype(np.float32)


def expected_support(points, labels, n_classes, queries, rule):
    return find_support(brute_force(points, labels, n_classes, queries, rule.n_neighbors), rule)


class Twice(Ball):
    """What a ball says of its reach is not true of it."""

    def reach(self, evidence):
        return 2 * super().reach(evidence)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n_rows", [15, 16, 17, 48, 800, 13_000])
def test_trees_of_every_height_give_the_support_of_brute_force(monkeypatch, way, n_rows):
    """13,000 rows in three classes make three levels of cells."""
    monkeypatch.setattr(cells, "cost_of_a_step", lambda _: WAYS[way])
    points, labels, queries = clustered(n_rows)
    index = CellIndex(points, labels, 3)
    distances = brute_force(points, labels, 3, queries).class_distances
    for quantile in (0.02, 0.3, 0.9):
        # The radius is one of the distances: a support hangs on its last bit.
        radius = float(np.quantile(distances, quantile, method="nearest"))
        np.testing.assert_array_equal(
            index.find_support(queries, Ball(radius)), distances <= radius
        )


@pytest.mark.parametrize(
    "rule",
    [
        Nearest(4),
        BallElseNearest(0.3, 4),
        BallWithNearest(0.3, 4),
        RelativeBall(0.5, 1.5),
        Twice(0.2),
    ],
)
def test_the_other_rules_are_answered_too(rule):
    points, labels, queries = clustered(3000)
    found = CellIndex(points, labels, 3).find_support(queries, rule)
    np.testing.assert_array_equal(found, expected_support(points, labels, 3, queries, rule))


@pytest.mark.parametrize("radius", [0.0, 1e-40, 1e30, 1e300, np.inf])
@pytest.mark.parametrize("kind", KINDS)
def test_extreme_radii(kind, radius):
    for seed in range(5):
        problem = Problem(kind, seed)
        arguments = problem.points, problem.labels, problem.n_classes
        found = CellIndex(*arguments).find_support(problem.queries, Ball(radius))
        expected = expected_support(*arguments, problem.queries, Ball(radius))
        np.testing.assert_array_equal(found, expected)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    n_rows=st.integers(1, 700),
    n_features=st.integers(1, 20),
    n_classes=st.integers(2, 5),
    steps=st.integers(1, 6),
    exponent=st.integers(-30, 30),
    way=st.sampled_from(sorted(WAYS)),
)
def test_near_ties_of_any_size(seed, n_rows, n_features, n_classes, steps, exponent, way):
    """Rows and queries on a coarse grid, moved by single bits: distances tie, or nearly do."""
    rng = np.random.default_rng(seed)
    scale = np.float32(2.0**exponent)
    grid = rng.integers(-steps, steps + 1, size=(n_rows + 40, n_features)).astype(np.float32)
    moved = np.nextafter(grid, np.float32(np.inf) * rng.choice([-1, 1], size=grid.shape))
    grid = np.where(rng.random(grid.shape) < 0.2, moved, grid).astype(np.float32) * scale
    points, queries = grid[:n_rows], grid[n_rows:]
    labels = rng.integers(n_classes, size=n_rows)
    distances = brute_force(points, labels, n_classes, queries).class_distances
    radius = float(rng.choice(distances[np.isfinite(distances)]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells, "cost_of_a_step", lambda _: WAYS[way])
        patch.setattr(cells, "TRIAL", 1)
        found = CellIndex(points, labels, n_classes).find_support(queries, Ball(radius))
    np.testing.assert_array_equal(found, distances <= radius)


@pytest.mark.parametrize("kind", KINDS)
def test_every_ball_holds_the_rows_below_it(kind):
    for seed in range(10):
        problem = Problem(kind, seed)
        repeats = np.repeat(problem.points, 20, axis=0)
        noise = np.random.default_rng(seed).standard_normal(repeats.shape)
        points = (repeats * (1 + 0.1 * noise)).astype(np.float32)
        labels = np.repeat(problem.labels, 20)
        index = CellIndex(points, labels, problem.n_classes)
        packed, tree = index._tree.search.packed, index._tree._tree
        size = index.n_features + 2
        for code in range(problem.n_classes):
            for level in range(1, int(tree.top[code]) + 1):
                for ball in range(int(tree.counts[code, level - 1])):
                    at = tree.firsts[code, level] + ball // LANES
                    node = tree.nodes.reshape(-1, size, LANES)[at, :, ball % LANES].astype(float)
                    width = LANES ** (level - 1)
                    first = int(tree.firsts[code, 0])
                    last = first + min((ball + 1) * width, int(tree.counts[code, 0]))
                    slots = packed.slots[(first + ball * width) * LANES : last * LANES]
                    rows = (index.points[slots[slots >= 0]] - packed.center) * packed.scale
                    center, radius = -node[1:-1], -node[-1]
                    assert (np.sqrt(np.square(rows - center).sum(axis=1)) <= radius).all()


def test_cells_hold_every_row_of_a_class_once():
    points, labels, _ = clustered(5000)
    index = CellIndex(points, labels, 3)
    packed = index._tree.search.packed
    for code in range(3):
        part = slice(packed.class_panels[code] * LANES, packed.class_panels[code + 1] * LANES)
        slots = packed.slots[part]
        assert sorted(slots[slots >= 0]) == np.flatnonzero(labels == code).tolist()


def test_clusters_are_ruled_out_by_whole_branches():
    """The work is counted, not timed: four times the rows must not mean four times the panels."""
    looked_at = []
    for n_rows in (20_000, 80_000):
        points, labels, queries = clustered(n_rows, n_classes=10, n_clusters=40)
        index = CellIndex(points, labels, 10)
        support = np.zeros((len(queries), 10), dtype=bool)
        looked_at.append(index._tree.walk(queries, np.full(10, 0.2), support) / len(queries))
        assert looked_at[-1] < index._tree.n_panels / 10
    assert looked_at[1] < 2.5 * looked_at[0]


def count_walks(monkeypatch, index):
    """The numbers of queries that walk the tree, each time some do."""
    walked = []
    walk = index._tree.walk

    def counting(queries, radii, support):
        walked.append(len(queries))
        return walk(queries, radii, support)

    monkeypatch.setattr(index._tree, "walk", counting)
    return walked


def test_where_nothing_can_be_ruled_out_all_rows_are_swept(monkeypatch):
    rng = np.random.default_rng(0)
    points = rng.standard_normal((4000, 60)).astype(np.float32)
    index = CellIndex(points, np.sort(rng.integers(4, size=4000)), 4)
    walked = count_walks(monkeypatch, index)
    index.find_support(rng.standard_normal((500, 60)), Ball(5.0))
    assert walked == [cells.TRIAL]


def test_where_much_is_ruled_out_all_queries_walk(monkeypatch):
    points, labels, queries = clustered(4000)
    index = CellIndex(points, labels, 3)
    walked = count_walks(monkeypatch, index)
    index.find_support(queries, Ball(0.2))
    assert walked == [cells.TRIAL, len(queries) - cells.TRIAL]


def test_without_the_extra_the_support_comes_from_the_evidence(monkeypatch):
    monkeypatch.setattr(cells, "is_compiled", lambda: False)
    points, labels, queries = clustered(500)
    found = CellIndex(points, labels, 3).find_support(queries, Ball(0.3))
    np.testing.assert_array_equal(
        found, DenseIndex(points, labels, 3).find_support(queries, Ball(0.3))
    )
