"""Races by a clock of their own, rivals against an oracle that measures all, and whole runs."""

import json
import subprocess
import sys
import time

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.neighbors import NearestNeighbors
from threadpoolctl import threadpool_info

from benchmarks import larger_than_memory, machine, memory, rivals, sections
from benchmarks.agreement import FLOAT32, FLOAT64, assertions_differ, distances_differ
from benchmarks.cases import Shape, draw_clustered, draw_isotropic, make_case
from benchmarks.memory import MIB, ask_child, peak_growth, probe
from benchmarks.race import Contestant, best_of, latencies, race
from benchmarks.records import CELLS, DENSE, FAISS, OURS, Results
from benchmarks.rivals import TILES, contestants_in_assertion, enter_dense, multiply_all
from benchmarks.sections import Effort, Run, choose_sections, measure_case, run_sections
from iknow.errors import DataError, IknowError, InputError

pytestmark = pytest.mark.slow
EFFORT = Effort(repeats=1, seconds_per_call=0.001, single_queries=5, latency_seconds=0.01)
FEW = (
    "--rows 3000 --features 9 --classes 3 --queries 20 --alone 2 --checked 5 --repeat 1 --block 32"
)


class Track:
    """A clock that moves only when somebody works on it."""

    def __init__(self):
        self.now, self.turns = 0.0, []

    def clock(self):
        return self.now, 2 * self.now

    def contestant(self, name, seconds_per_query, **options):
        def answer(part):
            self.now += (part.stop - part.start) * seconds_per_query
            self.turns.append((name, part.stop - part.start))

        return Contestant(name, answer, **options)


def test_contestants_take_turns_after_a_warm_up():
    track = Track()
    both = [track.contestant("a", 0.1), track.contestant("b", 0.2)]
    first, second = race(both, 10, 3, clock=track.clock)
    assert track.turns == [("a", 10), ("b", 10)] * 4
    assert (first.seconds, first.cpu) == (pytest.approx([1.0] * 3), pytest.approx([2.0] * 3))
    assert (second.best, second.best_cpu) == (pytest.approx(2e5), pytest.approx(4e5))


@pytest.mark.parametrize(
    ("seconds", "whole", "n", "asked"),
    [(1.0, False, 1000, 8), (0.02, False, 1000, 16), (1e-9, False, 1000, 1000), (5, True, 99, 99),
     (1e-6, False, 5, 5)],
)  # fmt: skip
def test_the_slow_are_asked_about_a_part(seconds, whole, n, asked):
    track = Track()
    (lap,) = race(
        [track.contestant("a", seconds, whole=whole, fewest=8)], n, 2, 0.9, clock=track.clock
    )
    assert lap.n_queries == asked
    assert lap.seconds == pytest.approx([asked * seconds] * 2)


def test_latencies_are_of_one_query_each_and_end_when_time_is_up():
    track = Track()
    answer = track.contestant("a", 1.0).answer
    assert latencies(answer, 150, clock=track.clock)[:, 0] == pytest.approx([1.0] * 150)
    assert {n for _, n in track.turns} == {1}
    assert len(latencies(answer, 1000, 0.5, track.clock)) == 100
    assert len(latencies(answer, 1000, 150.5, track.clock)) == 151
    durations = iter([3.0, 1.0, 2.0])
    assert best_of(lambda: track.contestant("b", next(durations)).answer(slice(0, 1)), 3,
                   track.clock) == 1.0  # fmt: skip


@pytest.fixture(scope="module")
def case():
    return make_case("small", Shape(400, 6, 3, 50))


@pytest.fixture(scope="module")
def oracle(case):
    (layer,) = case.layers
    found = cdist(layer.queries.astype(float), layer.points.astype(float))
    return np.stack([found[:, case.labels == code].min(axis=1) for code in range(3)], axis=1)


@pytest.fixture
def assertions(case, oracle):
    return case.assert_about(slice(None), [oracle <= case.layers[0].radius])


