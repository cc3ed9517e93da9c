"""Journals: where records go, and how they come back.

A journal is in a database (`iknow.serve.audit.databases`), in two tables
(`iknow.serve.audit.tables`). A transaction reads the state, extends the chain from the head that it
finds there, and stores rows and state together. So no head is kept in memory, where it could be
wrong after a failure, and even two writers could not fork the chain.

A commit whose acknowledgement is lost may have happened or not. The same work then runs again in a
new transaction; it looks for its own last hash, which no other records have, and is done if it
finds it. So records are neither lost nor doubled.

What is read is read from the chain: between the cut and the head. Whatever else somebody put into
the tables, or beside them, is seen by `iknow.serve.audit.verify` alone, which says so.

**Retention**: the oldest records go first, a bounded number at a time, in one transaction with an
event "pruned" that states the last of them and its hash. The chain goes on from that hash, so what
is left can still be verified, and records that disappear without such an event are missed. A
journal of nothing but such events is left alone: else each would be replaced by the next.

The key of the chain is a secret that is kept apart from the journal. It comes from the environment:
IKNOW_AUDIT_KEY holds it, or IKNOW_AUDIT_KEY_FILE names the file that does. Without a key anybody
who can write to the journal can compute its hashes anew.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self, TypeVar

from iknow.core.text import shown
from iknow.errors import AuditError, InputError
from iknow.serve.audit.records import (
    LARGEST,
    Answer,
    Chain,
    Event,
    Record,
    Row,
    as_time,
    decode,
    encode,
    now,
    to_key,
)
from iknow.serve.audit.tables import (
    RECORDS,
    VERSION,
    JournalState,
    Page,
    Tables,
    extend,
    is_sound,
)

SCHEMES = ("postgresql://", "postgres://")
PRUNED = "pruned"
PRUNE_SHARE = 0.05  # of the largest size: what is freed at a time
SMALLEST = 1 << 20  # bytes: the least size to ask for
KEY, KEY_FILE = "IKNOW_AUDIT_KEY", "IKNOW_AUDIT_KEY_FILE"
SHORTEST_KEY, LONGEST_KEY = 16, 1 << 16

Result = TypeVar("Result")


@dataclass(frozen=True)
class Retention:
    """What to keep. Without either, everything.

    Attributes:
        max_age: Records older than this are removed.
        max_bytes: Above this size of all the oldest records are removed, 1 MiB at least.

    Examples:
        >>> Retention(max_age=timedelta(days=90), max_bytes=10**9).max_age.days
        90
    """

    max_age: timedelta | None = None
    max_bytes: int | None = None

    def __post_init__(self) -> None:
        age, size = self.max_age, self.max_bytes
        if age is not None and not (isinstance(age, timedelta) and age > timedelta(0)):
            raise InputError(f"max_age must be a positive timedelta; got {shown(age)}")
        if size is not None and not (type(size) is int and size >= SMALLEST):
            raise InputError(
                f"max_bytes must be an int of at least {SMALLEST:,}; got {shown(size)}"
            )

    def oldest_time(self) -> str:
        """The time before which records need not be kept; "" without a `max_age`."""
        return "" if self.max_age is None else as_time(datetime.now(UTC) - self.max_age)


class Journal(ABC):
    """Records in a chain. Threads may share one; among processes, one writes and others read.

    Attributes:
        name: The file or the database, without its password.
        chain: What computes the hashes.
        retention: What `prune` removes.
        readonly: Whether it is read alone.
        errors: What the database raises.
        tables: How it holds them.
    """

    errors: tuple[type[Exception], ...]
    tables: type[Tables] = Tables

    def __init__(
        self, name: str, chain: Chain, retention: Retention | None, *, readonly: bool
    ) -> None:
        self.name, self.chain, self.retention, self.readonly = name, chain, retention, readonly
        self._writing, self._reading = threading.RLock(), threading.RLock()
        self._closed = self._in_doubt = False  # whether the last change may have been committed
        self._genesis: bytes | None = None
        self._writer: Any = None
        self._reader: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def close(self) -> None:
        """Release the journal. It may be closed twice."""
        self._closed = True
        with self._writing, self._reading:
            self._drop_reader()
            self._drop_writer()

    def append(self, records: Sequence[Record]) -> None:
        """Add `records`, all or none; when it returns, they survive a crash of the machine.

        Raises:
            AuditError: They could not be written, though if a database went away in the last moment
                they may still be there. The journal stays sound: try again later.
        """
        self.write([encode(record) for record in records])

    def write(self, rows: Sequence[Row]) -> None:
        """Add `rows`, records that are encoded already, as `append` does."""
        wanted: list[JournalState] = []

        def work(tables: Tables) -> None:
            if wanted and tables.hash_at(wanted[0].head_seq) == wanted[0].head_hash:
                return  # it was committed, and only the acknowledgement was lost
            placed, state = extend(self.chain, self._state_of(tables), rows)
            wanted[:] = [state]
            tables.insert(placed)
            tables.save(state)

        if rows:
            self._change(work)

    def find(self, request: str, row: int) -> Answer | None:
        """The answer about a `row` of a `request`, the last if the identifier was used again.

        Raises:
            AuditError: There is one, but its hash is not that of the chain.
        """
        found = self._find("answer", request, row)
        return found if isinstance(found, Answer) else None

    def labelled(self, request: str, row: int) -> bool:
        """Whether a label came for a `row` of a `request`."""
        return self._find("label", request, row) is not None

    def _find(self, kind: str, request: str, place: int) -> Record | None:
        def find(tables: Tables) -> Record | None:
            state = tables.state()
            places = to_key(request), place, kind, state.cut_seq, state.head_seq
            of_chain = "request = ? AND place = ? AND kind = ? AND seq > ? AND seq <= ?"
            for row in tables.find(of_chain, *places, limit=1, order="seq DESC"):
                is_first = row.seq == state.cut_seq + 1
                last = state.cut_hash if is_first else tables.hash_at(row.seq - 1) or b""
                may_check = not self.readonly  # readers may lack the key
                if may_check and not (is_sound(row) and self.chain.holds(last, row)):
                    raise AuditError(
                        f"record {row.seq} of {self.name} was changed: see what `iknow audit "
                        "verify` says"
                    )
                return decode(row.body, row.input)
            return None

        return self._read(find) if 0 <= place <= LARGEST else None

    def pages(self, after: int | None = None, kind: str = "", since: str = "") -> Iterator[Page]:
        """The rows that follow number `after`, or all, and the state at the time of reading.

        Of one `kind`, if any, and of no earlier time than `since`. The last page is empty. Some
        rows may be no part of the chain: `JournalState.has` knows.
        """
        while True:
            page = self._read(lambda tables: tables.page(after, kind, since))  # noqa: B023
            yield page
            if not page.rows:
                return
            after = page.rows[-1].seq

    def records(
        self, after: int = 0, kind: str = "", since: str = ""
    ) -> Iterator[tuple[int, Record]]:
        """All records with their numbers, in order, from the one that follows number `after`.

        Only of one `kind`, if it is "answer", "label" or "event", and of the time `since` or later.
        """
        for state, rows in self.pages(after, kind, since):
            for row in rows:
                if state.has(row.seq):
                    yield row.seq, decode(row.body, row.input)

    def events(self) -> Iterator[Event]:
        """All events, in order."""
        return (each for _, each in self.records(kind="event") if isinstance(each, Event))

    def head(self) -> tuple[int, str]:
        """The number of records ever written, and the hash of the last, in hexadecimal."""
        state = self._read(Tables.state)
        return state.head_seq, state.head_hash.hex()

    def survey(self) -> tuple[JournalState, int, list[str]]:
        """The state, how many rows there are, and what the database has that a journal has not."""

        def look(tables: Tables) -> tuple[JournalState, int, list[str]]:
            ((n_rows,),) = tables.execute(f"SELECT count(*) FROM {RECORDS}")
            return tables.state(), n_rows, self._find_foreign(tables, deep=True)

        return self._read(look)

    def prune(self) -> bool:
        """Remove a bounded number of records that need not be kept; return whether more remain."""
        return self.retention not in (None, Retention()) and self._change(self._prune)

    def _prune(self, tables: Tables) -> bool:
        assert self.retention is not None
        state, most, excess = self._state_of(tables), self.retention.max_bytes, 0.0
        if most is not None and state.size > most:
            excess = state.size - (1 - PRUNE_SHARE) * most
        oldest_time, rows = self.retention.oldest_time(), tables.page(state.cut_seq).rows
        old, freed = 0, 0
        while old < len(rows) and (rows[old].time < oldest_time or freed < excess):
            freed += rows[old].size
            old += 1
        if all(_is_pruning(row) for row in rows[:old]):
            return False
        last = rows[old - 1]
        details = {"first": state.cut_seq + 1, "through": last.seq, "hash": last.hash.hex()}
        placed, after = extend(self.chain, state, [encode(Event(now(), PRUNED, "", details))])
        tables.insert(placed)
        tables.execute(f"DELETE FROM {RECORDS} WHERE seq <= ?", last.seq)
        left = max(after.size - freed, 0)
        tables.save(after._replace(cut_seq=last.seq, cut_hash=last.hash, size=left))
        return old == len(rows)

    def check_key(self, state: JournalState) -> None:
        """Refuse a key other than that of the journal with this `state`."""
        if state.key_check == self.chain.check_of(state.genesis):
            return
        if not state.key_check:
            wrong = "was made without a key, but one is given: leave it out, or name a new journal"
        elif not self.chain.is_keyed:
            wrong = "was made with a key: set IKNOW_AUDIT_KEY or IKNOW_AUDIT_KEY_FILE"
        else:
            wrong = "was made with another key: give that one, in IKNOW_AUDIT_KEY(_FILE)"
        raise AuditError(f"{self.name} {wrong}")

    # What a database does.

    @abstractmethod
    def _open_writer(self) -> Any:
        """A connection that writes; the first one makes a journal where there is none."""

    @abstractmethod
    def _open_reader(self) -> Any:
        """A connection that reads."""

    @abstractmethod
    def _transaction(self, connection: Any) -> AbstractContextManager[Any]:
        """A transaction, on one state of the journal; the writer's is durable when it ends."""

    @abstractmethod
    def _explain(self, error: Exception) -> str:
        """An error of the database in words, and what to do."""

    @abstractmethod
    def _find_foreign(self, tables: Tables, *, deep: bool) -> list[str]:
        """What the database has that a journal has not, in words.

        deep: whether to look into all pages of a file, too.
        """

    # Connections and transactions.

    def _begin(self) -> None:
        """Open it, and look at what was opened; from now on it must stay the same journal."""

        def look(tables: Tables) -> tuple[JournalState, list[str]]:
            state = self._state_of(tables)
            ends = state.head_seq == state.cut_seq
            if self.readonly or ends or tables.hash_at(state.head_seq) == state.head_hash:
                return state, [] if self.readonly else self._find_foreign(tables, deep=False)
            return state, ["its last record is missing or was changed"]

        try:
            if not self.readonly:
                with self._errors("opened"):
                    self._writer = self._open_writer()
            state, wrong = self._read(look)
            if wrong:
                raise AuditError(
                    f"{self.name} is damaged: {wrong[0]}. Keep it, see what `iknow audit verify` "
                    "says, and name a new one"
                )
            self._genesis = state.genesis
        except BaseException:
            self.close()
            raise

    def _state_of(self, tables: Tables) -> JournalState:
        """The state, if it is that of this journal, and fits this version."""
        state = tables.state()
        if state.version != VERSION:
            raise AuditError(
                f"{self.name} has version {state.version}; this version of iknow reads {VERSION}: "
                "use the one that wrote it, or a newer one"
            )
        if self._genesis not in (None, state.genesis):
            raise AuditError(f"{self.name} was replaced by another journal while it was open")
        if not self.readonly:
            self.check_key(state)
        return state

    def _change(self, work: Callable[[Tables], Result]) -> Result:
        """Run work in a transaction that is durable when this returns; `work` may run twice."""
        if self.readonly:
            raise AuditError(f"{self.name} was opened for reading: open it without readonly")
        with self._writing, self._errors("written"):
            try:
                return self._commit(work)
            except self.errors:
                if not self._in_doubt:
                    raise
            return self._commit(work)

    def _commit(self, work: Callable[[Tables], Result]) -> Result:
        self._in_doubt = is_done = False
        try:
            self._writer = self._writer or self._open_writer()
            with self._transaction(self._writer):
                result = work(self.tables(self._writer))
                is_done = True
        except BaseException:
            self._in_doubt = is_done or getattr(self._writer, "closed", False)
            self._drop_writer()  # the next one starts from what is on disk
            raise
        return result

    def _read(self, work: Callable[[Tables], Result]) -> Result:
        """Run work that changes nothing; a connection that fails is opened anew, once."""
        with self._reading, self._errors("read"):
            if self._reader is not None:
                with suppress(*self.errors):
                    return self._see(work)
            self._drop_reader()
            self._reader = self._open_reader()
            return self._see(work)

    def _see(self, work: Callable[[Tables], Result]) -> Result:
        with self._transaction(self._reader):
            return work(self.tables(self._reader))

    @contextmanager
    def _errors(self, done: str) -> Iterator[None]:
        if self._closed:
            raise AuditError(f"{self.name} is closed")
        try:
            yield
        except self.errors as error:  # what it says may be secret, and is not chained
            raise AuditError(f"{self.name} cannot be {done}: {self._explain(error)}") from None

    def _drop_writer(self) -> None:
        self._close(self._writer)
        self._writer = None

    def _drop_reader(self) -> None:
        self._close(self._reader)
        self._reader = None

    def _close(self, connection: Any) -> None:
        if connection is not None:
            with suppress(*self.errors):
                connection.close()


