"""Journals: where records go, and how they come back.

A journal is a path, for SQLite, or a URL, for PostgreSQL. Both keep the contract of `Journal`,
which `tests/serve/audit/contract.py` tests.

The key of the chain is a secret that is kept apart from the journal. It comes from the environment:
IKNOW_AUDIT_KEY holds it, or IKNOW_AUDIT_KEY_FILE names the file that does. Without a key anybody
who can write to the journal can compute its hashes anew.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol, Self

from iknow.core.text import shown
from iknow.errors import AuditError, MissingExtraError
from iknow.serve.audit.chain import Chain, Entry
from iknow.serve.audit.ledger import Page
from iknow.serve.audit.record import Answer, Event, Record
from iknow.serve.audit.retention import Retention

SCHEMES = ("postgresql://", "postgres://")


class Journal(Protocol):
    """Records in a chain. Threads may share one; among processes, one writes and others read."""

    name: str
    """The file or the database, without its password."""
    chain: Chain
    retention: Retention | None

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def append(self, records: Sequence[Record]) -> None:
        """Add records, all or none; when it returns, they survive a crash of the machine.

        After an error none of them is acknowledged, though if a database went away in the last
        moment they may still be there.

        Args:
            records: In their order.

        Raises:
            AuditError: They could not be written. The journal stays sound: try again later.
        """

    def write(self, entries: Sequence[Entry]) -> None:
        """Add `entries`, records that are encoded already, as `append` does."""

    def find(self, request: str, row: int) -> Answer | None:
        """The answer about a `row` of a `request`, the last if the identifier was used again."""

    def labelled(self, request: str, row: int) -> bool:
        """Whether a label came for a `row` of a `request`."""

    def records(self, after: int = 0) -> Iterator[tuple[int, Record]]:
        """All records with their numbers, in order, from the one that follows number `after`."""

    def events(self) -> Iterator[Event]:
        """All events, in order."""

    def page(self, after: int = 0) -> Page:
        """The rows that follow number `after` as they are stored, for those who verify."""

    def before(self, time: str) -> int:
        """The number to read after, so that no record of this `time` or later is missed."""

    def head(self) -> tuple[int, str]:
        """The number of records ever written, and the hash of the last, in hexadecimal."""

    def prune(self) -> bool:
        """Remove a bounded number of records that need not be kept; return whether more remain."""

    def close(self) -> None:
        """Release the journal. It may be closed twice."""


def open_journal(
    where: str,
    retention: Retention | None = None,
    *,
    key: bytes | None = None,
    readonly: bool = False,
) -> Journal:
    """Open a journal, or make a new one.

    Args:
        where: A path, for SQLite; or `postgresql://user@host/database`.
        retention: What `Journal.prune` removes. Default: nothing.
        key: The secret that the chain depends on. Default: the one in the environment, see
            `iknow.serve.audit.journal`.
        readonly: Read a journal that exists, also while another process writes to it.

    Raises:
        AuditError: It cannot be opened, or another process writes to it.

    Examples:
        >>> from iknow.serve.audit import Event, now
        >>> journal = open_journal("journal.db")
        >>> journal.append([Event(now(), "start")])
        >>> journal.head()[0], [record.what for _, record in journal.records()]
        (1, ['start'])
        >>> journal.close()
    """
    where = _as_text(where)
    chain = Chain(read_key() if key is None else check_key(key))
    if where.startswith(SCHEMES):
        try:
            from iknow.serve.audit.psycopg import PostgresJournal
        except ImportError as error:
            raise MissingExtraError("an audit trail in PostgreSQL", "postgres") from error
        return PostgresJournal(where, chain, retention, readonly=readonly)
    from iknow.serve.audit.sqlite import SqliteJournal

    return SqliteJournal(where, chain, retention, readonly=readonly)


def _as_text(where: object) -> str:
    if isinstance(where, os.PathLike):
        where = os.fspath(where)
    if not isinstance(where, str) or not where:
        raise AuditError(
            f"a journal is a path or a URL such as postgresql://user@host/database; got "
            f"{shown(where)}"
        )
    if "\0" in where:
        raise AuditError("the journal's name is not valid: it contains NUL")
    scheme, found, _ = where.partition("://")
    if found and not where.startswith(SCHEMES):
        raise AuditError(
            f"a journal is a path or a URL that begins with postgresql://; got one that begins "
            f"with {shown(scheme)}"
        )
    return where


KEY, KEY_FILE = "IKNOW_AUDIT_KEY", "IKNOW_AUDIT_KEY_FILE"
SHORTEST, LONGEST = 16, 1 << 16


def read_key(environment: Mapping[str, str] = os.environ) -> bytes | None:
    """The key, if there is one. Line breaks and spaces around it do not count."""
    text, file = environment.get(KEY), environment.get(KEY_FILE)
    if text and file:
        raise AuditError(f"the key comes from {KEY} or from {KEY_FILE}: set one of them, not both")
    if file:
        try:
            with Path(file).open("rb") as opened:
                return check_key(opened.read(LONGEST + 1).strip(), KEY_FILE)
        except (OSError, ValueError) as error:  # ValueError: a NUL in its name
            raise AuditError(f"the file of {KEY_FILE} cannot be read: {error}") from error
    return check_key(text.strip().encode("utf-8", "surrogateescape"), KEY) if text else None


def check_key(key: bytes, source: str = "key") -> bytes:
    """A key that nobody guesses; the message does not quote it."""
    if not isinstance(key, bytes) or not SHORTEST <= len(key) <= LONGEST:
        raise AuditError(
            f"{source} must hold at least {SHORTEST} bytes and no more than {LONGEST:,}: make one "
            "with `openssl rand -hex 32`"
        )
    return key
