"""FAISS as a proposer: what it provably misses, and that no mode breaks its promise over it."""

import builtins
import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from iknow.core.quorum import ONE
from iknow.core.support import find_support
from iknow.errors import InputError, MissingExtraError
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall
from iknow.search.approximate import FaissIndex, plan
from iknow.testing import IndexContract, VerifiedContract, brute_force
from iknow.testing.verified import is_alone

faiss = pytest.importorskip("faiss")

LOOSE = {"hnsw": {"links": 2, "ef": 1}, "ivf": {"lists": 64, "probes": 1}}
"""Parameters with which FAISS misses most."""


@pytest.fixture
def never_whole(monkeypatch):
    """Small classes get an index too, though FAISS has too few rows for good centers."""
    whole = plan.Plan.searches_whole
    monkeypatch.setattr(
        plan.Plan,
        "searches_whole",
        lambda self, n: n < 2 if self.kind == "hnsw" else whole(self, 16 * n),
    )


@pytest.mark.slow
@pytest.mark.usefixtures("never_whole")
class TestExact(IndexContract):
    def make_index(self, *arrays, rows=None):
        return FaissIndex(*arrays, rows=rows, mode="exact", **LOOSE["hnsw"])


@pytest.mark.usefixtures("never_whole")
class TestVerified(VerifiedContract):
    seeds_per_kind = 1

    def make_index(self, *arrays, rows=None):
        return FaissIndex(*arrays, rows=rows, mode="verified", **LOOSE["hnsw"])


@pytest.mark.slow
@pytest.mark.usefixtures("never_whole")
class TestExactOfCells(IndexContract):
    def make_index(self, *arrays, rows=None):
        return FaissIndex(*arrays, rows=rows, kind="ivf", mode="exact", **LOOSE["ivf"])


@pytest.mark.slow
@pytest.mark.usefixtures("never_whole")
class TestVerifiedOfCells(VerifiedContract):
    seeds_per_kind = 6

    def make_index(self, *arrays, rows=None):
        return FaissIndex(*arrays, rows=rows, kind="ivf", mode="verified", **LOOSE["ivf"])


def isolated():
    """A contradiction at 0.9 behind many far rows of its class: a graph reaches it by none."""
    rng = np.random.default_rng(0)
    own = rng.normal(size=(600, 8))
    other = rng.normal(size=(3000, 8)) + 40
    lonely = np.zeros((3, 8))
    lonely[:, 0] = 0.9
    points = np.concatenate([own, other, lonely])
    labels = np.repeat([0, 1], [600, 3003])
    return points, labels, np.zeros((1, 8)), np.array([0])


def duplicates():
    """Copies of one far row fill the list of candidates; the contradiction comes last."""
    rng = np.random.default_rng(1)
    own, copies = rng.normal(size=(500, 8)), np.full((3000, 8), 3.0)
    near = np.full((3, 8), 0.01)
    points = np.concatenate([own, copies, near])
    labels = np.repeat([0, 1], [500, 3003])
    return points, labels, np.zeros((1, 8)), np.array([0])


def unprobed():
    """A contradiction in the cell of a center that is not among the nearest."""
    rng = np.random.default_rng(2)
    own = 0.3 * rng.normal(size=(1200, 4))
    centers = 6 * rng.normal(size=(40, 4))
    other = np.repeat(centers, 60, axis=0) + 2.5 * rng.normal(size=(2400, 4))
    queries = other[rng.choice(2400, size=200, replace=False)] + 0.02
    own = np.concatenate([own, queries + 0.05])
    points = np.concatenate([own, other])
    labels = np.repeat([0, 1], [len(own), len(other)])
    return points, labels, queries, np.zeros(200, dtype=np.int64)


TRAPS = {"isolated": isolated, "duplicates": duplicates, "unprobed": unprobed}


def rules_for(evidence):
    own = np.median(evidence.class_distances[:, 0])
    wide = 2 * float(own) + 1
    return [
        RelativeBall(wide, 3.0),
        RelativeBall(wide, 3.0, quorum=(1, 3)),
        RelativeBall(wide, 0.5, quorum=(2, 2)),
        Ball(wide),
        Ball(wide, quorum=(1, 3)),
        Nearest(3),
        Nearest(4, quorum=(2, 2)),
        BallElseNearest(wide, 3, quorum=(1, 2)),
        BallWithNearest(wide, 5),
        BallWithNearest(wide, 5, quorum=(2, 3)),
    ]


@pytest.mark.parametrize("kind", LOOSE)
@pytest.mark.parametrize("trap", TRAPS)
def test_what_is_missed_makes_no_false_ik(trap, kind):
    points, labels, queries, belief = TRAPS[trap]()
    evidence = brute_force(points, labels, 2, queries, 5, per_class=3)
    indexes = {
        mode: FaissIndex(points, labels, 2, kind=kind, mode=mode, **LOOSE[kind])
        for mode in ("exact", "verified")
    }
    for rule in rules_for(evidence):
        truth = find_support(evidence, rule, belief)
        exact, verified = (each.find_support(queries, rule, belief) for each in indexes.values())
        np.testing.assert_array_equal(exact, truth, str(rule))
        assert not (is_alone(verified, belief) & ~is_alone(truth, belief)).any(), rule


