"""The recorder: one thread that writes what many threads record.

Making a commit durable takes the disk some milliseconds, whether it holds one record or a thousand.
So the thread takes all that waits and appends it at once: a group commit. While it writes, the next
group gathers.

A future is done when its records are on disk, or fails with an `AuditError`. What cannot be written
fails the futures of its group; the next group is tried anew, so that the recorder recovers when the
disk or the database does. The queue is bounded: beyond it, a future fails at once.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from time import monotonic
from typing import NamedTuple

from iknow.errors import AuditError, IknowError
from iknow.serve.audit.chain import Entry, encode
from iknow.serve.audit.journal import Journal
from iknow.serve.audit.record import Record
from iknow.serve.audit.retention import STEP

MOST_RECORDS, MOST_BYTES = 20_000, 1 << 28
GROUP = 2000
"""Records of one commit, at most, unless a single request has more."""
PRUNE_RECORDS, PRUNE_SECONDS = 500, 30.0
"""After how many records, or how long, what need not be kept is looked for."""
log = logging.getLogger("iknow.serve.audit")


class _Waiting(NamedTuple):
    entries: list[Entry]
    n_bytes: int
    future: Future[None]


class Recorder:
    """Writes records of many threads to a journal, in groups.

    Args:
        journal: Where they go. It stays open when the recorder is closed.
        most_records: How many may wait.
        most_bytes: How many bytes may wait.

    Examples:
        >>> from iknow.serve.audit import Event, now, open_journal
        >>> with open_journal("recorded.db") as journal, Recorder(journal) as recorder:
        ...     recorder.record([Event(now(), "start")]).result()
    """

    def __init__(
        self, journal: Journal, *, most_records: int = MOST_RECORDS, most_bytes: int = MOST_BYTES
    ) -> None:
        self._journal = journal
        self._most_records, self._most_bytes = most_records, most_bytes
        self._waiting: deque[_Waiting] = deque()
        self._n_records = self._n_bytes = 0
        self._closing = False
        self._changed = threading.Condition()
        self._pruned_at, self._since_pruned, self._more = monotonic(), 0, False
        self._thread = threading.Thread(target=self._run, name="iknow-audit", daemon=True)
        self._thread.start()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def waiting(self) -> int:
        """How many records wait."""
        return self._n_records

    def record(self, records: Sequence[Record]) -> Future[None]:
        """Write records, all or none, in this order.

        It never waits and never raises: all errors are the future's. The future cannot be
        cancelled.

        Args:
            records: Any number.

        Returns:
            A future that is done when the records are durable, and fails with an `AuditError` if
            they could not be written.
        """
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()
        try:
            entries = [encode(record) for record in records]
            n_bytes = sum(len(entry.body) + len(entry.input or b"") for entry in entries)
            if not self._put(_Waiting(entries, n_bytes, future)):
                raise AuditError(
                    f"too much waits to be recorded: {self._n_records:,} records. Try again later"
                )
        except Exception as error:
            future.set_exception(error)
        return future

    def close(self) -> None:
        """Write what waits, then stop. What is recorded later fails."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    def _put(self, waiting: _Waiting) -> bool:
        with self._changed:
            if self._closing:
                raise AuditError("the recorder is closed")
            records = self._n_records + len(waiting.entries)
            n_bytes = self._n_bytes + waiting.n_bytes
            if self._waiting and (records > self._most_records or n_bytes > self._most_bytes):
                return False
            self._waiting.append(waiting)
            self._n_records, self._n_bytes = records, n_bytes
            self._changed.notify()
            return True

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
            while self._waiting and (not group or size + len(self._waiting[0].entries) <= GROUP):
                group.append(self._waiting.popleft())
                size += len(group[-1].entries)
            self._n_records -= size
            self._n_bytes -= sum(each.n_bytes for each in group)
            return group

    def _write(self, group: list[_Waiting]) -> None:
        try:
            self._journal.write([entry for each in group for entry in each.entries])
        except BaseException as error:
            if not isinstance(error, IknowError):
                log.exception("the audit trail failed unexpectedly")
            for each in group:
                each.future.set_exception(_as_audit_error(error))
        else:
            self._since_pruned += sum(len(each.entries) for each in group)
            for each in group:
                each.future.set_result(None)

    def _prune(self) -> None:
        """Remove some of what need not be kept, now and then; records never wait for all of it."""
        due = self._since_pruned >= PRUNE_RECORDS or monotonic() - self._pruned_at >= PRUNE_SECONDS
        if not (due or self._more):
            return
        steps = 1 + 2 * self._since_pruned // STEP  # faster than records come
        try:
            self._more = all(self._journal.prune() for _ in range(steps))
        except Exception as error:
            self._more = False
            log.warning("records that need not be kept could not be removed: %s", error)
        self._pruned_at, self._since_pruned = monotonic(), 0


def _as_audit_error(error: BaseException) -> AuditError:
    """An error of its own for each future, which may be raised in many threads."""
    text = str(error) if isinstance(error, IknowError) else f"{type(error).__name__}: {error}"
    found = AuditError(text)
    found.__cause__ = error if isinstance(error, IknowError) else None
    return found
