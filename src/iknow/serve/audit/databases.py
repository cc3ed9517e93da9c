"""Databases that hold journals: a file, by SQLite, or one of a PostgreSQL server, by psycopg.

**SQLite**, the default. The write-ahead log lets others read while one process writes. With
`synchronous=FULL` a commit returns after the log is on disk, so it survives a loss of power. One
process writes: it holds a lock on the file itself, whatever name it was opened by, which the system
releases when the process ends, even by SIGKILL. SQLite names the log after the file, so a file with
two names (hard links) would have two logs, and is refused. A journal that is removed or replaced
while it is open would take records that nobody can ever read, so after each commit the files must
still be the same.

**PostgreSQL**. One process writes: its connection holds an advisory lock, which the server releases
when the connection ends. `synchronous_commit` is on at least, so that a commit is on the server's
disk when it returns. After a lost acknowledgement the new connection first has to get the lock,
which the old one holds until the server has ended its last transaction one way or the other; only
then is it known what was committed. What is left of the old connection, if the network hides our
end from the server, is terminated by its name.

Messages never hold the password, nor parts of a URL that cannot be read, as it may be in there. A
password with an @ or a / that was not escaped ends up in the name of the host or the database,
which a message of the server or its library may quote.
"""

from __future__ import annotations

import os
import re
import secrets
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from iknow.core.text import shown, visible
from iknow.errors import AuditError, MissingExtraError
from iknow.serve.audit.journal import Journal, Retention
from iknow.serve.audit.records import Chain
from iknow.serve.audit.tables import COLUMNS, RECORDS, STATE, TABLES, Tables
from iknow.storage.files import lock, sync_folder

NUMBER = 0x696B6E77  # "iknw": in the header of a file, and the first half of advisory locks
PATIENCE = 5.0  # seconds to wait for another connection that holds a file for a moment
SPARE_PAGES = 1000  # pages to give back to the system at a time after pruning
ADVICE = {
    "SQLITE_FULL": ": make room, or limit it with a retention",
    "SQLITE_READONLY": ": its folder and its files must be writable",
    "SQLITE_CANTOPEN": ": its folder and its files must be readable and writable",
    "SQLITE_NOTADB": ": name a journal, or a new file",
    "SQLITE_CORRUPT": ": it is damaged; keep it, and name a new file",
    "SQLITE_BUSY": ": another program holds it",
}
CONNECTING, WAITING = 5, 5  # seconds: for a connection, and for the lock of a process that ended
KEEPALIVE = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3,
             "tcp_user_timeout": 20_000}  # fmt: skip
SECRETS = ("password", "sslpassword", "passfile", "sslkey")
SHORTEST_SECRET = 3  # characters of the least part of a password that counts as secret
NOT_SHOWN = "it cannot be reached, or refuses us; its message quotes the password and is not shown"
ELSEWHERE = (
    "is open for writing elsewhere: one process writes to a journal, others may read it. Stop the "
    "other one, or name another journal"
)

DESCRIBED = """
SELECT relkind::text, relrowsecurity, relispartition,
    EXISTS (SELECT FROM pg_trigger WHERE tgrelid = c.oid AND NOT tgisinternal),
    EXISTS (SELECT FROM pg_rewrite WHERE ev_class = c.oid),
    EXISTS (SELECT FROM pg_inherits WHERE c.oid IN (inhparent, inhrelid)),
    relname = ? AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = c.oid AND indisprimary
        AND indisvalid AND indkey::text = '1'),
    (SELECT array_agg(attname || ' ' || format_type(atttypid, atttypmod) || ' '
        || attnotnull::text || CASE WHEN atthasdef THEN ' default' ELSE '' END ORDER BY attnum)
        FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped)
FROM pg_class c WHERE oid = to_regclass(?)
"""
Inode = tuple[int, int]


