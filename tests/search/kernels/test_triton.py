"""Triton's kernels, on a GPU or in Triton's interpreter, against float64 and brute force."""

import os
import sys
from functools import partial

import numpy as np
import pytest
import torch

from iknow.core.codes import NO_BELIEF
from iknow.core.decision import decide
from iknow.rules import Ball, RelativeBall
from iknow.search.engine import NO_ROW
from iknow.search.kernels.torch import TorchBlocks, TorchIndex
from iknow.testing import assert_same_evidence, brute_force
from iknow.testing.index import KINDS, Problem, assert_same_decision
from tests.search import contract

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

# Triton decides once and for all, when it is loaded, whether to compile or to interpret.
if DEVICE.type == "cpu" and "TRITON_INTERPRET" not in os.environ:
    if "triton" in sys.modules:
        pytest.skip("Triton was loaded without TRITON_INTERPRET=1", allow_module_level=True)
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton")
pytestmark = pytest.mark.slow  # the interpreter is


class TritonIndex(TorchIndex):
    _uses_triton = True


@pytest.fixture
def make_blocks(monkeypatch):
    """Blocks in tiles of few rows, perhaps of two classes."""
    from iknow.search.kernels import triton as kernels

    for name, value in {"TILE_QUERIES": 16, "TILE_ROWS": 32, "MOST_PADDING": 0}.items():
        monkeypatch.setattr(kernels, name, value)
    return lambda points, labels, size: kernels.TritonBlocks(
        points, labels, np.arange(len(points)), size, DEVICE
    )


random_problem = partial(contract.random_problem, n_rows=300, n_classes=3, n_queries=21)


def on_device(array):
    return torch.from_numpy(array).to(DEVICE)


class TestFusedTorchIndex(contract.RowIndexContract):
    seeds_per_kind = 1

    def make_index(self, activations, labels, n_classes, rows=None):
        return TritonIndex(activations, labels, n_classes, rows=rows, device=DEVICE)

    def test_a_larger_problem_of_many_blocks_and_tasks(self):
        points, labels, queries = contract.random_problem(700, 16, 7, 60)
        evidence = self.make_index(points, labels, 7).gather(queries, 12)
        assert_same_evidence(evidence, brute_force(points, labels, 7, queries, 12))

    @pytest.mark.skipif(DEVICE.type == "cpu", reason="the interpreter serves one thread at a time")
    def test_concurrent_searches_of_a_fresh_index_all_get_the_same_answer(self):
        super().test_concurrent_searches_of_a_fresh_index_all_get_the_same_answer()


@pytest.mark.parametrize(
    ("size", "n_features"), [(8, 10), (32, 16), (64, 40), (4, 100)], ids=lambda n: str(n)
)
def test_block_minima_are_lower_bounds_and_tight(make_blocks, size, n_features):
    """Blocks within a tile, as wide as one and wider; columns in one step and in two."""
    points, labels, queries = random_problem(n_features=n_features)
    queries[0] *= 1e6  # far out, with a scale of its own
    blocks = make_blocks(points, labels, size)
    minima, _ = blocks.bound(on_device(queries))
    bounds = blocks.bound_queries(on_device(queries))
    rows, places = blocks.frame.place(blocks.points), blocks.frame.place(on_device(queries))
    terms = rows.square().sum(1, keepdim=True) / 2 - rows @ places.T
    terms[blocks.numbers == NO_ROW] = torch.inf
    exact = terms.view(blocks.n_blocks, size, -1).amin(1) * bounds.scales[:21]
    assert minima.shape == exact.shape == (blocks.n_blocks, 21)
    assert (minima <= exact).all()
    scale = rows.norm(dim=1).max() * bounds.norms[:21]
    assert ((exact - minima) / scale).max() < 2e-3


