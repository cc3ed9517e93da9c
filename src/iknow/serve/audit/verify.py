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
  there;
- rows beside the chain: there are more than lie between its beginning and its end;
- anything else in the database: a table, a column, a trigger, a view in the place of a table.

The journal may grow, and be pruned, meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

from iknow.core.text import shown
from iknow.errors import AuditError, IknowError
from iknow.serve.audit.inputs import decode_input
from iknow.serve.audit.journal import PRUNED, Journal
from iknow.serve.audit.records import (
    HASH_SIZE,
    LARGEST,
    Answer,
    Chain,
    Columns,
    Event,
    decode,
    encode,
)
from iknow.serve.audit.tables import JournalState, Page, Row, Survey

Assess = Callable[[str, Sequence[Any]], Columns | None]
"""From the sha256 of a bundle and its inputs to beliefs (JSON), assertions, reasons and levels,
one for each input; None if it does not know the bundle.
"""
MOST = 100
"""Problems to describe; the rest are counted."""
TRIED = 200
"""Broken records among which to look for exchanged places."""
CHANGED = "it was changed, or the one before it was"


class NotedHead(NamedTuple):
    """A head that was noted elsewhere: that record number `seq` has this hash."""

    seq: int
    hash: bytes

    @classmethod
    def from_text(cls, text: str) -> NotedHead:
        """The head that `iknow audit head` prints: SEQ:HASH.

        Examples:
            >>> NotedHead.from_text("12:" + "ab" * 32).seq
            12
        """
        seq, _, digits = text.strip().partition(":")
        try:
            if (
                not (seq.isascii() and seq.isdigit())
                or len(seq) > 18
                or len(digits) != 2 * HASH_SIZE
            ):
                raise ValueError
            return cls(int(seq), bytes.fromhex(digits))
        except ValueError:
            raise AuditError(
                f"a head must be SEQ:HASH as `iknow audit head` prints it; got {shown(text)}"
            ) from None


