"""Changed rows and rows in parts give what one index of the same rows gives, to the last bit."""

import pickle
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iknow.core.codes import NO_BELIEF
from iknow.core.decision import decide, find_cap
from iknow.core.evidence import Evidence
from iknow.errors import InputError
from iknow.metrics import Euclidean
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall
from iknow.search import layer as layers
from iknow.search import union as unions
from iknow.search.cells import CpuIndex
from iknow.search.index import CheckedIndex, RowIndex
from iknow.search.layer import LayerIndex
from iknow.search.measured import HammingIndex, MinkowskiIndex
from iknow.search.union import Union
from iknow.testing import assert_same_evidence, brute_force
from iknow.testing.index import assert_same_decision
from tests.search.contract import RowIndexContract

NONE = np.empty(0, dtype=np.int64)
STAYS, COMES, RELABELED, RETURNS = range(4)


def detour(make, activations, labels, n_classes, rows=None, side=None):
    """An index that came to these rows on a long way: some are added later, some come under another
    label first, some go and return, and some that do not belong go.
    """
    whole = make(activations, labels, n_classes, rows=rows)
    points, codes, numbers = whole.points, whole.labels, whole.rows
    rng = np.random.default_rng(len(points))
    fate = rng.integers(4, size=len(points))
    fate[: len(fate) and 1] = STAYS
    first, other = fate != COMES, np.where(fate == RELABELED, (codes + 1) % n_classes, codes)
    alien = numbers.max(initial=-1) + 1 + np.arange(rng.integers(4) if len(points) else 0)
    copied = rng.integers(max(1, len(points)), size=len(alien))
    start = make(
        np.concatenate([points[first], points[copied]]),
        np.concatenate([other[first], rng.integers(n_classes, size=len(alien))]),
        n_classes,
        rows=np.concatenate([numbers[first], alien]),
    )

    def those(kind):
        found = np.flatnonzero(fate == kind)
        found = found[np.argsort(numbers[found])]
        return points[found], codes[found], numbers[found]

    nothing = points[:0], NONE, NONE
    index = Union.of(start, side or make)
    index = index.changed(alien, *nothing, n_classes)
    index = index.changed(those(RETURNS)[2], *nothing, n_classes)
    index = index.changed(NONE, *those(COMES), n_classes)
    index = index.changed(those(RELABELED)[2], *those(RELABELED), n_classes)
    index = index.changed(NONE, *those(RETURNS), n_classes)
    for name in ("points", "labels", "rows"):
        np.testing.assert_array_equal(getattr(index, name), getattr(whole, name))
    return index


class TestUnion(RowIndexContract):
    seeds_per_kind = 2

    def make_index(self, activations, labels, n_classes, rows=None):
        return detour(CpuIndex, activations, labels, n_classes, rows)


@pytest.mark.slow
class TestMoreUnions(TestUnion):
    seeds_per_kind = 4


def changed_torch(*training, **options):
    from iknow.search.kernels.torch import TorchIndex

    return TorchIndex(*training, device="cpu", **options)


CHANGED = {
    "Minkowski": (partial(MinkowskiIndex, p=np.inf), None),
    "Hamming": (HammingIndex, None),
    "of somebody else": (partial(CheckedIndex, make=CpuIndex), CpuIndex),
    "torch": (changed_torch, CpuIndex),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGED, scope="class")
class TestChangedIndexes(RowIndexContract):
    seeds_per_kind = 1

    @pytest.fixture(autouse=True)
    def _of_that_name(self, name):
        self.name = name
        if name == "torch":
            pytest.importorskip("torch")

    def measure(self, points, place):
        if self.name == "Minkowski":
            return np.abs(points - place).max(axis=1)  # no sum, whose order would matter
        if self.name == "Hamming":
            return (points != place).sum(axis=1).astype(np.float64)
        return super().measure(points, place)

    def make_index(self, activations, labels, n_classes, rows=None):
        make, side = CHANGED[self.name]
        return detour(make, activations, labels, n_classes, rows, side=side)


class Stopping(CpuIndex):
    """Stops as early as a search may: whatever is beyond the cap is missing, or wrong."""

    def search(self, points, scope):
        whole = brute_force(
            self.points, self.labels, self.n_classes, points, scope.any, self.rows, scope.per_class
        )
        if scope.horizon is None:
            return whole
        _, cap = find_cap(whole, scope)
        ranked, rows = whole.distances, whole.rows
        own = np.arange(self.n_classes) == scope.belief[:, None]
        room = np.where(own, scope.own, scope.other)[..., None]
        beyond = (np.arange(scope.per_class) >= room) | (
            ~own[..., None] & (ranked > cap[:, None, None])
        )
        complete = np.column_stack(
            [np.full(len(cap), np.inf), np.nextafter(cap, np.inf), np.full(len(cap), np.inf)]
        )
        listed, numbers = np.where(beyond, np.inf, ranked), np.where(beyond, -1, rows)
        return Evidence(listed, whole.neighbor_distances, numbers, complete)


