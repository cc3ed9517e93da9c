"""Verifying: that a journal is what was written, and that its answers follow from their inputs.

Without a key, or a head that was noted elsewhere, who can write to the journal could have made all
of it anew; see `chain` for what can be seen.

A walk along the chain names every place where it does not hold. After a break it goes on from the
hash that is stored there, so that one changed record is one problem and not the end. What each
problem looks like:

- a changed record: its own hash does not fit, the next record's does;
- a missing record: a number is left out;
- records that changed places: the content of one fits the place of another;
- a hash that was replaced: the record fits, the next one does not;
- a beginning that is missing: no event "pruned" in the chain states the hash that it begins with;
- an end that is missing: the head that the journal notes, or one that was noted elsewhere, is not
  there.

The journal may grow, and be pruned, meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

from iknow.core.text import shown
from iknow.errors import AuditError, IknowError
from iknow.serve.audit.chain import SIZE, Chain, columns_of, decode
from iknow.serve.audit.inputs import decode_input
from iknow.serve.audit.journal import Journal
from iknow.serve.audit.ledger import Page, Row, State
from iknow.serve.audit.record import LARGEST, Answer, Event
from iknow.serve.audit.stored import check_key_of

Columns = tuple[Sequence[str], Sequence[str], Sequence[str], Sequence[float | None]]
Assess = Callable[[str, Sequence[Any]], Columns | None]
"""From the sha256 of a bundle and its inputs to beliefs (JSON), assertions, reasons and levels,
one for each input; None if it does not know the bundle.
"""
MOST = 100
"""Problems to describe; the rest are counted."""
TRIED = 200
"""Broken records among which to look for exchanged places."""
CHANGED = "it was changed, or the one before it was"


def derive(rows: Sequence[Row], assess: Assess, tolerance: float, walk: Walk) -> int:
    """Compare the answers among rows with those that their inputs give now; returns how many.

    A difference: the record is not true, or the bundle no longer answers as it did.
    """
    by_bundle: dict[tuple[str, Any], list[tuple[int, Answer, Any]]] = {}
    for row in rows:
        try:
            record = decode(row.body, row.input)
            if not isinstance(record, Answer) or record.input is None:
                continue
            content = decode_input(record.input)
        except AuditError as error:
            walk.report(row.seq, str(error))
            continue
        form = getattr(content, "dtype", None), getattr(content, "shape", type(content))
        by_bundle.setdefault((record.bundle, str(form)), []).append((row.seq, record, content))
    n_derived = 0
    for (bundle, _), found in by_bundle.items():
        try:
            columns = assess(bundle, [content for _, _, content in found])
        except IknowError as error:
            walk.report(found[0][0], f"it and {len(found) - 1} more cannot be derived: {error}")
            continue
        if columns is not None:
            n_derived += len(found)
            for (seq, record, _), now in zip(found, zip(*columns, strict=True), strict=True):
                for difference in _differences(record, now, tolerance):
                    walk.report(seq, difference)
    return n_derived


def _differences(record: Answer, now: tuple[Any, ...], tolerance: float) -> Iterator[str]:
    """What differs between a recorded answer and one derived from its input."""
    names: Mapping[str, Any] = {
        "belief": record.belief, "assertion": record.assertion, "reason": record.reason
    }  # fmt: skip
    for (name, then), value in zip(names.items(), now[:3], strict=True):
        if then != value:
            yield f"its {name} was recorded as {shown(then)}; its input gives {shown(value)}"
    level = now[3]
    both = record.level is not None and level is not None
    if (record.level is None) != (level is None) or (
        both and abs(float(level) - float(record.level)) > tolerance  # type: ignore[arg-type]
    ):
        yield f"its level was recorded as {record.level}; its input gives {level}"


class Anchor(NamedTuple):
    """A head that was noted elsewhere: that record number `seq` has this hash."""

    seq: int
    hash: bytes

    @classmethod
    def from_text(cls, text: str) -> Anchor:
        """The anchor that `iknow audit head` prints: SEQ:HASH.

        Examples:
            >>> Anchor.from_text("12:" + "ab" * 32).seq
            12
        """
        seq, _, digits = text.strip().partition(":")
        try:
            if not (seq.isascii() and seq.isdigit()) or len(seq) > 18 or len(digits) != 2 * SIZE:
                raise ValueError
            return cls(int(seq), bytes.fromhex(digits))
        except ValueError:
            raise AuditError(
                f"a head must be SEQ:HASH as `iknow audit head` prints it; got {shown(text)}"
            ) from None


@dataclass
class Walk:
    """Where the walk is, and what it has seen."""

    chain: Chain
    anchors: dict[int, bytes]
    seq: int = 0
    hash: bytes = b""
    first: int = 0
    n_records: int = 0
    n_answers: int = 0
    n_problems: int = 0
    problems: list[tuple[int, str]] = field(default_factory=list)
    state: State | None = None
    broken: list[tuple[Row, bytes]] = field(default_factory=list)
    cut: tuple[int, str] | None = None
    vouched: bool = False

    def report(self, seq: int, problem: str) -> None:
        self.n_problems += 1
        if len(self.problems) < MOST:
            self.problems.append((seq, problem))

    def told(self) -> tuple[str, ...]:
        """The first problems in words, in the order of the records; then those of the whole."""
        ordered = sorted(self.problems, key=lambda problem: problem[0] or LARGEST)
        return tuple(f"record {seq}: {told}" if seq else told for seq, told in ordered[:MOST])

    def begin(self, state: State, start: Anchor | None) -> None:
        self.state = state
        self._enter(state)
        if start is not None and start.seq > state.cut_seq:
            (self.seq, self.hash), self.vouched = start, True
        self._meet_anchor()

    def _enter(self, state: State) -> None:
        """Start, or start again, where pruning ended."""
        self.seq, self.hash = state.cut_seq, state.cut_hash
        self.cut, self.vouched = (state.cut_seq, state.cut_hash.hex()), state.cut_seq == 0
        if state.cut_seq == 0 and state.cut_hash != state.genesis:
            self.report(0, "the chain does not begin with the journal's genesis")

    def step(self, row: Row, state: State) -> None:
        """Check one row against those before it."""
        if row.seq != self.seq + 1 and state.cut_seq > self.seq:
            self._enter(state)  # it was pruned while we read
        if not row.is_sound:
            self.report(self.seq + 1, "it was changed: it has values of other types")
            return
        if row.seq != self.seq + 1:
            missing = f"{self.seq + 1} to {row.seq - 1}"
            self.report(row.seq, f"the records before it are missing: {missing}")
        elif self.chain.next(self.hash, row.body, row.input) != row.hash:
            if len(self.broken) < TRIED:
                self.broken.append((row, self.hash))
            else:
                self.report(row.seq, CHANGED)
        self.first = self.first or row.seq
        self.seq, self.hash = row.seq, bytes(row.hash)
        self.n_records += 1
        self._check_content(row)
        self._meet_anchor()

    def _meet_anchor(self) -> None:
        known = self.anchors.pop(self.seq, None)
        if known is not None and known != self.hash:
            self.report(self.seq, "its hash is not that of the head that was noted")

    def _check_content(self, row: Row) -> None:
        """The columns to search by, and the input, must agree with the record."""
        try:
            record = decode(row.body, row.input)
        except AuditError as error:
            self.report(row.seq, str(error))
            return
        if columns_of(record) != (row.kind, row.time, row.request, row.place):
            self.report(row.seq, "its columns were changed: they differ from the record itself")
        if isinstance(record, Answer):
            self.n_answers += 1
            content, known = record.input, record.input_hash
            if content is not None and sha256(content).hexdigest() != known:
                self.report(row.seq, "its input does not have the hash that was recorded")
        if isinstance(record, Event) and record.what == "pruned" and self.cut is not None:
            found = record.details.get("through"), record.details.get("hash")
            self.vouched = self.vouched or found == self.cut

    def finish(self) -> None:
        """What can be said only at the end."""
        state = self.state
        assert state is not None
        self._explain_broken()
        if not self.vouched:
            self.report(0, f"records up to {state.cut_seq} are missing, and nothing in the chain "
                           "says that they were pruned")  # fmt: skip
        if (self.seq, self.hash) != (state.head_seq, state.head_hash):
            self.report(0, f"the chain ends with record {self.seq}, and not with {state.head_seq}, "
                           "the head that the journal notes, or with another hash")  # fmt: skip
        if self.chain.seal(state.head_seq, state.head_hash) != state.seal:
            self.report(0, "the journal's note of its head was changed")
        for seq in self.anchors:
            where = "was pruned, and cannot be compared" if seq <= state.cut_seq else "is missing"
            self.report(0, f"record {seq}, a head that was noted, {where}")

    def _explain_broken(self) -> None:
        """Tell records that changed places from changed ones."""
        others, self.problems = self.problems, []  # what breaks the chain comes first
        for row, _ in self.broken:
            places = (
                other.seq
                for other, before in self.broken
                if other is not row and self.chain.next(before, row.body, row.input) == other.hash
            )
            place = next(places, None)
            self.report(
                row.seq,
                CHANGED if place is None else f"it changed places: it is what record {place} was",
            )
        self.problems += others


@dataclass(frozen=True)
class Verification:
    """What verifying found.

    Attributes:
        name: The journal.
        first: Number of the first record that is there; 0 if there is none.
        last: Number of the last.
        head: The hash of the last, in hexadecimal.
        n_records: How many were read.
        n_answers: How many of them are answers.
        n_derived: How many answers were derived again.
        n_problems: How many problems there are.
        problems: The first of them, in words, by record.
        is_keyed: Whether the hashes depend on a secret key.
    """

    name: str
    first: int
    last: int
    head: str
    n_records: int
    n_answers: int
    n_derived: int
    n_problems: int
    problems: tuple[str, ...]
    is_keyed: bool

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong."""
        return self.n_problems == 0