def one_wrong(distances):
    distances[7, 1] *= 1.05


def none_there(distances):
    distances[3, 0] = np.inf


def not_a_number(distances):
    distances[0, 0] = np.nan


def test_only_rounding_is_forgiven_and_only_to_float32(case, oracle, assertions):
    (layer,) = case.layers
    for precision in (FLOAT32, FLOAT64):
        assert distances_differ(layer, oracle, oracle.copy(), precision) is None
        assert assertions_differ(case, [oracle], assertions, assertions.copy(), precision) is None
        for spoil in (one_wrong, none_there, not_a_number):
            wrong = oracle.copy()
            spoil(wrong)
            assert "differs in 1 of 150" in distances_differ(layer, oracle, wrong, precision)
        assert distances_differ(layer, oracle, oracle[:, ::-1], precision) is not None
        assert distances_differ(layer, oracle, oracle**2, precision) is not None
        assert "shape" in distances_differ(layer, oracle, oracle[:, :1], precision)
        assert "shape" in assertions_differ(case, [oracle], assertions, assertions[:3], precision)
        wrong = assertions.copy()
        clear = np.abs(oracle - layer.radius).min(axis=1).argmax()
        wrong[clear] = (wrong[clear] + 1) % 3
        assert "1 of 50" in assertions_differ(case, [oracle], assertions, wrong, precision)
    absent = np.where(np.arange(3) == 0, np.inf, oracle)  # a class without rows, for both
    assert distances_differ(layer, absent, absent.copy(), FLOAT32) is None
    rounded = oracle * (1 + 5e-4)
    assert distances_differ(layer, oracle, rounded, FLOAT32) is None
    assert distances_differ(layer, oracle, rounded, FLOAT64) is not None
    edge, wrong = oracle.copy(), assertions.copy()
    edge[4, 2], wrong[4] = layer.radius * (1 + 1e-4), (wrong[4] + 1) % 3
    assert assertions_differ(case, [edge], assertions, wrong, FLOAT32) is None
    assert assertions_differ(case, [edge], assertions, wrong, FLOAT64) is not None


def build(entrant):
    if entrant.name == FAISS:
        pytest.importorskip("faiss", reason="FAISS is not installed")
    return entrant.build()


@pytest.mark.parametrize("i", range(4))
def test_everyone_finds_the_class_distances(case, oracle, i):
    (layer,) = case.layers
    entrant = [enter_dense(case, layer), *rivals.rivals_in_distances(case, layer)][i]
    found = build(entrant)(slice(0, 50))
    assert distances_differ(layer, oracle, found, entrant.precision) is None


@pytest.mark.parametrize("i", range(6))
def test_everyone_asserts_the_same(case, oracle, assertions, i):
    entrant = contestants_in_assertion(case)[i]
    answer = build(entrant)
    one_by_one = np.concatenate([answer(slice(q, q + 1)) for q in range(50)])
    for found in (answer(slice(0, 50)), one_by_one):
        assert assertions_differ(case, [oracle], assertions, found, entrant.precision) is None


@pytest.mark.parametrize("tile", [(7, 5), *TILES])
def test_the_products_are_all_computed_and_blas_is_left_as_it_was(monkeypatch, tile):
    """Every tile is written, so each pair of point and query is multiplied exactly once."""
    rng, real, total, pairs = np.random.default_rng(0), np.matmul, [], []
    points, queries = (rng.normal(size=(n, 3)).astype(np.float32) for n in (50, 33))

    def watched(a, b, out):
        real(a, b, out=out)
        total.append(float(out.sum(dtype=float)))
        pairs.append(out.size)

    monkeypatch.setattr("benchmarks.rivals.np.matmul", watched)
    before = threadpool_info()
    for part in (queries, queries[:1]):
        total.clear(), pairs.clear()
        multiply_all(points, part, tile)
        assert sum(pairs) == 50 * len(part)
        assert sum(total) == pytest.approx(float((points @ part.T).sum(dtype=float)), abs=1e-3)
    assert threadpool_info() == before


