"""What all journals in a database have in common: extending the chain, reading, pruning.

A transaction reads the state, extends the chain from the head that it finds there, and stores rows
and state together. So no head is kept in memory, where it could be wrong after a failure, and even
two writers could not fork the chain.

A commit whose acknowledgement is lost may have happened or not. A backend then runs the same work
again in a new transaction; the work looks for its own last hash, which no other records have, and
is done if it finds it. So records are neither lost nor doubled.
"""

from __future__ import annotations

import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Self, TypeVar

from iknow.errors import AuditError
from iknow.serve.audit.chain import SIZE, Chain, Entry, decode, encode, to_key
from iknow.serve.audit.ledger import VERSION, Ledger, Page, Row, State, size_of
from iknow.serve.audit.record import LARGEST, Answer, Event, Record, now
from iknow.serve.audit.retention import STEP, Retention, choose

Result = TypeVar("Result")


class StoredJournal(ABC):
    """A `Journal` in a database; a backend says how transactions run."""

    def __init__(
        self, name: str, chain: Chain, retention: Retention | None, *, readonly: bool
    ) -> None:
        self.name, self.chain, self.retention, self.readonly = name, chain, retention, readonly
        self._writing, self._reading = threading.RLock(), threading.RLock()
        self._closed = False
        self._genesis: bytes | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None: ...

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    @abstractmethod
    def _change(self, work: Callable[[Ledger], Result]) -> Result:
        """Run work in a transaction that is durable when this returns; `work` may run twice."""

    @abstractmethod
    def _read(self, work: Callable[[Ledger], Result]) -> Result:
        """Run work that changes nothing, on one state of the journal."""

    @abstractmethod
    def _used(self, ledger: Ledger, state: State) -> float:
        """Bytes that the records take on disk."""

    def append(self, records: Sequence[Record]) -> None:
        self.write([encode(record) for record in records])

    def write(self, entries: Sequence[Entry]) -> None:
        self._check_open(to_write=True)
        if not entries:
            return
        wanted: list[State] = []

        def work(ledger: Ledger) -> None:
            if wanted and ledger.hash_at(wanted[0].head_seq) == wanted[0].head_hash:
                return  # it was committed, and only the acknowledgement was lost
            rows, state = extend(self.chain, self.state_of(ledger), entries)
            wanted[:] = [state]
            ledger.insert(rows)
            ledger.save(state)

        with self._writing:
            self._change(work)

    def find(self, request: str, row: int) -> Answer | None:
        self._check_open()
        if not 0 <= row <= LARGEST:
            return None
        with self._reading:
            found = self._read(lambda ledger: ledger.answer_to(to_key(request), row))
        if found is None:
            return None
        answer = decode(*found)
        return answer if isinstance(answer, Answer) else None

    def labelled(self, request: str, row: int) -> bool:
        self._check_open()
        if not 0 <= row <= LARGEST:
            return False
        with self._reading:
            return self._read(lambda ledger: ledger.has_label(to_key(request), row))

    def records(self, after: int = 0) -> Iterator[tuple[int, Record]]:
        while rows := self.page(after).rows:
            for row in rows:
                yield row.seq, decode(row.body, row.input)
            after = rows[-1].seq

    def events(self) -> Iterator[Event]:
        self._check_open()
        after = 0
        while found := self._events(after):
            records = [decode(body) for _, body in found]
            yield from (each for each in records if isinstance(each, Event))
            after = found[-1][0]

    def _events(self, after: int) -> list[tuple[int, bytes]]:
        with self._reading:
            return self._read(lambda ledger: ledger.events(after))

    def page(self, after: int = 0) -> Page:
        self._check_open()
        with self._reading:
            return self._read(lambda ledger: ledger.page(after))

    def before(self, time: str) -> int:
        self._check_open()
        with self._reading:
            return self._read(lambda ledger: ledger.before(time))

    def head(self) -> tuple[int, str]:
        self._check_open()
        with self._reading:
            state = self._read(Ledger.state)
        return state.head_seq, state.head_hash.hex()

    def prune(self) -> bool:
        retention = self.retention
        if retention is None or (retention.max_age is None and retention.max_bytes is None):
            return False
        self._check_open(to_write=True)
        with self._writing:
            return self._change(self._prune)

    def _prune(self, ledger: Ledger) -> bool:
        assert self.retention is not None
        state = self.state_of(ledger)
        used = self._used(ledger, state)
        scale = used / max(state.size, 1)  # from bytes of records to bytes on disk
        oldest = [old._replace(size=old.size * scale) for old in ledger.oldest(STEP)]
        count = choose(self.retention, oldest, used)
        if not count:
            return False
        last, freed = oldest[count - 1].seq, sum(old.size for old in oldest[:count]) / scale
        cut = ledger.hash_at(last) or b""
        details = {"first": state.cut_seq + 1, "through": last, "hash": cut.hex()}
        rows, after = extend(self.chain, state, [encode(Event(now(), "pruned", "", details))])
        ledger.insert(rows)
        ledger.delete(last)
        left = max(round(after.size - freed), 0)
        ledger.save(after._replace(cut_seq=last, cut_hash=cut, size=left))
        return count == STEP

    def state_of(self, ledger: Ledger) -> State:
        """The state, if it is that of this journal, and fits this version."""
        state = ledger.state()
        if state.version != VERSION:
            raise AuditError(
                f"{self.name} has version {state.version}; this version of iknow reads {VERSION}: "
                "use the one that wrote it, or a newer one"
            )
        if self._genesis not in (None, state.genesis):
            raise AuditError(f"{self.name} was replaced by another journal while it was open")
        if not self.readonly:
            check_key_of(self.name, state, self.chain)
        return state

    def _begin(self) -> None:
        """Look at what was opened; from now on it must stay the same journal."""

        def look(ledger: Ledger) -> tuple[State, bool]:
            state = self.state_of(ledger)
            ends = state.head_seq == state.cut_seq
            return state, ends or ledger.hash_at(state.head_seq) == state.head_hash

        state, is_whole = self._read(look)
        if not (self.readonly or is_whole):
            raise AuditError(
                f"{self.name} is damaged: its last record is missing or was changed. Keep it, see "
                "what `iknow audit verify` says, and name a new one"
            )
        self._genesis = state.genesis

    def _check_open(self, *, to_write: bool = False) -> None:
        if self._closed:
            raise AuditError(f"{self.name} is closed")
        if to_write and self.readonly:
            raise AuditError(f"{self.name} was opened for reading: open it without readonly")