class FileLock:
    """The lock on a journal's file, acquired at once or not at all; it makes the file.

    Closing any descriptor of a file drops all locks that SQLite holds on it in this process. So a
    file that this process writes to is not opened again, and the lock is released after SQLite has
    closed the file.
    """

    def __init__(self, path: Path, name: str) -> None:
        with _guard:
            if _inode_of(path) in _held:
                raise AuditError(f"{name} {ELSEWHERE}")
            try:
                self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            except OSError as error:
                raise AuditError(
                    f"{name} cannot be opened: {error.strerror}. Its folder and its files must be "
                    "writable"
                ) from error
            status, wrong = os.fstat(self._descriptor), ""
            self._file: Inode = status.st_dev, status.st_ino
            if lock(self._descriptor, wait=False) is False:
                wrong = ELSEWHERE
            elif self._file != _inode_of(path):
                wrong = "was replaced while it was opened: try again"
            elif status.st_nlink != 1:
                wrong = (
                    f"has {status.st_nlink} names (hard links), and its log would belong to one of "
                    "them: remove the others, or name another journal"
                )
            if wrong:
                os.close(self._descriptor)
                raise AuditError(f"{name} {wrong}")
            _held[self._file] = self

    def release(self) -> None:
        """Let others have it. Called twice, it does nothing."""
        with _guard:
            if _held.pop(self._file, None) is not None:
                os.close(self._descriptor)


_held: dict[Inode, FileLock] = {}
_guard = threading.Lock()


def _release_in_child() -> None:
    """A forked child would share the locks, and keep them beyond its parent's end."""
    global _guard
    _guard = threading.Lock()
    for held in list(_held.values()):
        held.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)


def _inode_of(path: Path | str) -> Inode | None:
    with suppress(OSError):
        found = os.stat(path)
        return found.st_dev, found.st_ino
    return None


