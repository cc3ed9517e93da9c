"""JSON lines: one object per line, one line per sample, with the same names in each.

A value is a number, a bool, a text or null. A column holds numbers or text, not both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from iknow.core.text import name as shorten
from iknow.core.text import names as quoted
from iknow.errors import InputError

Columns = dict[str, Any]
PART = 1 << 23  # bytes that make up a part


def read_lines(file: IO[bytes], source: Path, block: int) -> Iterator[Columns]:
    """The columns of a few megabytes at a time: arrays of numbers, or lists of texts and None.

    block: the most bytes of a line.
    """
    names: list[str] | None = None
    kinds: dict[str, str] = {}
    line_number = 1
    while lines := _take_lines(file, block):
        rows: list[dict[str, Any]] = []
        numbers: list[int] = []
        for number, line in enumerate(lines, start=line_number):
            if len(line) > block:
                raise InputError(f"{source}, line {number}: it is longer than {block:,} bytes")
            if line.strip():
                rows.append(_parse(line, f"{source}, line {number}", names))
                numbers.append(number)
                names = names or list(rows[-1])
        line_number += len(lines)
        if names is not None and rows:
            places = Places(source, numbers)
            yield {
                name: _column([r.get(name) for r in rows], name, kinds, places) for name in names
            }
    if names is None:
        raise InputError(f"{source} is empty: expected an object on each line")


def _take_lines(file: IO[bytes], block: int) -> list[bytes]:
    """The next lines, until they hold `PART` bytes or one is longer than `block`."""
    lines: list[bytes] = []
    size = 0
    while size < PART and (line := file.readline(block + 1)):
        lines.append(line)
        size += len(line)
        if len(line) > block:
            break
    return lines


class Places:
    """Where the rows of a part are, for errors."""

    def __init__(self, source: Path, lines: Sequence[int]) -> None:
        self.source, self.lines = source, lines

    def of(self, i: int, name: str) -> str:
        return f"{self.source}, line {self.lines[i]}, {name!r}"


def _parse(line: bytes, place: str, names: Sequence[str] | None) -> dict[str, Any]:
    try:
        row = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: it is no JSON: {error}") from error
    if not isinstance(row, dict) or not row:
        raise InputError(f"{place}: expected an object of named values, got {shorten(repr(row))}")
    if names is not None and (extra := row.keys() - set(names)):
        raise InputError(
            f"{place}: {quoted(sorted(extra))} is unknown; the first line has {quoted(names)}"
        )
    return row


def _column(values: list[Any], name: str, kinds: dict[str, str], places: Places) -> Any:
    """One column of a part; its kind is that of its first value that is not null."""
    for i, value in enumerate(values):
        if value is None:
            continue
        found = _kind(value, i, name, places)
        if kinds.setdefault(name, found) != found:
            expected = "text" if found == "number" else "a number"
            raise InputError(
                f"{places.of(i, name)}: expected {expected}, got {shorten(repr(value))}"
            )
    kind = kinds.get(name)
    if kind == "text":
        return values
    if all(type(value) is int and -(2**63) <= value < 2**63 for value in values):
        return np.array(values, dtype=np.int64)
    return np.array([_float(value) for value in values])


def _kind(value: Any, i: int, name: str, places: Places) -> str:
    if isinstance(value, str):
        return "text"
    if isinstance(value, (int, float)):
        return "number"
    raise InputError(f"{places.of(i, name)}: expected a number or text, got {shorten(repr(value))}")


def _float(value: Any) -> float:
    if value is None:
        return np.nan
    try:
        return float(value)
    except OverflowError:
        return np.inf if value > 0 else -np.inf


def to_lines(columns: Mapping[str, Sequence[Any]]) -> bytes:
    """Rows of plain values as lines; JSON has no NaN and no infinity, so these are null."""
    names = list(columns)
    rows = zip(*columns.values(), strict=True)
    lines = (json.dumps(dict(zip(names, row, strict=True)), ensure_ascii=False) for row in rows)
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace")
