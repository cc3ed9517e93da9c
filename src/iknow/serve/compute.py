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
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from functools import lru_cache
from multiprocessing import get_context, parent_process
from typing import Any

from iknow.classifier.memory import follow
from iknow.errors import InputError
from iknow.serve.answers import RequestAnswers, Wanted, assess
from iknow.serve.bodies import Rows
from iknow.serve.schema import Refusal
from iknow.serve.served import BundleSource, ServedModel, load_model

log = logging.getLogger("iknow.serve")
MOST_LOADED = 16
"""Bundles that a process keeps loaded."""


class Compute:
    """Assesses batches: one after another in a thread, or several in worker processes."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool = self._start()

    async def assess(self, model: ServedModel, rows: Rows, wanted: Wanted) -> RequestAnswers:
        loop = asyncio.get_running_loop()
        if self._workers == 1:
            given = model.classifier, model.portrayer, rows, wanted
            return await loop.run_in_executor(self._pool, assess, *given)
        for attempt in range(2):
            pool = self._pool
            try:
                where = model.source, model.sha256
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
        if self._workers == 1:
            return  # it was loaded in this process
        if model.source is None:
            raise InputError("worker processes serve bundles alone: save the classifier as one")
        loop, where = asyncio.get_running_loop(), (model.source, model.sha256)
        calls = [loop.run_in_executor(self._pool, _prepare, *where) for _ in range(self._workers)]
        await asyncio.gather(*calls)

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _start(self) -> Executor:
        if self._workers == 1:
            return ThreadPoolExecutor(1, "iknow-assess")
        # Not forked: this process has threads, and libraries that must not be copied with them.
        how = get_context("spawn")
        return ProcessPoolExecutor(self._workers, how, initializer=_start_worker)


def _start_worker() -> None:
    """The process that listens ends its workers: a signal to the group must not do so earlier, and
    if it is killed, its workers must not live on.
    """
    for each in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, each):
            signal.signal(getattr(signal, each), signal.SIG_IGN)
    parent: Any = parent_process()

    def end_with_parent() -> None:
        parent.join()
        os._exit(1)  # nobody waits for an answer, and a batch may be under way

    threading.Thread(target=end_with_parent, name="iknow-parent", daemon=True).start()


def _assess(source: Any, sha256: str, rows: Rows, wanted: Wanted) -> RequestAnswers:
    model = _load(source, sha256)
    return assess(model.classifier, model.portrayer, rows, wanted)


def _prepare(source: BundleSource, sha256: str) -> None:
    _load(source, sha256)  # which stays here: it is not sent back


_latest: dict[BundleSource, ServedModel] = {}
"""The state of each bundle that this process loaded last."""


@lru_cache(MOST_LOADED)
def _load(source: BundleSource, sha256: str) -> ServedModel:
    """A bundle as it is or was; states of one bundle share all but what changed."""
    before = _latest.get(source)
    later = None if before is None else follow(before.classifier, sha256)
    if before is None or later is None:
        _latest[source] = load_model(source, at=sha256)
    else:
        _latest[source] = replace(before, classifier=later)
    return _latest[source]
