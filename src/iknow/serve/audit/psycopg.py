"""A journal in PostgreSQL, by psycopg.

One process writes: its connection holds an advisory lock, which the server releases when the
connection ends. `synchronous_commit` is on at least, so that a commit is on the server's disk when
it returns.

When the database goes away and comes back, the journal connects again by itself. A commit may have
happened although its acknowledgement was lost. The new connection first has to get the lock, which
the old one holds until the server has ended its last transaction one way or the other; only then
is it known what was committed, and the work runs again (see `stored`). What is left of the old
connection, if the network hides our end from the server, is terminated by its name.

Messages never hold the password, nor parts of a URL that cannot be read, as it may be in there. A
password with an @ or a / that was not escaped ends up in the name of the host or the database,
which a message of the server or its library may quote.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import unquote

import psycopg
from psycopg.conninfo import conninfo_to_dict

from iknow.core.text import visible
from iknow.errors import AuditError
from iknow.serve.audit.chain import Chain
from iknow.serve.audit.ledger import COLUMNS, Ledger, Row, State
from iknow.serve.audit.retention import Retention
from iknow.serve.audit.stored import Result, StoredJournal, first_state

SECRETS = ("password", "sslpassword", "passfile", "sslkey")
SHORTEST = 3
"""Characters of the least part of a password that counts as secret."""
NOT_SHOWN = "it cannot be reached, or refuses us; its message quotes the password and is not shown"


def show(parts: Mapping[str, Any]) -> str:
    """The parts of a URL, as libpq names them, without what is secret.

    Examples:
        >>> show({"user": "me", "password": "secret", "host": "db", "dbname": "audit"})
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


def hide(text: str, url: str, parts: Mapping[str, Any]) -> str:
    """A message, unless it holds something secret of the URL, whose parts these are.

    Examples:
        >>> hide("no host ret@db", "postgresql://me:sec@ret@db/audit", {"password": "sec"})
        'it cannot be reached, or refuses us; its message quotes the password and is not shown'
    """
    found = [str(parts[name]) for name in SECRETS if parts.get(name)]
    raw = re.match(r"\w+://[^/?]*?:(.*)@", url, re.DOTALL)
    if raw is not None:
        pieces = [raw[1], unquote(raw[1]), *re.split(r"[@:/?#]", raw[1])]
        found += [piece for piece in pieces if len(piece) >= SHORTEST]
    return NOT_SHOWN if any(secret in text for secret in found) else text


TYPES = {"int": "BIGINT", "bytes": "BYTEA"}
LOCKS = 0x696B6E77  # "iknw": the first half of our advisory locks; the second is the table
CONNECTING, WAITING = 5, 5
"""Seconds to wait for a connection, and for the lock of a process that has just ended."""


