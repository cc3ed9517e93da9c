"""The one race: contestants take turns in one process, so that all see the same machine and noise.

Ratios between best rounds of one race carry over to other machines; times do not. Every clock tells
two times: those that passed, and those that the cores of this process spent, which other processes
on a shared machine disturb less.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.machine import describe_machine
from iknow.core.arrays import Floats

Clock = Callable[[], tuple[float, float]]
Answer = Callable[[slice], Any]


class Timed(NamedTuple):
    """What some work returned, the seconds that passed, and those that all cores spent on it."""

    result: Any
    wall: float
    cpu: float


@dataclass(frozen=True, eq=False)
class Contestant:
    """A contestant that can answer a slice of the queries.

    whole: always ask all queries; otherwise as many as the time allows, but at least `fewest`: too
    small a batch would be unfair to contestants that work in batches.
    """

    name: str
    answer: Answer
    whole: bool = True
    fewest: int = 256
    note: str = ""


@dataclass(frozen=True)
class Lap:
    """The rounds of one contestant: seconds for `n_queries`, passed and of all cores."""

    contestant: Contestant
    n_queries: int
    seconds: tuple[float, ...]
    cpu: tuple[float, ...]

    @property
    def best(self) -> float:
        """Microseconds per query in the best round: what the code costs, without the noise."""
        return 1e6 * min(self.seconds) / self.n_queries

    @property
    def best_cpu(self) -> float:
        """Microseconds of all cores per query in the best round."""
        return 1e6 * min(self.cpu) / self.n_queries


def now() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def timed(work: Callable[[], Any], clock: Clock = now) -> Timed:
    start = clock()
    result = work()
    end = clock()
    return Timed(result, end[0] - start[0], end[1] - start[1])


def best_of(work: Callable[[], Any], repeats: int, clock: Clock = now) -> float:
    """The seconds of the fastest of several calls."""
    return min(timed(work, clock).wall for _ in range(repeats))


def race(
    contestants: Sequence[Contestant],
    n_queries: int,
    repeats: int,
    seconds_per_call: float = inf,
    pause: float = 0.0,
    clock: Clock = now,
) -> list[Lap]:
    """Let all contestants take turns, `repeats` times; slow ones answer only some of the queries.

    pause: seconds before each turn. Threads of OpenMP and BLAS keep spinning for a while after
    their work is done, and would take a core from the next contestant.
    """
    parts = [_affordable(each, n_queries, seconds_per_call, clock) for each in contestants]
    taken: list[list[Timed]] = [[] for _ in contestants]
    for _ in range(repeats):
        for each, part, rounds in zip(contestants, parts, taken, strict=True):
            time.sleep(pause)
            rounds.append(timed(partial(each.answer, part), clock))
    return [
        Lap(each, part.stop, tuple(r.wall for r in rounds), tuple(r.cpu for r in rounds))
        for each, part, rounds in zip(contestants, parts, taken, strict=True)
    ]


def latencies(answer: Answer, n_queries: int, limit: float = inf, clock: Clock = now) -> Floats:
    """Seconds for one query at a time, after a few to warm up: passed and of all cores, (n, 2).

    Stops early after `limit` seconds, but not before 100 queries.
    """
    for i in range(min(10, n_queries)):
        answer(slice(i, i + 1))
    taken: list[tuple[float, float]] = []
    start = clock()[0]
    for i in range(n_queries):
        taken.append(timed(partial(answer, slice(i, i + 1)), clock)[1:])
        if len(taken) >= 100 and clock()[0] - start > limit:
            break
    return np.array(taken)


def _affordable(each: Contestant, n_queries: int, seconds: float, clock: Clock) -> slice:
    """As many of the first queries as take about that many seconds; measuring this warms up."""
    n = n_queries if each.whole else min(each.fewest, n_queries)
    while True:
        taken = timed(partial(each.answer, slice(0, n)), clock).wall
        if n == n_queries or 3 * taken > seconds:
            return slice(0, n)
        n = min(n_queries, 4 * n if taken * 8 < seconds else 2 * n)


def tell(text: str) -> None:
    """Say what is measured, or what was found, while a run goes on."""
    print(text, file=sys.stderr, flush=True)


def keep(found: Mapping[str, Any], out: Path | None) -> dict[str, Any]:
    """Name the machine, and write the figures if a file is given; may be called after each part."""
    record = {"machine": describe_machine(), **found}
    if out is not None:
        out.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
    return record
