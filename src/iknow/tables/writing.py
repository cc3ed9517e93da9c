"""Writing a table in parts: a file appears whole or not at all, a pipe gets each part at once.

Comma-separated text is UTF-8, with the column names on its first line. A spreadsheet runs a cell
that begins with =, +, -, @, a tab or a carriage return as a formula. Such text, unless it is a
number, gets an apostrophe in front, which makes it text. Readers take cells as they are; in other
formats text is never changed.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from iknow.errors import InputError, MissingExtraError
from iknow.explain.answers import Coded
from iknow.storage.files import is_stream, replacing
from iknow.tables.reading import STDIN, format_to_write
from iknow.tables.table import as_text, check_rows

FORMULA = ("=", "+", "@", "\t", "\r", "-")
_NUMBER = re.compile(r"[+-]?(inf|nan|([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?)", re.IGNORECASE)
Column = Any
"""An array of numbers, bools or text, `Coded`, or a column of pyarrow's, as it was read."""
Write = Callable[[Mapping[str, Column]], None]


def write_table(path: str | os.PathLike[str], columns: Mapping[str, Any]) -> None:
    """Write named columns, each of shape (n,), in the format of the ending; into a stream as CSV.

    The file appears whole or not at all: after a failure the old one, if any, is still there.
    """
    with writing(Path(path), format_to_write(Path(path))) as write:
        write(columns)


