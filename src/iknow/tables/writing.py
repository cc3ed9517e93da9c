"""Writing a table in parts: a file appears whole or not at all, a pipe gets each part at once.

Comma-separated text is UTF-8, with the column names on its first line. A spreadsheet runs a cell
that begins with =, +, -, @, a tab or a carriage return as a formula. Such text, unless it is a
number, gets an apostrophe in front, which makes it text. Readers take cells as they are; in other
formats text is never changed.
"""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

import numpy as np

from iknow.errors import InputError, MissingExtraError
from iknow.storage.files import is_stream, replacing
from iknow.tables.columns import Column, as_array, as_columns, as_list
from iknow.tables.jsonl import to_lines
from iknow.tables.numpy import write_npz
from iknow.tables.streams import STDIN

FORMULA = "=+-@\t\r"
_NUMBER = re.compile(r"[+-]?(inf|nan|([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?)", re.IGNORECASE)


class Parts(Protocol):
    """A file that is being written."""

    def write(self, columns: Mapping[str, Column]) -> None: ...

    def close(self) -> None: ...


@contextmanager
def writing(path: Path, form: str) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A function that writes the next rows, given as named columns, each of shape (n,)."""
    make = _find_maker(form, stream=is_stream(path) or path == STDIN)
    with _opening(path) as file:
        parts = make(file)

        def write(columns: Mapping[str, Any]) -> None:
            parts.write(as_columns(columns))
            if path == STDIN:
                file.flush()

        yield write
        parts.close()
        if path == STDIN:
            file.flush()


@contextmanager
def _opening(path: Path) -> Iterator[IO[bytes]]:
    """The file to write to; standard output is written as it comes, and stays open."""
    if path != STDIN:
        with replacing(path) as file:
            yield file
        return
    output = getattr(sys.stdout, "buffer", None)
    if output is None:
        raise InputError("'-' cannot be written: there is no standard output")
    sys.stdout.flush()
    yield output


def _find_maker(form: str, *, stream: bool) -> Callable[[IO[bytes]], Parts]:
    if form == "csv":
        return CsvParts
    if form in ("jsonl", "npz"):
        return JsonParts if form == "jsonl" else ArrayParts
    try:
        from iknow.tables.pyarrow.writing import write_arrow, write_parquet
    except ImportError as error:
        raise MissingExtraError(f"writing .{form} files", "tables") from error
    return write_parquet if form == "parquet" else lambda file: write_arrow(file, stream=stream)


class CsvParts:
    """Comma-separated text."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._has_header = file, False
        try:  # pyarrow is many times faster
            from iknow.tables.pyarrow.writing import to_csv as encode
        except ImportError:
            encode = to_csv
        self._encode: Callable[[Mapping[str, Column]], Any] = encode

    def write(self, columns: Mapping[str, Column]) -> None:
        if not self._has_header:
            self._file.write(to_header(columns))
            self._has_header = True
        self._file.write(self._encode(columns))

    def close(self) -> None: ...


class JsonParts:
    """One JSON object per row."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, columns: Mapping[str, Column]) -> None:
        self._file.write(to_lines({name: as_list(column) for name, column in columns.items()}))

    def close(self) -> None: ...


class ArrayParts:
    """An .npz archive, whose arrays are collected in memory: each is written at once."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._parts: list[Mapping[str, Column]] = []

    def write(self, columns: Mapping[str, Column]) -> None:
        self._parts.append(columns)

    def close(self) -> None:
        names = list(self._parts[0]) if self._parts else []
        joined = {
            name: np.concatenate([as_array(part[name]) for part in self._parts]) for name in names
        }
        write_npz(joined, self._file)


def to_csv(columns: Mapping[str, Column]) -> bytes:
    """Rows without their header; numbers in as many digits as give them back exactly."""
    return rows_to_csv(zip(*map(_cells, columns.values()), strict=True))


def to_header(names: Iterable[str]) -> bytes:
    """The first line."""
    return rows_to_csv([map(harmless, names)])


def rows_to_csv(rows: Iterable[Iterable[Any]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode("utf-8")


def _cells(column: Column) -> Iterable[Any]:
    array = as_array(column)
    return map(harmless, array.tolist()) if array.dtype.kind == "U" else array.tolist()


def harmless(cell: str) -> str:
    """The cell, unless a spreadsheet would run it: then with an apostrophe in front."""
    formula = cell.startswith(tuple(FORMULA)) and not _NUMBER.fullmatch(cell)
    return f"'{cell}" if formula else cell
