"""The paper's tables: its published values, to compare with.

`tables.txt` has a line for each dataset, set of layers and method, with four conditions of three
numbers. Of the 648 published numbers 144 are printed in both tables; 504 are distinct.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import NamedTuple

TABLES = {"M": "main", "S": "supplement"}
CONDITIONS = {"L": "large", "A": "adversarial"}
METRICS = ("F_IK", "A_IK", "A_notIK")
# The accuracies of the base classifiers, in the paper's section S2.
ACCURACIES = {
    "grid_stability": 0.9374,
    "iris": 1.0,
    "italy_power_demand": 0.954,
    "synthetic_control": 0.99,
    "mnist": 0.9603,
    "gtsrb": 0.9741,
}


class Key(NamedTuple):
    """The position of a number, in the terms of the tables."""

    dataset: str
    layers: str
    method: str
    perturbation: str
    metric: str


@cache
def load_published() -> dict[Key, float]:
    """All 504 published numbers."""
    return {key: value for key, (value, _) in _parse().items()}


def find_tables(
    dataset: str, layers: str, method: str, perturbation: str, metric: str
) -> tuple[str, ...]:
    """The tables that print a number; none if the paper does not have it."""
    found = _parse().get(Key(dataset, layers, method, perturbation, metric))
    return () if found is None else found[1]


@cache
def _parse() -> dict[Key, tuple[float, tuple[str, ...]]]:
    parsed: dict[Key, tuple[float, tuple[str, ...]]] = {}
    for line in files("reproduction").joinpath("tables.txt").read_text("utf-8").splitlines():
        if line.startswith("#"):
            continue
        head, *groups = line.split("|")
        dataset, layers, method, tables, last = head.split()
        conditions = ("nominal", "gaussian", "uniform", CONDITIONS[last])
        for perturbation, group in zip(conditions, groups, strict=True):
            for metric, value in zip(METRICS, group.split(), strict=True):
                key = Key(dataset, layers, method, perturbation, metric)
                parsed[key] = (float(value), tuple(TABLES[letter] for letter in tables))
    return parsed