def test_a_case_is_measured_but_for_wrong_and_absent_rivals(case, monkeypatch):
    honest = rivals._by_argmin
    monkeypatch.setattr(rivals, "_by_argmin", lambda rows: lambda q: 1.5 * honest(rows)(q))
    monkeypatch.setattr(rivals, "_by_neighbors", rivals._by_argmin)
    monkeypatch.setitem(sys.modules, "faiss", None)
    results = Results("0", True, 1, {})
    measure_case(case, EFFORT, results)
    reasons = {each.contestant: each.reason for each in results.left_out}
    assert set(reasons) == {"scikit-learn, brute force", FAISS}
    assert "its answer differs" in reasons["scikit-learn, brute force"]
    assert "not installed" in reasons[FAISS]
    raced = {(each.task, each.contestant) for each in results.timings}
    assert ("class distances", "scikit-learn, brute force") not in raced
    assert {("assertion", name) for name in OURS} | {
        ("class distances and 10 neighbours", DENSE), ("class distances", "bare products")
    } <= raced  # fmt: skip
    kinds = {(each.kind, each.contestant) for each in results.quantities}
    assert {(kind, name) for name in OURS for kind in ("latency", "build")} <= kinds


@pytest.mark.parametrize("draw", [draw_clustered, draw_isotropic])
def test_synthetic_data_is_as_it_is_described(draw):
    for n_features in (1, 2, 9):
        points, labels, queries, y_true, belief = draw(Shape(300, n_features, 4, 50), extra=7)
        assert (points.shape, queries.shape) == ((300, n_features), (57, n_features))
        assert points.dtype == queries.dtype == np.float32
        assert y_true.shape == belief.shape == (57,)
        assert np.isfinite(points).all()
        assert set(np.unique(labels)) == {0, 1, 2, 3}
    drawn = [draw(Shape(50, 3, 2, 10, seed=seed))[0] for seed in (5, 5, 6)]
    np.testing.assert_array_equal(drawn[0], drawn[1])
    assert (drawn[0] != drawn[2]).any()
    # Few directions explain the spread of neighbors if the data is clustered.
    points = draw(Shape(20_000, 40, 10, 1))[0]
    near = NearestNeighbors(n_neighbors=40).fit(points).kneighbors(points[:200])[1]
    values = [np.linalg.svd(points[r] - points[r].mean(axis=0), compute_uv=False) for r in near]
    share = np.mean([(v[:8] ** 2).sum() / (v**2).sum() for v in values])
    assert share > 0.9 if draw is draw_clustered else share < 0.6


def test_a_case_has_wrong_beliefs_pushed_queries_and_a_mix_of_assertions():
    points, _, queries, y_true, belief = draw_clustered(Shape(20_000, 32, 10, 2_000))
    assert 0.02 < (y_true != belief).mean() < 0.08
    near = NearestNeighbors(n_neighbors=1).fit(points).kneighbors(queries)[0][:, 0]
    assert 0.05 < (near > 3.2).mean() < 0.15
    case = make_case("c", Shape(3_000, 16, 5, 400))
    (layer,) = case.layers
    within = cdist(layer.queries, layer.points) <= layer.radius
    support = np.stack([within[:, case.labels == c].any(axis=1) for c in range(5)], axis=1)
    asserted = case.assert_about(slice(None), [support])
    shares = np.bincount(asserted, minlength=3) / len(asserted)
    assert (shares > 0.02).all(), shares
    assert case.describe(asserted).facts["assertions"]["IK"] == pytest.approx(shares[2])


def allocate(mib):
    """Touch so much memory, and let go of it."""
    return int(np.ones(mib * MIB, dtype=np.uint8)[0])