def test_steps_of_the_search_agree_with_plain_torch(make_blocks):
    points, labels, queries = random_problem(n_rows=700)
    blocks = make_blocks(points, labels, 8)
    minima, to_limits = blocks.bound(on_device(queries))
    starts = blocks.by_class.starts
    firsts = torch.arange(5, device=DEVICE)
    for sets in (
        (starts[:-1], starts[1:], 1),
        (firsts, torch.full_like(firsts, blocks.n_blocks), 5),
    ):
        low, block = blocks.lowest(minima, *sets)
        low_again, block_again = TorchBlocks.lowest(blocks, minima, *sets)
        assert torch.equal(low, low_again)
        assert torch.equal(block, block_again)
    limits = to_limits(torch.full((3, 21), 3.0, dtype=torch.float64, device=DEVICE))
    limits[1] = -torch.inf
    lists = list(blocks.within(minima, limits, blocks.by_class, 100))
    assert len(lists) > 2
    assert all(len(block) == len(query) <= 100 for block, query in lists)
    found = torch.cat([torch.stack(pair) for pair in lists], 1).T.tolist()
    [(block, query)] = TorchBlocks.within(blocks, minima, limits, blocks.by_class, 10**9)
    assert sorted(found) == sorted(torch.stack([block, query]).T.tolist())
    assert len(found) == len({tuple(pair) for pair in found})


@pytest.mark.parametrize("n", [1, 7, 128, 129, 784, 3072, 9001])
def test_leaves_in_a_loop_add_up_as_the_recursion_does(n):
    from iknow.search.kernels.triton_measure import list_leaves

    terms = np.random.default_rng(n).random(n) ** 4
    stack = []
    for start, end, joins in list_leaves(n):
        assert end - start <= 128
        total = terms[start:end].sum()
        for _ in range(joins):
            total = stack.pop() + total
        stack.append(total)
    assert stack == [terms.sum()]


@pytest.mark.parametrize("n_features", [1, 7, 8, 21, 128, 131, 300])
def test_measured_distances_have_the_bits_of_numpys(make_blocks, n_features):
    points, labels, queries = random_problem(n_rows=60, n_features=n_features)
    blocks = make_blocks(points, labels, 4)
    block = torch.arange(blocks.n_blocks, device=DEVICE).repeat(2)
    query = torch.arange(len(block), device=DEVICE) % len(queries)
    asked = on_device(queries)
    for m in (1, 3, 100):
        found = [each.cpu().numpy().T for each in blocks.candidates(asked, query, block, m)]
        for b, q, *ranked in zip(block.tolist(), query.tolist(), *found, strict=True):
            numbers = blocks.numbers.view(-1, 4)[b].cpu().numpy()
            inside = numbers[numbers != NO_ROW]
            difference = points[inside].astype(float) - queries[q].astype(float)
            distances = np.sqrt(np.square(difference).sum(axis=1))
            expected = [*sorted(zip(distances, inside, strict=True)), *[(np.inf, NO_ROW)] * 4]
            assert list(zip(*ranked, strict=True)) == expected[: min(m, 4)]


def test_ties_and_the_nearest_of_all_equal_brute_force():
    points, labels, queries = random_problem()
    points[::3] = np.rint(points[::3])
    queries[::2] = np.rint(queries[::2])
    index = TritonIndex(points, labels, 3, device=DEVICE)
    for k, per_class in ((5, 1), (5, 4), (20, 1)):
        expected = brute_force(points, labels, 3, queries, k, per_class=per_class)
        assert_same_evidence(index.gather(queries, k, per_class), expected)


def test_of_equally_near_rows_the_lowest_number_is_named():
    """Equals within a block, across blocks and under numbers that run the other way."""
    points = np.repeat(np.eye(3, dtype=np.float32), 40, axis=0)
    labels, numbers = np.zeros(120, dtype=int), np.arange(120)[::-1].copy()
    index = TritonIndex(points, labels, 1, rows=numbers, device=DEVICE)
    evidence = index.gather(np.vstack([np.zeros((1, 3)), np.eye(3)]), 2)
    np.testing.assert_array_equal(evidence.exemplars[:, 0], [0, 80, 40, 0])


def test_a_class_of_one_row_wastes_no_blocks():
    points, _, queries = random_problem(n_rows=100)
    index = TritonIndex(points, np.arange(100), 100, device=DEVICE)
    evidence = index.gather(queries, 3)
    assert index._whole.size == 1
    assert_same_evidence(evidence, brute_force(points, np.arange(100), 100, queries, 3))


# Winners: the nearest of each tile, found beside the products


@pytest.fixture
def small_tiles(monkeypatch):
    """Many tiles of few rows, however small the classes."""
    from iknow.search.kernels import triton as kernels

    for name, value in {"TILE_QUERIES": 16, "TILE_ROWS": 32, "MOST_PADDING": np.inf}.items():
        monkeypatch.setattr(kernels, name, value)


