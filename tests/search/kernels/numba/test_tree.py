"""Rows sorted into cells: each once, in balls that hold them, which rule out whole branches."""

import numpy as np
import pytest

pytest.importorskip("numba", reason="compiled search is the extra `fast`")

from iknow.core.decision import Scope
from iknow.core.rule import Horizon
from iknow.search.cells import CpuIndex
from iknow.search.kernels.numba.search import WalkSearch
from iknow.search.kernels.numba.vectors import LANES
from iknow.search.projection import Coordinates, Projection
from iknow.testing.index import KINDS, Problem
from tests.search.test_cells import clustered


def coordinates_of(index, packed):
    """Placed rows by panel, (n_panels, LANES, n_terms), with NaN in empty slots."""
    panels = packed.pack.panels.reshape(packed.n_panels, packed.n_terms + 1, LANES)
    rows = -panels[:, 1:].astype(float).transpose(0, 2, 1)
    rows[packed.pack.slots.reshape(-1, LANES) < 0] = np.nan
    return rows


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("projected", [False, True])
def test_every_ball_holds_the_rows_below_it(kind, projected):
    for seed in range(10):
        problem = Problem(kind, seed)
        repeats = np.repeat(problem.points, 20, axis=0)
        noise = np.random.default_rng(seed).standard_normal(repeats.shape)
        points = (repeats * (1 + 0.1 * noise)).astype(np.float32)
        index = CpuIndex(points, np.repeat(problem.labels, 20), problem.n_classes)
        n = index.n_features
        shown = Projection(index.points, min(2, n), min(5, n)) if projected else Coordinates()
        if not shown.is_safe:
            continue
        search = WalkSearch(index, shown)
        tree, size = search.tree, search.packed.n_terms + 2
        near = shown.show_rows(index.points)[0]
        true = (near.astype(float) - search.packed.center) * search.packed.pack.scale
        slots = search.packed.pack.slots
        for code in range(problem.n_classes):
            for level in range(1, int(tree.top[code]) + 1):
                for ball in range(int(tree.counts[code, level - 1])):
                    at = tree.firsts[code, level] + ball // LANES
                    node = tree.nodes.reshape(-1, size, LANES)[at, :, ball % LANES].astype(float)
                    width, first = LANES ** (level - 1), int(tree.firsts[code, 0])
                    last = first + min((ball + 1) * width, int(tree.counts[code, 0]))
                    below = slots[(first + ball * width) * LANES : last * LANES]
                    apart = np.linalg.norm(true[below[below >= 0]] + node[1:-1], axis=1)
                    assert (apart <= node[-1]).all()


def test_cells_hold_every_row_of_a_class_once():
    points, labels, _ = clustered(5000)
    packed = WalkSearch(CpuIndex(points, labels, 3), Coordinates()).packed
    for code in range(3):
        part = slice(packed.class_panels[code] * LANES, packed.class_panels[code + 1] * LANES)
        slots = packed.pack.slots[part]
        assert sorted(slots[slots >= 0]) == np.flatnonzero(labels == code).tolist()


def test_clusters_are_ruled_out_by_whole_branches():
    """The work is counted, not timed: four times the rows must not mean four times the panels."""
    looked_at = []
    for n_rows in (20_000, 80_000):
        points, labels, queries = clustered(n_rows, n_classes=10, n_clusters=40)
        search = WalkSearch(CpuIndex(points, labels, 10), Coordinates())
        scope = Scope(belief=np.zeros(len(queries), dtype=np.int64), horizon=Horizon(0.2))
        _, given_up, cost = search.search(queries, scope, 10**6, False)
        assert not given_up.any()
        looked_at.append(cost[0] / len(queries))
        assert looked_at[-1] < search.packed.n_panels / 5
    assert looked_at[1] < 2.5 * looked_at[0]
