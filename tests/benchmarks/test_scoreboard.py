"""The scoreboard: its parts against slower ways, and a tiny run from data to tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from benchmarks.scoreboard import table
from benchmarks.scoreboard.methods import ensemble
from benchmarks.scoreboard.packing import delta, undelta
from benchmarks.scoreboard.running import ADAPTIVE, run_job
from benchmarks.scoreboard.short import by_name, by_position
from benchmarks.scoreboard.summary import Summary
from benchmarks.scoreboard.tabular import shift_table
from benchmarks.scoreboard.targets import judge
from iknow.evaluation.peers import Observed, Softmax
from iknow.search.cells import CpuIndex

torch = pytest.importorskip("torch")


def test_packing_restores_every_pixel():
    images = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 3)).astype(np.uint8)
    assert (undelta(delta(images)) == images).all()


def test_shifts_of_tables_change_what_they_say():
    x = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
    shifted = shift_table(x, x, seed=0)
    assert ((shifted["two features swapped"] != x).sum(axis=1) == 2).all()
    assert (np.sort(shifted["two features swapped"], axis=1) == np.sort(x, axis=1)).all()
    assert ((shifted["a quarter resampled"] != x).sum(axis=1) <= 2).all()
    assert (shifted["doubled"] == 2 * x).all()


def test_plain_index_gives_the_distances_of_the_exact_one():
    from benchmarks.scoreboard.torch.plain_index import PlainIndex

    rng = np.random.default_rng(0)
    points, labels = rng.normal(size=(200, 9)).astype(np.float32), rng.integers(0, 4, 200)
    labels[0] = 5  # class 4 is empty, and class 5 has fewer samples than asked for
    queries = np.concatenate([rng.normal(size=(30, 9)), points[:3]]).astype(np.float32)
    ours = PlainIndex(points, labels, 6, device="cpu").gather(queries, 20, 3)
    exact = CpuIndex(points, labels, 6).gather(queries, 20, 3)
    np.testing.assert_allclose(ours.distances, exact.distances, rtol=1e-10)
    np.testing.assert_allclose(ours.neighbor_distances, exact.neighbor_distances, rtol=1e-10)
    assert (ours.rows == exact.rows).all()


def test_evidence_with_gradients_finds_the_samples_that_count():
    from benchmarks.scoreboard.torch.evidence import LayerEvidence

    rng = np.random.default_rng(0)
    points, labels = rng.normal(size=(90, 5)).astype(np.float32), rng.integers(0, 3, 90)
    queries, belief = rng.normal(size=(20, 5)).astype(np.float32), rng.integers(0, 3, 20)
    layer = LayerEvidence(torch.from_numpy(points), torch.from_numpy(labels), 3, (2, 3))
    given = torch.from_numpy(queries)
    own, other = (layer.distance(given, r) for r in layer.find(given, torch.from_numpy(belief)))
    ranked = CpuIndex(points, labels, 3).gather(queries, 0, 3).distances
    rows = np.arange(20)
    against = ranked[:, :, 2].copy()
    against[rows, belief] = np.inf
    np.testing.assert_allclose(own.numpy(), ranked[rows, belief, 1], rtol=1e-4)
    np.testing.assert_allclose(other.numpy(), against.min(axis=1), rtol=1e-4)


@pytest.mark.parametrize("mode", ["sum", "max", "distance"])
def test_descent_stays_within_its_limits(mode):
    from benchmarks.scoreboard.torch.descent import Conditions, descend
    from benchmarks.scoreboard.torch.evidence import LayerEvidence

    drawn = torch.Generator().manual_seed(0)
    x = torch.rand(60, 6, generator=drawn)
    y = (x[:, 0] > 0.5).long()
    network = torch.nn.Linear(6, 2)
    layers = {"input": LayerEvidence(x, y, 2, (1, 3))}
    conditions = Conditions(network, {"input": lambda a: a}, layers, {"input": (0.5, 1.0)})
    start, target = x[:10], 1 - y[:10]
    found = descend(conditions, start, target, x[10:20], 0.1, 9, begin="guide", mode=mode)
    assert (found - start).abs().max() <= 0.1 + 1e-6
    assert found.min() >= 0
    assert found.max() <= 1


def test_a_quick_run_gives_all_tables(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 400)
    x = (rng.normal(size=(400, 24)) + 2 * y[:, None]).astype(np.float32)
    np.savez(tmp_path / "italy.npz", x=x, y=y)
    record, arrays = run_job(("Italy power MLP", 0), tmp_path, None, quick=True)
    assert arrays["Italy power MLP/0/plain/val"].shape == (120,)
    summary = Summary({"coverages": [0.6, 0.75, 0.9], "runs": {"Italy power MLP": {"0": record}}})
    cell = ("Italy power MLP", "foreign, uniform")
    assert cell in summary.cells(summary.problems())
    assert summary.error(cell) == 1  # no answer about noise is right
    assert summary.wrong(cell, "iknow")[1] < summary.wrong(cell, "softmax")[1]
    results = {"coverages": [], "runs": {"Italy power MLP": {"0": record}}}
    assert by_name(by_position(results)) == results
    for make in (table.overall, table.losses, table.certified, table.wrong_labels, table.targets):
        assert "|" in make(summary)


def _cell(iknow: list[Any], softmax: list[Any]) -> dict[str, Any]:
    wrong = {"iknow": iknow, "softmax": softmax}
    areas = {"iknow": 0.1, "softmax": 0.2}
    return {"n": 10, "error": 0.5, "wrong": wrong, "asserted": wrong, "augrc": areas}


def test_targets_and_losses_say_where_another_is_better():
    cells = {
        "clean": _cell([0.01, 0.02, 0.03], [0.0, 0.0, 0.0]),
        "blur": _cell([0.01, 0.02, 0.03], [0.5, 0.5, None]),
    }
    row = {"iknow": {"coverage": 0.9, "accuracy": 1.0}}
    record = {"plain": {"cells": cells, "certified": {"0.99": row}, "left_out": []}}
    record["noisy"] = record["plain"] | {"cells": {}}
    runs = {"MNIST MLP": {"0": record}, ADAPTIVE: {"0": {"runs": {}}}}
    attacked = {f"iknow (1, 3) {kind} 0.75": 0.02 for kind in ("as worded", "strong")}
    runs[ADAPTIVE]["0"]["runs"] = attacked
    summary = Summary({"coverages": [0.6, 0.75, 0.9], "runs": runs})
    assert "clean" in table.losses(summary)
    assert "blur" not in table.losses(summary)
    assert np.isnan(summary.mean_wrong(summary.problems(), "softmax")[2])
    assert list(summary.reached(summary.problems(), "softmax")) == [1, 1, 0.5]
    verdicts = {verdict.target: verdict for verdict in judge(summary)}
    close = next(v for name, v in verdicts.items() if name.startswith("at 0.75: best"))
    assert "1 of 2" in close.measured
    assert not close.met


def test_an_ensemble_averages_probabilities():
    rng = np.random.default_rng(0)
    members = [
        Observed(np.zeros((50, 1)), None, rng.normal(0, spread, (50, 5)), np.zeros(50, int))
        for spread in (0.5, 1.0, 2.0)
    ]
    weights = [np.exp(member.logits) for member in members]
    mean = np.mean([each / each.sum(axis=1, keepdims=True) for each in weights], axis=0)
    joined = ensemble(members)
    np.testing.assert_array_equal(joined.belief, mean.argmax(axis=1))
    np.testing.assert_allclose(np.exp(Softmax().score(joined)), mean.max(axis=1))