def steps(n_steps):
    step = st.tuples(st.sampled_from(["add", "remove", "relabel"]), st.integers(0, 2**32 - 1))
    return st.lists(step, min_size=1, max_size=n_steps)


RULES = [
    Ball(1.0),
    Ball(2.0, quorum=(2, 3)),
    Ball(np.inf),
    Nearest(3),
    Nearest(2, quorum=2),
    BallElseNearest(1.0, 2),
    BallWithNearest(2.0, 3),
    RelativeBall(2.0, 1.0),
    RelativeBall(1.0, 0.0),
    RelativeBall(np.inf, 1.5, quorum=(1, 3)),
    RelativeBall(3.0, 0.5, quorum=(3, 2)),
]


@pytest.mark.parametrize("kind", [CpuIndex, Stopping])
@settings(max_examples=25, deadline=None)
@given(sequence=steps(12), seed=st.integers(0, 2**32 - 1))
def test_any_sequence_of_changes_equals_brute_force(kind, sequence, seed):
    """On a small grid, so that nearly all distances are tied, and with classes that come."""
    rng = np.random.default_rng(seed)
    n, n_classes, next_row = 6, 2, 6
    held = {row: (rng.integers(3, size=2), int(rng.integers(n_classes))) for row in range(n)}
    points, labels = (np.array(column) for column in zip(*held.values(), strict=True))
    index = Union.of(kind(points, labels, n_classes), CpuIndex)
    for what, draw in sequence:
        rng = np.random.default_rng(draw)
        m = int(rng.integers(1, 4))
        removed = rows = NONE
        if what == "add":
            rows, next_row = np.arange(next_row, next_row + m), next_row + m
        else:
            removed = np.sort(rng.choice(list(held), size=min(m, len(held) - 1), replace=False))
            rows = removed if what == "relabel" else NONE
        n_classes += int(rng.integers(4) == 0)
        came = {
            int(row): (held.get(int(row), (rng.integers(3, size=2),))[0], int(code))
            for row, code in zip(rows, rng.integers(n_classes, size=len(rows)), strict=True)
        }
        for row in removed.tolist():
            del held[row]
        held |= came
        new = np.array([point for point, _ in came.values()]).reshape(-1, 2)
        codes = np.array([code for _, code in came.values()], dtype=np.int64)
        index = index.changed(removed, new, codes, rows, n_classes)
    numbers = np.array(sorted(held))
    points = np.array([held[row][0] for row in numbers.tolist()])
    labels = np.array([held[row][1] for row in numbers.tolist()])
    queries = np.array([[x, y] for x in range(-1, 4) for y in (0, 1, 3)])
    k = min(3, len(numbers))
    expected = brute_force(points, labels, n_classes, queries, k, numbers, per_class=3)
    assert_same_evidence(index.gather(queries, k, per_class=3), expected)
    belief = rng.integers(NO_BELIEF, n_classes, size=len(queries))
    for rule in RULES:
        if rule.n_neighbors <= k:
            found = index.decide(queries, rule, belief)
            assert_same_decision(found, decide(expected, rule, belief))
    assert index.n_rows == len(numbers)
    assert index.has(np.arange(-1, next_row + 1)).sum() == len(numbers)
    taken = index.take(numbers)
    np.testing.assert_array_equal(taken[0], points)
    np.testing.assert_array_equal(taken[1], labels)


def scattered(n, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=n)
    return rng.standard_normal((n, 5)).astype(np.float32) + 2 * labels[:, None], labels


def test_decisions_by_bounds_are_kept_where_nothing_changed_nearby(monkeypatch):
    """Most queries of a large index never need their distances."""
    points, labels = scattered(4000)
    queries, belief = scattered(500, seed=1)
    base = LayerIndex.build(points, labels, 3, np.arange(4000), Euclidean)
    new = np.arange(4000, 4010)
    index = base.changed(np.arange(0, 100, 10), *scattered(10, seed=2), new, 3)
    asked = []
    search_all = Union._search_all
    monkeypatch.setattr(
        Union,
        "_search_all",
        lambda self, q, scope: asked.append(len(q)) or search_all(self, q, scope),
    )
    every = LayerIndex.build(index.points, index.labels, 3, index.rows, Euclidean)
    for rule in (RelativeBall(1.0, 1.2, quorum=(1, 3)), Ball(0.4, quorum=2), Ball(0.4)):
        asked.clear()
        assert_same_decision(
            index.decide(queries, rule, belief), every.decide(queries, rule, belief)
        )
        assert 0 < sum(asked) < 150


def test_many_removed_rows_of_one_place_are_struck_out(monkeypatch):
    """The nearest hundreds are gone: lists are asked for again, longer, and in parts."""
    monkeypatch.setattr(unions, "NUMBERS_AT_ONCE", 500)
    points = np.repeat([[0.0], [1.0], [2.0]], [300, 5, 5], axis=0)
    labels = np.arange(310) % 2
    index = Union.of(CpuIndex(points, labels, 2), CpuIndex)
    index = index.changed(np.arange(298), points[:0], NONE, NONE, 2)
    queries = np.array([[0.0], [1.0], [0.5]])
    expected = brute_force(points[298:], labels[298:], 2, queries, 6, np.arange(298, 310), 4)
    assert_same_evidence(index.gather(queries, 6, per_class=4), expected)


