"""The notebooks, against scikit-learn's ball trees and by cases worked out by hand."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.neighbors import BallTree
from typer.testing import CliRunner

import reproduction.__main__ as command
from iknow import Ball, EpistemicClassifier
from reproduction.agreement import Measured
from reproduction.notebooks.page import CONVENTIONS, write_page
from reproduction.notebooks.printed import (
    METRICS,
    STRETCHES,
    compare_printed,
    key_of,
    load_printed,
    measure_all,
)
from reproduction.notebooks.run import measure_trials, norm_products, product_norms, run_notebook
from reproduction.notebooks.settings import NOTEBOOKS, Trial, cut_windows, load_blobs
from reproduction.protocol import Cell, Outcome
from reproduction.torch import build_network

pytestmark = pytest.mark.slow
BY_NAME = {notebook.name: notebook for notebook in NOTEBOOKS}
BLOBS = BY_NAME["blobs"]


def outcomes_as_printed(n_seeds=2):
    """Outcomes that are what the notebooks print."""
    stretches = dict.fromkeys(BLOBS.layers, 2.0)
    facts = {"product_norms": stretches, "norm_products": stretches}
    cells = {name: [] for name in BY_NAME}
    for key, value in load_printed().items():
        cells[key.dataset].append(Cell(*key[1:], value))
    return [
        Outcome(name, seed, list(found), facts)
        for name, found in cells.items()
        for seed in range(n_seeds)
    ]


def small(data):
    """The first samples alone, enough for a comparison with slow code."""
    test = {f"X_{part}": data.X_test[:60] for part in ("val", "test")}
    test |= {f"y_{part}": data.y_test[:60] for part in ("val", "test")}
    return replace(data, X_train=data.X_train[:400], y_train=data.y_train[:400], **test)


def test_every_printed_row_is_one_of_our_trials_and_adds_up():
    printed = load_printed()
    found = {(key.dataset, key.method) for key in printed if key.metric == "F_IK"}
    ours = {(each.name, trial.name) for each in NOTEBOOKS for trial in each.trials}
    assert found == ours | {("series", "chosen")}
    assert len(found) == 24 + 20 + 1 + 9 + 1 + 8 + 9
    for name, trial in found:
        parts = [printed.get(key_of(name, trial, each)) for each in METRICS[::2]]
        if None not in parts:
            assert sum(parts) == pytest.approx(1, abs=2e-6)
            counts = np.array(parts) * {"series": 1800, "blobs": 3300}[name]
            assert np.allclose(counts, counts.round(), atol=0.01)
    for key, value in printed.items():  # an accuracy is printed exactly where there are samples
        if key.metric in ("F_IK", "F_IMK") and key.dataset in ("series", "blobs"):
            assert (key._replace(metric=key.metric.replace("F_", "A_")) in printed) == (value > 0)


def test_the_data_is_that_of_the_notebooks():
    data = load_blobs(5, 15, 1.0)
    # The sums of the rows of the confusion matrices that the notebooks print.
    assert np.bincount(data.y_test).tolist() == [683, 671, 661, 645, 640]
    assert (len(data.y_train), data.y_train[:3].tolist()) == (6700, [4, 3, 0])
    assert np.bincount(load_blobs(2, 2, 0.5).y_test).tolist() == [1631, 1669]
    assert np.allclose(data.X_train.mean(axis=0), 0, atol=1e-5)
    assert np.allclose(data.X_train.std(axis=0), 1, atol=1e-5)
    X = np.arange(2 * 57, dtype=np.float32).reshape(2, 1, 57)
    cut, labels = cut_windows(X, np.array([7, 8]))
    expected = [X[i, 0, start : start + 55] for start in range(3) for i in range(2)]
    assert np.array_equal(cut, np.array(expected)[:, None])
    assert labels.tolist() == [7, 8, 7, 8, 7, 8]


def by_trees(numbers, layers, train, test, belief, labels):
    """Assertions by scikit-learn's ball trees, as sets of labels: IK 0, IMK 1, IDK 2."""
    rows = []
    for layer, number in zip(layers, numbers, strict=True):
        tree = BallTree(train[layer])
        if isinstance(number, int):
            rows.append(tree.query(test[layer], k=number, return_distance=False))
        else:
            rows.append(tree.query_radius(test[layer], r=number))
    found = []
    for i, own in enumerate(belief):
        support = set().union(*(labels[each[i]].tolist() for each in rows))
        empty = any(len(each[i]) == 0 for each in rows)
        found.append(2 if empty or own not in support else 0 if support == {own} else 1)
    return np.array(found)