@contextmanager
def writing(path: Path, form: str) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A function that writes the next rows, given as named columns, each of shape (n,)."""
    to_stdout = path == STDIN
    writer = _find_writer(form, stream=to_stdout or is_stream(path))
    with _opening(path) as file:
        with writer(file) as write_part:

            def write(columns: Mapping[str, Any]) -> None:
                write_part(_as_columns(columns))
                if to_stdout:
                    file.flush()

            yield write
        if to_stdout:
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


def _as_columns(columns: Mapping[str, Any]) -> dict[str, Column]:
    """Columns to be written: numbers, bools or strings, all of one shape (n,)."""
    if not columns:
        raise InputError("nothing to write: expected at least one column, got none")
    found = {name: _as_column(name, values) for name, values in columns.items()}
    check_rows({repr(name): len(column) for name, column in found.items()})
    return found


def _as_column(name: str, values: Any) -> Column:
    if isinstance(values, Coded) or hasattr(values, "to_pylist"):
        return values
    array = np.asarray(values)
    if array.dtype.kind == "O" and all(isinstance(value, str) for value in array.flat):
        array = as_text(array.ravel().tolist(), f"column {name!r}")
    if array.ndim != 1 or array.dtype.kind not in "biufU":
        raise InputError(
            f"column {name!r} must hold numbers, bools or strings along one axis; got an "
            f"array of {array.dtype} of shape {array.shape}"
        )
    return array


def as_list(column: Column) -> list[Any]:
    """A column as plain values, None where one is missing or not finite."""
    if isinstance(column, Coded):
        return column.tolist()
    values = column.to_pylist() if hasattr(column, "to_pylist") else column.tolist()
    return [_plain(value) for value in values]


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if value is None or isinstance(value, (str, int)) else str(value)


def _as_array(column: Column) -> NDArray[Any]:
    """A column as an array of numbers, bools or text, which is empty where it is missing."""
    if isinstance(column, Coded):
        return column.expand()
    if not hasattr(column, "to_pylist"):
        array: NDArray[Any] = column
        return array
    values = column.to_pylist()
    numbers = all(type(value) in (int, float, bool) for value in values)
    texts = ["" if value is None else str(value) for value in values]
    return np.array(values) if numbers else as_text(texts, "a column")


def _find_writer(
    form: str, *, stream: bool
) -> Callable[[IO[bytes]], AbstractContextManager[Write]]:
    if form in ("csv", "jsonl", "npz"):
        return {"csv": _csv_writer, "jsonl": _json_writer, "npz": _npz_writer}[form]
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError(f"writing .{form} files", "tables") from error
    if form == "parquet":
        return partial(_batch_writer, open_writer=pq.ParquetWriter)
    return partial(_batch_writer, open_writer=pa.ipc.new_stream if stream else pa.ipc.new_file)


@contextmanager
def _json_writer(file: IO[bytes]) -> Iterator[Write]:
    """An object on each line; JSON has no NaN and no infinity, so these are null."""

    def write(columns: Mapping[str, Column]) -> None:
        rows = zip(*map(as_list, columns.values()), strict=True)
        lines = (
            json.dumps(dict(zip(columns, row, strict=True)), ensure_ascii=False) for row in rows
        )
        file.write("".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace"))

    yield write


@contextmanager
def _npz_writer(file: IO[bytes]) -> Iterator[Write]:
    """An .npz archive, whose arrays are collected in memory: each is written at once."""
    parts = list[Mapping[str, Column]]()
    yield parts.append
    # np.savez takes the names as keywords, and so cannot write one called "file".
    with zipfile.ZipFile(file, "w") as archive:
        for name in parts[0] if parts else ():
            joined = np.concatenate([_as_array(part[name]) for part in parts])
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array(member, joined, allow_pickle=False)


@contextmanager
def _batch_writer(file: IO[bytes], open_writer: Callable[..., Any]) -> Iterator[Write]:
    """Record batches with the columns and types of the first part; in Parquet, row groups."""
    import pyarrow as pa

    writer: Any = None
    schema: Any = None

    def write(columns: Mapping[str, Column]) -> None:
        nonlocal writer, schema
        arrays = list(map(_as_arrow, columns.values()))
        batch = pa.RecordBatch.from_arrays(arrays, names=list(columns))
        if writer is None:
            writer, schema = open_writer(file, batch.schema), batch.schema
        try:
            writer.write_batch(batch.cast(schema))
        except pa.ArrowInvalid as error:
            raise InputError(f"a column changes its type within the data: {error}") from error

    try:
        yield write
    except BaseException:
        # A writer that is left open is closed by the garbage collector, into a file that is gone.
        with suppress(Exception):
            writer.close()
        raise
    if writer is not None:
        writer.close()


def _as_arrow(column: Column) -> Any:
    """The values of a column; null where they are missing."""
    import pyarrow as pa

    if isinstance(column, Coded):
        return pa.array(column.values).take(pa.array(column.codes, mask=column.codes < 0))
    return column if isinstance(column, pa.Array) else pa.array(column)


@contextmanager
def _csv_writer(file: IO[bytes]) -> Iterator[Write]:
    has_header = False

    def write(columns: Mapping[str, Column]) -> None:
        nonlocal has_header
        if not has_header:
            file.write(_lines([map(harmless, columns)]))
            has_header = True
        file.write(to_csv(columns))

    yield write


def to_csv(columns: Mapping[str, Column]) -> bytes:
    """Rows without their header; numbers in as many digits as give them back exactly."""
    if len(columns) > 1:  # a blank cell alone would be no row
        with suppress(ImportError, _QuotesNeeded):
            return _fast_csv(columns)
    arrays = map(_as_array, columns.values())
    cells = (map(harmless, a.tolist()) if a.dtype.kind == "U" else a.tolist() for a in arrays)
    return _lines(zip(*cells, strict=True))


def _lines(rows: Iterable[Iterable[Any]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    return text.getvalue().encode("utf-8")


def harmless(cell: str) -> str:
    """The cell, unless a spreadsheet would run it: then with an apostrophe in front."""
    formula = cell.startswith(FORMULA) and not _NUMBER.fullmatch(cell)
    return f"'{cell}" if formula else cell


class _QuotesNeeded(Exception):  # noqa: N818
    """A cell holds a comma, a quote or a line break."""


def _fast_csv(columns: Mapping[str, Column]) -> bytes:
    """The same rows by pyarrow, many times faster; it would put all text in quotes, or none."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.csv as pcsv

    def cells(column: Column) -> Any:
        if isinstance(column, Coded) and column.values.dtype.kind == "U":
            values = np.array([*map(harmless, column.values.tolist()), ""])[:-1]
            return _as_arrow(Coded(values, column.codes))
        array = _as_arrow(column)
        if pa.types.is_boolean(array.type):
            return pc.if_else(array, "True", "False")
        if pa.types.is_integer(array.type) or pa.types.is_floating(array.type):
            return array
        texts = array.cast(pa.large_string())
        risky = pc.match_substring_regex(texts, f"^[{''.join(FORMULA)}]").fill_null(False)
        if not pc.any(risky).as_py():
            return texts
        safe = [harmless(cell) for cell in texts.filter(risky).to_pylist()]
        return pc.replace_with_mask(texts, risky, pa.array(safe, texts.type))

    arrays = [cells(column) for column in columns.values()]
    batch = pa.RecordBatch.from_arrays(arrays, names=list(columns))
    sink = io.BytesIO()
    how = pcsv.WriteOptions(include_header=False, eol="\r\n", quoting_style="none")
    try:
        pcsv.write_csv(batch, sink, how)
    except pa.ArrowInvalid as error:
        raise _QuotesNeeded from error
    return sink.getvalue()
