"""Agreement: our numbers next to the published ones, cell by cell.

A cell agrees when our mean over the seeds is within 0.05 of the published value, or the published
value is within two standard deviations of our seeds. An accuracy over fewer than 1% of the samples,
in the paper or here, says nothing: such cells are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reproduction.protocol import Outcome
from reproduction.tables import Key, load_published

TOLERANCE = 0.05
DEVIATIONS = 2.0
LEAST_SHARE = 0.01
# The authors' code combines assertions; the paper's text combines neighborhoods.
CODE_HYBRIDS = {"h1": "h1_code"}


@dataclass(frozen=True)
class Measured:
    """The mean, standard deviation and number of the seeds for which a cell is defined."""

    mean: float
    deviation: float
    n_seeds: int


@dataclass(frozen=True)
class Comparison:
    """A published cell and ours."""

    key: Key
    published: float
    ours: Measured
    counted: bool

    @property
    def agrees(self) -> bool:
        """Whether the two agree; meaningful for counted cells only."""
        gap = abs(self.ours.mean - self.published)
        return self.is_close or gap <= DEVIATIONS * self.ours.deviation

    @property
    def is_close(self) -> bool:
        """Whether our mean is near the published value, however much our seeds differ."""
        return bool(is_within(self.ours.mean, self.published))


def measure(outcomes: Iterable[Outcome], dataset: str) -> dict[Key, Measured]:
    """Every cell of an experiment over its seeds, under the name of a dataset of the paper."""
    values: dict[Key, list[float]] = {}
    for outcome in outcomes:
        for cell in outcome.cells:
            key = Key(dataset, cell.layers, cell.method, cell.perturbation, cell.metric)
            kept = values.setdefault(key, [])
            if cell.value is not None:
                kept.append(cell.value)
    return {key: _summarise(found) for key, found in values.items()}


def compare(measured: Mapping[Key, Measured], *, code_hybrids: bool = False) -> list[Comparison]:
    """The published cells of the datasets that were measured, in the order of the tables.

    code_hybrids: compare with the hybrids as the authors' code combines them.
    """
    published = load_published()
    compared = []
    for key, value in published.items():
        swap = CODE_HYBRIDS if code_hybrids else {}
        ours = key._replace(method=swap.get(key.method, key.method))
        if ours in measured:
            counted = share_of(published[coverage_of(key)], key.metric) >= LEAST_SHARE
            counted &= share_of(measured[coverage_of(ours)].mean, key.metric) >= LEAST_SHARE
            compared.append(Comparison(key, value, measured[ours], counted))
    return compared


def count_agreeing(comparisons: Sequence[Comparison]) -> tuple[int, int]:
    """How many cells agree, and how many are counted."""
    counted = [each for each in comparisons if each.counted]
    return sum(each.agrees for each in counted), len(counted)


def is_within(ours: Any, published: float) -> Any:
    """Whether means of ours, one or an array of them, are near a published value."""
    # 1 - 0.95 is a little more than 0.05 in binary.
    return abs(ours - published) <= TOLERANCE + 1e-9


def coverage_of(key: Key) -> Key:
    """Where the coverage of the samples in a cell's group stands."""
    return key._replace(metric="F_IK")


def share_of(coverage: Any, metric: str) -> Any:
    """The share of the samples that a metric is over, for one coverage or an array of them."""
    return {"F_IK": 1.0, "A_IK": coverage, "A_notIK": 1 - coverage}[metric]


def _summarise(values: Sequence[float]) -> Measured:
    if not values:
        return Measured(float("nan"), float("nan"), 0)
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return Measured(float(np.mean(values)), deviation, len(values))
