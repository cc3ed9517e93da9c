"""Exact selection: its time, and its proven coverage next to that of Bayesian optimization.

    IKNOW_DATA=/path/to/data python benchmarks/selection.py

Runs on one core. Evidence comes from networks trained here: on MNIST (10,000 validation samples,
where IKNOW_DATA has it), on the grid stability data (likewise) and on scikit-learn's digits.
"""

import csv
import gzip
import os
import resource
import sys
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from iknow import Ball, BallElseNearest, BallWithNearest, EpistemicClassifier
from iknow.search.threads import single_threaded_blas
from iknow.selection import Goal, Validation, select
from iknow.selection.exact.boxes import sample_boxes
from iknow.selection.exact.depth import deepest_point

DATA = Path(os.environ.get("IKNOW_DATA", "no data"))


def digits():
    X, y = load_digits(return_X_y=True)
    return X / 16, y, 900


def grid_stability():
    with (DATA / "grid_stability/Data_for_UCI_named.csv").open() as stream:
        rows = list(csv.reader(stream))[1:]
    X = np.array([row[:12] for row in rows], dtype=float)
    return X, np.array([row[13] == "stable" for row in rows], dtype=int), 6_000


def mnist():
    def read(name, header):
        content = gzip.decompress((DATA / "mnist" / name).read_bytes())
        return np.frombuffer(content, dtype=np.uint8, offset=header)

    X = read("train-images-idx3-ubyte.gz", 16).reshape(-1, 784) / 255
    return X, read("train-labels-idx1-ubyte.gz", 8).astype(int), 50_000


def validation_evidence(load):
    """Evidence in all layers of a trained network about samples it was not trained on."""
    X, y, n_train = load()
    order = np.random.default_rng(0).permutation(len(X))
    train, rest = order[:n_train], order[n_train:]
    network = MLPClassifier((32, 32), batch_size=256, max_iter=15, random_state=0)
    model = make_pipeline(StandardScaler(with_std=False), network)
    with single_threaded_blas():
        model.fit(X[train], y[train])
    layers = ["hidden1", "hidden2", "logits"]
    classifier = EpistemicClassifier(FrozenEstimator(model), layers, rule=Ball(1.0), progress=False)
    assessment = classifier.fit(X[train], y[train]).assess(X[rest], k=5)
    return dict(assessment.evidence), assessment.belief_codes, y[rest]


def timed(work, *arguments, **keywords):
    start = time.perf_counter()
    result = work(*arguments, **keywords)
    return result, time.perf_counter() - start


def compare(name, evidence, belief, y_true):
    """One line per rule and number of layers."""
    for layers in (["logits"], ["hidden2", "logits"], ["hidden1", "hidden2", "logits"]):
        part = Validation({layer: evidence[layer] for layer in layers}, belief, y_true)
        for rule in (Ball, BallElseNearest, BallWithNearest):
            exact, exact_time = timed(select, Goal(k=5), part, rule)
            bayes, bayes_time = timed(select, Goal("bayes", k=5), part, rule)
            assert bayes.coverage <= exact.coverage
            print(
                f"{name:<15} {len(belief):>7,} {len(layers):>6} {rule.__name__:<16}"
                f"{exact.coverage:>9.4f} {'yes' if exact.optimal else f'{exact.gap:.4f}':>7}"
                f"{exact_time:>8.3f}s {bayes.coverage:>8.4f} {bayes_time:>7.2f}s"
                f"{exact_time / bayes_time:>7.2f}"
            )


def scaling(evidence, belief, sizes=(10_000, 30_000, 100_000)):
    """Two layers, samples redrawn with a jitter, against sorting the ends of their boxes."""
    lows, highs = sample_boxes(
        {layer: evidence[layer] for layer in ("hidden2", "logits")}, belief, Ball
    )
    rng = np.random.default_rng(0)
    print(f"\n{'samples':>8} {'exact':>8} {'np.sort':>9} {'argsort':>9} {'sorted':>9}   (ratios)")
    for size in sizes:
        drawn = rng.integers(len(lows), size=size)
        low = lows[drawn] * rng.uniform(0.95, 1.05, (size, 2))
        high = highs[drawn] * rng.uniform(0.95, 1.05, (size, 2))
        ends = np.concatenate([low, high])
        found, exact = min(
            (timed(deepest_point, low, high, np.ones(size)) for _ in range(3)), key=lambda t: t[1]
        )
        assert found.proven
        sorts = [
            min(timed(np.sort, ends, axis=0)[1] for _ in range(3)),
            min(timed(np.argsort, ends, axis=0, kind="stable")[1] for _ in range(3)),
            min(
                timed(lambda e: [sorted(axis) for axis in e.T.tolist()], ends)[1] for _ in range(3)
            ),
        ]
        ratios = " ".join(f"{exact / sort:>8.1f}x" for sort in sorts)
        print(f"{size:>8,} {exact:>7.3f}s {ratios}")


def hard(n=10_000, time_limit=5.0):
    """Time and memory for slabs that cross each other, the hardest kind of boxes."""
    rng = np.random.default_rng(0)
    print(f"\n{'slabs':>8} {'axes':>5} {'limit':>6} {'time':>8} {'memory':>8} {'proven':>7}")
    for n_axes in (2, 3, 6):
        lows, highs = np.zeros((n, n_axes)), np.full((n, n_axes), 2.0)
        thin = np.arange(n), np.arange(n) % n_axes
        lows[thin] = rng.random(n)
        highs[thin] = lows[thin] + 0.5 * n_axes / n
        found, taken = timed(deepest_point, lows, highs, np.ones(n), time_limit)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{n:>8,} {n_axes:>5} {time_limit:>5.0f}s {taken:>7.3f}s {memory:>6.0f}MB "
            f"{'yes' if found.proven else 'no':>6}"
        )


def main():
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    print(
        f"{'data':<15} {'samples':>7} {'layers':>6} {'rule':<16}{'exact':>9} {'proven':>7}"
        f"{'time':>9} {'bayes':>8} {'time':>8}{'ratio':>7}"
    )
    largest = None
    for load in (digits, grid_stability, mnist):
        try:
            evidence, belief, y_true = validation_evidence(load)
        except FileNotFoundError as error:
            print(f"{load.__name__}: skipped, {error.filename} is missing", file=sys.stderr)
            continue
        compare(load.__name__, evidence, belief, y_true)
        largest = evidence, belief
    if largest is not None:
        scaling(*largest)
    hard()


if __name__ == "__main__":
    main()