def test_a_layer_is_built_anew_once_changes_are_many(monkeypatch):
    monkeypatch.setattr(layers, "FEWEST_CHANGES", 5)
    points, labels = scattered(20)
    layer = LayerIndex.build(points, labels, 3, np.arange(20), Euclidean)
    few = layer.changed(np.arange(5), points[:0], NONE, NONE, 3)
    assert isinstance(few._index, Union)
    many = few.changed(np.array([9]), points[:0], NONE, NONE, 3)
    assert isinstance(many._index, CpuIndex)
    assert many.rows.tolist() == few.changed(np.array([9]), points[:0], NONE, NONE, 3).rows.tolist()
    folded = few.folded()
    assert isinstance(folded._index, CpuIndex)
    assert_same_evidence(folded.gather(points, 3, 2), few.gather(points, 3, 2))
    assert folded.folded() is folded


def test_what_lies_in_a_file_is_checked_before_and_after():
    points, labels = scattered(20)
    checks = []
    layer = LayerIndex(
        points, labels, 3, np.arange(20), Euclidean, None, lambda: checks.append(len(checks))
    )
    changed = layer.changed(np.arange(3), points[:0], NONE, NONE, 3)
    n = len(checks)
    changed.gather(points)
    assert len(checks) >= n + 2
    n = len(checks)
    folded = changed.folded()
    assert len(checks) >= n + 2
    n = len(checks)
    folded.gather(points)  # it has read all of it
    assert len(checks) == n


def test_the_index_before_a_change_stays_as_it_is():
    points, labels = scattered(30)
    index = Union.of(CpuIndex(points, labels, 3), CpuIndex)
    before = index.gather(points, 3, 2)
    changed = index.changed(np.arange(9), points[:1], labels[:1], np.array([30]), 4)
    assert_same_evidence(index.gather(points, 3, 2), before)
    assert (index.n_rows, changed.n_rows, changed.n_classes, changed.highest_row) == (30, 22, 4, 30)
    again = pickle.loads(pickle.dumps(changed))
    assert_same_evidence(again.gather(points, 3, 2), changed.gather(points, 3, 2))


def test_nothing_left_of_the_base_and_nothing_added():
    points, labels = scattered(4)
    index = Union.of(CpuIndex(points, labels, 3), CpuIndex)
    assert_same_evidence(
        index.gather(points, 2, 2), brute_force(points, labels, 3, points, 2, None, 2)
    )
    moved = index.changed(np.arange(4), points + 1, labels, np.arange(4), 3)
    expected = brute_force(points + 1, labels, 3, points, 2, None, 2)
    assert_same_evidence(moved.gather(points, 2, 2), expected)
    belief = np.zeros(4, dtype=np.int64)
    assert_same_decision(
        moved.decide(points, RelativeBall(9.0, 2.0), belief),
        decide(expected, RelativeBall(9.0, 2.0), belief),
    )
    moved.warm_up()
    none = moved.changed(np.arange(4), points[:0], NONE, NONE, 3)
    assert none.n_rows == 0
    assert np.isinf(none.gather(points).class_distances).all()
    with pytest.raises(InputError, match="k=1 neighbors were asked for but the index holds 0"):
        none.gather(points, 1)


def test_every_index_decides_by_what_it_gathers_or_as_its_base():
    points, labels = scattered(3000)
    base = CpuIndex(points, labels, 3)
    index = Union.of(base, CpuIndex).changed(NONE, points[:1], labels[:1], np.array([3000]), 3)
    assert index.decides(RelativeBall(1.0, 1.5)) == base.decides(RelativeBall(1.0, 1.5))
    assert RowIndex.decides(index, Nearest(3)) is False


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_belief_that_lost_all_its_listed_rows_is_searched_again(rule):
    """d_g = inf proves nothing there, and the horizon grows once d_g is known."""
    points = np.repeat([[0.0], [1.0], [2.0], [4.0]], [6, 3, 3, 4], axis=0)
    labels = np.array([0] * 6 + [1] * 3 + [2] * 3 + [0] * 4)
    index = Union.of(Stopping(points, labels, 3), CpuIndex)
    queries, belief = np.zeros((3, 1)), np.array([0, 1, NO_BELIEF])
    for gone in (np.arange(6), np.r_[np.arange(6), 12:16], np.arange(3, 9)):
        changed = index.changed(gone, points[:0], NONE, NONE, 4)
        left = np.setdiff1d(np.arange(16), gone)
        expected = brute_force(points[left], labels[left], 4, queries, 3, left, 3)
        assert_same_decision(changed.decide(queries, rule, belief), decide(expected, rule, belief))
