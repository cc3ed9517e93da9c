"""CpuIndex against brute force, whichever way it searches, and its promises about memory."""

import os
import pickle
import subprocess
import sys
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from iknow import pages
from iknow.core.assertion import Assertion, make_assertions
from iknow.core.decision import decide, is_enough, scope_of
from iknow.core.support import find_support, justify
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall
from iknow.search import cells
from iknow.search.cells import FLAT, PRODUCTS, TREE, WAYS, Clock, CpuIndex, StepCost
from iknow.search.kernels.numba import is_compiled
from iknow.search.kernels.numpy import BYTES_FOR_MINIMA, NumpyBlocks
from iknow.search.projection import Coordinates, Projection
from iknow.search.threads import n_cores
from iknow.testing import assert_same_evidence, brute_force
from iknow.testing.index import KINDS, Problem, assert_same_decision
from tests.search.contract import RowIndexContract, assert_complete

needs_numba = pytest.mark.skipif(not is_compiled(), reason="compiled search is the extra `fast`")


@pytest.fixture
def _without_numba(monkeypatch):
    """As if the extra `fast` were not installed."""
    monkeypatch.setitem(sys.modules, "numba", None)
    is_compiled.cache_clear()
    yield
    monkeypatch.undo()
    is_compiled.cache_clear()


class TestCpuIndex(RowIndexContract):
    def make_index(self, activations, labels, n_classes, rows=None):
        return CpuIndex(activations, labels, n_classes, rows=rows)


@pytest.mark.usefixtures("_without_numba")
class TestWithNumpyAlone(RowIndexContract):
    def make_index(self, activations, labels, n_classes, rows=None):
        index = CpuIndex(activations, labels, n_classes, rows=rows)
        assert index.n_rows == 0 or isinstance(index._products, NumpyBlocks)
        return index


class TestInParts(RowIndexContract):
    """Free memory for a few rows alone: each search is made of many."""

    @pytest.fixture(autouse=True)
    def _with_little_memory(self, monkeypatch):
        monkeypatch.setattr(pages, "free_memory", lambda: 10_000)

    def make_index(self, activations, labels, n_classes, rows=None):
        return CpuIndex(activations, labels, n_classes, rows=rows)


class Always(StepCost):
    """Costs that choose one way, whatever they learn."""

    def __init__(self, way, patience=10**6):
        super().__init__(1, 1, 1, 1)
        self.way, self._patience = way, patience

    @property
    def patience(self):
        return self._patience

    def choose(self, n):
        return self.way, n


def walking(way, patience=10**6, directions=None):
    """An index type that walks one way, however few its rows. directions: near and far."""

    class Walking(CpuIndex):
        FEWEST_ROWS = 1
        _cost = Always(way, patience)

        @property
        def _coordinates(self):
            if directions is None:
                return Coordinates()
            n = self.n_features
            near, far = directions
            return Projection(np.ascontiguousarray(self.points), min(near, n), min(far, n))

    return Walking


@needs_numba
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("directions", [None, (1, 1), (1, 3), (2, 9)])
@pytest.mark.parametrize(("patience", "way"), [(1, TREE), (10**6, TREE), (10**6, FLAT)])
def test_any_directions_patience_and_way(kind, directions, patience, way):
    class Walks(RowIndexContract):
        seeds_per_kind = 3

        def make_index(self, activations, labels, n_classes, rows=None):
            return walking(way, patience, directions)(activations, labels, n_classes, rows)

    Walks().test_decisions_at_exact_ties_equal_those_of_brute_force(kind)
    Walks().test_lists_are_complete_as_far_as_they_say(kind)


