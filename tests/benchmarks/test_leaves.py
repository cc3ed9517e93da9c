"""The committed comparison of layers of trees: what the docs and the default layers rest on."""

import json
from pathlib import Path

import numpy as np

from benchmarks.leaves import COVERAGES, HELD_OUT, split, summarize, synthetic, tables

RESULTS = json.loads(
    (Path(__file__).parents[2] / "docs" / "figures" / "leaves.json").read_text("utf-8")
)


def held_out(name):
    return np.mean(
        [
            row[name]
            for problem, cells in RESULTS["by cell"].items()
            if problem.rpartition(", ")[0] in HELD_OUT
            for row in cells.values()
        ],
        axis=0,
    )


def test_input_and_leaves_together_are_wrong_least_on_held_out_data():
    both = held_out("both")
    assert both.shape == (len(COVERAGES),)
    for other in ("input", "leaves", "both, or leaves", "softmax"):
        assert (both < held_out(other)).all()


def test_every_run_counts_once_and_is_shown():
    row = {
        name: [0.1, 0.2, 0.3] for name in ("input", "leaves", "both", "both, or leaves", "softmax")
    }
    runs = {f"grid|xgboost|none|{seed}": {"clean": row} for seed in range(2)}
    found = summarize(runs)
    np.testing.assert_allclose(found["by cell"]["grid, none"]["clean"]["both"], [0.1, 0.2, 0.3])
    assert "| grid (design) | none | 10.0 / 20.0 / 30.0 |" in tables(found)


def test_a_class_kept_from_training_is_in_no_part_but_its_cell():
    x, y = synthetic(0, 3)
    parts = split((x, y), 0, unseen=1)
    assert np.unique(parts.train[1]).tolist() == [0, 1]  # numbered anew
    (gone, truth) = parts.cells["unseen class"]
    assert truth is None
    rows = {row.tobytes() for row in x[y == 1]}
    assert all(row.tobytes() in rows for row in gone)
    assert not any(row.tobytes() in rows for row in parts.train[0])
