"""The file of a journal in SQLite: where it is, how it is opened, and what its errors mean."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from iknow.core.text import shown
from iknow.errors import AuditError

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