class SqliteJournal(Journal):
    """A journal in a file."""

    errors = (sqlite3.Error,)

    def __init__(
        self, where: str, chain: Chain, retention: Retention | None, *, readonly: bool
    ) -> None:
        self._path = find_file(where, must_exist=readonly)
        super().__init__(shown(str(self._path)), chain, retention, readonly=readonly)
        self._lock = None if readonly else FileLock(self._path, self.name)
        self._begin()

    def close(self) -> None:
        super().close()
        if self._lock is not None:
            self._lock.release()

    @contextmanager
    def _transaction(self, connection: sqlite3.Connection) -> Iterator[None]:
        writes = connection is self._writer
        with transaction(connection, "IMMEDIATE" if writes else "DEFERRED"):
            yield
        if writes and (None in self._files or self._find_files() != self._files):
            raise AuditError(
                f"{self.name} or its -wal file was removed or replaced while it was open: "
                "records that were acknowledged may be lost"
            )

    def _find_files(self) -> list[Inode | None]:
        return [_inode_of(self._path), _inode_of(f"{self._path}-wal")]

    def prune(self) -> bool:
        more, writer = super().prune(), self._writer
        if writer is not None and self.retention is not None and not more:
            with self._writing, self._errors("made smaller"):
                free, pages = ask(writer, "freelist_count"), ask(writer, "page_count")
                if free > pages / 4:  # give some back to the system: a few are soon used again
                    writer.execute(f"PRAGMA incremental_vacuum({SPARE_PAGES})").fetchall()
        return more

    def _open_reader(self) -> sqlite3.Connection:
        return connect(self._path, readonly=True)

    def _open_writer(self) -> sqlite3.Connection:
        connection = connect(self._path, readonly=False)
        try:
            (n_tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            own = ask(connection, "application_id") in (0, NUMBER)
            if self._genesis is None and not n_tables and own:
                self._create(connection)
            if ask(connection, "application_id") != NUMBER:
                raise AuditError(
                    f"{self.name} is a database of another program, not a journal: name another "
                    "file"
                )
            settle(connection)
            connection.execute(f"SELECT version FROM {STATE}").fetchall()
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
            connection.execute(f"PRAGMA application_id = {NUMBER}")
            Tables(connection).create(self.chain)
        sync_folder(self._path.parent)  # its name must survive a loss of power too

    def _find_foreign(self, tables: Tables, *, deep: bool) -> list[str]:
        listed = "SELECT type, name, tbl_name, sql FROM sqlite_master"
        with closing(sqlite3.connect(":memory:")) as empty:
            made = Tables(empty)
            made.create(self.chain)
            differ = set(made.execute(listed)) ^ set(tables.execute(listed))
        wrong = [
            f"its {kind} {shown(name)} is not one that a journal has, is missing or was changed"
            for kind, name in sorted({(kind, name) for kind, name, *_ in differ})
        ]
        checked = tables.execute("PRAGMA integrity_check(3)") if deep else []
        return wrong + [f"its file is damaged: {text}" for (text,) in checked if text != "ok"]

    def _explain(self, error: Exception) -> str:
        code = str(getattr(error, "sqlite_errorname", ""))
        advice = next((text for start, text in ADVICE.items() if code.startswith(start)), "")
        return f"{error}{advice}"


def find_file(where: str, *, must_exist: bool) -> Path:
    name = shown(where)
    try:
        path = Path(where).resolve()
        is_file, exists, has_folder = path.is_file(), path.exists(), path.parent.is_dir()
    except (OSError, RuntimeError, ValueError) as error:
        raise AuditError(f"the journal {name} cannot be opened: {error}") from error
    if exists and not is_file:
        kind = "a folder" if path.is_dir() else "no file"
        raise AuditError(f"the journal {name} is {kind}: name a file, such as audit.db")
    if not has_folder:
        raise AuditError(f"the journal {name} cannot be made: there is no folder {path.parent}")
    if must_exist and not exists:
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


def ask(connection: sqlite3.Connection, pragma: str) -> int:
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


class PostgresTables(Tables):
    """The tables in a database of PostgreSQL."""

    mark = "%s"
    types: Mapping[type, str] = {int: "bigint", bytes: "bytea", str: "text"}

    def insert(self, rows: Sequence[tuple[Any, ...]]) -> None:
        statement = f"COPY {RECORDS} ({COLUMNS}) FROM STDIN (FORMAT BINARY)"
        with self.connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types([kind for _, kind, _ in self.columns(RECORDS)])
            for row in rows:
                copy.write_row(row)


class PostgresJournal(Journal):
    """A journal in a database of PostgreSQL."""

    tables = PostgresTables

    def __init__(
        self, url: str, chain: Chain, retention: Retention | None, *, readonly: bool
    ) -> None:
        self._psycopg = _load_psycopg()
        self.errors = (self._psycopg.Error, UnicodeError)
        self._url, self._parts = url, self._parse(url)
        super().__init__(show_url(self._parts), chain, retention, readonly=readonly)
        self._label = f"iknow audit {secrets.token_hex(8)}"
        self._begin()

    def _transaction(self, connection: Any) -> AbstractContextManager[Any]:
        return connection.transaction()  # type: ignore[no-any-return]

    def _connect(self, label: str) -> Any:
        return self._psycopg.connect(
            self._url,
            autocommit=True,
            connect_timeout=CONNECTING,
            application_name=label,
            **KEEPALIVE,
        )

    def _open_reader(self) -> Any:
        reader = self._connect("iknow audit reader")
        reader.isolation_level = self._psycopg.IsolationLevel.REPEATABLE_READ
        reader.read_only = True
        if not self._has_tables(reader):
            self._close(reader)
            raise AuditError(f"there is no journal in {self.name}")
        return reader

    def _open_writer(self) -> Any:
        connection = self._connect(self._label)
        try:
            # End our own former connections, which the server may believe to be alive.
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = %s AND pid <> pg_backend_pid()",
                (self._label,),
            )
            self._check_server(connection)
            if self._genesis is None and not self._has_tables(connection):
                self._create(connection)
            self._acquire(connection)
        except BaseException:
            self._close(connection)
            raise
        return connection

    def _check_server(self, connection: Any) -> None:
        """Commits must be durable; stronger settings than ours stay."""
        ((durable, commit),) = connection.execute(
            "SELECT current_setting('fsync'), current_setting('synchronous_commit')"
        ).fetchall()
        if durable != "on":
            raise AuditError(
                f"{self.name} runs with fsync = {durable}, so a crash can lose what it "
                "acknowledged: set fsync = on"
            )
        if commit in ("off", "local"):
            connection.execute("SET synchronous_commit = on")
        connection.execute("SET tcp_keepalives_idle = 10")

    def _create(self, connection: Any) -> None:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s, 0)", (NUMBER,))
            if not self._has_tables(connection):
                self.tables(connection).create(self.chain)

    def _acquire(self, connection: Any) -> None:
        """Wait for the lock: a killed process may have left a transaction that is just ending."""
        try:
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = '{WAITING}s'")
                connection.execute(
                    f"SELECT pg_advisory_lock(%s, '{STATE}'::regclass::oid::int)", (NUMBER,)
                )
        except self._psycopg.errors.LockNotAvailable:
            raise AuditError(f"{self.name} {ELSEWHERE}") from None

    def _has_tables(self, connection: Any) -> bool:
        (found,) = connection.execute(f"SELECT to_regclass('{STATE}') IS NOT NULL").fetchone()
        return bool(found)

    def _find_foreign(self, tables: Tables, *, deep: bool) -> list[str]:
        """The database may hold other tables; ours must be plain ones, with our columns alone."""
        wrong = []
        for table in TABLES:
            columns = [
                f"{name} {kind} {'false' if optional else 'true'}"
                for name, kind, optional in tables.columns(table)
            ]
            if tables.execute(DESCRIBED, RECORDS, table) != [("r", *[False] * 6, columns)]:
                wrong.append(f"its table {table} is not a plain table as a journal has it")
        return wrong

    def _parse(self, url: str) -> dict[str, Any]:
        """The parts of a URL; its text is not quoted, as the password may be anywhere in it."""
        try:
            return dict(self._psycopg.conninfo.conninfo_to_dict(url))
        except (self._psycopg.Error, UnicodeError):
            raise AuditError(
                "the URL of the journal cannot be read: expected "
                "postgresql://user@host:port/database, with special characters in the password "
                "written as %40 for @, %3A for :, %2F for /"
            ) from None

    def _explain(self, error: Exception) -> str:
        return hide_secrets(visible(" ".join(str(error).split())), self._url, self._parts)


