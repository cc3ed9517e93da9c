"""The tables of a journal, and the SQL about them that is the same for every database.

`iknow_audit_state` has one row: the genesis, where the chain begins (the cut: the last record that
was removed), where it ends (the head), and the seal of the head. `iknow_audit_records` has a row
for each record. Both change together, in one transaction. Their columns are the fields of
`JournalState` and `Row`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, get_args, get_type_hints

from iknow.errors import AuditError
from iknow.serve.audit.records import HASH_SIZE, Chain, Row

VERSION = 1
PAGE_BYTES, PAGE_ROWS = 1 << 24, 1000


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


STATE, RECORDS = "iknow_audit_state", "iknow_audit_records"
TABLES = {STATE: get_type_hints(JournalState), RECORDS: get_type_hints(Row)}
INDEXES = (
    f"CREATE INDEX iknow_audit_by_request ON {RECORDS} (request, place) WHERE request IS NOT NULL",
    f"CREATE INDEX iknow_audit_events ON {RECORDS} (kind, seq) WHERE kind = 'event'",
)
COLUMNS = ", ".join(Row._fields)


class Page(NamedTuple):
    """Some rows in their order, and the state of the journal at the moment they were read."""

    state: JournalState
    rows: list[Row]


def is_sound(row: Row | JournalState) -> bool:
    """Whether the values of a row have their types: SQLite holds what it is given."""
    hints = TABLES[RECORDS if isinstance(row, Row) else STATE]
    return all(map(isinstance, row, hints.values()))


class Tables:
    """The tables within one transaction of a connection; as SQLite has them, unless overridden.

    Attributes:
        mark: What marks the places of parameters in a statement.
        types: What the database calls its types.
    """

    mark = "?"
    types: Mapping[type, str] = {int: "INTEGER", bytes: "BLOB", str: "TEXT"}

    def __init__(self, connection: Any) -> None:
        self.connection = connection

    def execute(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run a statement, in which ? marks the places of parameters; returns rows."""
        cursor = self.connection.execute(statement.replace("?", self.mark), parameters)
        return cursor.fetchall() if cursor.description else []

    def columns(self, table: str) -> Iterator[tuple[str, str, bool]]:
        """The name of each column of a table, its type, and whether it may be NULL."""
        for name, hint in TABLES[table].items():
            kind = (*get_args(hint), hint)[0]
            yield name, self.types[kind], kind is not hint

    def create(self, chain: Chain) -> None:
        """Make the tables of a new journal in an empty database."""
        for table in TABLES:
            columns = [
                f"{name} {kind}"
                + (" PRIMARY KEY" if name == "seq" else "" if optional else " NOT NULL")
                for name, kind, optional in self.columns(table)
            ]
            self.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
        for index in INDEXES:
            self.execute(index)
        genesis = secrets.token_bytes(HASH_SIZE)
        seal, check = chain.seal(0, genesis), chain.check_of(genesis)
        state = JournalState(VERSION, genesis, check, 0, genesis, 0, genesis, seal, 0)
        self.execute(f"INSERT INTO {STATE} VALUES ({', '.join('?' * len(state))})", *state)

    def state(self) -> JournalState:
        """The state.

        Raises:
            AuditError: There is none, or more than one, or somebody put something else there.
        """
        rows = self.execute(f"SELECT {', '.join(JournalState._fields)} FROM {STATE}")
        if len(rows) != 1 or not is_sound(state := JournalState(*rows[0])):
            raise AuditError(
                f"the journal is damaged: its table {STATE} must have one row, of numbers and "
                f"hashes; it has {len(rows)}"
            )
        return state

    def save(self, state: JournalState) -> None:
        """Replace what changes with every transaction."""
        places = ", ".join(f"{name} = ?" for name in JournalState._fields[3:])
        self.execute(f"UPDATE {STATE} SET {places}", *state[3:])

    def insert(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Add rows to the table of records."""
        marks = ", ".join("?" * len(Row._fields))
        statement = f"INSERT INTO {RECORDS} ({COLUMNS}) VALUES ({marks})"
        self.connection.executemany(statement, rows)

    def find(self, condition: str, *parameters: Any, limit: int, order: str = "seq") -> list[Row]:
        """The first rows, in some order, of which a condition is true."""
        statement = f"SELECT {COLUMNS} FROM {RECORDS} WHERE {condition} ORDER BY {order}"
        return [Row(*row) for row in self.execute(f"{statement} LIMIT {limit}", *parameters)]

    def page(self, after: int | None, kind: str = "", since: str = "") -> Page:
        """The rows that follow a number, or all, that are of a kind and not earlier than a time.

        As many as fit well into memory.
        """
        state = self.state()
        n_records = max(state.head_seq - state.cut_seq, 1)
        limit = int(min(max(PAGE_BYTES * n_records // max(state.size, 1), 1), PAGE_ROWS))
        of_kind = f"kind = '{kind}'" if kind else "1 = 1"  # as it is in the index
        asked = {"seq > ?": after, "time >= ?": since or None}
        given = {each: value for each, value in asked.items() if value is not None}
        rows = self.find(" AND ".join([of_kind, *given]), *given.values(), limit=limit)
        return Page(state, rows)

    def hash_at(self, seq: int) -> bytes | None:
        found = self.execute(f"SELECT hash FROM {RECORDS} WHERE seq = ?", seq)
        return found[0][0] if found else None


def extend(
    chain: Chain, state: JournalState, rows: Sequence[Row]
) -> tuple[list[tuple[Any, ...]], JournalState]:
    """The rows with their places at the end of a chain, and the state after them."""
    seq, last, placed, size = state.head_seq, state.head_hash, [], state.size
    for row in rows:
        seq, last = seq + 1, chain.next(last, row.body, row.input)
        placed.append((seq, last, *row[2:]))
        size += row.size
    seal = chain.seal(seq, last)
    return placed, state._replace(head_seq=seq, head_hash=last, seal=seal, size=size)
