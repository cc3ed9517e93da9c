"""Batching: requests that arrive together are assessed together.

While one batch is assessed others wait, and all that wait make up the next one: nothing waits on
purpose. What may wait is bounded, in rows; a request beyond that is refused at once, so that the
queue never grows and no answer comes long after its question.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from math import ceil
from typing import NamedTuple

from iknow.errors import IknowError
from iknow.serve.answers import RequestAnswers, Wanted
from iknow.serve.bodies import Rows, join_rows
from iknow.serve.schema import Refusal

Assess = Callable[[Rows, Wanted], Awaitable[RequestAnswers]]


class Waiting(NamedTuple):
    """A request that waits for its answers."""

    rows: Rows
    wanted: Wanted
    answers: asyncio.Future[RequestAnswers]


class Batcher:
    """Collects requests into batches, and gives each request its own answers.

    Args:
        assess: Answers about rows.
        most_waiting: Rows that may wait. A larger request may come while nothing waits.
        batch_rows: Rows of a batch; a larger request is a batch of its own.
        at_once: Batches that are assessed at the same time.
    """

    def __init__(
        self, assess: Assess, most_waiting: int, batch_rows: int, at_once: int = 1
    ) -> None:
        self._assess, self._most, self._batch_rows = assess, most_waiting, batch_rows
        self._queue: deque[Waiting] = deque()
        self._free = at_once
        self._tasks: set[asyncio.Task[None]] = set()
        self.waiting = 0
        self.rows_per_second = 0.0

    async def submit(self, rows: Rows, wanted: Wanted) -> RequestAnswers:
        """The answers about some rows. Raises a `Refusal`: 429 if too many rows wait already."""
        if self.waiting and self.waiting + len(rows) > self._most:
            speed = self.rows_per_second or self.waiting  # not known yet: a second
            raise Refusal(
                429,
                f"{self.waiting:,} rows wait already, and {self._most:,} may: try again later",
                max(1, min(60, ceil(self.waiting / speed))),
            )
        item = Waiting(rows, wanted, asyncio.get_running_loop().create_future())
        self._queue.append(item)
        self.waiting += len(rows)
        self._start()
        return await item.answers

    async def drain(self) -> None:
        """Wait until nothing is under way."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start(self) -> None:
        while self._free and (batch := self._take()):
            self._free -= 1
            task = asyncio.create_task(self._run(batch))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _take(self) -> list[Waiting]:
        """The next batch: the first that waits, and all that fit to it; empty if none waits."""
        batch: list[Waiting] = []
        others: deque[Waiting] = deque()
        n_rows, kind = 0, None
        for item in self._queue:
            if item.answers.done():  # cancelled: nobody waits for it any longer
                self.waiting -= len(item.rows)
                continue
            fits = n_rows + len(item.rows) <= self._batch_rows
            if not batch or (fits and kind == (item.wanted, item.rows.form)):
                kind = item.wanted, item.rows.form
                batch.append(item)
                n_rows += len(item.rows)
            else:
                others.append(item)
        self._queue = others
        return batch

    async def _run(self, batch: list[Waiting]) -> None:
        loop = asyncio.get_running_loop()
        n_rows, start = sum(len(item.rows) for item in batch), loop.time()
        try:
            await self._answer(batch)
        finally:
            speed = n_rows / max(loop.time() - start, 1e-6)
            self.rows_per_second = 0.9 * self.rows_per_second + 0.1 * speed
            self.waiting -= n_rows
            self._free += 1
            self._start()

    async def _answer(self, batch: list[Waiting]) -> None:
        try:
            answers = await self._assess(join_rows([item.rows for item in batch]), batch[0].wanted)
        except Exception as error:
            if len(batch) > 1 and isinstance(error, IknowError):
                for item in batch:  # one of them is at fault, and the others get their answers
                    await self._answer([item])
                return
            for item in batch:
                if not item.answers.done():  # else cancelled: nobody waits
                    item.answers.set_exception(error)
            return
        end = 0
        for item in batch:
            start, end = end, end + len(item.rows)
            if not item.answers.done():
                item.answers.set_result(answers if len(batch) == 1 else answers[start:end])
