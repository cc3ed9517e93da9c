"""Killing: SIGKILL in the middle of load, and what the audit holds afterwards.

    python -m benchmarks.service kill --kills 220

Several clients ask without a pause. At a random moment the server is killed, and everything that a
client had received must be recorded exactly once, with the same belief and assertion; the chain
must hold; then a server starts on the same file again.
"""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.service.asking import ask_json, ask_npy
from benchmarks.service.forking import Forker
from benchmarks.service.small import digits
from benchmarks.service.wire import Asked, Wire
from iknow.serve.audit import Answer, open_journal, verify

CLIENTS = 4
Answers = list[tuple[str, str]]
"""The belief, as JSON, and the assertion of each row."""


@dataclass
class Round:
    """One life of a server: what its clients received."""

    number: int
    received: dict[str, Answers] = field(default_factory=dict)
    enough: threading.Event = field(default_factory=threading.Event)
    wanted: int = 1

    def load(self, port: int, client: int) -> None:
        """Ask until the server is gone."""
        rng = random.Random(f"{self.number} {client}")
        rows = digits()[1]
        with Wire(port) as wire:
            for i in range(1_000_000):
                start, name = rng.randrange(len(rows) - 9), f"{self.number}-{client}-{i}"
                some = rows[start : start + rng.choice((1, 1, 3, 9))]
                asked = ask_npy(some) if rng.random() < 0.5 else ask_json(some.tolist())
                told = wire.ask(_named(asked, name))
                if told.status != 200:
                    return
                self.received[name] = [
                    (json.dumps(each["belief"]), each["assertion"])
                    for each in told.json()["answers"]
                ]
                if len(self.received) >= self.wanted:
                    self.enough.set()


def _named(asked: Asked, name: str) -> Asked:
    return Asked(asked.path, asked.body, asked.kind, headers=(("X-Request-Id", name),))


@dataclass
class Counts:
    """What came of all rounds."""

    kills: int = 0
    answers: int = 0
    rows: int = 0
    unreceived: int = 0
    missing: int = 0
    repeated: int = 0
    different: int = 0
    broken_chains: int = 0


def kill_rounds(where: Path, n_kills: int, seed: int = 0) -> Counts:
    """Kill servers that write to one file, one after another."""
    rng, counts, seen = random.Random(seed), Counts(), 0
    forker = Forker.start({"audit": str(where)})
    try:
        for number in range(n_kills):
            process, port = forker.serve()
            this = Round(number, wanted=rng.randrange(1, 60))
            clients = [
                threading.Thread(target=this.load, args=(port, client)) for client in range(CLIENTS)
            ]
            for client in clients:
                client.start()
            this.enough.wait(120)
            time.sleep(rng.random() * 0.01)  # a moment that no client knows
            os.kill(process, signal.SIGKILL)
            for client in clients:
                client.join()
            seen = _compare(where, this, seen, counts)
    finally:
        forker.stop()
    return counts


def _compare(where: Path, this: Round, seen: int, counts: Counts) -> int:
    """Compare what was received with what is recorded; the number of the last record."""
    recorded: dict[str, dict[int, tuple[str, str]]] = {}
    times: Counter[tuple[str, int]] = Counter()
    with open_journal(str(where), readonly=True) as journal:
        for number, record in journal.records(seen):
            seen = number
            if isinstance(record, Answer):
                recorded.setdefault(record.request, {})[record.row] = (
                    record.belief,
                    record.assertion,
                )
                times[record.request, record.row] += 1
        counts.broken_chains += not verify(journal).holds
    counts.kills += 1
    counts.answers += len(this.received)
    counts.repeated += sum(count > 1 for count in times.values())
    counts.unreceived += len(recorded.keys() - this.received.keys())
    for name, answers in this.received.items():
        found = recorded.get(name, {})
        counts.rows += len(answers)
        for row, answer in enumerate(answers):
            counts.missing += row not in found
            counts.different += row in found and found[row] != answer
    return seen


def measure(n_kills: int) -> dict[str, Any]:
    """Kill many times; all counts."""
    with tempfile.TemporaryDirectory() as folder:
        return vars(kill_rounds(Path(folder) / "audit.db", n_kills))


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The counts as text."""
    yield (
        f"{found['kills']} kills; {found['answers']:,} answers with {found['rows']:,} rows reached "
        f"their clients: {found['missing']} of them are not recorded, {found['repeated']} twice, "
        f"{found['different']} differently; {found['unreceived']:,} not received; "
        f"the chain broke {found['broken_chains']} times"
    )
