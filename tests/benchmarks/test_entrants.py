"""All who are timed give the same answers, by an oracle that measures everything."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_info

from benchmarks.agreement import assertions_differ, distances_differ
from benchmarks.entrants import contestants_in_assertion, enter_dense, rivals_in_distances
from benchmarks.plan import Effort
from benchmarks.products import TILES, fastest_tile, multiply_all
from benchmarks.racing import Contestant
from benchmarks.recording import Recorder
from benchmarks.records import FAISS, OURS
from benchmarks.searching import measure_case
from benchmarks.support import support_of_lists

pytestmark = pytest.mark.slow  # they are compiled, loaded and compared

EFFORT = Effort(repeats=1, seconds_per_call=0.001, single_queries=5, latency_seconds=0.01)


@pytest.fixture
def oracle(case):
    (layer,) = case.layers
    all_of_them = cdist(layer.queries.astype(float), layer.points.astype(float))
    return np.stack(
        [all_of_them[:, case.labels == code].min(axis=1) for code in range(case.n_classes)], axis=1
    )


def build(entrant):
    if entrant.name == FAISS:
        pytest.importorskip("faiss", reason="FAISS is not installed")
    return entrant.build()


@pytest.mark.parametrize("i", range(4))
def test_everyone_finds_the_class_distances(case, oracle, i):
    (layer,) = case.layers
    entrant = [enter_dense(case, layer), *rivals_in_distances(case, layer)][i]
    found = build(entrant)(slice(0, 50))
    assert distances_differ(layer, oracle, found, entrant.precision) is None


@pytest.mark.parametrize("i", range(6))
def test_everyone_asserts_the_same(case, oracle, i):
    entrant = contestants_in_assertion(case)[i]
    expected = case.assert_about(slice(None), [oracle <= case.layers[0].radius])
    answer = build(entrant)
    assert (
        assertions_differ(case, [oracle], expected, answer(slice(0, 50)), entrant.precision) is None
    )
    one_by_one = np.concatenate([answer(slice(q, q + 1)) for q in range(50)])
    assert assertions_differ(case, [oracle], expected, one_by_one, entrant.precision) is None


def test_lists_of_rows_become_a_mask():
    labels = np.array([0, 2, 2, 1])
    lists = [np.array([], dtype=int), np.array([1, 2]), np.array([0, 3])]
    expected = [[False] * 3, [False, False, True], [True, True, False]]
    assert support_of_lists(lists, labels, 3).tolist() == expected
    assert support_of_lists([np.array([], dtype=int)], labels, 3).tolist() == [[False] * 3]


@pytest.mark.parametrize("tile", [(7, 5), *TILES])
@pytest.mark.parametrize("n_queries", [1, 33])
def test_the_products_are_all_computed(monkeypatch, tile, n_queries):
    """Every tile is written, so each pair of point and query is multiplied exactly once."""
    rng = np.random.default_rng(0)
    points = rng.normal(size=(50, 3)).astype(np.float32)
    queries = rng.normal(size=(n_queries, 3)).astype(np.float32)
    total, pairs = [], []
    real = np.matmul

    def watched(a, b, out):
        real(a, b, out=out)
        total.append(float(out.sum(dtype=float)))
        pairs.append(out.size)

    monkeypatch.setattr("benchmarks.products.np.matmul", watched)
    multiply_all(points, queries, tile)
    assert sum(pairs) == 50 * n_queries
    assert sum(total) == pytest.approx(float((points @ queries.T).sum(dtype=float)), abs=1e-3)


def test_the_fastest_tile_is_one_of_those_tried(case):
    (layer,) = case.layers
    assert fastest_tile(layer.points, layer.queries) in TILES


def test_a_wrong_rival_is_left_out_and_not_timed(case, monkeypatch):
    from benchmarks import sklearn

    honest = sklearn.nearest_per_class

    def lie(*arguments):
        find = honest(*arguments)
        return lambda queries: 1.5 * find(queries)

    monkeypatch.setattr(sklearn, "nearest_per_class", lie)
    monkeypatch.setattr(sklearn, "neighbors_per_class", lie)
    record = Recorder()
    measure_case(case, EFFORT, record)
    results = record.finish("0", True, 1, {})
    assert {each.contestant for each in results.left_out} >= {"scikit-learn, brute force"}
    assert all(
        "its answer differs" in each.reason for each in results.left_out if each.contestant != FAISS
    )
    assert results.find("small", "class distances", "scikit-learn, brute force") is None
    assert results.find("small", "class distances", "iknow, dense") is not None


def test_a_case_is_measured_in_full(case):
    record = Recorder()
    measure_case(case, EFFORT, record)
    results = record.finish("0", True, 1, {})
    raced = {(each.task, each.contestant) for each in results.timings}
    assert {("assertion", name) for name in OURS} <= raced
    assert ("class distances and 10 neighbours", "iknow, dense") in raced
    assert ("class distances", "bare products") in raced
    kinds = {(each.kind, each.contestant) for each in results.quantities}
    assert {("latency", name) for name in OURS} <= kinds
    assert {("build", name) for name in OURS} <= kinds
    assert [each.contestant for each in results.left_out if each.contestant != FAISS] == []


def test_absent_packages_are_left_out_with_the_reason(case, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "benchmarks.faiss", None)
    record = Recorder()
    measure_case(case, EFFORT, record)
    left_out = record.finish("0", True, 1, {}).left_out
    assert {each.contestant for each in left_out} == {FAISS}
    assert all("not installed" in each.reason for each in left_out)


def test_blas_is_left_as_it_was(case):
    before = threadpool_info()
    multiply_all(case.layers[0].points, case.layers[0].queries, (16, 16))
    assert threadpool_info() == before


def test_contestants_are_kept_apart():
    assert Contestant("a", len) != Contestant("a", len)  # two ways of one name are two contestants
