"""The writer: what a service records, by one thread that writes what many tasks hand to it.

Making a commit durable takes the disk some milliseconds, whether it holds one record or a thousand.
So the thread takes all that waits and appends it at once: a group commit. While it writes, the next
group gathers.

A future is done when its records are on disk, or fails with an `AuditError`. What cannot be written
fails the futures of its group; the next group is tried anew, so that the writer recovers when the
disk or the database does. The queue is bounded: beyond it, a future fails at once.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from hashlib import sha256
from time import monotonic
from typing import Any, NamedTuple, Protocol

from iknow.core.arrays import Ints
from iknow.errors import AuditError, IknowError
from iknow.serve.audit.announced import complete, shorten
from iknow.serve.audit.inputs import encode_inputs
from iknow.serve.audit.journal import Journal, Retention
from iknow.serve.audit.records import Answer, Columns, Event, Record, Row, Subject, encode, now
from iknow.serve.audit.tables import PAGE_ROWS
from iknow.storage.changes import Logged

MOST_BYTES = 1 << 27  # that wait
GROUP = 2000  # records of one commit, at most, unless a single request has more
PRUNE_RECORDS, PRUNE_SECONDS = 500, 30.0  # how often to look for what need not be kept
FEW = 8  # rows that take less time to encode than to hand to a thread

log = logging.getLogger("iknow.serve")


class Call(NamedTuple):
    """Who asks: the name of the caller's token, and the id of the request.

    watch: whether the rows are ordinary ones, which the alarm looks at; not those of a test.
    """

    caller: str
    request: str
    watch: bool = True


class Answered(Protocol):
    """What was said about some rows: `iknow.explain.answers.Answers`, with exemplars by layer."""

    @property
    def exemplars(self) -> Mapping[str, Ints]: ...
    def __len__(self) -> int: ...
    def records(self) -> Columns: ...


class _Waiting(NamedTuple):
    rows: list[Row]
    future: Future[None]

    @property
    def size(self) -> int:
        return sum(row.size for row in self.rows)


class AuditWriter:
    """Writes what a service says and does to a journal, in groups.

    Args:
        journal: Where records go. It stays open when the writer is closed.
        required: Whether an answer that cannot be recorded is an error.
        keep_inputs: Whether records hold the inputs.

    Examples:
        >>> from iknow.serve.audit import Event, now, open_journal
        >>> with open_journal("recorded.db") as journal, AuditWriter(journal) as writer:
        ...     writer.submit([Event(now(), "start")]).result()
    """

    def __init__(
        self, journal: Journal, *, required: bool = True, keep_inputs: bool = False
    ) -> None:
        self.journal, self.n_unrecorded = journal, 0
        self._required, self._keep = required, keep_inputs
        self._error: str | None = None
        self._waiting: deque[_Waiting] = deque()
        self._n_bytes, self._closing = 0, False
        self._changed = threading.Condition()
        self._pruned_at, self._since_pruned, self._more = monotonic(), 0, False
        self._thread = threading.Thread(target=self._run, name="iknow-audit", daemon=True)
        self._thread.start()

    def __enter__(self) -> AuditWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def record(self, subject: Subject, call: Call, rows: Any, answers: Answered) -> None:
        """Record the `answers` of a model, the `subject`, about the `rows` of a `call`.

        Raises:
            AuditError: It cannot be done, and answers without a record are not to be given.
        """

        def submit() -> Future[None]:
            return self.submit(make_answers(subject, call, rows, answers, keep=self._keep))

        try:
            few = len(answers) <= FEW
            await asyncio.wrap_future(submit() if few else await asyncio.to_thread(submit))
        except AuditError as error:
            if self._required:
                raise
            self.n_unrecorded += len(answers)
            log.error("answers were given without a record: %s", error)

    async def write(self, records: Sequence[Record]) -> None:
        """Wait until `records` are durable; an `AuditError` says that they are not."""
        await asyncio.wrap_future(self.submit(records))

    async def note(self, event: Event) -> None:
        """Put an `event` into the journal; if that fails, into the log."""
        try:
            await self.write([event])
        except AuditError as error:
            log.error("the event %s could not be recorded: %s", event.what, error)

    def announce(self, announced: Event) -> None:
        """Write that a change is `announced` before it is made. It waits: call it in a thread.

        Raises:
            AuditError: It cannot be recorded, and what has no record is not to be made.
        """
        try:
            self.submit([announced]).result()
        except AuditError as error:
            if self._required:
                raise
            log.error("a change is made without a record: %s", error)

    async def complete(self, subject: Subject, changes: Sequence[Logged]) -> None:
        """Add what the journal lacks about all `changes` in the bundle of `subject`."""

        def find() -> list[Event]:
            retention = self.journal.retention or Retention()
            return complete(self.journal.events(), subject, shorten(changes), retention)

        try:
            if events := await asyncio.to_thread(find):
                await self.write(events)
        except AuditError as error:
            log.error("the audit could not be compared with %s: %s", subject.name, error)

    def submit(self, records: Sequence[Record]) -> Future[None]:
        """Write `records`, all or none, in this order; it never waits and never raises.

        Returns:
            A future that is done when the records are durable, and fails with an `AuditError` if
            they could not be written. It cannot be cancelled.
        """
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()
        try:
            rows = [encode(record) for record in records]
            with self._changed:
                self._put(_Waiting(rows, future))
        except Exception as error:
            self._error = str(error)
            future.set_exception(error)
        return future

    def status(self) -> dict[str, Any]:
        """What the page shows."""
        return {
            "on": True,
            "ok": self._error is None,
            "error": self._error,
            "required": self._required,
            "unrecorded": self.n_unrecorded,
        }

    def tell_head(self) -> None:
        """Note the head of the chain where somebody with access to the journal alone cannot."""
        try:
            log.info("audit %s: head %d:%s", self.journal.name, *self.journal.head())
        except AuditError as error:
            log.error("the head of the audit is not known: %s", error)

    def close(self) -> None:
        """Write what waits, then stop. What is recorded later fails."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    def _put(self, waiting: _Waiting) -> None:
        if self._closing:
            raise AuditError("the writer of the audit is closed")
        n_bytes = self._n_bytes + waiting.size
        if self._waiting and n_bytes > MOST_BYTES:
            raise AuditError(
                f"too much waits to be recorded: {self._n_bytes:,} bytes. Try again later"
            )
        self._waiting.append(waiting)
        self._n_bytes = n_bytes
        self._changed.notify()

    def _run(self) -> None:
        while (group := self._take()) is not None:
            if group:
                self._write(group)
            self._prune()

    def _take(self) -> list[_Waiting] | None:
        """What waits, up to a full group; empty if there is time to prune; None at the end."""
        with self._changed:
            while not self._waiting:
                if self._closing:
                    return None
                if self._more or not self._changed.wait(PRUNE_SECONDS):
                    return []
            group: list[_Waiting] = []
            size = 0
            while self._waiting and (not group or size + len(self._waiting[0].rows) <= GROUP):
                group.append(self._waiting.popleft())
                size += len(group[-1].rows)
            self._n_bytes -= sum(each.size for each in group)
            return group

    def _write(self, group: list[_Waiting]) -> None:
        try:
            self.journal.write([row for each in group for row in each.rows])
        except BaseException as error:
            self._error = str(error)
            is_ours = isinstance(error, IknowError)
            if not is_ours:
                log.exception("the audit trail failed unexpectedly")
            for each in group:  # each gets an error of its own, as many threads may raise them
                failed = AuditError(self._error if is_ours else f"{type(error).__name__}: {error}")
                failed.__cause__ = error if is_ours else None
                each.future.set_exception(failed)
        else:
            self._error = None
            self._since_pruned += sum(len(each.rows) for each in group)
            for each in group:
                each.future.set_result(None)

    def _prune(self) -> None:
        """Remove some of what need not be kept, now and then; records never wait for all of it."""
        due = self._since_pruned >= PRUNE_RECORDS or monotonic() - self._pruned_at >= PRUNE_SECONDS
        if not (due or self._more):
            return
        steps = 1 + 2 * self._since_pruned // PAGE_ROWS  # faster than records come
        try:
            self._more = all(self.journal.prune() for _ in range(steps))
        except Exception as error:
            self._more = False
            log.warning("records that need not be kept could not be removed: %s", error)
        self._pruned_at, self._since_pruned = monotonic(), 0


def make_answers(
    subject: Subject, call: Call, rows: Any, answers: Answered, *, keep: bool
) -> list[Answer]:
    """A record for each row of a request. keep: whether they hold the rows."""
    time, layers = now(), list(answers.exemplars)
    nearest = zip(*[column.tolist() for column in answers.exemplars.values()], strict=True)
    exemplars = nearest if layers else ((),) * len(answers)
    return [
        Answer(
            time=time,
            request=call.request,
            row=i,
            caller=call.caller,
            model=subject.name,
            version=subject.version,
            bundle=subject.sha256,
            input_hash=sha256(content).hexdigest(),
            belief=belief,
            assertion=assertion,
            reason=reason,
            level=level,
            exemplars=dict(zip(layers, places, strict=True)),
            input=content if keep else None,
        )
        for i, (content, places, belief, assertion, reason, level) in enumerate(
            zip(encode_inputs(rows), exemplars, *answers.records(), strict=True)
        )
    ]
