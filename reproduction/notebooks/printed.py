"""What the notebooks print: their figures, to compare with.

`printed.csv` has a row for each trial, an Epistemic classifier with fixed rules: our name for the
notebook, the cell that printed it (from 0), the fractions of IK, IMK and IDK, and the accuracies
of IK and IMK. An accuracy over no samples is empty. The notebooks call the columns M1, M2, M4, M3
and M5. They print an M6 as well, the ratio of IDK to IMK, which says nothing new.

They are compared by the rule of `reproduction.agreement`: an accuracy over fewer than 1% of the
samples, in the notebook or here, is not counted.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

from reproduction.agreement import LEAST_SHARE, Comparison, Measured, measure
from reproduction.protocol import Outcome
from reproduction.tables import Key

METRICS = ("F_IK", "A_IK", "F_IMK", "A_IMK", "F_IDK")
# The fraction of the samples that an accuracy is over.
SHARES = {"A_IK": "F_IK", "A_IMK": "F_IMK"}


def key_of(notebook: str, trial: str, metric: str) -> Key:
    """The position of a number, in the terms of the paper's tables: a trial is a method."""
    return Key(notebook, "all", trial, "nominal", metric)


# Printed outside the tables.
ALONE = {
    key_of("series", "network", "accuracy"): 0.988889,  # UCR_TimeSeries, 15
    key_of("series", "network", "after 10 epochs"): 0.797222,
    key_of("series", "network", "after 20 epochs"): 0.822222,
    key_of("series", "network", "after 32 epochs"): 0.933333,
    key_of("series", "chosen", "F_IK on validation"): 0.75,  # UCR_TimeSeries, 21
    key_of("blobs", "network", "accuracy"): 1.0,  # Ball_tree_datasets, 3
    key_of("plane 0.5", "network", "accuracy"): 0.996667,  # Sample_code_epsilon_vs_performance, 3
    # The paper, about the figure that this notebook draws.
    key_of("plane 0.5", "curve", "largest F_IK"): 1.00,
    key_of("plane 1.5", "curve", "largest F_IK"): 0.44,
}
# How much the weights of the blobs' networks stretch a radius up to each layer, by notebook: the
# "adaptive distance in each layer" of cell 13 over the radius.
STRETCHES = {
    "Ball_tree_datasets": (2.311556, 3.964084, 5.577611, 7.766397),
    "Sample_code_ball_tree": (2.252674, 3.596236, 6.454332, 11.421834),
}


@cache
def load_printed() -> dict[Key, float]:
    """All printed figures, in the notebooks' order."""
    printed: dict[Key, float] = {}
    text = files("reproduction.notebooks").joinpath("printed.csv").read_text("utf-8")
    for row in csv.DictReader(text.splitlines()):
        for metric in METRICS:
            if row[metric]:
                printed[key_of(row["notebook"], row["trial"], metric)] = float(row[metric])
    return printed | ALONE


def measure_all(outcomes: Sequence[Outcome]) -> dict[Key, Measured]:
    """Every cell of some notebooks over its seeds."""
    measured: dict[Key, Measured] = {}
    for name in dict.fromkeys(outcome.name for outcome in outcomes):
        measured |= measure([each for each in outcomes if each.name == name], name)
    return measured


def compare_printed(measured: Mapping[Key, Measured]) -> dict[Key, Comparison]:
    """The printed figures that were measured here, in the notebooks' order."""
    printed = load_printed()
    ours = {key: each.mean for key, each in measured.items()}
    return {
        key: Comparison(key, value, measured[key], _counts(key, printed) and _counts(key, ours))
        for key, value in printed.items()
        if key in measured
    }


def _counts(key: Key, values: Mapping[Key, float]) -> bool:
    if key.metric not in SHARES:
        return True
    return values[key._replace(metric=SHARES[key.metric])] >= LEAST_SHARE