def check_key_of(name: str, state: State, chain: Chain) -> None:
    """Refuse a key other than the journal's."""
    if state.key_check == chain.check_of(state.genesis):
        return
    if not state.key_check:
        wrong = "was made without a key, but one is given: leave it out, or name a new journal"
    elif not chain.is_keyed:
        wrong = "was made with a key: set IKNOW_AUDIT_KEY or IKNOW_AUDIT_KEY_FILE"
    else:
        wrong = "was made with another key: give that one, in IKNOW_AUDIT_KEY(_FILE)"
    raise AuditError(f"{name} {wrong}")


def first_state(chain: Chain) -> State:
    """The state of a new journal."""
    genesis = secrets.token_bytes(SIZE)
    seal = chain.seal(0, genesis)
    return State(VERSION, genesis, chain.check_of(genesis), 0, genesis, 0, genesis, seal, 0)


def extend(chain: Chain, state: State, entries: Sequence[Entry]) -> tuple[list[Row], State]:
    """The rows that continue a chain, and the state after them."""
    seq, last, rows = state.head_seq, state.head_hash, []
    for kind, time, request, place, body, content in entries:
        seq, last = seq + 1, chain.next(last, body, content)
        rows.append(Row(seq, last, kind, time, request, place, body, content))
    size = state.size + size_of(rows)
    seal = chain.seal(seq, last)
    return rows, state._replace(head_seq=seq, head_hash=last, seal=seal, size=size)
