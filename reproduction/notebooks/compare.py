"""The printed figures next to ours, by the rule of `reproduction.agreement`.

A cell agrees when our mean over the seeds is within 0.05 of the printed figure, or the printed
figure is within two standard deviations of our seeds. An accuracy over fewer than 1% of the
samples, in the notebook or here, is not counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reproduction.agreement import LEAST_SHARE, Comparison, Measured, measure
from reproduction.notebooks.printed import SHARES, load_printed
from reproduction.protocol import Outcome
from reproduction.tables import Key


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
