"""Compute: where batches are assessed, in a thread or in processes.

Processes load the same bundle by its path. Its arrays are mapped if they are large, so that all
processes share one copy of the evidence. A process that dies takes its batch with it: the batch is
tried once more with new processes, then refused. Processes end with the one that listens, however
that ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import lru_cache
from multiprocessing import get_context, parent_process

from iknow.classifier.memory import follow
from iknow.errors import InputError
from iknow.serve.answers import RequestAnswers, Wanted, assess
from iknow.serve.bodies import Rows
from iknow.serve.schema import Refusal
from iknow.serve.served import BundleSource, ServedModel, load_model

log = logging.getLogger("iknow.serve")
MOST_LOADED = 16
"""Bundles that a process keeps loaded."""


class InThread:
    """Assesses batches one after another, in a thread of this process."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "iknow-assess")

    async def assess(self, model: ServedModel, rows: Rows, wanted: Wanted) -> RequestAnswers:
        loop, given = asyncio.get_running_loop(), (model.classifier, model.portrayer, rows, wanted)
        return await loop.run_in_executor(self._pool, assess, *given)

    async def prepare(self, model: ServedModel) -> None:
        """Nothing to do: it was loaded in this process."""

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


class InProcesses:
    """Assesses several batches at a time, each in a process of its own."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool = self._start()

    async def assess(self, model: ServedModel, rows: Rows, wanted: Wanted) -> RequestAnswers:
        if model.source is None:
            raise InputError("worker processes serve bundles alone: save the classifier as one")
        where = model.source, model.sha256
        for attempt in range(2):
            pool = self._pool
            try:
                loop = asyncio.get_running_loop()
                return await loop.run_in_executor(pool, _assess, *where, rows, wanted)
            except BrokenProcessPool:
                log.error("a worker process died (attempt %d)", attempt + 1)
                if pool is self._pool:  # the first to notice
                    self._pool = self._start()
                    pool.shutdown(wait=False)
        raise Refusal(503, "worker processes die on this request: see the server's log", 5)

    async def prepare(self, model: ServedModel) -> None:
        """Have every process load the bundle; the fastest may do it for others, which then load it
        with their first batch.
        """
        assert model.source is not None
        where = model.source, model.sha256
        loop = asyncio.get_running_loop()
        calls = [loop.run_in_executor(self._pool, _prepare, *where) for _ in range(self._workers)]
        await asyncio.gather(*calls)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _start(self) -> ProcessPoolExecutor:
        # Not forked: this process has threads, and libraries that must not be copied with them.
        how = get_context("spawn")
        return ProcessPoolExecutor(self._workers, how, initializer=_start_worker)


Compute = InThread | InProcesses


def _start_worker() -> None:
    """The process that listens ends its workers: a signal to the group must not do so earlier, and
    if it is killed, its workers must not live on.
    """
    for each in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, each):
            signal.signal(getattr(signal, each), signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="iknow-parent", daemon=True).start()


def _end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)  # nobody waits for an answer, and a batch may be under way


def _assess(source: BundleSource, sha256: str, rows: Rows, wanted: Wanted) -> RequestAnswers:
    model = _load(source, sha256)
    return assess(model.classifier, model.portrayer, rows, wanted)


def _prepare(source: BundleSource, sha256: str) -> None:
    _load(source, sha256)


_latest: dict[BundleSource, ServedModel] = {}
"""The state of each bundle that this process loaded last."""


@lru_cache(MOST_LOADED)
def _load(source: BundleSource, sha256: str) -> ServedModel:
    """A bundle as it is or was; states of one bundle share all but what changed."""
    before = _latest.get(source)
    later = None if before is None else follow(before.classifier, sha256)
    if before is not None and later is not None:
        model = before.with_classifier(later)
    else:
        model = load_model(source, at=sha256)
    _latest[source] = model
    return model
