"""Writing comma-separated text, UTF-8, with the column names on its first line.

A spreadsheet runs a cell that begins with =, +, -, @, a tab or a carriage return as a formula. Such
text, unless it is a number, gets an apostrophe in front, which makes it text. `pyarrow.py` reads
cells as they are; in .npz and .parquet files text is never changed.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from typing import IO, Any

from numpy.typing import NDArray

_FORMULA = tuple("=+-@\t\r")
_NUMBER = re.compile(r"[+-]?(inf|nan|([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?)", re.IGNORECASE)


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
    return map(_harmless, column.tolist()) if column.dtype.kind == "U" else iter(column.tolist())


def _harmless(cell: str) -> str:
    """The cell, unless a spreadsheet would run it: then with an apostrophe in front."""
    formula = cell.startswith(_FORMULA) and not _NUMBER.fullmatch(cell)
    return f"'{cell}" if formula else cell
