"""The tables of a journal, and all SQL that there is.

`iknow_audit_state` has one row: the genesis, where the chain begins (the cut: the last record that
was removed), where it ends (the head), and the seal of the head. `iknow_audit_records` has a row
for each record. Both change together, in one transaction.

What is read is read from the chain: between the cut and the head. Whatever else somebody put into
the tables, or beside them, is seen by `iknow.serve.audit.verify` alone, which says so.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import NoneType
from typing import Any, NamedTuple

from iknow.errors import AuditError
from iknow.serve.audit.records import HASH_SIZE, Chain, Entry

VERSION = 1
OVERHEAD = 200  # bytes of a row beyond its record: its hash, its numbers, its places in the indexes
PAGE_BYTES, PAGE_ROWS = 1 << 24, 1000

STATE, RECORDS = "iknow_audit_state", "iknow_audit_records"
TABLES = {
    STATE: "version int!, genesis bytes!, key_check bytes!, cut_seq int!, cut_hash bytes!, "
    "head_seq int!, head_hash bytes!, seal bytes!, size int!",
    RECORDS: "seq int!, hash bytes!, kind text!, time text!, request text, place int, body bytes!, "
    "input bytes",
}
"""The columns of each table and their types; ! marks those that are never NULL."""
INDEXES = (
    f"CREATE INDEX iknow_audit_by_request ON {RECORDS} (request, place) WHERE request IS NOT NULL",
    f"CREATE INDEX iknow_audit_by_time ON {RECORDS} (time)",
    f"CREATE INDEX iknow_audit_events ON {RECORDS} (kind, seq) WHERE kind = 'event'",
)
COLUMNS = "seq, hash, kind, time, request, place, body, input"


class JournalState(NamedTuple):
    """The row of the first table. size: bytes of all records."""

    version: int
    genesis: bytes
    key_check: bytes
    cut_seq: int
    cut_hash: bytes
    head_seq: int
    head_hash: bytes
    seal: bytes
    size: int

    def has(self, seq: int) -> bool:
        """Whether a number lies between the cut and the head."""
        return self.cut_seq < seq <= self.head_seq


class Row(NamedTuple):
    """A row of the second table. place: the row of the request."""

    seq: int
    hash: bytes
    kind: str
    time: str
    request: str | None
    place: int | None
    body: bytes
    input: bytes | None

    @property
    def is_sound(self) -> bool:
        """Whether the types are right: SQLite holds what it is given."""
        texts, numbers = (str, NoneType), (int, NoneType)
        types: tuple[Any, ...] = int, bytes, str, str, texts, numbers, bytes, (bytes, NoneType)
        return all(isinstance(value, kind) for value, kind in zip(self, types, strict=True))


class Page(NamedTuple):
    """Some rows in their order, and the state of the journal at the moment they were read."""

    state: JournalState
    rows: list[Row]


class Survey(NamedTuple):
    """What a journal holds besides its chain.

    Attributes:
        state: Of the journal.
        n_rows: How many rows there are.
        n_chained: How many of them lie between the cut and the head.
        foreign: What the database has that a journal has not, in words.
    """

    state: JournalState
    n_rows: int
    n_chained: int
    foreign: list[str]


class Tables(ABC):
    """The tables within one transaction."""

    @abstractmethod
    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement, in which ? marks the places of parameters; returns rows."""

    @abstractmethod
    def insert(self, rows: Sequence[Row]) -> None:
        """Add rows to the table of records."""

    @abstractmethod
    def find_foreign(self, *, deep: bool) -> list[str]:
        """What the database has that a journal has not, in words.

        deep: whether to look into all pages of a file, too.
        """

    def create(self, state: JournalState, **types: str) -> None:
        """Make the tables of an empty database. types: what it calls `int`, `bytes`, `text`."""
        for table, columns in TABLES.items():
            described = []
            for column in columns.split(", "):
                name, kind = column.rstrip("!").split()
                key = " PRIMARY KEY" if name == "seq" else " NOT NULL" if column[-1] == "!" else ""
                described.append(f"{name} {types[kind]}{key}")
            self.execute(f"CREATE TABLE {table} ({', '.join(described)})")
        for index in INDEXES:
            self.execute(index)
        self.execute(f"INSERT INTO {STATE} VALUES ({', '.join('?' * len(state))})", state)

    def state(self) -> JournalState:
        """The state.

        Raises:
            AuditError: There is none, or more than one, or somebody put something else there.
        """
        rows = self.execute(f"SELECT {', '.join(JournalState._fields)} FROM {STATE}")
        counts = ("version", "cut_seq", "head_seq", "size")
        types = [int if name in counts else bytes for name in JournalState._fields]
        if len(rows) != 1 or not all(map(isinstance, rows[0], types)):
            raise AuditError(
                f"the journal is damaged: its table {STATE} must have one row, of numbers and "
                f"hashes; it has {len(rows)}"
            )
        return JournalState(*rows[0])

    def save(self, state: JournalState) -> None:
        """Replace what changes with every transaction."""
        places = ", ".join(f"{name} = ?" for name in JournalState._fields[3:])
        self.execute(f"UPDATE {STATE} SET {places}", state[3:])

    def rows(self, condition: str, parameters: Sequence[Any], limit: int) -> list[Row]:
        """The first rows, in order, of which something is true."""
        found = self.execute(
            f"SELECT {COLUMNS} FROM {RECORDS} WHERE {condition} ORDER BY seq LIMIT {limit}",
            parameters,
        )
        return [Row(*row) for row in found]

    def page(self, after: int | None, *, chained: bool, kind: str | None = None) -> Page:
        """The rows that follow a number, as many as fit well into memory.

        chained: leave out those that are not between the cut and the head. kind: take this one.
        """
        state = self.state()
        n_records = max(state.head_seq - state.cut_seq, 1)
        limit = int(min(max(PAGE_BYTES * n_records // max(state.size, 1), 1), PAGE_ROWS))
        if chained:
            bounds = max(state.cut_seq, after or 0), state.head_seq
            one = "" if kind is None else f" AND kind = '{kind}'"
            return Page(state, self.rows(f"seq > ? AND seq <= ?{one}", bounds, limit))
        if after is None:
            return Page(state, self.rows("1 = 1", (), limit))
        return Page(state, self.rows("seq > ?", (after,), limit))

    def survey(self) -> Survey:
        state = self.state()
        n_rows = self.execute(f"SELECT count(*) FROM {RECORDS}")[0][0]
        bounds = state.cut_seq, state.head_seq
        counted = f"SELECT count(DISTINCT seq) FROM {RECORDS} WHERE seq > ? AND seq <= ?"
        return Survey(
            state, n_rows, self.execute(counted, bounds)[0][0], self.find_foreign(deep=True)
        )

    def hash_at(self, seq: int) -> bytes | None:
        found = self.execute(f"SELECT hash FROM {RECORDS} WHERE seq = ?", (seq,))
        return found[0][0] if found else None

    def last_about(self, kind: str, request: str, place: int) -> Row | None:
        """The last record of a kind about one row of a request."""
        state = self.state()
        found = self.execute(
            f"SELECT {COLUMNS} FROM {RECORDS} WHERE request = ? AND place = ? AND kind = ? "
            "AND seq > ? AND seq <= ? ORDER BY seq DESC LIMIT 1",
            (request, place, kind, state.cut_seq, state.head_seq),
        )
        return Row(*found[0]) if found else None

    def before(self, time: str) -> int:
        """The last number before the first record of this time or later; else that of the head."""
        state = self.state()
        found = self.execute(
            f"SELECT min(seq) FROM {RECORDS} WHERE time >= ? AND seq > ? AND seq <= ?",
            (time, state.cut_seq, state.head_seq),
        )
        return state.head_seq if found[0][0] is None else int(found[0][0]) - 1


def first_state(chain: Chain) -> JournalState:
    """The state of a new journal."""
    genesis = secrets.token_bytes(HASH_SIZE)
    seal = chain.seal(0, genesis)
    return JournalState(VERSION, genesis, chain.check_of(genesis), 0, genesis, 0, genesis, seal, 0)


def extend(
    chain: Chain, state: JournalState, entries: Sequence[Entry]
) -> tuple[list[Row], JournalState]:
    """The rows that continue a chain, and the state after them."""
    seq, last, rows, size = state.head_seq, state.head_hash, [], state.size
    for entry in entries:
        seq, last = seq + 1, chain.next(last, entry.body, entry.input)
        rows.append(Row(seq, last, *entry))
        size += len(entry.body) + len(entry.input or b"") + OVERHEAD
    seal = chain.seal(seq, last)
    return rows, state._replace(head_seq=seq, head_hash=last, seal=seal, size=size)