@needs_numba
@settings(max_examples=80, deadline=None)
@given(
    rng=st.integers(0, 2**32 - 1).map(np.random.default_rng),
    n_rows=st.integers(1, 90),
    n_features=st.integers(1, 24),
    n_classes=st.integers(1, 5),
    width=st.integers(1, 4),
    scale=st.sampled_from([1.0, 2.0**-70, 2.0**40, 1e15, 3e-39]),
    quorum=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    ratio=st.sampled_from([0.0, 0.5, 1.0, 2.0**0.5, 1.5, 3.0, 1e300]),
    way=st.sampled_from([TREE, FLAT]),
    directions=st.sampled_from([None, (2, 5)]),
)
def test_on_a_grid_where_ties_abound(
    rng, n_rows, n_features, n_classes, width, scale, quorum, ratio, way, directions
):
    """Decisions are those of brute force, and so is every row listed up to what is complete."""
    grid = rng.integers(0, width + 1, size=(n_rows + 9, n_features)).astype(np.float32)
    moved = np.nextafter(grid, np.float32(np.inf) * rng.choice([-1, 1], size=grid.shape))
    grid = np.where(rng.random(grid.shape) < 0.1, moved, grid)  # near ties, too
    points, queries = np.split((grid * scale).astype(np.float32), [n_rows])
    queries[:3] = points[rng.integers(n_rows, size=3)]
    labels, belief = rng.integers(n_classes, size=n_rows), rng.integers(-1, n_classes, size=9)
    k = int(rng.integers(1, n_rows + 1))
    expected = brute_force(points, labels, n_classes, queries, k, per_class=4)
    known = expected.distances
    radius = float(rng.choice(known[np.isfinite(known)]))
    index = walking(way, directions=directions)(points, labels, n_classes)
    for rule in (
        RelativeBall(radius, ratio, quorum=quorum),
        Ball(radius, quorum=quorum),
        Nearest(k, quorum=quorum),
        BallElseNearest(radius, k, quorum=quorum),
        BallWithNearest(radius, k, quorum=quorum),
    ):
        assert_same_decision(index.decide(queries, rule, belief), decide(expected, rule, belief))
        scope = scope_of(rule, belief)
        found = index.search(queries, scope)
        assert is_enough(found, scope).all()
        assert_complete(found, expected, scope)


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


@needs_numba
@pytest.mark.parametrize("way", [TREE, FLAT])
@pytest.mark.parametrize("n_rows", [15, 16, 17, 48, 800, 13_000])
def test_trees_of_every_height_decide_as_brute_force_does(way, n_rows):
    """13,000 rows in three classes make three levels of cells."""
    points, labels, queries = clustered(n_rows)
    index, belief = walking(way)(points, labels, 3), np.arange(200) % 4 - 1
    expected = brute_force(points, labels, 3, queries)
    for quantile in (0.02, 0.3, 0.9):
        # The radius is one of the distances: a support hangs on its last bit.
        radius = float(np.quantile(expected.class_distances, quantile, method="nearest"))
        found = index.decide(queries, Ball(radius), belief)
        assert_same_decision(found, decide(expected, Ball(radius), belief))


@pytest.mark.parametrize("radius", [0.0, 1e-40, 1e30, 1e300, np.inf])
@pytest.mark.parametrize("kind", KINDS)
def test_extreme_radii(kind, radius):
    for seed in range(5):
        problem = Problem(kind, seed)
        belief = np.arange(len(problem.queries)) % (problem.n_classes + 1) - 1
        arguments = problem.points, problem.labels, problem.n_classes
        expected = decide(brute_force(*arguments, problem.queries), Ball(radius), belief)
        make = walking(TREE) if is_compiled() else CpuIndex
        found = make(*arguments).decide(problem.queries, Ball(radius), belief)
        assert_same_decision(found, expected)


def structured(n_rows=6000, n_features=200, n_classes=6, seed=0):
    """Rows near a subspace, as those of real data, and queries among them."""
    rng = np.random.default_rng(seed)
    spread = 0.9 ** np.arange(n_features)
    centers = rng.standard_normal((n_classes, n_features)) * spread
    labels = rng.integers(n_classes, size=n_rows)
    points = centers[labels] + rng.standard_normal((n_rows, n_features)) * spread
    belief = rng.integers(n_classes, size=150)
    queries = centers[belief] + rng.standard_normal((150, n_features)) * spread
    return points.astype(np.float32), labels, queries.astype(np.float32), belief


RULES = [
    RelativeBall(9.0, 1.2, quorum=(1, 3)),
    Ball(2.0, quorum=(2, 2)),
    Nearest(5),
    Nearest(3, quorum=(1, 3)),
    BallElseNearest(1.5, 4),
    BallWithNearest(2.0, 7, quorum=(2, 1)),
]


def everything(points, labels, n_classes, queries):
    """All evidence, by products."""
    return CpuIndex(points, labels, n_classes).gather(queries, 7, 3)


