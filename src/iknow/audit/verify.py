"""Verifying: that a journal is what was written, and that its answers follow from their inputs.

Without a key, or a head that was noted elsewhere, who can write to the journal could have made all
of it anew; see `chain` for what can be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from iknow.audit.deriving import Assess, derive
from iknow.audit.journal import Journal
from iknow.audit.ledger import Page
from iknow.audit.stored import check_key_of
from iknow.audit.walk import Anchor, Walk


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
        >>> with open_journal("journal.db") as journal:
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
