"""A journal in a file, by SQLite: the default.

The write-ahead log lets others read while one process writes. With `synchronous=FULL` a commit
returns after the log is on disk, so it survives a loss of power; a crash in the middle of a commit
leaves nothing of it.

One process writes: it holds a lock on a file beside the journal, which the system releases when the
process ends, however it ends. A journal that is removed or replaced while it is open would take
records that nobody can ever read, so after each commit the files must still be the same.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from iknow.audit.chain import Chain
from iknow.audit.ledger import COLUMNS, Ledger, Row, State
from iknow.audit.lock import FileLock
from iknow.audit.retention import Retention
from iknow.audit.sqlite_file import (
    APPLICATION,
    connect,
    explain,
    find_file,
    is_empty,
    number,
    settle,
    transaction,
)
from iknow.audit.stored import Result, StoredJournal, first_state
from iknow.core.text import shown
from iknow.errors import AuditError

TYPES = {"int": "INTEGER", "bytes": "BLOB"}
SPARE_PAGES = 1000
"""Pages to give back to the system at a time after pruning."""


class SqliteJournal(StoredJournal):
    """A `Journal` in a file."""

    def __init__(
        self,
        where: str,
        chain: Chain,
        retention: Retention | None = None,
        *,
        readonly: bool = False,
    ) -> None:
        path = find_file(where, must_exist=readonly)
        super().__init__(shown(str(path)), chain, retention, readonly=readonly)
        self._path = path
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._committing = False
        self._lock = None if readonly else FileLock(Path(f"{path}-lock"), self.name)
        try:
            if not readonly:
                self._writer = self._open_writer(create=True)
            self._begin()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._closed = True
        with self._writing, self._reading:
            for connection in (self._reader, self._writer):
                if connection is not None:
                    with suppress(sqlite3.Error):
                        connection.close()
            self._reader = self._writer = None
        if self._lock is not None:
            self._lock.release()

    def _change(self, work: Callable[[Ledger], Result]) -> Result:
        with self._errors("written"):
            try:
                return self._commit(work)
            except sqlite3.Error:
                if not self._committing:
                    raise
            # It may be on disk all the same, if only what follows a commit failed.
            return self._commit(work)

    def _commit(self, work: Callable[[Ledger], Result]) -> Result:
        self._committing = False
        try:
            self._writer = self._writer or self._open_writer(create=False)
            with transaction(self._writer, "IMMEDIATE"):
                result = work(_ledger(self._writer))
                self._committing = True
            self._check_files()
        except BaseException:
            self._drop_writer()  # the next one starts from what is on disk
            raise
        return result

    def _read(self, work: Callable[[Ledger], Result]) -> Result:
        with self._errors("read"):
            self._reader = self._reader or connect(self._path, readonly=True)
            try:
                with transaction(self._reader, "DEFERRED"):
                    return work(_ledger(self._reader))
            except sqlite3.Error:
                self._reader.close()
                self._reader = None
                raise

    def prune(self) -> bool:
        more = super().prune()
        if not more and self.retention is not None:
            with self._writing, self._errors("made smaller"):
                self._shrink()
        return more

    def _shrink(self) -> None:
        """Give pages back to the system if many are free; a few are soon used again."""
        writer = self._writer
        if writer is not None:
            free, pages = number(writer, "freelist_count"), number(writer, "page_count")
            if free > pages / 4:
                writer.execute(f"PRAGMA incremental_vacuum({SPARE_PAGES})").fetchall()

    def _used(self, ledger: Ledger, state: State) -> float:
        writer = self._writer
        assert writer is not None
        pages = number(writer, "page_count") - number(writer, "freelist_count")
        return float(pages * number(writer, "page_size"))

    def _open_writer(self, *, create: bool) -> sqlite3.Connection:
        """A connection that writes. create: make a journal where there is none."""
        with self._errors("opened"):
            if create and not self._path.exists():
                os.close(os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600))
            connection = connect(self._path, readonly=False)
            try:
                if create and is_empty(connection):
                    self._create(connection)
                self._check_application(connection)
                settle(connection)
                connection.execute("SELECT version FROM iknow_audit_state").fetchall()
                self._files = self._find_files()
            except BaseException:
                connection.close()
                raise
            return connection

    def _create(self, connection: sqlite3.Connection) -> None:
        """Make the tables in one step: a crash leaves an empty file, which the next start fills."""
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        settle(connection)
        with transaction(connection, "IMMEDIATE"):
            if is_empty(connection):
                connection.execute(f"PRAGMA application_id = {APPLICATION}")
                _ledger(connection).create(TYPES, first_state(self.chain))
        with suppress(OSError):  # its name must survive a loss of power too
            folder = os.open(self._path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _check_application(self, connection: sqlite3.Connection) -> None:
        if number(connection, "application_id") != APPLICATION:
            raise AuditError(
                f"{self.name} is a database of another program, not a journal: name another file"
            )

    def _find_files(self) -> list[tuple[int, int]]:
        found = [os.stat(self._path), os.stat(f"{self._path}-wal")]
        return [(each.st_dev, each.st_ino) for each in found]

    def _check_files(self) -> None:
        with suppress(FileNotFoundError):
            if self._find_files() == self._files:
                return
        raise AuditError(
            f"{self.name} or its -wal file was removed or replaced while it was open: records that "
            "were acknowledged may be lost"
        )

    def _drop_writer(self) -> None:
        if self._writer is not None:
            with suppress(sqlite3.Error):
                self._writer.close()
            self._writer = None

    @contextmanager
    def _errors(self, done: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise AuditError(f"{self.name} cannot be {done}: {explain(error)}") from error
        except OSError as error:
            reason = error.strerror or str(error)
            raise AuditError(f"{self.name} cannot be {done}: {reason}") from error


def _ledger(connection: sqlite3.Connection) -> Ledger:
    def execute(statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        return connection.execute(statement, parameters).fetchall()

    def insert(rows: Sequence[Row]) -> None:
        marks = "?, ?, ?, ?, ?, ?, ?, ?"
        connection.executemany(
            f"INSERT INTO iknow_audit_records ({COLUMNS}) VALUES ({marks})", rows
        )

    return Ledger(execute, insert)
