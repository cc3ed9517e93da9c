"""Verifying: that a journal is what was written, and that its answers follow from their inputs.

Without a key, or a head that was noted elsewhere, who can write to the journal could have made all
of it anew; see `iknow.serve.audit.records` for what can be seen.

A walk along the chain names every place where it does not hold. After a break it goes on from the
hash that is stored there, so that one changed record is one problem and not the end. What each
problem looks like:

- a changed record: its own hash does not fit, the next record's does;
- a hash that was replaced: the record fits, the next one does not;
- a missing record: a number is left out;
- records that changed places: neither fits at the place of the other;
- a beginning that is missing: no event "pruned" in the chain states the hash that it begins with;
- an end that is missing: the head that the journal notes, or one that was noted elsewhere, is not
  there;
- rows beside the chain: their numbers are not between its beginning and its end;
- anything else in the database: a table, a column, a trigger, a view in the place of a table.

The journal may grow, and be pruned, meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

from iknow.core.text import shown
from iknow.errors import AuditError, IknowError
from iknow.serve.audit.inputs import decode_input
from iknow.serve.audit.journal import PRUNED, Journal
from iknow.serve.audit.records import (
    LARGEST,
    Answer,
    Columns,
    Event,
    Record,
    Row,
    decode,
    encode,
)
from iknow.serve.audit.tables import JournalState, is_sound

Assess = Callable[[str, Sequence[Any]], Columns | None]
"""From the sha256 of a bundle and inputs to what it says about each; None if it is not known."""
HEAD = re.compile(r"([0-9]{1,18}):([0-9a-fA-F]{64})")
MOST = 100  # problems to describe; the rest are counted


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
        found = HEAD.fullmatch(text.strip())
        if found is None:
            raise AuditError(
                f"a head must be SEQ:HASH as `iknow audit head` prints it; got {shown(text)}"
            )
        return cls(int(found[1]), bytes.fromhex(found[2]))


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


class Verifier:
    """Walks along the chain of a journal; `found` is what it has found.

    heads: those that were noted elsewhere.
    """

    def __init__(self, journal: Journal, heads: Sequence[NotedHead]) -> None:
        self.found = Verification(journal.name, journal.chain.is_keyed)
        self._journal, self._chain = journal, journal.chain
        self._noted = {head.seq: head.hash for head in heads}
        self._seq, self._hash = 0, b""
        self._problems: list[tuple[int, str]] = []
        self._cut, self._vouched = (0, ""), False
        if len(self._noted) < len(set(heads)):
            self._report(None, "two different heads are given for the same record")

    def walk(self) -> Iterator[list[tuple[int, Record]]]:
        """Check all rows; gives the records of each page, with their numbers."""
        for number, (state, rows) in enumerate(self._journal.pages()):
            if number == 0:
                self._journal.check_key(state)
                self._enter(state)
                self._meet_noted()
            yield [record for row in rows for record in self._step(row, state)]
        self._finish(state)

    def _report(self, seq: int | None, problem: str) -> None:
        """seq: the number of a record; None for the whole."""
        self.found.n_problems += 1
        if len(self._problems) < MOST:
            told = problem if seq is None else f"record {seq}: {problem}"
            self._problems.append((LARGEST if seq is None else seq, told))

    def _enter(self, state: JournalState) -> None:
        """Start, or start again, where pruning ended."""
        self._seq, self._hash = state.cut_seq, state.cut_hash
        self._cut, self._vouched = (state.cut_seq, state.cut_hash.hex()), state.cut_seq == 0
        if state.cut_seq == 0 and state.cut_hash != state.genesis:
            self._report(None, "the chain does not begin with the journal's genesis")

    def _step(self, row: Row, state: JournalState) -> Iterator[tuple[int, Record]]:
        """Check one row against those before it; gives its record, if it can be read."""
        if not state.has(row.seq):
            ends = f"which goes from {state.cut_seq + 1} to {state.head_seq}"
            self._report(row.seq, f"it is no part of the chain, {ends}")
            return
        if row.seq != self._seq + 1 and state.cut_seq > self._seq:
            self._enter(state)  # it was pruned while we read
        if not is_sound(row):
            self._report(self._seq + 1, "it was changed: it has values of other types")
            return
        if row.seq != self._seq + 1:
            missing = f"{self._seq + 1} to {row.seq - 1}"
            self._report(row.seq, f"the records before it are missing: {missing}")
        elif not self._chain.holds(self._hash, row):
            self._report(row.seq, "it was changed, or the one before it was")
        self.found.first = self.found.first or row.seq
        self._seq, self._hash = row.seq, bytes(row.hash)
        self.found.n_records += 1
        try:
            record = decode(row.body, row.input)
            self._check_content(row, record)
            yield row.seq, record
        except AuditError as error:
            self._report(row.seq, str(error))
        self._meet_noted()

    def _meet_noted(self) -> None:
        known = self._noted.pop(self._seq, None)
        if known is not None and known != self._hash:
            self._report(self._seq, "its hash is not that of the head that was noted")

    def _check_content(self, row: Row, record: Record) -> None:
        """The columns to search by, and the input, must agree with the record."""
        written = encode(record)
        if written[2:6] != row[2:6]:
            self._report(row.seq, "its columns were changed: they differ from the record itself")
        elif written[2:] != row[2:]:
            self._report(row.seq, "it is not written as a record is")
        if isinstance(record, Answer):
            self.found.n_answers += 1
            content, known = record.input, record.input_hash
            if content is not None and sha256(content).hexdigest() != known:
                self._report(row.seq, "its input does not have the hash that was recorded")
        if isinstance(record, Event) and record.what == PRUNED:
            through = record.details.get("through"), record.details.get("hash")
            self._vouched = self._vouched or through == self._cut

    def _finish(self, state: JournalState) -> None:
        """What can be said only at the end, when the journal had this `state`."""
        if not self._vouched:
            self._report(
                None,
                f"records up to {state.cut_seq} are missing, and nothing in the chain says that "
                "they were pruned",
            )
        if (self._seq, self._hash) != (state.head_seq, state.head_hash):
            self._report(
                None,
                f"the chain ends with record {self._seq}, and not with {state.head_seq}, the head "
                "that the journal notes, or with another hash",
            )
        if self._chain.seal(state.head_seq, state.head_hash) != state.seal:
            self._report(None, "the journal's note of its head was changed")
        now, n_rows, foreign = self._journal.survey()  # everything must be in the chain
        n_expected = now.head_seq - now.cut_seq
        if n_rows != n_expected and not self.found.n_problems:
            self._report(None, f"its table has {n_rows} rows, and its chain {n_expected}")
        for what in foreign:
            self._report(None, what)
        for seq in self._noted:
            where = "was pruned, and cannot be compared" if seq <= state.cut_seq else "is missing"
            self._report(None, f"record {seq}, a head that was noted, {where}")
        self._problems.sort(key=lambda each: each[0])
        self.found.problems = tuple(told for _, told in self._problems)
        self.found.last, self.found.head = self._seq, self._hash.hex()

    def derive(
        self, records: Sequence[tuple[int, Record]], assess: Assess, tolerance: float
    ) -> None:
        """Compare the answers among records with those that their inputs give now.

        A difference: the record is not true, or the bundle no longer answers as it did.
        """
        by_bundle: dict[tuple[str, Any], list[tuple[int, Answer, Any]]] = {}
        for seq, record in records:
            if isinstance(record, Answer) and record.input is not None:
                try:
                    content = decode_input(record.input)
                except AuditError as error:
                    self._report(seq, str(error))
                    continue
                form = getattr(content, "dtype", None), getattr(content, "shape", type(content))
                by_bundle.setdefault((record.bundle, str(form)), []).append((seq, record, content))
        for (bundle, _), found in by_bundle.items():
            try:
                columns = assess(bundle, [content for _, _, content in found])
            except IknowError as error:
                told = f"it and {len(found) - 1} more cannot be derived: {error}"
                self._report(found[0][0], told)
                continue
            if columns is not None:
                self.found.n_derived += len(found)
                for (seq, record, _), now in zip(found, zip(*columns, strict=True), strict=True):
                    for difference in _differences(record, now, tolerance):
                        self._report(seq, difference)


def _differences(record: Answer, now: tuple[Any, ...], tolerance: float) -> Iterator[str]:
    """What differs between a recorded answer and one derived from its input."""
    for name, value in zip(("belief", "assertion", "reason"), now, strict=False):
        if (then := getattr(record, name)) != value:
            yield f"its {name} was recorded as {shown(then)}; its input gives {shown(value)}"
    then, level = record.level, now[3]
    either_lacks = then is None or level is None
    if then is not level if either_lacks else not abs(level - then) <= tolerance:
        yield f"its level was recorded as {then}; its input gives {level}"


def verify(
    journal: Journal,
    *,
    heads: Sequence[NotedHead] = (),
    assess: Assess | None = None,
    level_tolerance: float = 0.0,
    told: Callable[[int], None] = lambda _: None,
) -> Verification:
    """Check a journal, which may be in use.

    Args:
        journal: Open, for reading at least.
        heads: Heads that were noted elsewhere, to be found in the chain.
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
    verifier = Verifier(journal, heads)
    for records in verifier.walk():
        if assess is not None:
            verifier.derive(records, assess, level_tolerance)
        told(verifier.found.n_records)
    return verifier.found