@pytest.mark.usefixtures("small_tiles")
class TestWinners:
    @staticmethod
    def make_index(*training, rows=None):
        index = TritonIndex(*training, rows=rows, device=DEVICE)
        assert index._whole.have_winners
        return index

    @pytest.mark.usefixtures("small_tiles")
    @pytest.mark.parametrize("kind", KINDS)
    def test_evidence_equals_float64_brute_force(self, kind):
        problem = Problem(kind, seed=0)
        evidence = self.make_index(*problem.training).gather(problem.queries)
        assert_same_evidence(evidence, brute_force(*problem.training, problem.queries))

    @pytest.mark.parametrize("kind", ["plain", "integer grid", "near ties", "mixed magnitudes"])
    def test_decisions_at_ties_equal_those_of_brute_force(self, kind):
        problem = Problem(kind, seed=2)
        index, n = self.make_index(*problem.training), len(problem.queries)
        expected = brute_force(*problem.training, problem.queries)
        rng = np.random.default_rng(0)
        belief = rng.integers(NO_BELIEF, problem.n_classes, size=n)
        distances = expected.class_distances
        radius = float(rng.choice(distances[np.isfinite(distances)]))
        for rule in (Ball(radius), RelativeBall(radius, 1.5)):
            decided = index.decide(problem.queries, rule, belief)
            assert_same_decision(decided, decide(expected, rule, belief))

    def test_equals_everywhere_and_lists_that_overflow(self, monkeypatch):
        """All rows alike, so that every tile is open; the list holds those of one query."""
        monkeypatch.setattr("iknow.search.kernels.triton.CAPACITY", 1)
        points, labels = np.zeros((200, 3), dtype=np.float32), np.arange(200) % 3
        numbers = np.random.default_rng(0).permutation(200)
        evidence = self.make_index(points, labels, 3, rows=numbers).gather(points[:5])
        assert_same_evidence(evidence, brute_force(points, labels, 3, points[:5], rows=numbers))

    def test_warming_up_measures_what_is_open(self, monkeypatch):
        from iknow.search.kernels import triton as kernels

        index = self.make_index(*Problem("plain", seed=3).training)
        listed = []
        original = kernels.list_within

        def counting(*asked):
            for tile, column in original(*asked):
                listed.append(len(tile))
                yield tile, column

        monkeypatch.setattr(kernels, "list_within", counting)
        index.warm_up()
        assert max(listed) == index._whole.n_tiles

    def test_prepared_queries_are_those_of_torch(self):
        problem = Problem("mixed magnitudes", seed=0)
        index = self.make_index(*problem.training)
        queries = torch.from_numpy(problem.queries.astype(np.float32)).to(DEVICE)
        found = index._whole.bound_queries(queries)
        expected = index._whole.frame.bound_queries(queries)
        n, n_features = queries.shape
        assert torch.equal(found.low[:n, :n_features], expected.low)
        assert not found.low[n:].any()
        assert not found.low[:, n_features:].any()
        assert torch.equal(found.scales[:n], expected.scales)
        for name in ("norms", "errors", "half_norms"):
            actual = getattr(found, name)[:n]
            torch.testing.assert_close(actual, getattr(expected, name), rtol=1e-6, atol=0)

    def test_far_and_untrusted_queries_are_searched_by_measuring(self, monkeypatch):
        problem = Problem("plain", seed=4)
        problem.queries[0] *= 1e35
        asked = problem.queries
        expected = brute_force(*problem.training, asked)
        assert_same_evidence(self.make_index(*problem.training).gather(asked), expected)
        monkeypatch.setattr("iknow.search.kernels.torch.UNIT", 2.0**-6)
        assert_same_evidence(self.make_index(*problem.training).gather(asked), expected)

    def test_wide_rows_have_the_bits_of_numpys(self):
        rng = np.random.default_rng(0)
        points = rng.standard_normal((40, 300)).astype(np.float32)
        evidence = self.make_index(points, np.arange(40) % 2, 2).gather(
            points[:4] + np.float32(0.5)
        )
        expected = brute_force(points, np.arange(40) % 2, 2, points[:4] + np.float32(0.5))
        assert_same_evidence(evidence, expected)