class PostgresJournal(StoredJournal):
    """A `Journal` in a database of PostgreSQL."""

    def __init__(
        self, url: str, chain: Chain, retention: Retention | None = None, *, readonly: bool = False
    ) -> None:
        self._url, self._parts = url, _parse(url)
        super().__init__(show(self._parts), chain, retention, readonly=readonly)
        self._label = f"iknow audit {secrets.token_hex(8)}"
        self._writer: Any = None
        self._reader: Any = None
        try:
            if not readonly:
                with self._errors("opened"):
                    self._writer = self._open_writer(create=True)
            self._begin()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._closed = True
        with self._writing, self._reading:
            self._drop_reader()
            self._drop_writer()

    def _change(self, work: Callable[[Ledger], Result]) -> Result:
        with self._errors("written"):
            if self._writer is not None:
                try:
                    return self._commit(work)
                except (psycopg.OperationalError, psycopg.InterfaceError):
                    if not self._writer.closed:  # the server refused; the next one may succeed
                        raise
                    self._drop_writer()
            self._writer = self._open_writer(create=False)
            return self._commit(work)

    def _commit(self, work: Callable[[Ledger], Result]) -> Result:
        with self._writer.transaction():
            return work(_ledger(self._writer))

    def _read(self, work: Callable[[Ledger], Result]) -> Result:
        with self._errors("read"):
            if self._reader is not None:
                try:
                    return self._look(work)
                except (psycopg.OperationalError, psycopg.InterfaceError):
                    self._drop_reader()
            self._reader = self._connect("iknow audit reader")
            self._reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            self._reader.read_only = True
            if not _has_tables(self._reader):
                raise AuditError(f"there is no journal in {self.name}")
            return self._look(work)

    def _look(self, work: Callable[[Ledger], Result]) -> Result:
        with self._reader.transaction():
            return work(_ledger(self._reader))

    def _used(self, ledger: Ledger, state: State) -> float:
        return float(state.size)  # tables keep the room of deleted rows until it is used again

    def _drop_writer(self) -> None:
        _close(self._writer)
        self._writer = None

    def _drop_reader(self) -> None:
        _close(self._reader)
        self._reader = None

    def _connect(self, label: str) -> Any:
        return psycopg.connect(
            self._url,
            autocommit=True,
            connect_timeout=CONNECTING,
            application_name=label,
            keepalives_idle=10,
            keepalives_interval=5,
            keepalives_count=3,
            tcp_user_timeout=20_000,
        )

    def _open_writer(self, *, create: bool) -> Any:
        connection = self._connect(self._label)
        try:
            self._end_former(connection)
            self._check_server(connection)
            if create and not _has_tables(connection):
                self._create(connection)
            self._acquire(connection)
        except BaseException:
            _close(connection)
            raise
        return connection

    def _end_former(self, connection: Any) -> None:
        """End our own former connections, which the server may believe to be alive."""
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = %s AND pid <> pg_backend_pid()",
            (self._label,),
        )

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
            connection.execute("SELECT pg_advisory_xact_lock(%s, 0)", (LOCKS,))
            if not _has_tables(connection):
                _ledger(connection).create(TYPES, first_state(self.chain))

    def _acquire(self, connection: Any) -> None:
        """Wait for the lock: a killed process may have left a transaction that is just ending."""
        try:
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = '{WAITING}s'")
                connection.execute(
                    "SELECT pg_advisory_lock(%s, 'iknow_audit_state'::regclass::oid::int)", (LOCKS,)
                )
        except psycopg.errors.LockNotAvailable:
            raise AuditError(
                f"{self.name} is open for writing elsewhere: one process writes to a journal, "
                "others may read it. Stop the other one, or name another journal"
            ) from None

    @contextmanager
    def _errors(self, done: str) -> Iterator[None]:
        try:
            yield
        except (psycopg.Error, UnicodeError) as error:
            told = hide(visible(" ".join(str(error).split())), self._url, self._parts)
            raise AuditError(f"{self.name} cannot be {done}: {told}") from None


def _ledger(connection: Any) -> Ledger:
    def execute(statement: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        cursor = connection.execute(statement.replace("?", "%b"), parameters, binary=True)
        return [] if cursor.description is None else cursor.fetchall()

    def insert(rows: Sequence[Row]) -> None:
        statement = f"COPY iknow_audit_records ({COLUMNS}) FROM STDIN (FORMAT BINARY)"
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types(("int8", "bytea", "text", "text", "text", "int8", "bytea", "bytea"))
            for row in rows:
                copy.write_row(row)

    return Ledger(execute, insert)


def _has_tables(connection: Any) -> bool:
    (found,) = connection.execute("SELECT to_regclass('iknow_audit_state') IS NOT NULL").fetchone()
    return bool(found)


def _close(connection: Any) -> None:
    if connection is not None:
        with suppress(psycopg.Error):
            connection.close()


def _parse(url: str) -> dict[str, Any]:
    """The parts of a URL; its text is not quoted, as the password may be anywhere in it."""
    try:
        return conninfo_to_dict(url)
    except (psycopg.Error, UnicodeError):
        raise AuditError(
            "the URL of the journal cannot be read: expected postgresql://user@host:port/database, "
            "with special characters in the password written as %40 for @, %3A for :, %2F for /"
        ) from None
