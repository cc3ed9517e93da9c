"""Comma-separated text, UTF-8, with the column names on its first line.

Lines are parsed one by one, so that only numbers are kept in memory and an error can name its line.

A spreadsheet takes a cell that begins with =, +, -, @, a tab or a carriage return for a formula,
and runs it. Such text is written with an apostrophe in front, which the spreadsheet shows as text;
numbers stay as they are. Whoever reads the file by a program takes the apostrophe away again, or
reads an .npz or .parquet file, where text is never touched. `read_csv` takes cells as they are.
"""

from __future__ import annotations

import csv
import io
import re
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from iknow.cli.tables.table import Table, as_text, check_names
from iknow.core.arrays import Labels
from iknow.core.text import name as name_of
from iknow.core.text import names as quoted
from iknow.errors import InputError

_FORMULA = tuple("=+-@\t\r")
_NUMBER = re.compile(r"[+-]?(inf|nan|([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?)", re.IGNORECASE)
LONGEST_LINE = 1 << 28
"""A longer line is no row of a table: it is another kind of file, or a trap."""

# 007 is a code, not a number: as an int it would come out as another label, 7.
_INTEGER = re.compile(r"\s*[+-]?(0|[1-9][0-9]*)\s*")


def read_csv(path: Path, label: str | None, *, labelled: bool = True) -> Table:
    """Read a table whose features are all columns but the label."""
    with _records(path) as (names, records):
        check_names(names, label, path)
        position = None if label is None else names.index(label)
        features = [name for name in names if name != label]
        values, labels = array("d"), list[str]()
        for line, cells in records:
            if position is not None:
                cell = cells.pop(position)
                if labelled:
                    labels.append(_label(cell, f"{path}, line {line}, column {label!r}"))
            values.extend(_numbers(cells, features, path, line))
    if not values:
        raise InputError(f"{path} is empty: it has a header but no rows")
    return Table(
        features=np.frombuffer(values, dtype=np.float64).reshape(-1, len(features)),
        labels=_as_labels(labels, path) if labels else None,
        feature_names=tuple(features),
    )


def read_csv_labels(path: Path) -> Labels:
    """Labels of shape (n,) from the only column of a file."""
    with _records(path) as (names, records):
        if len(names) != 1:
            raise InputError(
                f"{path} must have one column, the labels; its columns are {quoted(names)}"
            )
        labels = [_label(cells[0], f"{path}, line {line}") for line, cells in records]
    if not labels:
        raise InputError(f"{path} is empty: it has a header but no rows")
    return _as_labels(labels, path)


def write_csv(columns: Mapping[str, NDArray[Any]], file: IO[bytes]) -> None:
    """Write columns of shape (n,); numbers in as many digits as give them back exactly."""
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    try:
        writer = csv.writer(text)
        writer.writerow(map(_harmless, columns))
        writer.writerows(zip(*map(_cells, columns.values()), strict=True))
        text.flush()
    finally:
        text.detach()  # the file belongs to the caller


def _cells(column: NDArray[Any]) -> Iterator[Any]:
    values = column.tolist()
    return iter(values) if column.dtype.kind != "U" else map(_harmless, values)


def _harmless(cell: str) -> str:
    """The cell, unless a spreadsheet would run it: then with an apostrophe in front."""
    formula = cell.startswith(_FORMULA) and not _NUMBER.fullmatch(cell)
    return f"'{cell}" if formula else cell


@contextmanager
def _records(path: Path) -> Iterator[tuple[list[str], Iterator[tuple[int, list[str]]]]]:
    """The column names, and each following row with the number of the line it starts on."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(_lines(file, path), strict=True)
            try:
                names = next(reader, None)
                if not names:
                    raise InputError(
                        f"{path} has no header: expected column names on its first line, then rows"
                    )
                yield names, _rows(reader, len(names), path)
            except csv.Error as error:
                raise InputError(
                    f"{path}, line {reader.line_num}, is not comma-separated text: {error}"
                ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 text: {error}; save it as UTF-8") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def _lines(file: IO[str], path: Path) -> Iterator[str]:
    """The lines of a file, none of them without end, none of them with what is not text."""
    while line := file.readline(LONGEST_LINE):
        if "\0" in line:
            raise InputError(f"{path} is not text: it holds NUL bytes; save it as UTF-8")
        if len(line) == LONGEST_LINE:
            raise InputError(
                f"{path} is not a table: it has a line of over {LONGEST_LINE:,} letters"
            )
        yield line


def _rows(reader: Any, width: int, path: Path) -> Iterator[tuple[int, list[str]]]:
    line = reader.line_num + 1
    for cells in reader:
        if cells:  # a blank line is not a row: an empty cell alone on its line is written ""
            if len(cells) != width:
                raise InputError(
                    f"{path}, line {line}, has {len(cells)} cells; the header has {width} columns"
                )
            yield line, cells
        # A quoted cell may span lines, so rows are not lines.
        line = reader.line_num + 1


def _numbers(cells: list[str], names: list[str], path: Path, line: int) -> list[float]:
    text = "".join(cells)
    # float() also takes 1_000 and the digits of other scripts, which no data file means as numbers.
    if text.isascii() and "_" not in text:
        try:
            return list(map(float, cells))
        except ValueError:
            pass  # an empty cell, or one to name
    return [
        _number(cell, f"{path}, line {line}, column {name!r}")
        for cell, name in zip(cells, names, strict=True)
    ]


def _number(cell: str, place: str) -> float:
    if not cell.strip():
        return np.nan
    try:
        if cell.isascii() and "_" not in cell:
            return float(cell)
    except ValueError:
        pass
    raise InputError(f"{place}: expected a number, got {name_of(repr(cell))}")


def _label(cell: str, place: str) -> str:
    if not cell.strip():
        raise InputError(f"{place}: expected a label, got {name_of(repr(cell))}")
    return cell


def _as_labels(cells: list[str], path: Path) -> Labels:
    """Ints if every cell is one, else the cells as they are."""
    if all(map(_INTEGER.fullmatch, cells)):
        try:
            return np.array([int(cell) for cell in cells], dtype=np.int64)
        except (OverflowError, ValueError):
            pass  # more digits than an int64 holds: an identifier
    return as_text(cells, str(path))
