"""Tables of named columns, through pyarrow: comma-separated text and Parquet, by the same rules.

A cell is text until our rules make it a number: pyarrow's guesses would turn the label 007 into 7
and NA into nothing. Rows count as in pyarrow's errors: the header is row 1, blank lines are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from iknow.cli.tables.table import Table, as_labels, as_text, check_fits, check_names, decoding
from iknow.core.arrays import Floats, Labels
from iknow.core.text import name as name_of
from iknow.core.text import names as quoted
from iknow.errors import InputError

# Bytes of text at a time. A longer row is no row of a table: it is another file, or a trap.
BLOCK = 1 << 26
# 007 is a code, not a number: as an int it would come out as another label, 7.
_INTEGER = re.compile(r"\s*[+-]?(0|[1-9][0-9]*)\s*")


def read_csv(path: Path, label: str | None, *, labelled: bool = True) -> Table:
    """Read a table whose features are all columns but the label."""
    names = _header(path)
    check_names(names, label, path)
    features = tuple(name for name in names if name != label)
    parts, labels = list[Floats](), list[str]()
    for row, batch in _batches(path, names):
        columns = [_parse(batch[name], f"{path}, column {name!r}, row ", row) for name in features]
        parts.append(np.column_stack(columns))
        if label is not None and labelled:
            labels += _label_cells(batch[label], f"{path}, column {label!r}, row ", row)
    found = _as_labels(labels, path) if labels else None
    return Table(np.concatenate(parts), labels=found, feature_names=features)


def read_csv_labels(path: Path) -> Labels:
    """Labels of shape (n,) from the only column of a file."""
    names = _header(path)
    if len(names) != 1:
        raise InputError(f"{path} must have one column, the labels; it has {quoted(names)}")
    cells = list[str]()
    for row, batch in _batches(path, names):
        cells += _label_cells(batch[0], f"{path}, row ", row)
    return _as_labels(cells, path)


def read_parquet(path: Path, label: str | None, *, labelled: bool = True) -> Table:
    """Read a table as `read_csv` does."""
    # pq.read_table would take folders named like label=cat for columns.
    with decoding(path), pq.ParquetFile(path) as file:
        schema, meta = file.schema_arrow, file.metadata
        check_names(schema.names, label, path)
        names = tuple(name for name in schema.names if name != label)
        for name in names:
            _check_numbers(schema.field(name).type, f"column {name!r} of {path}")
        if not meta.num_rows:
            raise InputError(f"{path} is empty: it has columns but no rows")
        # About what the columns take when unpacked, and their copy in float64.
        unpacked = sum(meta.row_group(i).total_byte_size for i in range(meta.num_row_groups))
        check_fits(unpacked + 16 * meta.num_rows * meta.num_columns, str(path))
        content = file.read()
    features = np.empty((content.num_rows, len(names)))
    for j, name in enumerate(names):
        # NaN where it is null. Unsafe as numpy is: an int of more than 53 bits is rounded.
        features[:, j] = _plain(content[name]).cast(pa.float64(), safe=False).to_numpy()
    labels = None
    if label is not None and labelled:
        labels = _labels(content[label], f"column {label!r} of {path}")
    return Table(features=features, labels=labels, feature_names=names)


def write_parquet(columns: Mapping[str, NDArray[Any]], file: IO[bytes]) -> None:
    """Write columns of shape (n,)."""
    pq.write_table(pa.table({name: pa.array(column) for name, column in columns.items()}), file)


def _header(path: Path) -> list[str]:
    with _reading(path) as reader:
        return list(reader.schema.names)


def _batches(path: Path, names: list[str]) -> Iterator[tuple[int, Any]]:
    """The rows of a file in parts, every cell a string, each with the number of its first row."""
    row = 2
    with _reading(path, names) as reader:
        for batch in reader:
            if len(batch):
                yield row, batch
                row += len(batch)
    if row == 2:
        raise InputError(f"{path} is empty: it has a header but no rows")
    _check_quotes(path)


@contextmanager
def _reading(path: Path, names: Sequence[str] = ()) -> Iterator[Any]:
    read = pcsv.ReadOptions(use_threads=False, block_size=BLOCK)  # threads lose count of rows
    parse = pcsv.ParseOptions(newlines_in_values=True)
    convert = pcsv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    advice = "; save it as UTF-8 text: a header and rows of equally many cells"
    options = read, parse, convert
    with decoding(path, advice), path.open("rb") as file, pcsv.open_csv(file, *options) as reader:
        yield reader


def _check_quotes(path: Path) -> None:
    """Refuse an odd number of quotes: pyarrow closes the odd one at the next, or at the end."""
    with path.open("rb") as file:
        n_quotes = sum(part.count(b'"') for part in iter(lambda: file.read(BLOCK), b""))
    if n_quotes % 2:
        raise InputError(
            f"{path} has an odd number of quotes, {n_quotes:,}: one is never closed, or stands "
            'inside a cell; put such a cell in quotes and write its own twice, as in "6"" pipe"'
        )


def _parse(column: Any, place: str, row: int) -> Floats:
    """Cells as float64 of shape (n,), NaN where they are blank."""
    try:
        values: Floats = column.cast(pa.float64()).to_numpy()
    except pa.ArrowInvalid:  # blanks and spaces, or a cell to name
        cells = enumerate(column.to_pylist(), start=row)
        return np.array([_number(cell, f"{place}{i}") for i, cell in cells])
    return values


def _number(cell: str, place: str) -> float:
    if not cell.strip():
        return np.nan
    # float() also takes 1_000 and the digits of other scripts, which no file means as numbers.
    with suppress(ValueError):
        if cell.isascii() and "_" not in cell:
            return float(cell)
    raise InputError(f"{place}: expected a number, got {name_of(repr(cell))}")


def _label_cells(column: Any, place: str, row: int) -> list[str]:
    cells: list[str] = column.to_pylist()
    for i, cell in enumerate(cells, start=row):
        if not cell.strip():
            raise InputError(f"{place}{i}: expected a label, got {name_of(repr(cell))}")
    return cells


def _as_labels(cells: list[str], path: Path) -> Labels:
    """Ints if every cell is one, else the cells as they are."""
    if all(map(_INTEGER.fullmatch, cells)):
        with suppress(OverflowError, ValueError):  # more digits than an int64 holds: an identifier
            return np.array([int(cell) for cell in cells], dtype=np.int64)
    return as_text(cells, str(path))


def _check_numbers(kind: Any, source: str) -> None:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    numeric = ("integer", "floating", "boolean", "decimal", "null")
    if not any(getattr(pa.types, f"is_{name}")(kind) for name in numeric):
        raise InputError(f"{source} must hold numbers or bools; got {name_of(kind)}")


def _labels(column: Any, source: str) -> Labels:
    if column.null_count:
        raise InputError(f"{source} has no label for {column.null_count} of {len(column)} samples")
    values = _plain(column)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return as_labels(as_text(values.to_pylist(), source), source)
    return as_labels(np.array(values.to_pylist()), source)


def _plain(column: Any) -> Any:
    """The column without dictionary encoding, which is how categories are stored."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
