"""TorchIndex by plain torch operations: against brute force, and its promises."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

from iknow.core.decision import Scope
from iknow.core.rule import Horizon
from iknow.errors import InputError
from iknow.search.engine import NO_ROW
from iknow.search.kernels import torch as kernels
from iknow.search.kernels.torch import (
    SMALLEST_FACTOR,
    TorchBlocks,
    TorchIndex,
    add_like_numpy,
    make_frame,
    measure,
    merge,
)
from iknow.testing import assert_same_evidence, brute_force
from iknow.testing.index import Problem
from tests.search.contract import RowIndexContract, random_problem

CPU = torch.device("cpu")
PRECISIONS = list(SMALLEST_FACTOR)


class TestTorchIndex(RowIndexContract):
    seeds_per_kind = 5  # each problem takes torch many small operations

    def make_index(self, activations, labels, n_classes, rows=None):
        return TorchIndex(activations, labels, n_classes, rows=rows)


@pytest.mark.slow
class TestTorchIndexInParts(RowIndexContract):
    """With memory for less than half of the rows at a time."""

    seeds_per_kind = 4

    def make_index(self, activations, labels, n_classes, rows=None):
        memory = 2048 + 100 * len(activations)
        return TorchIndex(activations, labels, n_classes, rows=rows, memory=memory)


@pytest.mark.parametrize("n", [*range(1, 20), 64, 71, 127, 128, 129, 136, 200, 257, 784, 9001])
def test_sums_have_the_bits_of_numpys(n):
    terms = np.random.default_rng(n).random((40, n)) ** 4
    np.testing.assert_array_equal(add_like_numpy(torch.from_numpy(terms)), terms.sum(axis=1))


def test_roots_have_the_bits_of_numpys():
    points = np.random.default_rng(0).random((5000, 2)).astype(np.float32)
    expected = np.sqrt(np.square(points.astype(float) - points[0].astype(float)).sum(axis=1))
    np.testing.assert_array_equal(
        measure(torch.from_numpy(points), torch.tensor(points[0])), expected
    )


def exact_terms(blocks, queries):
    """σ-free τ of each row and query in float64, of shape (n_blocks, size, n_queries)."""
    rows, places = blocks.frame.place(blocks.points), blocks.frame.place(queries)
    terms = rows.square().sum(1, keepdim=True) / 2 - rows @ places.T
    terms[blocks.numbers == NO_ROW] = torch.inf
    return terms.view(blocks.n_blocks, blocks.size, -1)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_block_minima_are_lower_bounds_and_tight(precision, shift):
    points, labels, queries = random_problem(n_features=24)
    points, queries = points + np.float32(shift), queries + np.float32(shift)
    blocks = TorchBlocks(points, labels, np.arange(2000), 16, CPU, precision)
    queries = torch.from_numpy(queries)
    minima, _ = blocks.bound(queries)
    bounds = blocks.frame.bound_queries(queries)
    exact = exact_terms(blocks, queries).amin(1) * bounds.scales
    scale = bounds.half_norms.mean() * 2
    assert (minima <= exact).all()
    tight = {"fp16": 2e-3, "bf16": 2e-2, "float32": 5e-5}[precision]
    assert (exact - minima).max() < tight * scale


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_limit_lets_every_row_of_that_distance_pass(precision):
    points, labels, queries = random_problem()
    blocks = TorchBlocks(points, labels, np.arange(2000), 1, CPU, precision)
    queries = torch.from_numpy(queries)
    minima, to_limits = blocks.bound(queries)
    distances = measure(blocks.points[:, None], queries)
    assert (minima <= to_limits(distances)).all()
    # A limit is not much more than that: of distances a little smaller, most do not pass.
    smaller = to_limits(distances * (0.97 if precision == "bf16" else 0.997))
    assert (minima > smaller).float().mean() > 0.9


@pytest.mark.parametrize("kind", ["huge", "tiny", "mixed magnitudes", "far from the origin"])
def test_prepared_numbers_are_finite_and_factors_normal(kind):
    for seed in range(10):
        problem = Problem(kind, seed)
        points = torch.from_numpy(problem.points.astype(np.float32))
        queries = torch.from_numpy(problem.queries.astype(np.float32))
        for precision in PRECISIONS:
            frame = make_frame(points, precision)
            rows = frame.bound_rows(points, torch.ones(len(points), dtype=torch.bool))
            bounds = frame.bound_queries(queries)
            for tensor in (*rows, bounds.low, bounds.norms, bounds.errors):
                assert tensor.isfinite().all()
            for low in (rows[0], bounds.low):
                size = low.double().abs()
                assert ((size == 0) | (size >= SMALLEST_FACTOR[precision])).all()
                assert (size <= 2.0**15).all()


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("kind", ["plain", "near ties", "mixed magnitudes", "tiny"])
def test_precisions_change_no_answer(precision, kind):
    class Index(TorchIndex):
        def _lay_out(self, part):
            arrays = self.points[part], self.labels[part], self.rows[part]
            return TorchBlocks(*arrays, 4, CPU, precision)

    for seed in range(8):
        problem = Problem(kind, seed)
        data = problem.points, problem.labels, problem.n_classes
        index, asked = Index(*data), (problem.queries, problem.k)
        for per_class in (1, problem.per_class):
            expected = brute_force(*data, *asked, per_class=per_class)
            assert_same_evidence(index.gather(*asked, per_class), expected)


@pytest.mark.parametrize("per_class", [1, 4])
def test_most_blocks_are_ruled_out(monkeypatch, per_class):
    """The bounds earn their keep: few pairs beyond those that must be are measured."""
    points, labels, queries = random_problem(n_rows=20_000, n_features=16)
    measured = []
    original = TorchBlocks.candidates

    def counting(self, queries, query, block, m):
        measured.append(len(query))
        return original(self, queries, query, block, m)

    monkeypatch.setattr(TorchBlocks, "candidates", counting)
    evidence = TorchIndex(points, labels, 5).gather(queries, per_class=per_class)
    assert sum(measured) <= 1.1 * per_class * evidence.class_distances.size


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_products_in_less_than_float32_change_no_answer(precision):
    """torch may be told to multiply in bf16; the bounds hold then, too."""
    points, labels, queries = random_problem()
    index = TorchIndex(points, labels, 5)
    index.gather(queries[:1])  # laid out for full products
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        evidence = index.gather(queries, 7)
        assert set(index._whole._factors) == {"float32", "bf16"}
    finally:
        torch.set_float32_matmul_precision(before)
    assert_same_evidence(evidence, brute_force(points, labels, 5, queries, 7))


def test_autocast_and_default_dtype_change_no_answer():
    points, labels, queries = random_problem()
    expected = brute_force(points, labels, 5, queries, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert_same_evidence(TorchIndex(points, labels, 5).gather(queries, 3), expected)
    torch.set_default_dtype(torch.float64)
    try:
        assert_same_evidence(TorchIndex(points, labels, 5).gather(queries, 3), expected)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("n_features", [1, 7, 8, 130, 300])
def test_any_number_of_features(n_features):
    points, labels, queries = random_problem(300, n_features, n_queries=10)
    evidence = TorchIndex(points, labels, 5).gather(queries, 3)
    assert_same_evidence(evidence, brute_force(points, labels, 5, queries, 3))


def test_features_beyond_the_bounds_are_searched_by_measuring(monkeypatch):
    monkeypatch.setattr("iknow.search.kernels.torch.UNIT", 2.0**-6)
    points, labels, queries = random_problem(300)
    for per_class in (1, 3):
        evidence = TorchIndex(points, labels, 5).gather(queries, 3, per_class)
        expected = brute_force(points, labels, 5, queries, 3, per_class=per_class)
        assert_same_evidence(evidence, expected)


def test_many_lists_of_pairs_and_batches_give_the_same(monkeypatch):
    monkeypatch.setattr(TorchBlocks, "bytes_of_candidates", 3000)
    monkeypatch.setattr(kernels, "WORK_BYTES_ON_CPU", 30_000)
    monkeypatch.setattr(kernels, "BYTES_FOR_PRODUCTS", 3000)
    monkeypatch.setattr(kernels, "BYTES_FOR_MEASURING", 3000)
    points, labels, queries = random_problem(500)
    points = np.rint(points)  # many ties, many blocks within each limit
    queries[::2] = np.rint(queries[::2])
    for per_class in (1, 4):
        evidence = TorchIndex(points, labels, 5).gather(queries, 30, per_class)
        expected = brute_force(points, labels, 5, queries, 30, per_class=per_class)
        assert_same_evidence(evidence, expected)


def test_an_index_larger_than_the_memory_is_searched_in_parts():
    points, labels, queries = random_problem(5000, 32)
    index = TorchIndex(points, labels, 5, memory=1 << 19)
    assert points.nbytes > 1 << 19
    for per_class in (1, 3):
        expected = brute_force(points, labels, 5, queries, 9, per_class=per_class)
        assert_same_evidence(index.gather(queries, 9, per_class), expected)
    assert len(index._parts) > 3
    assert "_whole" not in vars(index)


@pytest.mark.parametrize("per_class", [1, 3])
def test_parts_merge_alike_in_either_order(per_class):
    points, labels, queries = random_problem(300, 2)
    points, queries = np.rint(points), torch.from_numpy(np.rint(queries))  # ties across parts
    halves = [slice(0, None, 2), slice(1, None, 2)]
    one, other = (
        TorchIndex(points[half], labels[half], 5, rows=np.arange(300)[half])._find(
            queries, 6, per_class
        )
        for half in halves
    )
    whole = TorchIndex(points, labels, 5)._find(queries, 6, per_class)
    for merged in (merge(one, other), merge(other, one)):
        for actual, expected in zip(merged, whole, strict=True):
            assert torch.equal(actual, expected)


def test_too_little_memory_for_any_part_is_refused_before_work_starts():
    points, labels, queries = random_problem(100, 32)
    index = TorchIndex(points, labels, 5, memory=512)
    with pytest.raises(InputError, match=r"needs at least [\d,]+ bytes; 512 are available: free"):
        index.gather(queries)


def test_what_is_found_stays_on_the_device_until_it_is_asked_for():
    points, labels, queries = random_problem()
    labels = np.where(labels == 3, 2, labels)  # class 3 is empty
    index = TorchIndex(points, labels, 5)
    evidence = index.gather(queries, 4, 2)
    found = index._find(torch.from_numpy(queries), 4, 2)
    ranked = evidence.distances
    np.testing.assert_array_equal(found.distances.permute(2, 1, 0), ranked)
    np.testing.assert_array_equal(found.neighbors.T, evidence.neighbor_distances)
    assert (found.numbers[:, 3] == NO_ROW).all()
    assert (evidence.rows[:, 3] == -1).all()


@pytest.mark.parametrize(("own", "other"), [(1, 1), (1, 3), (3, 2)])
@pytest.mark.parametrize("horizon", [Horizon(2.0), Horizon(0.0, 1.2), Horizon(0.5, 0.7, 4)])
def test_beyond_the_cap_nothing_leaves_the_device(own, other, horizon):
    points, labels, queries = random_problem()
    points, queries = np.rint(points), np.rint(queries)  # ties
    belief = np.random.default_rng(0).integers(-1, 5, size=len(queries))
    index = TorchIndex(points, labels, 5)
    whole = index.gather(queries, 4, max(own, other))
    found = index.search(queries, Scope(own, other, 4, belief, horizon))
    ranked, rows = whole.distances, whole.rows
    is_own = np.arange(5) == belief[:, None]
    own_distance = np.where(is_own, ranked[:, :, own - 1], np.inf).min(axis=1)
    cap = np.where(is_own, np.inf, ranked[:, :, other - 1]).min(axis=1)
    ratio = horizon.ratio * np.where(np.isinf(own_distance), 0.0, own_distance)
    kth = whole.neighbor_distances[:, horizon.k - 1] if horizon.k else 0.0
    cap = np.maximum.reduce([cap, np.full(len(cap), horizon.fixed), ratio, kth + 0 * cap])
    kept = is_own[..., None] | (ranked <= cap[:, None, None])
    assert 0 < kept.mean() < 1
    np.testing.assert_array_equal(found.distances, np.where(kept, ranked, np.inf))
    np.testing.assert_array_equal(found.rows, np.where(kept, rows, -1))
    np.testing.assert_array_equal(found.neighbor_distances, whole.neighbor_distances)
    np.testing.assert_array_equal(found.complete_below[:, 1], np.nextafter(cap, np.inf))
    assert np.isinf(found.complete_below[:, [0, 2]]).all()


@pytest.mark.parametrize("device", ["cuda:99", "meta", "nonsense"])
def test_a_device_that_is_not_there_is_refused_with_a_way_out(device):
    with pytest.raises(InputError, match=f"cannot use device '{device}'.*use device='cpu'"):
        TorchIndex(np.zeros((2, 1)), np.array([0, 1]), 2, device=device)


def test_a_pickle_holds_the_points_and_nothing_derived():
    points, labels, queries = random_problem(20_000)
    index = TorchIndex(points, np.sort(labels), 5)
    before = index.gather(queries, 4)
    pickled = pickle.dumps(index)
    assert len(pickled) < points.nbytes + index.labels.nbytes + index.rows.nbytes + 2000
    assert_same_evidence(pickle.loads(pickled).gather(queries, 4), before)


def test_torch_and_triton_are_loaded_only_when_asked_for():
    code = (
        "import sys, numpy as np, iknow; assert not {'torch', 'triton'} & set(sys.modules);"
        "from iknow.search.kernels.torch import TorchIndex;"
        "TorchIndex(np.zeros((2, 1)), np.array([0, 1]), 2).gather(np.zeros((1, 1)));"
        "assert 'iknow.search.kernels.triton' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
