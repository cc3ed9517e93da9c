"""Soaking: a long run in a short time. Memory, threads and open files must stay as they are.

    python -m benchmarks.service soak --requests 200000

Good requests of all formats, broken ones, clients that disconnect, reloads, labels and reads of the
status, all mixed, from several clients, with an audit that forgets what is old. The slope of the
memory is fitted over the second half, when caches are full and rings have gone around.
"""

from __future__ import annotations

import json
import random
import socket
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.service.asking import as_json, good_requests
from benchmarks.service.fuzz import find_fault
from benchmarks.service.mutating import make_request
from benchmarks.service.process import Server, running
from benchmarks.service.wire import CLOSED, Asked, Wire

CLIENTS, SAMPLES = 4, 60
SETTINGS = {"timeout": 10, "most_body": 1 << 20, "retain_bytes": 4 << 20, "keep_inputs": True}
RELOAD = Asked("/v1/reload", b"")


@dataclass
class Soaking:
    """Requests that several clients send to one server, and what came of them."""

    port: int
    n_requests: int
    statuses: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    n_done: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def work(self, client: int) -> None:
        rng, good = random.Random(client), good_requests()
        with Wire(self.port) as wire:
            while self.n_done < self.n_requests:
                self._step(rng, good, wire)

    def _step(self, rng: random.Random, good: list[Asked], wire: Wire) -> None:
        kind = rng.random()
        if kind < 0.02:
            self._disconnect(rng, rng.choice(good))
            return
        if kind < 0.021:
            asked = RELOAD
        elif kind < 0.05:
            asked = _label(rng, self.n_done)
        else:
            asked = rng.choice(good) if kind < 0.7 else make_request(rng)
        told = wire.ask(asked)
        if told.status == CLOSED and not asked.broken:  # an idle connection may have been closed
            told = wire.ask(asked)
        with self.lock:
            self.n_done += 1
            self.statuses["closed" if told.status == CLOSED else str(told.status)] += 1
            if (why := find_fault(asked, told)) is not None and len(self.faults) < 20:
                self.faults.append(f"{why}: {asked!r:.300} -> {told.body[:200]!r}")

    def _disconnect(self, rng: random.Random, asked: Asked) -> None:
        content = asked.encode("localhost")
        with socket.create_connection(("127.0.0.1", self.port)) as gone:
            gone.sendall(content[: rng.randrange(1, len(content) + 1)])
        with self.lock:
            self.n_done += 1
            self.statuses["disconnected"] += 1


def _label(rng: random.Random, n_done: int) -> Asked:
    label = {"request": f"unknown-{n_done}", "row": rng.randrange(3), "label": rng.randrange(10)}
    return Asked("/v1/labels", as_json({"labels": [label]}))


def measure(n_requests: int) -> dict[str, Any]:
    """Soak a server; samples of its memory, threads and files, and the slope of the memory."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {**SETTINGS, "audit": str(Path(folder) / "audit.db")}
        command = ["-m", "benchmarks.service.serve", json.dumps(settings), "small"]
        with running(command) as server:
            soaking = Soaking(server.port, n_requests)
            clients = [threading.Thread(target=soaking.work, args=(i,)) for i in range(CLIENTS)]
            for client in clients:
                client.start()
            samples = _watch(server, soaking, clients)
            return {
                "requests": soaking.n_done,
                "statuses": dict(sorted(soaking.statuses.items())),
                "faults": soaking.faults,
                "samples": samples,
                "mb_per_100000": _slope(samples),
            }


def _watch(
    server: Server, soaking: Soaking, clients: list[threading.Thread]
) -> list[dict[str, float]]:
    """A sample after every part of the requests."""
    samples: list[dict[str, float]] = []
    while any(client.is_alive() for client in clients):
        if soaking.n_done >= len(samples) * soaking.n_requests / SAMPLES:
            samples.append(
                {
                    "requests": soaking.n_done,
                    "resident_mb": round(server.resident() / 2**20, 1),
                    "threads": server.threads(),
                    "files": server.files(),
                }
            )
        clients[0].join(0.05)
    return samples


def _slope(samples: list[dict[str, float]]) -> float:
    """Megabytes of memory for 100,000 requests, over the second half of the samples."""
    half = samples[len(samples) // 2 :]
    x, y = ([each[key] for each in half] for key in ("requests", "resident_mb"))
    return round(float(np.polyfit(x, y, 1)[0]) * 1e5, 1) if len(half) > 1 else 0.0


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The figures as text."""
    samples = found["samples"]
    yield f"{found['requests']:,} requests, {len(found['faults'])} faults: {found['statuses']}"
    for name in ("resident_mb", "threads", "files"):
        some = [each[name] for each in samples[:: max(1, len(samples) // 10)]]
        yield f"  {name}: {', '.join(f'{each:g}' for each in some)}"
    yield f"  memory grows by {found['mb_per_100000']} MB for 100,000 requests in the second half"
    yield from found["faults"]
