"""The results of a benchmark run, as plain records that JSON can hold."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
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

KINDS = ("build", "latency", "memory", "tuning", "selection", "growth", "import", "bundle")
EXTRA_MEMORY, HELD_MEMORY = "extra at peak", "index"
MEDIAN_LATENCY, TAIL_LATENCY = "p50", "p99"
LOAD = "load"


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
    """One number outside of a race. kind: one of `KINDS`."""

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
    cases: tuple[CaseFacts, ...] = ()
    timings: tuple[Timing, ...] = ()
    quantities: tuple[Quantity, ...] = ()
    left_out: tuple[LeftOut, ...] = ()

    def find(self, case: str, task: str, contestant: str) -> Timing | None:
        """The timing of a contestant, or None if it was left out."""
        for timing in self.timings:
            if (timing.case, timing.task, timing.contestant) == (case, task, contestant):
                return timing
        return None

    def quantity(self, case: str, what: str, contestant: str) -> Quantity | None:
        """A number by what it measures, or None if it was not measured."""
        for each in self.quantities:
            if (each.case, each.what, each.contestant) == (case, what, contestant):
                return each
        return None

    def ratio(self, case: str, task: str, contestant: str, to: str) -> float | None:
        """The cost of a contestant divided by that of `to`, in the best rounds of one race."""
        mine, other = self.find(case, task, contestant), self.find(case, task, to)
        return None if mine is None or other is None else mine.best / other.best


def to_json(results: Results, targets: Sequence[Mapping[str, Any]] = ()) -> str:
    """The results as a JSON document that `from_json` reads.

    targets: verdicts on the results, for readers of the document.
    """
    document = {"format": FORMAT, "targets": list(targets), **asdict(results)}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def from_json(text: str) -> Results:
    """The results written by `to_json`."""
    document = json.loads(text)
    if not isinstance(document, dict) or document.pop("format", None) != FORMAT:
        raise InputError(
            f"expected results of `python -m benchmarks` in format {FORMAT}; got another document: "
            "run the benchmark again"
        )
    document.pop("targets", None)  # judged again each time they are shown
    lists = {"cases": CaseFacts, "timings": Timing, "quantities": Quantity, "left_out": LeftOut}
    for name, kind in lists.items():
        document[name] = tuple(_record(kind, values) for values in document[name])
    return Results(**document)


def _record(kind: Any, values: Mapping[str, Any]) -> Any:
    """A record from its values; lists become tuples again, which JSON does not have."""
    names = {each.name for each in fields(kind)}
    return kind(
        **{
            name: tuple(value) if isinstance(value, list) else value
            for name, value in values.items()
            if name in names
        }
    )