def verify(
    journal: Journal,
    *,
    heads: Sequence[Anchor] = (),
    start: Anchor | None = None,
    assess: Assess | None = None,
    level_tolerance: float = 0.0,
    told: Callable[[int], None] = lambda _: None,
) -> Verification:
    """Check a journal, which may be in use.

    Args:
        journal: Open, for reading at least.
        heads: Heads that were noted elsewhere, to be found in the chain.
        start: A record up to which all is known to be well. Default: all records are checked.
        assess: Derives answers from the inputs that were kept. Default: they are not derived.
        level_tolerance: How far a derived level may be from the recorded one.
        told: Is called with the number of records that are done.

    Raises:
        AuditError: The journal cannot be read, or needs another key.

    Examples:
        >>> from iknow.serve.audit import Event, now, open_journal
        >>> with open_journal("verified.db") as journal:
        ...     journal.append([Event(now(), "start")])
        ...     verify(journal).holds
        True
    """
    walk = Walk(journal.chain, {anchor.seq: anchor.hash for anchor in heads})
    if len(walk.anchors) < len(set(heads)):
        walk.report(0, "two different heads are given for the same record")
    n_derived = 0
    for page in _pages(journal, walk, start):
        if assess is not None:
            n_derived += derive(page.rows, assess, level_tolerance, walk)
        told(walk.n_records)
    walk.finish()
    return Verification(
        journal.name, walk.first, walk.seq, walk.hash.hex(), walk.n_records, walk.n_answers,
        n_derived, walk.n_problems, walk.told(), journal.chain.is_keyed,
    )  # fmt: skip


def _pages(journal: Journal, walk: Walk, start: Anchor | None) -> Iterator[Page]:
    """Walk through all pages; the last one is empty, and shows the final state."""
    page = journal.page(0 if start is None else start.seq)
    check_key_of(journal.name, page.state, journal.chain)
    walk.begin(page.state, start)
    while page.rows:
        for row in page.rows:
            walk.step(row, page.state)
        yield page
        page = journal.page(page.rows[-1].seq)
    walk.state = page.state
