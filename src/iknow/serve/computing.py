"""Computing: where batches are assessed, in a thread or in processes.

Processes load the same bundle by its path. Its arrays are mapped if they are large, so that all
processes share one copy of the evidence. A process that dies takes its batch with it: the batch is
tried once more with new processes, then refused.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from multiprocessing import get_context
from typing import Protocol

from iknow.classifier.memory import follow
from iknow.errors import InputError
from iknow.serve.changing import renew_served
from iknow.serve.refusal import Refusal
from iknow.serve.rows import Rows
from iknow.serve.said import Said, Wanted, say
from iknow.serve.served import Served, Source, load_served

log = logging.getLogger("iknow.serve")
MOST_LOADED = 16
"""Bundles that a process keeps loaded."""


class Computing(Protocol):
    """Where batches are assessed."""

    async def say(self, served: Served, rows: Rows, wanted: Wanted) -> Said: ...

    async def prepare(self, served: Served) -> None: ...

    def close(self) -> None: ...


class InThread:
    """Assesses batches one after another, in a thread of this process."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "iknow-assess")

    async def say(self, served: Served, rows: Rows, wanted: Wanted) -> Said:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._pool, say, served.classifier, served.looker, rows, wanted
        )

    async def prepare(self, served: Served) -> None:
        """Nothing to do: it was loaded in this process."""

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


class InProcesses:
    """Assesses several batches at a time, each in a process of its own."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool = self._start()

    async def say(self, served: Served, rows: Rows, wanted: Wanted) -> Said:
        if served.source is None:
            raise InputError("worker processes serve bundles alone: save the classifier as one")
        where = served.source, served.sha256
        for attempt in range(2):
            pool = self._pool
            try:
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(pool, _say, *where, rows, wanted)
            except BrokenProcessPool:
                log.error("a worker process died (attempt %d)", attempt + 1)
                if pool is self._pool:  # the first to notice
                    self._pool = self._start()
                    pool.shutdown(wait=False)
        raise Refusal(503, "worker processes die on this request: see the server's log", 5)

    async def prepare(self, served: Served) -> None:
        """Have every process load the bundle; the fastest may do it for others, which then load it
        with their first batch.
        """
        assert served.source is not None
        where = served.source, served.sha256
        loop = asyncio.get_running_loop()
        calls = [loop.run_in_executor(self._pool, _prepare, *where) for _ in range(self._workers)]
        await asyncio.gather(*calls)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _start(self) -> ProcessPoolExecutor:
        # Not forked: this process has threads, and libraries that must not be copied with them.
        how = get_context("spawn")
        return ProcessPoolExecutor(self._workers, how, initializer=_ignore_signals)


def _ignore_signals() -> None:
    """The process that listens ends its workers: a signal to the group must not do so earlier."""
    for each in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, each):
            signal.signal(getattr(signal, each), signal.SIG_IGN)


def _say(source: Source, sha256: str, rows: Rows, wanted: Wanted) -> Said:
    served = _load(source, sha256)
    return say(served.classifier, served.looker, rows, wanted)


def _prepare(source: Source, sha256: str) -> None:
    _load(source, sha256)


_latest: dict[Source, Served] = {}
"""The state of each bundle that this process loaded last."""


@lru_cache(MOST_LOADED)
def _load(source: Source, sha256: str) -> Served:
    """A bundle as it is or was; states of one bundle share all but what changed."""
    before = _latest.get(source)
    follower = None if before is None else follow(before.classifier, sha256)
    if before is not None and follower is not None:
        served = renew_served(before, follower)
    else:
        served = load_served(source, at=sha256)
    _latest[source] = served
    return served
