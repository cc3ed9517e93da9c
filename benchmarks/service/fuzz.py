"""Fuzzing: broken requests to a real server, each answer judged, and counted by its status.

    python -m benchmarks.service fuzz --requests 100000

A fault is a status from 500 on other than 503 and 504, a connection that is closed where a
well-formed request was sent, an error that is not told in one sentence of JSON, a traceback, or a
wrong answer to the good request that follows every few hundred broken ones.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from benchmarks.service.asking import ask_npy
from benchmarks.service.mutating import requests
from benchmarks.service.process import Server, running
from benchmarks.service.small import digits
from benchmarks.service.wire import CLOSED, Asked, Told, Wire

SETTINGS = {"timeout": 5, "most_body": 1 << 20}
GOOD_EVERY = 500
SPARE = (503, 504)
"""Statuses that may have a good reason; they are counted apart."""


@dataclass
class Counts:
    """What came of requests. faults: descriptions of the first few."""

    n_requests: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    n_faults: int = 0
    faults: list[str] = field(default_factory=list)

    def add(self, asked: Asked, told: Told) -> None:
        self.n_requests += 1
        self.statuses["closed" if told.status == CLOSED else str(told.status)] += 1
        self.kinds[asked.what.partition(",")[0]] += 1
        if (why := find_fault(asked, told)) is not None:
            self.n_faults += 1
            if len(self.faults) < 20:
                self.faults.append(f"{why}: {asked!r:.600} -> {told.body[:300]!r}")


def find_fault(asked: Asked, told: Told) -> str | None:
    """What is wrong with an answer, if something is."""
    if told.status == CLOSED:
        return None if asked.broken else "closed without an answer"
    if told.status >= 500 and told.status not in SPARE:
        return f"status {told.status}"
    if b"Traceback (most" in told.body:
        return "a traceback"
    by_us = "X-Request-Id" in told.headers or "x-request-id" in told.headers
    if not by_us:  # uvicorn's own answer to what is no HTTP
        return None if asked.broken and told.status == 400 else "not answered by the service"
    if told.status >= 400 and asked.method != "HEAD":
        return _find_unclear(told.body)
    return None


def _find_unclear(body: bytes) -> str | None:
    try:
        said = json.loads(body)
    except ValueError:
        return "an error that is no JSON"
    clear = isinstance(said, dict) and set(said) == {"error"} and isinstance(said["error"], str)
    return None if clear and "\n" not in said["error"] else "an error that is not one sentence"


def fuzz(
    port: int, n_requests: int, seed: int, watch: Callable[[int], None] | None = None
) -> Counts:
    """Send broken requests one after another. watch: is told how many were sent, now and then."""
    counts, (good, expected) = Counts(), known_answer()
    with Wire(port) as wire:
        for i, asked in enumerate(islice(requests(seed), n_requests)):
            told = wire.ask(asked)
            if (
                told.status == CLOSED and not asked.broken
            ):  # an idle connection may have been closed
                told = wire.ask(asked)
            counts.add(asked, told)
            if i % GOOD_EVERY == 0:
                _check(counts, wire.ask(good), expected)
                if watch is not None:
                    watch(i)
    return counts


def known_answer() -> tuple[Asked, list[Any]]:
    """A good request, and the assertions that must be answered."""
    classifier, rows = digits()
    expected = [each.name for each in classifier.assess(rows[:20]).assertion]
    return ask_npy(rows[:20]), expected


def _check(counts: Counts, told: Told, expected: list[Any]) -> None:
    right = told.status == 200 and [a["assertion"] for a in told.json()["answers"]] == expected
    if not right:
        counts.n_faults += 1
        counts.faults.append(f"a good request was answered {told!r:.300}")


def measure(n_requests: int, seed: int = 0) -> dict[str, Any]:
    """Fuzz a server of its own; its memory at the beginning, after a tenth, and at the end."""
    folder = tempfile.TemporaryDirectory()
    settings = {**SETTINGS, "audit": str(Path(folder.name) / "audit.db")}
    command = ["-m", "benchmarks.service.serve", json.dumps(settings), "small"]
    with folder, running(command) as server:
        resident: list[int] = []

        def watch(done: int) -> None:
            if not resident or done >= n_requests / 10 * len(resident):
                resident.append(server.resident())

        counts = fuzz(server.port, n_requests, seed, watch)
        return {
            "requests": counts.n_requests,
            "statuses": dict(sorted(counts.statuses.items())),
            "kinds": dict(counts.kinds.most_common()),
            "faults": counts.n_faults,
            "first_faults": counts.faults,
            "alive": is_alive(server),
            "resident_mb": [round(each / 2**20, 1) for each in [*resident, server.resident()]],
        }


def is_alive(server: Server) -> bool:
    return server.process.poll() is None


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The counts as text."""
    yield f"{found['requests']:,} requests, {found['faults']} faults"
    yield f"  memory in MB: {found['resident_mb']}"
    for status, count in found["statuses"].items():
        yield f"  {status:>6}  {count:>9,}"
    yield from found["first_faults"]
