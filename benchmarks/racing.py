"""Racing: contestants take turns, so that all of them see the same machine and the same noise."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

Clock = Callable[[], float]
Answer = Callable[[slice], Any]


@dataclass(frozen=True, eq=False)
class Contestant:
    """A contestant that can answer a slice of the queries.

    whole: always ask all queries; otherwise as many as the time allows, but at least `fewest`: too
    small a batch would be unfair to contestants that work in batches.
    """

    name: str
    answer: Answer
    whole: bool = False
    fewest: int = 256
    note: str = ""


@dataclass(frozen=True)
class Lap:
    """The times of one contestant, in seconds for `n_queries`, one for each round."""

    contestant: Contestant
    n_queries: int
    seconds: tuple[float, ...]


def race(
    contestants: Sequence[Contestant],
    n_queries: int,
    repeats: int,
    seconds_per_call: float,
    pause: float = 0.0,
    clock: Clock = time.perf_counter,
) -> list[Lap]:
    """Let all contestants take turns, `repeats` times; slow ones answer only some of the queries.

    pause: seconds before each turn. Threads of OpenMP and BLAS keep spinning for a while after
    their work is done, and would take a core from the next contestant.
    """
    parts = [_affordable(each, n_queries, seconds_per_call, clock) for each in contestants]
    taken: list[list[float]] = [[] for _ in contestants]
    for _ in range(repeats):
        for each, part, seconds in zip(contestants, parts, taken, strict=True):
            time.sleep(pause)
            seconds.append(timed(partial(each.answer, part), clock)[1])
    return [
        Lap(each, part.stop, tuple(seconds))
        for each, part, seconds in zip(contestants, parts, taken, strict=True)
    ]


def timed(work: Callable[[], Any], clock: Clock = time.perf_counter) -> tuple[Any, float]:
    """The result of a call, and its seconds."""
    start = clock()
    result = work()
    return result, clock() - start


def best_of(work: Callable[[], Any], repeats: int, clock: Clock = time.perf_counter) -> float:
    """The seconds of the fastest of several calls."""
    return min(timed(work, clock)[1] for _ in range(repeats))


def latencies(
    answer: Answer, n_queries: int, limit: float, clock: Clock = time.perf_counter
) -> list[float]:
    """Seconds for one query at a time, after a few to warm up.

    Stops early after `limit` seconds, but not before 100 queries.
    """
    for i in range(min(10, n_queries)):
        answer(slice(i, i + 1))
    taken: list[float] = []
    start = clock()
    for i in range(n_queries):
        taken.append(timed(partial(answer, slice(i, i + 1)), clock)[1])
        if len(taken) >= 100 and clock() - start > limit:
            break
    return taken


def _affordable(each: Contestant, n_queries: int, seconds: float, clock: Clock) -> slice:
    """As many of the first queries as take about that many seconds; measuring this warms up."""
    n = n_queries if each.whole else min(each.fewest, n_queries)
    while True:
        taken = timed(partial(each.answer, slice(0, n)), clock)[1]
        if n == n_queries or 3 * taken > seconds:
            return slice(0, n)
        n = min(n_queries, 4 * n if taken * 8 < seconds else 2 * n)