@needs_numba
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_structure_rules_out_nearly_all_rows_and_changes_nothing(rule):
    points, labels, queries, belief = structured()
    index = CpuIndex(points, labels, 6)
    found = index.decide(queries, rule, belief)
    assert min(index._cost._shares) < cells.PAYS  # else nothing was tested
    expected = decide(everything(points, labels, 6, queries), rule, belief)
    assert_same_decision(found, expected)
    for few in (slice(1), slice(77, 79), slice(5, 8), slice(60)):
        assert_same_decision(index.decide(queries[few], rule, belief[few]), expected[few])


@needs_numba
def test_whatever_costs_are_learned_no_bit_changes():
    points, labels, queries, belief = structured()
    expected = decide(everything(points, labels, 6, queries), RULES[0], belief)
    rng, index = np.random.default_rng(0), CpuIndex(points, labels, 6)
    index.decide(queries, RULES[0], belief)
    chosen = set()
    for _ in range(20):
        index._cost._shares = list(rng.choice([0.1, 0.5, 2.0, None], size=2))
        for clock in index._cost._clocks:
            clock.seconds = list(rng.choice([1e-6, 1e-3, 1.0, None], size=3))
        chosen.add(index._cost.choose(150)[0])
        assert_same_decision(index.decide(queries, RULES[0], belief), expected)
    assert chosen == set(WAYS)


@needs_numba
def test_without_structure_walks_are_given_up_and_tried_again_later():
    rng = np.random.default_rng(0)
    points, queries = rng.standard_normal((3000, 64)), rng.standard_normal((100, 64))
    labels, belief = rng.integers(3, size=3000), rng.integers(3, size=100)
    index, rule = CpuIndex(points, labels, 3), RelativeBall(99.0, 1.5, quorum=(1, 3))
    assert index.decides(rule)
    expected = decide(index.gather(queries, 0, 3), rule, belief)
    assert_same_decision(index.decide(queries, rule, belief), expected)
    tries = [index.decides(rule) for _ in range(cells.TRY_AGAIN)]
    assert tries.count(True) == 1
    assert_same_decision(index.decide(queries, rule, belief), expected)


def test_walks_that_pay_again_are_used_again():
    cost = StepCost(100, 9, 0, 99)
    for way in (TREE, FLAT):
        assert cost.choose(1000) == (way, cells.TRIED)
        cost.learn(100, way, np.array([0, 0, 10**6]))
    assert cost.choose(1000) == (PRODUCTS, 1000)
    cost.learn(100, TREE, np.array([10, 0, 10]))
    assert cost.choose(1000) == (TREE, 250)
    assert cost.choose(100) == (TREE, cells.MANY)


@pytest.mark.parametrize("fastest", WAYS)
def test_the_clock_chooses_the_fastest_way_and_tries_the_others_now_and_then(fastest):
    cost, ways = StepCost(100, 9, 0, 99), []
    for way in (TREE, FLAT):
        cost.learn(100, way, np.array([10, 0, 10]))
    for _ in range(1000):
        way, n = cost.choose(100)
        compiling = 50.0 if way not in ways else 0.0
        cost.note(
            min(n, 100), way, (1.0 if way == fastest else 3.0) * min(n, 100) / 100 + compiling
        )
        ways.append(way)
    slower = [at for at, way in enumerate(ways) if way != fastest]
    n_first = (cells.ENOUGH_TIMES + 1) * len(WAYS)
    assert len([at for at in slower if at < n_first]) == n_first * 2 // 3
    spent = 3.0 * len([at for at in slower if at >= n_first])
    assert 0 < spent < 0.03 * len(ways)  # tried again, for a small share of the time


def test_a_busy_moment_does_not_make_a_way_slow():
    clock = Clock()
    for way in (TREE, PRODUCTS):
        for _ in range(3):
            clock.note(way, 1, 1.0 + way)
    clock.note(TREE, 1, 10.0)
    assert clock.choose([TREE, PRODUCTS], 1) == TREE