def _is_pruning(row: Row) -> bool:
    return row.kind == "event" and getattr(decode(row.body), "what", "") == PRUNED


def open_journal(
    where: str | os.PathLike[str],
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
    from iknow.serve.audit.databases import PostgresJournal, SqliteJournal

    name = os.fspath(where) if isinstance(where, os.PathLike) else where
    if not isinstance(name, str) or not name:
        raise AuditError(
            "a journal is a path or a URL such as postgresql://user@host/database; got "
            f"{shown(where)}"
        )
    if "\0" in name:
        raise AuditError("the journal's name is not valid: it contains NUL")
    is_server = name.startswith(SCHEMES)
    if "://" in name and not is_server:
        raise AuditError(
            "a journal is a path or a URL that begins with postgresql://; got one that begins "
            f"with {shown(name.partition('://')[0])}"
        )
    chain = Chain(read_key() if key is None else check_key(key))
    backend = PostgresJournal if is_server else SqliteJournal
    return backend(name, chain, retention, readonly=readonly)


def read_key(environment: Mapping[str, str] = os.environ) -> bytes | None:
    """The key, if there is one. Line breaks and spaces around it do not count."""
    text, file = environment.get(KEY), environment.get(KEY_FILE)
    if text and file:
        raise AuditError(f"the key comes from {KEY} or from {KEY_FILE}: set one of them, not both")
    if file:
        try:
            with Path(file).open("rb") as opened:
                return check_key(opened.read(LONGEST_KEY + 1).strip(), KEY_FILE)
        except (OSError, ValueError) as error:  # ValueError: a NUL in its name
            raise AuditError(f"the file of {KEY_FILE} cannot be read: {error}") from error
    return check_key(text.strip().encode("utf-8", "surrogateescape"), KEY) if text else None


def check_key(key: bytes, source: str = "key") -> bytes:
    """A key that nobody guesses; the message does not quote it."""
    if not isinstance(key, bytes) or not SHORTEST_KEY <= len(key) <= LONGEST_KEY:
        raise AuditError(
            f"{source} must hold at least {SHORTEST_KEY} bytes and no more than {LONGEST_KEY:,}: "
            "make one with `openssl rand -hex 32`"
        )
    return key
