"""The writer: what a service records, by one thread that writes what many tasks hand to it.

Making a commit durable takes the disk some milliseconds, whether it holds one record or a thousand.
So the thread takes all that waits and appends it at once: a group commit. While it writes, the next
group gathers.

A future is done when its records are on disk, or fails with an `AuditError`. What cannot be written
fails the futures of its group; the next group is tried anew, so that the writer recovers when the
disk or the database does. The queue is bounded: beyond it, a future fails at once.

**Changes of a bundle.** The bundle and the journal are two files, which no commit joins. So an
event "change announced", with the sha256 that the bundle will have, is durable before the bundle is
touched, and "change" follows when it holds the change. Whatever comes between them, the bundle's
own log says later whether the change was made:

    the journal             the log    what happened                           at the next look
    -                       -          refused: the journal cannot be written  -
    announced               -          killed before it was on disk            + change undone
    announced               has it     killed after it was on disk             + change found
    announced, undone       -          an error of the disk, and taken back    -
    announced, change       has it     made, and answered                      -
    -                       has it     somebody else made it, or nobody had    + change found
                                       to record it
    announced, change       -          another file took the bundle's place    -

A journal is looked at when the service starts, and when it loads what changed on disk. An entry of
the log has no identifier, so the two are compared by what they say, and as often as they say it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from time import monotonic
from typing import Any, NamedTuple, Protocol

from iknow.core.arrays import Ints
from iknow.errors import AuditError, IknowError
from iknow.serve.audit.inputs import encode_inputs, hash_encoded
from iknow.serve.audit.journal import PRUNE_STEP, Journal, Retention
from iknow.serve.audit.records import (
    Answer,
    Columns,
    Entry,
    Event,
    Record,
    Subject,
    encode,
    make_event,
    now,
)
from iknow.storage.changes import Logged

MOST_RECORDS, MOST_BYTES = 20_000, 1 << 28  # that wait
GROUP = 2000  # records of one commit, at most, unless a single request has more
PRUNE_RECORDS, PRUNE_SECONDS = 500, 30.0  # how often to look for what need not be kept
FEW = 8  # rows that take less time to encode than to hand to a thread
ANNOUNCED, MADE, UNDONE, FOUND = "change announced", "change", "change undone", "change found"
FEW_IDS = 1_000  # samples of a change that the audit names; its bundle names all
FEW_ENTRIES = 100  # changes in one event

log = logging.getLogger("iknow.serve")


Change = Mapping[str, Any]


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
    entries: list[Entry]
    n_bytes: int
    future: Future[None]


class AuditWriter:
    """Writes what a service says and does to a journal, in groups.

    Args:
        journal: Where records go. It stays open when the writer is closed.
        required: Whether an answer that cannot be recorded is an error.
        keep_inputs: Whether records hold the inputs.
        most_records: How many may wait.
        most_bytes: How many bytes may wait.

    Examples:
        >>> from iknow.serve.audit import Event, now, open_journal
        >>> with open_journal("recorded.db") as journal, AuditWriter(journal) as writer:
        ...     writer.submit([Event(now(), "start")]).result()
    """

    def __init__(
        self,
        journal: Journal,
        *,
        required: bool = True,
        keep_inputs: bool = False,
        most_records: int = MOST_RECORDS,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self.journal, self.n_unrecorded = journal, 0
        self._required, self._keep = required, keep_inputs
        self._error: str | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._most_records, self._most_bytes = most_records, most_bytes
        self._waiting: deque[_Waiting] = deque()
        self._n_records = self._n_bytes = 0
        self._closing = False
        self._changed = threading.Condition()
        self._pruned_at, self._since_pruned, self._more = monotonic(), 0, False
        self._thread = threading.Thread(target=self._run, name="iknow-audit", daemon=True)
        self._thread.start()

    def __enter__(self) -> AuditWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def waiting(self) -> int:
        """How many records wait."""
        return self._n_records

    async def record(self, subject: Subject, call: Call, rows: Any, answers: Answered) -> None:
        """Record the answers to a request.

        Args:
            subject: The model that gave them.
            call: Who asked.
            rows: What was asked, as `encode_inputs` takes it.
            answers: What was said.

        Raises:
            AuditError: It cannot be done, and answers without a record are not to be given.
        """

        def submit() -> Future[None]:
            return self.submit(make_answers(subject, call, rows, answers, keep=self._keep))

        try:
            few = len(answers) <= FEW
            await self._wait(submit() if few else await asyncio.to_thread(submit))
        except AuditError as error:
            if self._required:
                raise
            self.n_unrecorded += len(answers)
            log.error("answers were given without a record: %s", error)

    async def write(self, records: Sequence[Record]) -> None:
        """Write `records`; when this returns, they survive a crash.

        Raises:
            AuditError: They could not be written.
        """
        await self._wait(self.submit(records))

    async def note(
        self, what: str, subject: Subject, details: Mapping[str, Any] | None = None
    ) -> None:
        """Put an event into the journal; if that fails, into the log.

        Args:
            what: Its kind, such as "start".
            subject: The model that it is about.
            details: What else there is to say.
        """
        try:
            await self.write([make_event(what, subject, **(details or {}))])
        except AuditError as error:
            log.error("the event %s could not be recorded: %s", what, error)

    def note_soon(self, what: str, subject: Subject, details: Mapping[str, Any]) -> None:
        """Note `what` happened to `subject`, with `details`, without waiting for it."""
        task = asyncio.get_running_loop().create_task(self.note(what, subject, details))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def announce(self, subject: Subject, bundle: str, made: Sequence[Logged]) -> None:
        """Say how a model's bundle is about to change. It waits, so call it in a thread.

        Args:
            subject: The model as it is.
            bundle: The sha256 of its bundle after that.
            made: The changes.

        Raises:
            AuditError: It cannot be recorded, and what has no record is not to be made.
        """
        details = {"bundle": bundle, "before": subject.sha256, "changes": shorten(made)}
        try:
            self.submit([make_event(ANNOUNCED, subject, **details)]).result()
        except AuditError as error:
            self._error = str(error)
            if self._required:
                raise
            log.error("a change is made without a record: %s", error)

    async def tell_made(self, before: Subject, subject: Subject, made: Sequence[Logged]) -> None:
        """Say that `made`, which was announced, turned `before` into `subject`."""
        await self.note(MADE, subject, {"before": before.sha256, "changes": shorten(made)})

    async def tell_undone(self, subject: Subject, bundle: str) -> None:
        """Say that the change of `subject` that was to make `bundle`, a sha256, was not made."""
        await self.note(UNDONE, subject, {"bundle": bundle, "before": subject.sha256})

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

    async def _wait(self, written: Future[None]) -> None:
        try:
            await asyncio.wrap_future(written)
        except AuditError as error:
            self._error = str(error)
            raise
        self._error = None

    def _put(self, waiting: _Waiting) -> bool:
        with self._changed:
            if self._closing:
                raise AuditError("the writer of the audit is closed")
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
            self.journal.write([entry for each in group for entry in each.entries])
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
        steps = 1 + 2 * self._since_pruned // PRUNE_STEP  # faster than records come
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
    time, inputs = now(), encode_inputs(rows)
    layers = list(answers.exemplars)
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
            input_hash=hashed,
            belief=belief,
            assertion=assertion,
            reason=reason,
            level=level,
            exemplars=dict(zip(layers, places, strict=True)),
            input=content if keep else None,
        )
        for i, (hashed, content, places, belief, assertion, reason, level) in enumerate(
            zip(hash_encoded(inputs), inputs, exemplars, *answers.records(), strict=True)
        )
    ]


def shorten(log: Iterable[Logged]) -> list[Change]:
    """Changes as the audit holds them: with a few of their samples."""
    entries = [each.to_dict() for each in log]
    return [{**each, "ids": each["ids"][:FEW_IDS], "n": len(each["ids"])} for each in entries]


def complete(
    events: Iterable[Event],
    subject: Subject,
    log: Sequence[Change],
    retention: Retention,
) -> list[Event]:
    """What the audit has to add, so that it says about a model what its bundle's log says.

    Args:
        events: Those of the journal, in order.
        subject: The model, with the sha256 of its bundle now.
        log: All changes in the bundle, in order, by `shorten`.
        retention: Changes that are older than it says need not be in the journal.
    """
    announced, made, found = _read(events, subject)
    known, unknown = made + found, []
    for entry in log:
        if known[_key(entry)] > 0:
            known[_key(entry)] -= 1
        else:
            unknown.append(entry)
    oldest = retention.oldest_time()[:19]
    missing = [entry for entry in unknown if entry["when"] >= oldest]
    came = found + Counter(map(_key, unknown))
    return [
        *(
            make_event(FOUND, subject, changes=missing[start : start + FEW_ENTRIES])
            for start in range(0, len(missing), FEW_ENTRIES)
        ),
        *(
            make_event(UNDONE, subject, bundle=sha256, before=details["before"])
            for sha256, details in announced.items()
            if not Counter(map(_key, details["changes"])) <= came
        ),
    ]


def _read(
    events: Iterable[Event], subject: Subject
) -> tuple[dict[str, Any], Counter[str], Counter[str]]:
    """Announcements that nothing followed, by sha256; and the changes made, and those found."""
    announced: dict[str, Any] = {}
    made: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for event in events:
        details = event.details
        if (event.model, details.get("version")) != (subject.name, subject.version):
            continue
        if event.what == ANNOUNCED:
            announced[details["bundle"]] = details
        elif event.what in (MADE, UNDONE):
            announced.pop(details["bundle"], None)
        if event.what == MADE:
            made.update(map(_key, details["changes"]))
        elif event.what == FOUND:
            found.update(map(_key, details["changes"]))
    return announced, made, found


def _key(entry: Change) -> str:
    return json.dumps(entry, sort_keys=True)


def _as_audit_error(error: BaseException) -> AuditError:
    """An error of its own for each future, which may be raised in many threads."""
    text = str(error) if isinstance(error, IknowError) else f"{type(error).__name__}: {error}"
    found = AuditError(text)
    found.__cause__ = error if isinstance(error, IknowError) else None
    return found
