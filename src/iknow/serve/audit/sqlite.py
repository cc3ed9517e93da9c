"""A journal in a file, by SQLite: the default.

The write-ahead log lets others read while one process writes. With `synchronous=FULL` a commit
returns after the log is on disk, so it survives a loss of power; a crash in the middle of a commit
leaves nothing of it.

One process writes: it holds a lock on a file beside the journal, which the system releases when the
process ends, even by SIGKILL. A journal that is removed or replaced while it is open would take
records that nobody can ever read, so after each commit the files must still be the same.

The lock's file stays behind, and says nothing. A forked child would share the lock and keep it
beyond its parent's end, so it closes its copy.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from iknow.core.text import shown
from iknow.errors import AuditError
from iknow.serve.audit.chain import Chain
from iknow.serve.audit.ledger import COLUMNS, Ledger, Row, State
from iknow.serve.audit.retention import Retention
from iknow.serve.audit.stored import Result, StoredJournal, first_state


class FileLock:
    """The lock on a file, acquired at once or not at all. of: what it protects, for the error."""

    def __init__(self, path: Path, of: str) -> None:
        self._descriptor: int | None = None
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise AuditError(
                f"{of} cannot be opened: {error.strerror}: {shown(str(path))}. Its folder must be "
                "writable"
            ) from error
        if not _lock(self._descriptor):
            self.release()
            raise AuditError(
                f"{of} is open for writing elsewhere: one process writes to a journal, others may "
                "read it. Stop the other one, or name another journal"
            )
        _held.add(self)

    def release(self) -> None:
        """Let others have it. Called twice, it does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


_held: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _lock(descriptor: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _release_in_child() -> None:
    for lock in list(_held):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)


APPLICATION = 0x696B6E77  # "iknw", in the header of the file
PATIENCE = 5.0
"""Seconds to wait for another connection that holds the database for a moment."""
ADVICE = {
    "SQLITE_FULL": ": make room, or limit it with a retention",
    "SQLITE_READONLY": ": its folder and its files must be writable",
    "SQLITE_CANTOPEN": ": its folder and its files must be readable and writable",
    "SQLITE_NOTADB": ": name a journal, or a new file",
    "SQLITE_CORRUPT": ": it is damaged; keep it, and name a new file",
    "SQLITE_BUSY": ": another program holds it",
}


def find_file(where: str, *, must_exist: bool) -> Path:
    name = shown(where)
    try:
        path = Path(where).resolve()
        mode = path.stat().st_mode if path.exists() else None
        has_folder = path.parent.is_dir()
    except (OSError, RuntimeError, ValueError) as error:
        raise AuditError(f"the journal {name} cannot be opened: {error}") from error
    if mode is not None and not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "no file"
        raise AuditError(f"the journal {name} is {kind}: name a file, such as audit.db")
    if not has_folder:
        raise AuditError(f"the journal {name} cannot be made: there is no folder {path.parent}")
    if must_exist and mode is None:
        raise AuditError(f"there is no journal {name}")
    return path


def connect(path: Path, *, readonly: bool) -> sqlite3.Connection:
    """A connection; a journal in a folder that cannot be written to is read as it is."""
    uri = f"file:{quote(str(path))}?mode={'ro' if readonly else 'rw'}"
    if readonly and not os.access(path.parent, os.W_OK) and not os.path.exists(f"{path}-wal"):
        uri += "&immutable=1"
    connection = sqlite3.connect(
        uri, uri=True, timeout=PATIENCE, isolation_level=None, check_same_thread=False
    )
    connection.execute("PRAGMA trusted_schema = OFF")  # somebody else may have written it
    return connection


def settle(connection: sqlite3.Connection) -> None:
    (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode != "wal":
        raise AuditError(f"SQLite cannot keep a write-ahead log in this folder, only {mode!r}")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = ON")  # what was pruned is gone


def is_empty(connection: sqlite3.Connection) -> bool:
    (count,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    return bool(count == 0) and number(connection, "application_id") in (0, APPLICATION)


def number(connection: sqlite3.Connection, pragma: str) -> int:
    return int(connection.execute(f"PRAGMA {pragma}").fetchone()[0])


@contextmanager
def transaction(connection: sqlite3.Connection, kind: str) -> Iterator[None]:
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
        raise


def explain(error: sqlite3.Error) -> str:
    """SQLite's words, and what to do."""
    code = str(getattr(error, "sqlite_errorname", ""))
    found = next((text for start, text in ADVICE.items() if code.startswith(start)), "")
    return f"{error}{found}"


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
