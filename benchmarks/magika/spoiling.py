"""Spoiling: test files as they should not be, in ways that happen to files.

joined    one file and another of a different type behind it: no one type is right
pieces    512 bytes out of the middle of a text
UTF-16    a text in another encoding
random    as many random bytes, such as an encrypted file; magika has a class for them
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.magika.collecting import File
from benchmarks.magika.parsing import as_text

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