@needs_numba
def test_what_cannot_be_walked_is_decided_by_products():
    points, labels, queries, belief = structured(2500)
    index = CpuIndex(points, labels, 6)
    for rule in (Nearest(300), Ball(np.inf), RelativeBall(9.0, 1.5)):
        assert index.decides(rule) == isinstance(rule, RelativeBall)
        expected = decide(index.gather(queries, rule.n_neighbors, 1), rule, belief)
        assert_same_decision(index.decide(queries, rule, belief), expected)
    for k in (1, CpuIndex.MOST_NEIGHBORS, CpuIndex.MOST_NEIGHBORS + 1, 500):
        assert index.decides(Nearest(k)) == (k <= CpuIndex.MOST_NEIGHBORS)
        expected = decide(index.gather(queries, k, 1), Nearest(k), belief)
        assert_same_decision(index.decide(queries, Nearest(k), belief), expected)
    rows = np.full((2500, 80), 1e30) * np.arange(2500)[:, None]
    assert not CpuIndex(rows, np.arange(2500) % 2, 2).decides(RULES[0])
    assert not CpuIndex(points[:2000], labels[:2000], 6).decides(RULES[0])


class Farther(RelativeBall):
    """What a relative ball says of its horizon is not true of it."""

    def reach(self, evidence):
        return 3 * super().reach(evidence)


class Twice(Ball):
    """What a ball says of its reach is not true of it."""

    def reach(self, evidence):
        return 2 * super().reach(evidence)


@pytest.mark.parametrize("rule", [Farther(9.0, 1.1, quorum=(1, 3)), Twice(1.0)])
def test_a_rule_that_overrides_the_reach_does_not_inherit_the_horizon(rule):
    points, labels, queries, belief = structured(2500)
    index = CpuIndex(points, labels, 6)
    assert not index.decides(rule)
    expected = decide(index.gather(queries, 0, 3), rule, belief)
    assert_same_decision(index.decide(queries, rule, belief), expected)


def test_threads_walk_mapped_rows(tmp_path):
    points, labels, queries, belief = structured()
    order = np.argsort(labels, kind="stable")
    np.save(tmp_path / "points.npy", points[order])
    mapped = np.load(tmp_path / "points.npy", mmap_mode="r")
    index = CpuIndex(mapped, labels[order], 6, rows=order)
    expected = decide(everything(points, labels, 6, queries), RULES[0], belief)
    parts = [slice(start, start + 25) for start in range(0, 150, 25)]
    with ThreadPoolExecutor(6) as pool:
        found = pool.map(lambda part: index.decide(queries[part], RULES[0], belief[part]), parts)
        for part, decision in zip(parts, found, strict=True):
            assert_same_decision(decision, expected[part])


def test_rows_beyond_the_free_memory_are_never_prepared_at_once(monkeypatch):
    points, labels = sorted_problem(n_rows=1000)
    whole = CpuIndex(points, labels, 3).gather(points[:40], 5)
    monkeypatch.setattr(pages, "free_memory", lambda: 20_000)
    index, prepared = CpuIndex(points, labels, 3), []
    search = CpuIndex.search
    monkeypatch.setattr(
        CpuIndex,
        "search",
        lambda self, *asked: prepared.append(self.n_rows) or search(self, *asked),
    )
    assert_same_evidence(index.gather(points[:40], 5), whole)
    assert prepared.pop(0) == 1000
    assert len(prepared) > 3
    assert sum(prepared) == 1000
    assert max(prepared) * points.shape[1] * 4 < 20_000 / 2


def sorted_problem(n_rows=300, n_features=5, n_classes=3, seed=0):
    """Points that need neither converting nor sorting."""
    rng = np.random.default_rng(seed)
    points = rng.standard_normal((n_rows, n_features)).astype(np.float32)
    return points, np.sort(rng.integers(n_classes, size=n_rows))


@pytest.mark.usefixtures("_without_numba")
def test_memory_stays_far_below_the_matrix_of_all_distances():
    # What is compiled allocates where this tracing does not see it: see kernels/test_products.py
    rng = np.random.default_rng(0)
    n_rows, n_queries, n_features = 200_000, 2_000, 8
    points = rng.standard_normal((n_rows, n_features), dtype=np.float32)
    labels = np.sort(rng.integers(10, size=n_rows))
    queries = rng.standard_normal((n_queries, n_features), dtype=np.float32)
    index = CpuIndex(points, labels, 10)
    tracemalloc.start()
    try:
        evidence = index.gather(queries, k=5)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    all_distances = n_rows * n_queries * 4  # 1.6 GB in float32
    # The index's own matrix, and for each core a batch's minima and what is made of them.
    assert peak < 4 * points.nbytes + n_cores() * 6 * BYTES_FOR_MINIMA
    assert peak < all_distances / 3
    some = [0, 999, 1999]
    assert_same_evidence(evidence[some], brute_force(points, labels, 10, queries[some], 5))