@dataclass
class Verification:
    """What verifying found.

    Attributes:
        name: The journal.
        is_keyed: Whether the hashes depend on a secret key.
        first: Number of the first record that is there; 0 if there is none.
        last: Number of the last.
        head: The hash of the last, in hexadecimal.
        n_records: How many were read.
        n_answers: How many of them are answers.
        n_derived: How many answers were derived again.
        n_problems: How many problems there are.
        problems: The first of them, in words, by record; then those of the whole.
    """

    name: str
    is_keyed: bool
    first: int = 0
    last: int = 0
    head: str = ""
    n_records: int = 0
    n_answers: int = 0
    n_derived: int = 0
    n_problems: int = 0
    problems: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Whether nothing is wrong."""
        return self.n_problems == 0


@dataclass
class Verifier:
    """Where it is in the chain, and what it has found."""

    chain: Chain
    noted: dict[int, bytes]
    found: Verification
    seq: int = 0
    hash: bytes = b""
    n_foreign: int = 0
    problems: list[tuple[int | None, str]] = field(default_factory=list)
    state: JournalState | None = None
    broken: list[tuple[Row, bytes]] = field(default_factory=list)
    cut: tuple[int, str] | None = None
    vouched: bool = False

    def report(self, seq: int | None, problem: str) -> None:
        self.found.n_problems += 1
        if len(self.problems) < MOST:
            self.problems.append((seq, problem))

    def begin(self, state: JournalState, start: NotedHead | None) -> None:
        self.state = state
        self._enter(state)
        if start is not None and start.seq > state.cut_seq:
            (self.seq, self.hash), self.vouched = start, True
        self._meet_noted()

    def _enter(self, state: JournalState) -> None:
        """Start, or start again, where pruning ended."""
        self.seq, self.hash = state.cut_seq, state.cut_hash
        self.cut, self.vouched = (state.cut_seq, state.cut_hash.hex()), state.cut_seq == 0
        if state.cut_seq == 0 and state.cut_hash != state.genesis:
            self.report(None, "the chain does not begin with the journal's genesis")

    def step(self, row: Row, state: JournalState) -> None:
        """Check one row against those before it."""
        if not state.has(row.seq):
            self.n_foreign += 1
            ends = f"which goes from {state.cut_seq + 1} to {state.head_seq}"
            self.report(row.seq, f"it is no part of the chain, {ends}")
            return
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
        self.found.first = self.found.first or row.seq
        self.seq, self.hash = row.seq, bytes(row.hash)
        self.found.n_records += 1
        self._check_content(row)
        self._meet_noted()

    def _meet_noted(self) -> None:
        known = self.noted.pop(self.seq, None)
        if known is not None and known != self.hash:
            self.report(self.seq, "its hash is not that of the head that was noted")

    def _check_content(self, row: Row) -> None:
        """The columns to search by, and the input, must agree with the record."""
        try:
            record = decode(row.body, row.input)
            entry = encode(record)
        except AuditError as error:
            self.report(row.seq, str(error))
            return
        if entry[:4] != row[2:6]:
            self.report(row.seq, "its columns were changed: they differ from the record itself")
        elif entry != row[2:]:
            self.report(row.seq, "it is not written as a record is")
        if isinstance(record, Answer):
            self.found.n_answers += 1
            content, known = record.input, record.input_hash
            if content is not None and sha256(content).hexdigest() != known:
                self.report(row.seq, "its input does not have the hash that was recorded")
        if isinstance(record, Event) and record.what == PRUNED and self.cut is not None:
            through = record.details.get("through"), record.details.get("hash")
            self.vouched = self.vouched or through == self.cut

    def finish(self, survey: Survey) -> None:
        """What can be said only at the end."""
        state = self.state
        assert state is not None
        self._explain_broken()
        if not self.vouched:
            self.report(
                None,
                f"records up to {state.cut_seq} are missing, and nothing in the chain says that "
                "they were pruned",
            )
        if (self.seq, self.hash) != (state.head_seq, state.head_hash):
            self.report(
                None,
                f"the chain ends with record {self.seq}, and not with {state.head_seq}, the head "
                "that the journal notes, or with another hash",
            )
        if self.chain.seal(state.head_seq, state.head_hash) != state.seal:
            self.report(None, "the journal's note of its head was changed")
        self._compare(survey)
        for seq in self.noted:
            where = "was pruned, and cannot be compared" if seq <= state.cut_seq else "is missing"
            self.report(None, f"record {seq}, a head that was noted, {where}")
        ordered = sorted(self.problems, key=lambda each: LARGEST if each[0] is None else each[0])
        self.found.problems = tuple(
            told if seq is None else f"record {seq}: {told}" for seq, told in ordered[:MOST]
        )
        self.found.last, self.found.head = self.seq, self.hash.hex()

    def _compare(self, survey: Survey) -> None:
        """Everything in the database must be in the chain."""
        beside = survey.n_rows - survey.n_chained
        if beside and not self.n_foreign:
            self.report(None, f"{beside} rows of its table are no part of the chain")
        n_expected = survey.state.head_seq - survey.state.cut_seq
        if survey.n_chained != n_expected and not self.found.n_problems:
            self.report(
                None, f"its table has {survey.n_chained} records, and its chain {n_expected}"
            )
        for what in survey.foreign:
            self.report(None, what)

    def derive(self, rows: Sequence[Row], assess: Assess, tolerance: float) -> None:
        """Compare the answers among rows with those that their inputs give now.

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
                self.report(row.seq, str(error))
                continue
            form = getattr(content, "dtype", None), getattr(content, "shape", type(content))
            by_bundle.setdefault((record.bundle, str(form)), []).append((row.seq, record, content))
        for (bundle, _), found in by_bundle.items():
            try:
                columns = assess(bundle, [content for _, _, content in found])
            except IknowError as error:
                self.report(found[0][0], f"it and {len(found) - 1} more cannot be derived: {error}")
                continue
            if columns is not None:
                self.found.n_derived += len(found)
                for (seq, record, _), now in zip(found, zip(*columns, strict=True), strict=True):
                    for difference in _differences(record, now, tolerance):
                        self.report(seq, difference)

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


def verify(
    journal: Journal,
    *,
    heads: Sequence[NotedHead] = (),
    start: NotedHead | None = None,
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
    found = Verification(journal.name, journal.chain.is_keyed)
    verifier = Verifier(journal.chain, {head.seq: head.hash for head in heads}, found)
    if len(verifier.noted) < len(set(heads)):
        verifier.report(None, "two different heads are given for the same record")
    for page in _pages(journal, verifier, start):
        if assess is not None:
            rows = [row for row in page.rows if page.state.has(row.seq)]
            verifier.derive(rows, assess, level_tolerance)
        told(found.n_records)
    verifier.finish(journal.survey())
    return found


def _pages(journal: Journal, verifier: Verifier, start: NotedHead | None) -> Iterator[Page]:
    """Go through all pages; the last one is empty, and shows the final state."""
    page = journal.page(None if start is None else start.seq)
    journal.check_key(page.state)
    verifier.begin(page.state, start)
    while page.rows:
        for row in page.rows:
            verifier.step(row, page.state)
        yield page
        page = journal.page(page.rows[-1].seq)
    verifier.state = page.state
