"""Decisions by bounds: those of the whole evidence, to the last bit, whatever the bounds miss."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("numba", reason="compiled search is the extra `fast`")

from iknow.core.decision import decide
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall
from iknow.search.cpu import cell_index as cells
from iknow.search.cpu import deciding
from iknow.search.cpu.cell_index import CellIndex
from iknow.search.cpu.dense_index import DenseIndex
from iknow.search.cpu.numba.cell_bounds import bound_cells
from iknow.search.cpu.projection import Projection, find_directions
from iknow.search.cpu.worth import TRY_AGAIN, Sizes, Times, Worth
from iknow.testing import IndexContract, brute_force
from iknow.testing.index import KINDS, Problem, assert_same_decision


@pytest.fixture(autouse=True)
def _decides_however_few_rows(monkeypatch):
    monkeypatch.setattr(cells, "FEWEST_ROWS", 1)


class Deciding(IndexContract):
    """Tested by its one law: the others do not depend on bounds."""

    seeds_per_kind = 3

    def make_index(self, activations, labels, n_classes, rows=None):
        return CellIndex(activations, labels, n_classes, rows=rows)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("directions", [None, (1, 1), (1, 3), (2, 9)])
@pytest.mark.parametrize(("patience", "is_flat"), [(1, False), (10**6, False), (10**6, True)])
def test_any_directions_patience_and_cells(monkeypatch, kind, directions, patience, is_flat):
    if directions is not None:
        few = lambda n: (min(directions[0], n), min(directions[1], n))  # noqa: E731
        monkeypatch.setattr(deciding, "choose_directions", few)
    monkeypatch.setattr(Worth, "patience", patience)
    monkeypatch.setattr(Worth, "is_proven", True)
    monkeypatch.setattr(Worth, "pays", lambda self, n: True)
    monkeypatch.setattr(Worth, "prefers_rows", lambda self, n: is_flat)
    Deciding().test_decisions_equal_those_of_the_whole_evidence(kind)


grids = st.integers(0, 2**32 - 1).map(np.random.default_rng)


@settings(max_examples=60, deadline=None)
@given(
    rng=grids,
    n_rows=st.integers(1, 90),
    n_features=st.integers(1, 24),
    n_classes=st.integers(1, 5),
    width=st.integers(1, 4),
    scale=st.sampled_from([1.0, 2.0**-70, 2.0**40, 1e15, 3e-39]),
    quorum=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    ratio=st.sampled_from([0.0, 0.5, 1.0, 2.0**0.5, 1.5, 3.0, 1e300]),
)
def test_on_a_grid_where_ties_abound(rng, n_rows, n_features, n_classes, width, scale, quorum, ratio):  # noqa: E501  # fmt: skip
    points = (rng.integers(0, width + 1, size=(n_rows, n_features)) * scale).astype(np.float32)
    queries = (rng.integers(0, width + 1, size=(9, n_features)) * scale).astype(np.float32)
    queries[:3] = points[rng.integers(n_rows, size=3)]
    labels, belief = rng.integers(n_classes, size=n_rows), rng.integers(-1, n_classes, size=9)
    k = int(rng.integers(1, n_rows + 1))
    expected = brute_force(points, labels, n_classes, queries, k, per_class=4)
    known = expected.ranked_distances()
    radius = float(rng.choice(known[np.isfinite(known)]))
    index = CellIndex(points, labels, n_classes)
    rules = [
        RelativeBall(radius, ratio, quorum=quorum),
        Ball(radius, quorum=quorum),
        Nearest(k, quorum=quorum),
        BallElseNearest(radius, k, quorum=quorum),
        BallWithNearest(radius, k, quorum=quorum),
    ]
    for rule in rules:
        found = index.decide(queries, rule, belief)
        assert_same_decision(found, decide(expected, rule, belief))


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


@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("is_flat", [False, True])
def test_structure_rules_out_nearly_all_rows_and_changes_nothing(monkeypatch, rule, is_flat):
    monkeypatch.setattr(Worth, "prefers_rows", lambda self, n: is_flat)
    points, labels, queries, belief = structured()
    index = CellIndex(points, labels, 6)
    found = index.decide(queries, rule, belief)
    assert index._worth.is_proven  # else nothing was tested
    expected = decide(DenseIndex(points, labels, 6).gather(queries, 7, 3), rule, belief)
    assert_same_decision(found, expected)
    for i in (0, 77):
        alone = index.decide(queries[i : i + 1], rule, belief[i : i + 1])
        assert_same_decision(alone, expected[i : i + 1])


def test_without_structure_bounds_are_given_up_and_tried_again_later():
    rng = np.random.default_rng(0)
    points, queries = rng.standard_normal((3000, 64)), rng.standard_normal((100, 64))
    labels, belief = rng.integers(3, size=3000), rng.integers(3, size=100)
    index, rule = CellIndex(points, labels, 3), RelativeBall(99.0, 1.5, quorum=(1, 3))
    assert index.decides(rule)
    expected = decide(index.gather(queries, 0, 3), rule, belief)
    assert_same_decision(index.decide(queries, rule, belief), expected)
    assert [index.decides(rule) for _ in range(TRY_AGAIN)].count(True) == 1
    assert_same_decision(index.decide(queries, rule, belief), expected)


def test_bounds_that_pay_again_are_used_again():
    worth = Worth(Sizes(100, 9, 0, 99))
    worth.learn(100, False, np.array([0, 0, 10**6]))
    assert not worth.is_proven
    worth.learn(100, False, np.array([10, 0, 10]))
    assert worth.is_proven


@pytest.mark.parametrize("bounds_are_faster", [False, True])
def test_the_clock_chooses_the_faster_way_and_tries_the_other_now_and_then(bounds_are_faster):
    seconds = {bounds_are_faster: 1.0, not bounds_are_faster: 3.0}
    times, ways = Times(), []
    for _ in range(1000):
        ways.append(times.prefer_bounds(100))
        compiling = 50.0 if ways.count(ways[-1]) == 1 else 0.0
        times.note(ways[-1], 100, seconds[ways[-1]] + compiling)
    slower = [at for at, way in enumerate(ways) if way != bounds_are_faster]
    assert slower[:2] == ([2, 3] if bounds_are_faster else [0, 1])
    spent = 3.0 * len(slower[2:])
    assert 0 < spent < 0.04 * len(ways)  # tried again, for a small share of the time
    times.note(not bounds_are_faster, 100, 0.001)
    times.note(bounds_are_faster, 100, 100.0)
    assert times.prefer_bounds(100) != bounds_are_faster  # queries have changed


def test_both_ways_decide_alike(monkeypatch):
    points, labels, queries, belief = structured()
    index, rule = CellIndex(points, labels, 6), RULES[0]
    expected = decide(DenseIndex(points, labels, 6).gather(queries, 7, 3), rule, belief)
    for by_bounds in (True, False, True):
        monkeypatch.setattr(Worth, "pays", lambda self, n, said=by_bounds: said)
        assert_same_decision(index.decide(queries, rule, belief), expected)


def test_what_cannot_be_decided_by_bounds_is_decided_by_distances():
    points, labels, queries, belief = structured(500)
    index = CellIndex(points, labels, 6)
    for rule in (Nearest(300), Ball(np.inf), RelativeBall(9.0, 1.5)):
        assert index.decides(rule) == isinstance(rule, RelativeBall)
        expected = decide(index.gather(queries, rule.n_neighbors, 1), rule, belief)
        assert_same_decision(index.decide(queries, rule, belief), expected)
    huge = CellIndex(np.full((40, 3), 1e30) * np.arange(40)[:, None], np.arange(40) % 2, 2)
    assert not huge.decides(RULES[0])


class Farther(RelativeBall):
    """What a relative ball says of its horizon is not true of it."""

    def reach(self, evidence):
        return 3 * super().reach(evidence)


def test_a_rule_that_overrides_the_reach_does_not_inherit_the_horizon():
    points, labels, queries, belief = structured(800)
    index, rule = CellIndex(points, labels, 6), Farther(9.0, 1.1, quorum=(1, 3))
    assert not index.decides(rule)
    expected = decide(index.gather(queries, 0, 3), rule, belief)
    assert_same_decision(index.decide(queries, rule, belief), expected)


def test_mapped_rows_and_threads(tmp_path):
    points, labels, queries, belief = structured()
    order = np.argsort(labels, kind="stable")
    np.save(tmp_path / "points.npy", points[order])
    mapped = np.load(tmp_path / "points.npy", mmap_mode="r")
    index = CellIndex(mapped, labels[order], 6, rows=order)
    expected = decide(DenseIndex(points, labels, 6).gather(queries, 0, 3), RULES[0], belief)
    found = {}

    def ask(i):
        part = slice(i * 25, (i + 1) * 25)
        found[i] = part, index.decide(queries[part], RULES[0], belief[part])

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for part, decision in found.values():
        assert_same_decision(decision, expected[part])


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
        allowed = true * projection.stretch + projection.widen(asked.lengths)[:, None]
        safe = projection.are_safe(asked.lengths)
        pairs = (near, asked.near, 1.0, 0.0), (far, asked.far, projection.unit, projection.blur)
        for shown, seen, unit, blur in pairs:
            apart = np.linalg.norm(shown.astype(float)[None] - seen.astype(float)[:, None], axis=2)
            assert (apart * unit <= allowed + blur * unit)[safe].all()


def test_directions_are_those_of_the_largest_spread():
    rng = np.random.default_rng(0)
    sample = rng.standard_normal((500, 30)) * 0.7 ** np.arange(30)
    directions = find_directions(sample - sample.mean(axis=0), 6)
    np.testing.assert_allclose(directions.T @ directions, np.eye(6), atol=1e-12)
    left = np.linalg.svd(sample - sample.mean(axis=0))[2][:6]
    assert np.linalg.norm(left @ directions) ** 2 > 5.99


def test_cells_reach_all_their_rows_and_their_bounds_are_never_too_high():
    points, labels, queries, _ = structured(3000, 40)
    search = deciding.DecidingSearch(CellIndex(points, labels, 6))
    packed, balls = search.packed, search.cells
    near = search.projection.show(queries[:18]).near
    placed, squared = packed.place(near)
    n_terms = packed.n_features
    rows = -packed.panels[:, 1:].astype(float).transpose(0, 2, 1)  # (n_panels, LANES, n_terms)
    rows[packed.slots.reshape(len(rows), -1) < 0] = np.nan
    centers = -balls.centers.reshape(-1, n_terms + 1, 16)[:, 1:].astype(float).transpose(0, 2, 1)
    for is_flat in (False, True):
        bounds = np.empty(18 * len(balls.radii), dtype=np.float32)
        bound_cells(search.pack.panels, balls, placed, is_flat, bounds)
        bounds = bounds.reshape(18, -1)
        for code in range(6):
            first, last = balls.firsts[code : code + 2] * 16
            members = rows[balls.rows[code] : balls.rows[code + 1]]
            around = centers.reshape(-1, n_terms)[first : first + len(members)]
            assert np.isinf(bounds[:, first + len(members) : last]).all()
            apart = np.linalg.norm(members - around[:, None], axis=2)
            assert (np.nanmax(apart, axis=1) <= balls.radii[first : first + len(members)]).all()
            places = around[:, None] if not is_flat else members
            for i, place in enumerate(placed.astype(float)):
                true = np.nanmin(np.square(places - place).sum(axis=2), axis=1) / 2
                limits = true - squared[i] / 2 + 1e-5
                assert (bounds[i, first : first + len(members)] <= limits).all()


def test_more_neighbors_than_are_worthwhile_are_found_by_distances():
    points, labels, queries, belief = structured(500)
    index = CellIndex(points, labels, 6)
    for k in (1, cells.MOST_NEIGHBORS, cells.MOST_NEIGHBORS + 1, 500):
        assert index.decides(Nearest(k)) == (k <= cells.MOST_NEIGHBORS)
        expected = decide(index.gather(queries, k, 1), Nearest(k), belief)
        assert_same_decision(index.decide(queries, Nearest(k), belief), expected)