def test_the_traps_are_traps():
    """Without a proof each kind gives out a false IK, so the tests above can fail."""
    caught = set()
    for kind, options in LOOSE.items():
        for trap in TRAPS.values():
            points, labels, queries, belief = trap()
            evidence = brute_force(points, labels, 2, queries, 5, per_class=3)
            fast = FaissIndex(points, labels, 2, kind=kind, mode="fast", **options)
            for rule in rules_for(evidence):
                proposed = fast.gather(queries, 5, per_class=3)
                found = is_alone(find_support(proposed, rule, belief), belief)
                if (found & ~is_alone(find_support(evidence, rule, belief), belief)).any():
                    caught.add((kind, trap.__name__))
    assert {kind for kind, _ in caught} == set(LOOSE)
    assert {trap for _, trap in caught} == set(TRAPS)


@pytest.mark.parametrize(
    ("kind", "n"), [("hnsw", 3000), ("ivf", 6000), pytest.param("ivfpq", 2400, id="ivfpq")]
)
def test_fast_distances_are_those_of_rows_and_never_too_small(kind, n):
    rng = np.random.default_rng(3)
    points, labels = rng.normal(size=(n, 8)), rng.integers(2, size=n)
    queries = rng.normal(size=(50, 8))
    options = {"bits": 4} if kind == "ivfpq" else {}
    index = FaissIndex(points, labels, 2, rows=np.arange(n) + 7, kind=kind, mode="fast", **options)
    assert not index.plan.searches_whole(n // 3)
    found, truth = index.gather(queries, 4, 3), brute_force(points, labels, 2, queries, 4, None, 3)
    assert (found.ranked_distances() >= truth.ranked_distances()).all()
    assert (found.neighbor_distances >= truth.neighbor_distances).all()
    apart = points.astype(np.float32)[found.exemplars - 7].astype(np.float64)
    apart -= queries.astype(np.float32)[:, None]
    np.testing.assert_array_equal(np.sqrt(np.square(apart).sum(axis=2)), found.class_distances)
    assert (labels[found.exemplars - 7] == [0, 1]).all()
    assert (found.class_distances == truth.class_distances).mean() > 0.8


def test_parameters_out_of_range_are_refused():
    points, labels = np.zeros((3, 2)), np.array([0, 1, 1])
    for options, message in {
        ("kind", "flat"): "kind must be one of",
        ("mode", "slow"): "mode must be one of",
        ("ef", 0): "ef must be a whole number from 1",
        ("ef", 2.5): "ef must be a whole number",
        ("links", True): "links must be a whole number",
        ("probes", 4): "kind='hnsw' takes 'links', 'ef'; got probes=4",
    }.items():
        with pytest.raises(InputError, match=message):
            FaissIndex(points, labels, 2, **dict([options]))
    with pytest.raises(InputError, match="codes must divide the number of features, 2; got 3"):
        FaissIndex(points, labels, 2, kind="ivfpq", codes=3)
    with pytest.raises(InputError, match="bits must be a whole number from 4 to 12; got 13"):
        FaissIndex(points, labels, 2, kind="ivfpq", bits=13)


def test_without_faiss_the_error_names_the_extra(monkeypatch):
    real = builtins.__import__

    def refuse(name, *arguments):
        if name == "faiss":
            raise ImportError(name)
        return real(name, *arguments)

    monkeypatch.delitem(sys.modules, "iknow.search.approximate.faiss", raising=False)
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingExtraError, match=r"pip install 'iknow\[faiss\]'"):
        FaissIndex(np.zeros((3, 2)), np.array([0, 1, 1]), 2)


def test_threads_share_an_index_and_faiss_keeps_its_own_number():
    rng = np.random.default_rng(4)
    points, labels = rng.normal(size=(4000, 6)), rng.integers(3, size=4000)
    queries, belief = rng.normal(size=(300, 6)), rng.integers(3, size=300)
    rule = RelativeBall(1.0, 1.2, quorum=(1, 3))
    alone = FaissIndex(points, labels, 3).find_support(queries, rule, belief)
    index, start = FaissIndex(points, labels, 3), threading.Barrier(4)
    before = faiss.omp_get_max_threads()

    def ask(_):
        start.wait()
        return index.find_support(queries, rule, belief)

    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(ask, range(4)):
            np.testing.assert_array_equal(found, alone)
    assert faiss.omp_get_max_threads() == before


def test_a_copy_is_built_anew():
    rng = np.random.default_rng(5)
    points, labels = rng.normal(size=(2000, 4)), rng.integers(2, size=2000)
    index = FaissIndex(points, labels, 2, kind="ivf", mode="fast")
    evidence = index.gather(points[:20], 2)
    copied = pickle.loads(pickle.dumps(index))
    assert repr(copied) == repr(index) == "FaissIndex(kind='ivf', mode='fast', probes=16)"
    np.testing.assert_array_equal(
        copied.gather(points[:20], 2).class_distances, evidence.class_distances
    )


def test_a_ball_of_one_sample_needs_no_proposals():
    index = FaissIndex(np.eye(3), np.array([0, 1, 1]), 2)
    assert not index.finds_support(Ball(1.0))
    assert index.finds_support(Ball(1.0, quorum=2))
    assert RelativeBall(1.0, 1.0).quorum == ONE
    assert index.finds_support(RelativeBall(1.0, 1.0))
    assert not index.finds_support(Nearest(4))