def _load_psycopg() -> Any:
    try:
        import psycopg
        import psycopg.conninfo
        import psycopg.errors
    except ImportError as error:
        raise MissingExtraError("an audit trail in PostgreSQL", "postgres") from error
    return psycopg


def show_url(parts: Mapping[str, Any]) -> str:
    """The parts of a URL, as libpq names them, without what is secret.

    Examples:
        >>> show_url({"user": "me", "password": "secret", "host": "db", "dbname": "audit"})
        'postgresql://me@db/audit'
    """
    names = ("host", "port", "user", "dbname")
    host, port, user, database = (str(parts.get(name) or "") for name in names)
    if "@" in host + port + database:
        raise AuditError(
            "the URL of the journal has more than one @: write those of the password as %40"
        )
    at = f"{user}@{host}" if user else host
    return visible(f"postgresql://{at}{f':{port}' if port else ''}/{database}")


def hide_secrets(text: str, url: str, parts: Mapping[str, Any]) -> str:
    """A message, unless it holds something secret of the URL, whose parts these are.

    Examples:
        >>> hide_secrets("no host ret@db", "postgresql://me:sec@ret@db/audit", {"password": "sec"})
        'it cannot be reached, or refuses us; its message quotes the password and is not shown'
    """
    found = [str(parts[name]) for name in SECRETS if parts.get(name)]
    raw = re.match(r"\w+://[^/?]*?:(.*)@", url, re.DOTALL)
    if raw is not None:
        pieces = [raw[1], unquote(raw[1]), *re.split(r"[@:/?#]", raw[1])]
        found += [piece for piece in pieces if len(piece) >= SHORTEST_SECRET]
    return NOT_SHOWN if any(secret in text for secret in found) else text