@pytest.mark.skipif(not memory.STATM.exists(), reason="only Linux tells the memory of a process")
def test_memory_is_seen_where_it_was_given_back(monkeypatch):
    for mib in (40, 200):
        result, grown = peak_growth(lambda mib=mib: allocate(mib))
        assert (result, 0.9 * mib * MIB < grown < 1.1 * mib * MIB + 8 * MIB) == (1, True)
    assert peak_growth(time.time)[1] < 20 * MIB  # an earlier peak does not count
    found = ask_child(Shape(50_000, 64, 5, 300), 0, DENSE)
    assert 0.8 < found["held"] / (50_000 * 64 * 4) < 20
    assert 0 <= found["extra"] < 256 * MIB
    for contestant in (DENSE, CELLS):  # the result itself, 76 and 5 MiB, is not counted
        assert 0 <= probe(Shape(1_000, 2, 500, 10_000), 0, contestant)["extra"] < 256 * MIB
    failed = subprocess.CompletedProcess([], 1, "", "MemoryError: too much\n")
    monkeypatch.setattr(memory.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(IknowError, match="MemoryError: too much"):
        ask_child(Shape(10, 2, 2, 2), 0, DENSE)


def test_the_machine_is_told_without_names_or_paths(monkeypatch):
    found = machine.describe_machine()
    assert all(found[h] for h in ("processor", "cores", "Python", "BLAS", "numpy", "faiss-cpu"))
    assert "/" not in " ".join(found.values()).replace("benchmarks/gpu.py", "")
    assert machine._version("no-such-package-anywhere") == "not installed"
    for told, gpu in {
        "Card A, 8 GiB\nCard B\n": "Card A, 8 GiB; Card B",
        "": machine.NO_GPU,
    }.items():
        done = subprocess.CompletedProcess([], 0, told, "")
        monkeypatch.setattr(machine.subprocess, "run", lambda *_, done=done, **__: done)
        assert machine.find_gpu() == gpu


def test_a_run_keeps_what_it_finds_and_leaves_out_what_it_lacks(monkeypatch):
    def fail(n_rows):
        raise DataError("no digits here")

    monkeypatch.setattr(sections, "train_digits", fail)
    run = Run(quick=True, repeats=1)
    run.plain = Shape(300, 4, 2, 20)
    results = run_sections(run, ("mnist", "synthetic", "selection", "startup"))
    lacking = [(each.case, each.reason) for each in results.left_out if each.task == "all"]
    assert lacking == [("mnist", "no digits here"), ("selection", "no digits here")]
    assert results.find("synthetic, 10 classes", "assertion", CELLS) is not None
    assert {"import", "bundle", "build"} <= {each.kind for each in results.quantities}
    assert not any("warm-up" in each.case for each in results.timings)


def test_sections_are_chosen_by_name():
    assert choose_sections("scaling, mnist") == ("mnist", "scaling")
    assert all(callable(getattr(Run, name)) for name in choose_sections(None))
    for wrong in ("", ",", "mnist,nonsense"):
        with pytest.raises(InputError, match="choose from mnist, synthetic"):
            choose_sections(wrong)
    with pytest.raises(InputError, match="at least one round"):
        Run(quick=True, repeats=0)


def test_rows_on_disk_are_compared_and_vanish(tmp_path, monkeypatch):
    out = tmp_path / "out.json"
    given = [*FEW.split(), "--folder", str(tmp_path), "--out", str(out)]
    monkeypatch.setattr("sys.argv", ["larger_than_memory", *given])
    larger_than_memory.main()
    figures = json.loads(out.read_text())["figures"]
    assert (figures["rows"], figures["compared_with_float64"]) == (3000, 5)
    assert figures["products_off_by"] < 1e-2
    assert [each.name for each in tmp_path.iterdir()] == ["out.json"]


def test_nothing_optional_is_needed_to_begin(run_without):
    optional = ["torch", "faiss", "matplotlib", "art", "PIL", "optuna", "pandas"]
    assert run_without(optional, "import benchmarks.__main__; print('begun')") == "begun\n"