def test_sorted_float32_points_are_used_without_a_copy():
    points, labels = sorted_problem()
    index = CpuIndex(points, labels, 3)
    assert np.shares_memory(index.points, points)
    assert np.shares_memory(index.labels, labels)


def test_a_memory_mapped_array_stays_one(tmp_path):
    points, labels = sorted_problem()
    np.save(tmp_path / "points.npy", points)
    mapped = np.load(tmp_path / "points.npy", mmap_mode="r")
    index = CpuIndex(mapped, labels, 3)
    assert isinstance(index.points.base, np.memmap)
    assert np.shares_memory(index.points, mapped)
    assert_same_evidence(index.gather(points, 2), brute_force(points, labels, 3, points, 2))


def test_unsorted_points_are_sorted_in_a_copy_and_the_users_array_is_left_alone():
    points, labels = sorted_problem()
    order = np.random.default_rng(1).permutation(len(points))
    mine, my_labels = points[order].copy(), labels[order].copy()
    index = CpuIndex(mine, my_labels, 3)
    index.gather(points[:5], 3)
    assert not np.shares_memory(index.points, mine)
    np.testing.assert_array_equal(mine, points[order])
    np.testing.assert_array_equal(my_labels, labels[order])
    np.testing.assert_array_equal(index.points, mine[index.rows])


def test_a_pickle_holds_the_points_and_nothing_derived():
    points, labels = sorted_problem(n_rows=20_000)
    index = CpuIndex(points, labels, 3)
    before = index.gather(points[:20], 4)
    assert "_products" in vars(index)  # the search has derived something by now
    pickled = pickle.dumps(index)
    assert len(pickled) < points.nbytes + labels.nbytes + index.rows.nbytes + 2000
    again = pickle.loads(pickled)
    sizes = {"n_rows", "n_features", "n_classes"}
    assert set(vars(again)) == {"points", "labels", "rows"} | sizes
    assert_same_evidence(again.gather(points[:20], 4), before)


@pytest.mark.parametrize("seed", range(5))
def test_assertions_agree_with_those_from_scipys_distances(seed):
    """On generic data no distance is within rounding of the radius, so scipy decides alike."""
    rng = np.random.default_rng(seed)
    n_classes, k = 4, 6
    labels = rng.integers(n_classes, size=500)
    points = (rng.standard_normal((500, 7)) + labels[:, None]).astype(np.float32)
    queries = (rng.standard_normal((120, 7)) + rng.integers(4, size=(120, 1))).astype(np.float32)
    belief = rng.integers(n_classes, size=120)
    distances = cdist(queries.astype(float), points.astype(float))
    radius = float(np.median(distances.min(axis=1)))
    evidence = CpuIndex(points, labels, n_classes).gather(queries, k)
    np.testing.assert_allclose(
        evidence.neighbor_distances, np.sort(distances, axis=1)[:, :k], rtol=1e-12
    )
    for rule, reach in [
        (Ball(radius), np.full(120, radius)),
        (Nearest(k), np.sort(distances, axis=1)[:, k - 1] * (1 + 1e-12)),
    ]:
        found = make_assertions(belief, justify([find_support(evidence, rule)]))
        expected = []
        for i in range(120):
            near = {int(labels[j]) for j in range(500) if distances[i, j] <= reach[i]}
            if belief[i] not in near:
                expected.append(Assertion.IDK)
            else:
                expected.append(Assertion.IK if len(near) == 1 else Assertion.IMK)
        assert found.tolist() == expected
        assert len(set(expected)) == 3


def test_a_numba_that_cannot_be_loaded_is_told_and_done_without(tmp_path):
    (tmp_path / "numba.py").write_text("raise ImportError('Numba needs another NumPy')")
    program = """
import warnings, numpy as np
from iknow.search.cells import CpuIndex
points = np.zeros((4, 2), dtype=np.float32)
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    found = CpuIndex(points, np.array([0, 0, 1, 1]), 2).gather(points)
assert not found.class_distances.any()
print([str(each.message) for each in told])
"""
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    found = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    assert "numba cannot be loaded" in found.stdout
    assert "Numba needs another NumPy" in found.stdout
    assert found.stdout.count("not compiled") == 1
