"""Measures what wrong labels cost, for the table on the page: python docs/figures/wrong_labels.py

A share of the training labels of scikit-learn's digits is replaced by another digit at random, and
a network learns from them. Validation and test labels are true. For each quorum we take the largest
share of test digits that can be IK with at least 99% of it right: the best threshold on the level.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

from iknow import EpistemicClassifier
from iknow.core.arrays import Bools, Floats, Ints

RESULTS = Path(__file__).with_suffix(".json")
SHARES = (0.0, 0.05, 0.1, 0.2)
QUORUMS = ((1, 1), (1, 3), (3, 3), (5, 5))
SEEDS = range(5)
ACCURACY = 0.99


def flip(labels: Ints, share: float, seed: int) -> Ints:
    """Digits of shape (n,), a share of them replaced by another digit."""
    rng = np.random.default_rng(seed)
    flipped = labels.copy()
    rows = rng.choice(len(labels), round(share * len(labels)), replace=False)
    flipped[rows] = (labels[rows] + rng.integers(1, 10, len(rows))) % 10
    return flipped


def largest_coverage(scores: Floats, right: Bools, accuracy: float = ACCURACY) -> float:
    """The largest share above a positive threshold on the scores with at least this accuracy."""
    masks = [scores >= least for least in np.unique(scores[scores > 0])]
    return max((float(m.mean()) for m in masks if right[m].mean() >= accuracy), default=0.0)


def measure(share: float, seed: int) -> dict[str, float]:
    """Coverage by quorum, and by a threshold on the softmax."""
    X, y = load_digits(return_X_y=True)
    halves = {"test_size": 0.5, "random_state": seed}
    X_train, X_rest, y_train, y_rest = train_test_split(X / 16, y, **halves)
    X_val, X_test, _, y_test = train_test_split(X_rest, y_rest, **halves)
    labels = flip(y_train, share, seed)
    network = MLPClassifier((64, 32), max_iter=400, random_state=seed).fit(X_train, labels)
    right = network.predict(X_test) == y_test
    found = {"softmax": largest_coverage(network.predict_proba(X_test).max(axis=1), right)}
    for quorum in QUORUMS:
        classifier = EpistemicClassifier(network, quorum=quorum, progress=False)
        classifier.fit(X_train, labels).tune(X_val, coverage=0.75)
        level = classifier.assess(X_test, evidence=True).level
        found[str(quorum)] = largest_coverage(level, right)
    return {"model": float(right.mean()), **found}


if __name__ == "__main__":
    with threadpool_limits(1):
        runs = [
            {"share": share, "seed": seed, **measure(share, seed)}
            for seed in SEEDS
            for share in SHARES
        ]
    RESULTS.write_text(json.dumps(runs, indent=1) + "\n", "utf-8")
