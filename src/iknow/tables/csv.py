"""Writing comma-separated text, UTF-8, with the column names on its first line.

A spreadsheet runs a cell that begins with =, +, -, @, a tab or a carriage return as a formula. Such
text, unless it is a number, gets an apostrophe in front, which makes it text. Readers take cells as
they are; in other formats text is never changed.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from typing import Any

from iknow.tables.columns import Column, as_array

FORMULA = "=+-@\t\r"
_NUMBER = re.compile(r"[+-]?(inf|nan|([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?)", re.IGNORECASE)


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
