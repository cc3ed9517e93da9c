"""The trail: answers as records of the audit. What cannot be recorded is not answered."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from iknow.core.codes import NO_BELIEF
from iknow.errors import AuditError
from iknow.serve.answers import ASSERTIONS, REASONS, RequestAnswers
from iknow.serve.audit import (
    Answer,
    Event,
    Record,
    Recorder,
    Retention,
    encode_inputs,
    hash_encoded,
    now,
    open_journal,
)
from iknow.serve.audit.changes import ANNOUNCED, MADE, UNDONE, About, complete, shorten
from iknow.serve.bodies import Rows
from iknow.serve.changing import sync_bundle
from iknow.serve.served import ServedModel
from iknow.serve.settings import Settings
from iknow.storage.changes import Logged

FEW = 8
log = logging.getLogger("iknow.serve")


@dataclass(frozen=True)
class Call:
    """Who asks: the name of the caller's token, and the id of the request.

    watch: whether the rows are ordinary ones, which the alarm looks at; not those of a test.
    """

    caller: str
    request: str
    watch: bool = True


def make_records(
    served: ServedModel, call: Call, rows: Rows, said: RequestAnswers, *, keep_inputs: bool
) -> list[Answer]:
    """A record for each row."""
    time, labels = now(), [json.dumps(label) for label in served.labels]
    levels = [None] * len(said) if said.level is None else said.level.tolist()
    nearest = {layer: column.tolist() for layer, column in said.exemplars.items()}
    inputs = _encode(rows)
    hashes = hash_encoded(inputs)
    columns = said.belief.tolist(), said.assertion.tolist(), said.reason.tolist(), levels
    return [
        Answer(
            time=time,
            request=call.request,
            row=i,
            caller=call.caller,
            model=served.name,
            version=served.version,
            bundle=served.sha256,
            input_hash=hashes[i],
            input=inputs[i] if keep_inputs else None,
            belief="null" if code == NO_BELIEF else labels[code],
            assertion=ASSERTIONS[assertion],
            reason=REASONS[reason],
            level=level,
            exemplars=_at(nearest, i),
        )
        for i, (code, assertion, reason, level) in enumerate(zip(*columns, strict=True))
    ]


def _encode(rows: Rows) -> list[bytes]:
    """Each row as the audit keeps it."""
    if isinstance(rows.values, Mapping):
        return encode_inputs([rows[i] for i in range(len(rows))])
    return encode_inputs(rows.values)


def _at(columns: Mapping[str, list[Any]], row: int) -> dict[str, int]:
    return {layer: int(column[row]) for layer, column in columns.items()}


class Trail:
    """The journal of a service, opened, with the thread that writes to it."""

    def __init__(self, settings: Settings) -> None:
        assert settings.audit is not None
        days, size = settings.retain_days, settings.retain_bytes
        retention = Retention(None if days is None else timedelta(days=days), size)
        self.journal = open_journal(settings.audit, retention)
        self._recorder = Recorder(self.journal)
        self._tell_head()
        self._keep, self._required = settings.keep_inputs, settings.audit_required
        self._tasks: set[asyncio.Task[None]] = set()
        self.n_unrecorded = 0
        self._error: str | None = None

    async def record(
        self, served: ServedModel, call: Call, rows: Rows, said: RequestAnswers
    ) -> None:
        """Record the answers to a request.

        Raises:
            AuditError: It cannot be done, and answers without a record are not to be given.
        """
        submit = partial(self._submit, served, call, rows, said)
        try:  # a few rows take less time than to hand them to a thread
            written = submit() if len(said) <= FEW else await asyncio.to_thread(submit)
            await self._wait(written)
        except AuditError as error:
            if self._required:
                raise
            self.n_unrecorded += len(said)
            log.error("answers were given without a record: %s", error)

    async def write(self, records: Sequence[Record]) -> None:
        """Write records; when this returns, they survive a crash.

        Raises:
            AuditError: They could not be written.
        """
        await self._wait(self._recorder.record(records))

    def _submit(
        self, served: ServedModel, call: Call, rows: Rows, said: RequestAnswers
    ) -> Future[None]:
        records = make_records(served, call, rows, said, keep_inputs=self._keep)
        return self._recorder.record(records)

    async def _wait(self, written: Future[None]) -> None:
        try:
            await asyncio.wrap_future(written)
        except AuditError as error:
            self._error = str(error)
            raise
        self._error = None

    async def note(
        self, what: str, served: ServedModel, details: Mapping[str, Any] | None = None
    ) -> None:
        """Put an event into the journal; if that fails, into the log."""
        told = {"version": served.version, "bundle": served.sha256, **(details or {})}
        event = Event(time=now(), what=what, model=served.name, details=told)
        try:
            await self.write([event])
        except AuditError as error:
            log.error("the event %s could not be recorded: %s", what, error)

    def note_soon(self, what: str, served: ServedModel, details: Mapping[str, Any]) -> None:
        """Like `note`, without waiting for it."""
        task = asyncio.get_running_loop().create_task(self.note(what, served, details))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def announce(self, served: ServedModel, bundle: str, made: Sequence[Logged]) -> None:
        """Say that the evidence of a model is about to change; bundle: its sha256 after that.

        Waits, so call it in a thread.

        Raises:
            AuditError: It cannot be recorded, and what has no record is not to be made.
        """
        told = {"before": served.sha256, "changes": shorten(each.to_dict() for each in made)}
        event = _about(served).event(ANNOUNCED, bundle, **told)
        try:
            self._recorder.record([event]).result()
        except AuditError as error:
            self._error = str(error)
            if self._required:
                raise
            log.error("a change is made without a record: %s", error)

    async def tell_made(
        self, before: ServedModel, served: ServedModel, made: Sequence[Logged]
    ) -> None:
        """Say that an announced change was made."""
        told = {"before": before.sha256, "changes": shorten(each.to_dict() for each in made)}
        await self.note(MADE, served, told)

    async def tell_undone(self, served: ServedModel, bundle: str) -> None:
        """Say that a change was announced, but not made; bundle: the sha256 that it had."""
        await self.note(UNDONE, served, {"bundle": bundle, "before": served.sha256})

    async def complete(self, served: ServedModel) -> None:
        """Add what the audit lacks about the changes in a model's bundle; see `audit.changes`."""
        try:
            events = await asyncio.to_thread(self._find_missing, served)
            if events:
                await self.write(events)
        except AuditError as error:
            log.error("changes of %s could not be compared with the audit: %s", served.title, error)

    def _find_missing(self, served: ServedModel) -> list[Event]:
        sync_bundle(served)
        told = shorten(each.to_dict() for each in served.classifier.memory.log)
        retention = self.journal.retention
        max_age = None if retention is None else retention.max_age
        return complete(self.journal.events(), _about(served), served.sha256, told, max_age)

    def status(self) -> dict[str, Any]:
        """What the page shows."""
        return {
            "on": True,
            "ok": self._error is None,
            "error": self._error,
            "required": self._required,
            "unrecorded": self.n_unrecorded,
        }

    def close(self) -> None:
        """Write what waits, and release the journal."""
        self._recorder.close()
        try:
            self._tell_head()
        except AuditError as error:
            log.error("the head of the audit is not known: %s", error)
        self.journal.close()

    def _tell_head(self) -> None:
        """Note the head of the chain where somebody with access to the journal alone cannot."""
        log.info("audit %s: head %d:%s", self.journal.name, *self.journal.head())


def _about(served: ServedModel) -> About:
    return About(served.name, served.version)
