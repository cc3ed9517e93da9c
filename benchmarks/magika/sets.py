"""Sets of files: projects are dealt, and test files spoiled.

Projects are dealt to evidence, validation and test, so that none is in two of them: files of one
project share authors, license headers and habits, and a random split of files would let a method
recognize the project. A tenth of the types is withheld from evidence and validation: files of
these, and of types that no project of the evidence has, make up a set of their own. So do files of
types that magika has no class for. Test files are spoiled in ways that happen to files:

joined    one file and another of a different type behind it: no one type is right
pieces    512 bytes out of the middle of a text
UTF-16    a text in another encoding
random    as many random bytes, such as an encrypted file; magika has a class for them
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.magika.files import OTHER, File, as_text
from iknow.core.arrays import Ints

SHARES = (0.5, 0.25)  # of the projects: for evidence and validation; the rest is for test
WITHHELD = 0.1  # of the types


@dataclass(frozen=True, eq=False)
class Split:
    """Rows of files by what they are for.

    Attributes:
        evidence: Files that answers are compared with.
        validation: Files that thresholds and radii are chosen on, of types in the evidence.
        test: Files of types in the evidence.
        unseen: Test files of types that magika knows, but the evidence does not.
        foreign: Test files of types that magika has no class for.
    """

    evidence: Ints
    validation: Ints
    test: Ints
    unseen: Ints
    foreign: Ints


def split(files: Sequence[File], seed: int) -> Split:
    """Deal the projects of files at random."""
    rng = np.random.default_rng(seed)
    kinds = np.array([file.kind for file in files])
    projects, project = np.unique([file.project for file in files], return_inverse=True)
    order = rng.permutation(len(projects))
    ends = np.rint(np.cumsum(SHARES) * len(projects)).astype(int)
    part = np.searchsorted(ends, np.argsort(order)[project], side="right")
    is_foreign = np.char.startswith(kinds, OTHER)
    types = np.unique(kinds[~is_foreign])
    withheld = rng.choice(types, round(WITHHELD * len(types)), replace=False)
    free = ~is_foreign & ~np.isin(kinds, withheld)
    evidence = (part == 0) & free
    covered = free & np.isin(kinds, kinds[evidence])
    return Split(
        evidence=np.flatnonzero(evidence),
        validation=np.flatnonzero((part == 1) & covered),
        test=np.flatnonzero((part == 2) & covered),
        unseen=np.flatnonzero((part == 2) & ~covered & ~is_foreign),
        foreign=np.flatnonzero((part == 2) & is_foreign),
    )


JOINED, PIECES, UTF16, RANDOM = "joined", "pieces", "UTF-16", "random"
RANDOM_BYTES = "randombytes"  # magika's name for them
NO_TYPE = ""
PIECE = 512  # bytes
MOST = 150  # files of a kind

Spoiled = tuple[list[bytes], list[str]]  # contents, and the types that they are of


def spoil(files: Sequence[File], seed: int) -> dict[str, Spoiled]:
    """Spoiled test files by the way they are."""
    makers: dict[str, Callable[[Sequence[File], np.random.Generator], Spoiled]] = {
        JOINED: _join, PIECES: _cut, UTF16: _recode, RANDOM: _scramble,
    }  # fmt: skip
    return {name: make(files, np.random.default_rng(seed)) for name, make in makers.items()}


def _join(files: Sequence[File], rng: np.random.Generator) -> Spoiled:
    first, second = _draw(files, rng), _draw(files, rng)
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if a.kind != b.kind]
    return [a.content + b.content for a, b in pairs], [NO_TYPE] * len(pairs)


def _cut(files: Sequence[File], rng: np.random.Generator) -> Spoiled:
    drawn = _draw(_texts(files, 4 * PIECE), rng)
    starts = [rng.integers(PIECE, len(file.content) - 2 * PIECE) for file in drawn]
    pieces = [f.content[at : at + PIECE] for f, at in zip(drawn, starts, strict=True)]
    return pieces, [file.kind for file in drawn]


def _recode(files: Sequence[File], rng: np.random.Generator) -> Spoiled:
    drawn = _draw(_texts(files), rng)
    return [f.content.decode("utf-8").encode("utf-16") for f in drawn], [f.kind for f in drawn]


def _scramble(files: Sequence[File], rng: np.random.Generator) -> Spoiled:
    drawn = _draw(files, rng)
    return [rng.bytes(len(file.content)) for file in drawn], [RANDOM_BYTES] * len(drawn)


def _texts(files: Sequence[File], least: int = 0) -> list[File]:
    return [f for f in files if len(f.content) >= least and as_text(f.content) is not None]


def _draw(files: Sequence[File], rng: np.random.Generator) -> list[File]:
    return [files[row] for row in rng.permutation(len(files))[:MOST]]
