"""The results of a run, as plain records that JSON can hold."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from iknow.errors import InputError

FORMAT = 1

CLASS_DISTANCES = "class distances"
WITH_NEIGHBORS = "class distances and 10 neighbours"
WITH_FEW = "the 5 nearest of each class"
ASSERTION = "assertion"

PRODUCTS = "bare products"
DENSE = "iknow, dense"
CELLS = "iknow, cells"
OURS = (DENSE, CELLS)
SKLEARN = "scikit-learn, brute force"
BALL_TREE = "scikit-learn, BallTree"
KD_TREE = "scikit-learn, KDTree"
FAISS = "FAISS, flat"

EXTRA_MEMORY, HELD_MEMORY = "extra at peak", "index"
MEDIAN_LATENCY, TAIL_LATENCY = "p50", "p99"
LOAD = "load"
CURVES = ("rows", "features")
"""Cases that are points of a curve are named "rows 10,000" and "features 32"."""


@dataclass(frozen=True)
class CaseFacts:
    """The facts of a case. layers: number of features by name. facts: accuracy, radii, shares."""

    name: str
    about: str
    n_rows: int
    n_classes: int
    n_queries: int
    layers: Mapping[str, int]
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Timing:
    """How long one contestant took for a task, in each round.

    case: as in `CaseFacts`, with the layer if the task is about one layer. seconds: one number per
    round, for all of `n_queries` together.
    """

    case: str
    task: str
    contestant: str
    n_queries: int
    seconds: tuple[float, ...]
    note: str = ""

    @property
    def best(self) -> float:
        """Microseconds per query in the best round: what the code costs, without the noise."""
        return 1e6 * min(self.seconds) / self.n_queries

    @property
    def median(self) -> float:
        """Microseconds per query in the middle round."""
        return 1e6 * statistics.median(self.seconds) / self.n_queries


@dataclass(frozen=True)
class Quantity:
    """One number outside of a race. kind: a key of `benchmarks.report.LAYOUTS`."""

    kind: str
    case: str
    what: str
    contestant: str
    value: float
    unit: str
    note: str = ""


@dataclass(frozen=True)
class LeftOut:
    """What was not measured, and why."""

    case: str
    task: str
    contestant: str
    reason: str


@dataclass(frozen=True)
class Results:
    """All results of a run. machine: the facts about it, by heading."""

    version: str
    quick: bool
    repeats: int
    machine: Mapping[str, str]
    cases: list[CaseFacts] = field(default_factory=list)
    timings: list[Timing] = field(default_factory=list)
    quantities: list[Quantity] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)

    def find(self, case: str, task: str, contestant: str) -> Timing | None:
        """The timing of a contestant, or None if it was left out."""
        key = case, task, contestant
        found = (each for each in self.timings if (each.case, each.task, each.contestant) == key)
        return next(found, None)

    def ratio(self, case: str, task: str, contestant: str, to: str) -> float | None:
        """The cost of a contestant divided by that of `to`, in the best rounds of one race."""
        mine, other = self.find(case, task, contestant), self.find(case, task, to)
        return None if mine is None or other is None else mine.best / other.best


def to_json(results: Results) -> str:
    """The results as a JSON document that `from_json` reads."""
    return json.dumps({"format": FORMAT, **asdict(results)}, indent=1, ensure_ascii=False) + "\n"


def from_json(text: str) -> Results:
    """The results written by `to_json`."""
    document = json.loads(text)
    if not isinstance(document, dict) or document.pop("format", None) != FORMAT:
        raise InputError(
            f"expected results of `python -m benchmarks` in format {FORMAT}; got another document: "
            "run the benchmark again"
        )
    for each in document["timings"]:
        each["seconds"] = tuple(each["seconds"])  # JSON has no tuples
    lists = {"cases": CaseFacts, "timings": Timing, "quantities": Quantity, "left_out": LeftOut}
    for name, kind in lists.items():
        document[name] = [kind(**each) for each in document[name]]
    return Results(**document)