@pytest.mark.parametrize(
    ("trial", "numbers"),
    [
        (Trial("k", "k", (5, 4, 3, 2)), (5, 4, 3, 2)),
        (Trial("radii", "radii", (1.5, 1.0, 0.5, 0.4)), (1.5, 1.0, 0.5, 0.4)),
        (Trial("stretched", "stretched", (0.5,)), (1.0, 1.5, 0.5, 2.0)),
    ],
)
def test_a_trial_is_what_ball_trees_say(trial, numbers):
    data, layers = small(load_blobs(5, 15, 1.0)), BLOBS.layers
    network = build_network(BLOBS.architecture, (15,), 5, torch.Generator().manual_seed(3), "he")

    def read(X):
        values, kept = torch.from_numpy(X), {}
        with torch.no_grad():
            for name, module in network.named_children():
                kept[name] = values = module(values)
        return {name: kept[name].numpy() for name in layers}

    train, test = read(data.X_train), read(data.X_test)
    # The network is untrained, and labels that it never meets would be refused.
    own = np.random.default_rng(0).random(len(data.y_train)) < 0.6
    data = replace(data, y_train=np.where(own, train["logits"].argmax(axis=1), data.y_train))
    belief = test["logits"].argmax(axis=1)
    assertion = by_trees(numbers, layers, train, test, belief, data.y_train)
    right = belief == data.y_test
    assert set(assertion) >= {1, 2}  # the network is untrained, so something is to tell apart
    options = {"rule": Ball(0.0), "classes": np.arange(5), "progress": False}
    classifier = EpistemicClassifier(network, layers, **options).fit(data.X_train, data.y_train)
    stretches = dict(zip(layers, (2.0, 3.0, 1.0, 4.0), strict=True))
    measured = measure_trials(replace(BLOBS, trials=(trial,)), classifier, data, stretches)
    cells = {(cell.method, cell.metric): cell.value for cell in measured}
    assert cells["network", "accuracy"] == pytest.approx(right.mean())
    for code, metric in enumerate(("IK", "IMK", "IDK")):
        there = right[assertion == code]
        assert cells[trial.name, f"F_{metric}"] == pytest.approx(np.mean(assertion == code))
        expected = pytest.approx(there.mean()) if len(there) else None
        assert metric == "IDK" or cells[trial.name, f"A_{metric}"] == expected


def test_stretches_are_those_of_the_matrices():
    # Turned by 90 degrees: the product stretches by 3 · 1 at most, not by 3 · 2.
    weights = {"relu1": np.diag([3.0, 1.0]), "logits": np.array([[0.0, 1.0], [2.0, 0.0]])}
    assert product_norms(weights) == pytest.approx({"relu1": 3, "logits": 3})
    assert norm_products(weights) == pytest.approx({"relu1": 3, "logits": 6})
    assert all(len(each) == len(BLOBS.layers) for each in STRETCHES.values())


def test_a_curve_gives_its_largest_value():
    plane, radii = BY_NAME["plane 0.5"], (1e-4, 0.1, 10.0)
    training = replace(plane.training, epochs=2, least=0.0)
    short = replace(plane, load=lambda seed: small(load_blobs(2, 2, 0.5)), training=training)
    curves = [*((radius,) for radius in radii), radii]
    *alone, last = (run_notebook(replace(short, curve=curve), 0).cells[-1] for curve in curves)
    largest = max(cell.value for cell in alone)
    assert largest == alone[1].value > 0
    assert last == Cell("all", "curve", "nominal", "largest F_IK", largest)


def test_what_is_printed_agrees_with_itself_and_few_samples_do_not_count():
    measured = measure_all(outcomes_as_printed())
    compared = compare_printed(measured)
    assert list(compared) == list(load_printed())
    assert all(each.agrees and each.is_close for each in compared.values())
    # 0.4% of the samples are IMK here.
    assert not compared[key_of("blobs", "radii -1", "A_IMK")].counted
    assert compared[key_of("blobs", "radii 0", "A_IMK")].counted
    key = key_of("series", "k 24", "A_IMK")
    assert compared[key].counted
    measured[key._replace(metric="F_IMK")] = Measured(0.009, 0.0, 2)  # few of ours
    assert not compare_printed(measured)[key].counted


def test_the_page_marks_what_agrees_and_the_committed_one_has_the_printed_figures(tmp_path):
    outcomes = outcomes_as_printed()
    path = write_page(tmp_path / "notebooks.md", outcomes)
    page = path.read_text("utf-8")
    assert "✗" not in page.replace("✗: they do not", "")
    assert "| 24, 24 | 0.855 → 0.855 ± 0.000 ✓ |" in page
    (place,) = (
        i for i, c in enumerate(outcomes[0].cells) if (c.method, c.metric) == ("k 24", "F_IK")
    )
    for outcome in outcomes[:2]:
        outcome.cells[place] = replace(outcome.cells[place], value=0.5)
    page = write_page(path, outcomes).read_text("utf-8")
    assert "| 24, 24 | 0.855 → 0.500 ± 0.000 ✗ |" in page
    assert page.count("✗") == 2
    assert all(question in page for question, *_ in CONVENTIONS)
    committed = Path(__file__).parents[2] / "docs/reproduction/notebooks.md"
    found = sorted(re.findall(r"(\d\.\d{3}) → ", committed.read_text("utf-8")))
    assert found == sorted(f"{value:.3f}" for value in load_printed().values())


def test_the_command_runs_every_notebook(tmp_path, monkeypatch):
    outcomes = {(each.name, each.seed): each for each in outcomes_as_printed()}
    monkeypatch.setattr(command, "run_notebook", lambda book, seed: outcomes[book.name, seed])
    words = ["notebooks", "--seeds", "2", "--out", str(tmp_path)]
    result = CliRunner().invoke(command.app, words)
    assert result.exit_code == 0, result.output
    compared = compare_printed(measure_all(list(outcomes.values())))
    counted = sum(each.counted for each in compared.values())
    assert f"{counted} of {counted} counted figures agree" in result.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["notebooks.md"]
