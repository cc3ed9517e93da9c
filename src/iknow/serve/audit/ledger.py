"""The ledger: two tables in a database, and all SQL that there is.

`iknow_audit_state` has one row: the genesis, where the chain begins (the cut: the last record that
was removed), where it ends (the head), and the seal of the head. `iknow_audit_records` has a row
for each record. Both change together, in one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import NoneType
from typing import Any, NamedTuple

from iknow.errors import AuditError
from iknow.serve.audit.chain import decode
from iknow.serve.audit.record import Event
from iknow.serve.audit.retention import Old

VERSION = 1
OVERHEAD = 200
"""Bytes of a row beyond its record: its hash, its numbers, its places in the indexes."""
PAGE_BYTES, PAGE_ROWS = 1 << 24, 1000

TABLES = (
    """CREATE TABLE iknow_audit_state (
        version {int} NOT NULL, genesis {bytes} NOT NULL, key_check {bytes} NOT NULL,
        cut_seq {int} NOT NULL, cut_hash {bytes} NOT NULL,
        head_seq {int} NOT NULL, head_hash {bytes} NOT NULL, seal {bytes} NOT NULL,
        size {int} NOT NULL)""",
    """CREATE TABLE iknow_audit_records (
        seq {int} PRIMARY KEY, hash {bytes} NOT NULL, kind TEXT NOT NULL, time TEXT NOT NULL,
        request TEXT, place {int}, body {bytes} NOT NULL, input {bytes})""",
    """CREATE INDEX iknow_audit_by_request ON iknow_audit_records (request, place)
        WHERE request IS NOT NULL""",
    "CREATE INDEX iknow_audit_by_time ON iknow_audit_records (time)",
)
COLUMNS = "seq, hash, kind, time, request, place, body, input"


class State(NamedTuple):
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


STATE_TYPES = (int, bytes, bytes, int, bytes, int, bytes, bytes, int)


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
        types = (int, bytes, str, str, texts, numbers, bytes, (bytes, NoneType))
        return _has_types(self, types)


class Page(NamedTuple):
    """Some rows in their order, and the state of the journal at the moment they were read."""

    state: State
    rows: list[Row]


class Ledger:
    """The tables within one transaction.

    execute: runs a statement with its parameters, whose places are marked by ?, and returns rows.
    insert: adds rows to the second table.
    """

    def __init__(
        self,
        execute: Callable[[str, Sequence[Any]], list[tuple[Any, ...]]],
        insert: Callable[[Sequence[Row]], Any],
    ) -> None:
        self._execute, self.insert = execute, insert

    def create(self, types: dict[str, str], state: State) -> None:
        """Make the tables of an empty database."""
        for table in TABLES:
            self._execute(table.format(**types), ())
        marks = ", ".join("?" * len(state))
        self._execute(f"INSERT INTO iknow_audit_state VALUES ({marks})", state)

    def state(self) -> State:
        """The state.

        Raises:
            AuditError: There is none, or more than one, or somebody put something else there.
        """
        rows = self._execute(f"SELECT {', '.join(State._fields)} FROM iknow_audit_state", ())
        if len(rows) != 1 or not _has_types(rows[0], STATE_TYPES):
            raise AuditError(
                "the journal is damaged: its table iknow_audit_state must have one row, of numbers "
                f"and hashes; it has {len(rows)}"
            )
        return State(*rows[0])

    def save(self, state: State) -> None:
        """Replace what changes with every transaction."""
        self._execute(
            "UPDATE iknow_audit_state SET cut_seq = ?, cut_hash = ?, head_seq = ?, head_hash = ?, "
            "seal = ?, size = ?",
            state[3:],
        )

    def delete(self, through: int) -> None:
        self._execute("DELETE FROM iknow_audit_records WHERE seq <= ?", (through,))

    def page(self, after: int) -> Page:
        """The rows that follow number `after`, as many as fit well into memory."""
        state = self.state()
        n_records = max(state.head_seq - state.cut_seq, 1)
        limit = int(min(max(PAGE_BYTES * n_records // max(state.size, 1), 1), PAGE_ROWS))
        found = self._execute(
            f"SELECT {COLUMNS} FROM iknow_audit_records WHERE seq > ? ORDER BY seq LIMIT ?",
            (after, limit),
        )
        return Page(state, [Row(*row) for row in found])

    def hash_at(self, seq: int) -> bytes | None:
        found = self._execute("SELECT hash FROM iknow_audit_records WHERE seq = ?", (seq,))
        return found[0][0] if found else None

    def has_label(self, request: str, place: int) -> bool:
        """Whether a label came for a row of a request."""
        found = self._execute(
            "SELECT 1 FROM iknow_audit_records WHERE request = ? AND place = ? AND "
            "kind = 'label' LIMIT 1",
            (request, place),
        )
        return bool(found)

    def answer_to(self, request: str, place: int) -> tuple[bytes, bytes | None] | None:
        """The body and the input of the last answer about one row of a request."""
        found = self._execute(
            "SELECT body, input FROM iknow_audit_records WHERE request = ? AND place = ? AND "
            "kind = 'answer' ORDER BY seq DESC LIMIT 1",
            (request, place),
        )
        return (found[0][0], found[0][1]) if found else None

    def events(self, after: int) -> list[tuple[int, bytes]]:
        """The numbers and bodies of some events that follow number `after`."""
        found = self._execute(
            "SELECT seq, body FROM iknow_audit_records WHERE seq > ? AND kind = 'event' "
            "ORDER BY seq LIMIT ?",
            (after, PAGE_ROWS),
        )
        return [(seq, body) for seq, body in found]

    def before(self, time: str) -> int:
        """The last number before the first record of this time or later; else that of the head."""
        found = self._execute("SELECT min(seq) FROM iknow_audit_records WHERE time >= ?", (time,))
        return self.state().head_seq if found[0][0] is None else int(found[0][0]) - 1

    def oldest(self, count: int) -> list[Old]:
        found = self._execute(
            "SELECT seq, time, length(body) + coalesce(length(input), 0), "
            "CASE WHEN kind = 'event' THEN body END FROM iknow_audit_records ORDER BY seq LIMIT ?",
            (count,),
        )
        return [Old(seq, time, size + OVERHEAD, _prunes(body)) for seq, time, size, body in found]


def _has_types(values: Sequence[Any], types: Sequence[Any]) -> bool:
    return all(isinstance(value, kind) for value, kind in zip(values, types, strict=True))


def _prunes(body: bytes | None) -> bool:
    if body is None:
        return False
    record = decode(body)
    return isinstance(record, Event) and record.what == "pruned"


def size_of(rows: Iterable[Row]) -> int:
    """Bytes that rows take, about."""
    return sum(len(row.body) + len(row.input or b"") + OVERHEAD for row in rows)
