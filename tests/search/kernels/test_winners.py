"""Winners, on a GPU or in Triton's interpreter, against float64 brute force."""

import os
import sys

import numpy as np
import pytest
import torch

from iknow.core.codes import NO_BELIEF
from iknow.core.decision import decide
from iknow.rules import Ball, RelativeBall
from iknow.search.kernels.torch import TorchIndex
from iknow.testing import assert_same_evidence, brute_force
from iknow.testing.index import KINDS, Problem, assert_same_decision

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

# Triton decides once and for all, when it is loaded, whether to compile or to interpret.
if DEVICE.type == "cpu" and "TRITON_INTERPRET" not in os.environ:
    if "triton" in sys.modules:
        pytest.skip("Triton was loaded without TRITON_INTERPRET=1", allow_module_level=True)
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton")
pytestmark = pytest.mark.slow  # the interpreter is


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch):
    """Many tiles of few rows, however small the classes."""
    from iknow.search.kernels import triton as kernels

    monkeypatch.setattr(kernels, "MOST_PADDING", np.inf)
    monkeypatch.setattr(kernels, "TILE_QUERIES", 16)
    monkeypatch.setattr(kernels, "TILE_ROWS", 32)


class TritonIndex(TorchIndex):
    _uses_triton = True


def make_index(*training, rows=None):
    index = TritonIndex(*training, rows=rows, device=DEVICE)
    assert index._whole.have_winners
    return index


@pytest.mark.parametrize("kind", KINDS)
def test_evidence_equals_float64_brute_force(kind):
    problem = Problem(kind, seed=0)
    evidence = make_index(*problem.training).gather(problem.queries)
    assert_same_evidence(evidence, brute_force(*problem.training, problem.queries))


@pytest.mark.parametrize("kind", ["plain", "integer grid", "near ties", "mixed magnitudes"])
def test_decisions_at_ties_equal_those_of_brute_force(kind):
    problem = Problem(kind, seed=2)
    index, n = make_index(*problem.training), len(problem.queries)
    expected = brute_force(*problem.training, problem.queries)
    rng = np.random.default_rng(0)
    belief = rng.integers(NO_BELIEF, problem.n_classes, size=n)
    distances = expected.class_distances
    radius = float(rng.choice(distances[np.isfinite(distances)]))
    for rule in (Ball(radius), RelativeBall(radius, 1.5)):
        decided = index.decide(problem.queries, rule, belief)
        assert_same_decision(decided, decide(expected, rule, belief))


def test_equals_everywhere_and_lists_that_overflow(monkeypatch):
    """All rows alike, so that every tile is open; the list holds those of one query."""
    monkeypatch.setattr("iknow.search.kernels.triton.CAPACITY", 1)
    points, labels = np.zeros((200, 3), dtype=np.float32), np.arange(200) % 3
    numbers = np.random.default_rng(0).permutation(200)
    evidence = make_index(points, labels, 3, rows=numbers).gather(points[:5])
    assert_same_evidence(evidence, brute_force(points, labels, 3, points[:5], rows=numbers))


def test_warming_up_measures_what_is_open(monkeypatch):
    from iknow.search.kernels import triton as kernels

    index = make_index(*Problem("plain", seed=3).training)
    listed = []
    original = kernels.list_within

    def counting(*asked):
        for tile, column in original(*asked):
            listed.append(len(tile))
            yield tile, column

    monkeypatch.setattr(kernels, "list_within", counting)
    index.warm_up()
    assert max(listed) == index._whole.n_tiles


def test_prepared_queries_are_those_of_torch():
    problem = Problem("mixed magnitudes", seed=0)
    index = make_index(*problem.training)
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


def test_far_and_untrusted_queries_are_searched_by_measuring(monkeypatch):
    problem = Problem("plain", seed=4)
    problem.queries[0] *= 1e35
    asked = problem.queries
    expected = brute_force(*problem.training, asked)
    assert_same_evidence(make_index(*problem.training).gather(asked), expected)
    monkeypatch.setattr("iknow.search.kernels.torch.UNIT", 2.0**-6)
    assert_same_evidence(make_index(*problem.training).gather(asked), expected)


def test_wide_rows_have_the_bits_of_numpys():
    rng = np.random.default_rng(0)
    points = rng.standard_normal((40, 300)).astype(np.float32)
    evidence = make_index(points, np.arange(40) % 2, 2).gather(points[:4] + np.float32(0.5))
    expected = brute_force(points, np.arange(40) % 2, 2, points[:4] + np.float32(0.5))
    assert_same_evidence(evidence, expected)
