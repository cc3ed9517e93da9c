"""Parquet, Arrow and comma-separated files, written a part at a time.

In comma-separated text each column becomes a column of texts as they stand in the file, quoted
where they must be. Joined row by row, with a line end after each, the bytes of the result are the
bytes of the file. It is what `iknow.tables.writing` writes itself, but for the way a number is
spelled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from iknow.errors import InputError
from iknow.explain.answers import Coded
from iknow.tables.columns import Column
from iknow.tables.writing import FORMULA, harmless

TEXT = pa.large_string()  # with offsets of 64 bits, so that a part may be of any size
SPECIAL = '[,"\r\n]'


def to_csv(columns: Mapping[str, Column]) -> Any:
    """Rows without their header, as a buffer of bytes."""
    cells = [_cells(column) for column in columns.values()]
    if len(cells) == 1:  # a blank row would be none
        cells = [pc.if_else(pc.equal(cells[0], ""), '""', cells[0])]
    end, comma = pa.scalar("\r\n", TEXT), pa.scalar(",", TEXT)
    rows = pc.binary_join_element_wise(*cells, comma)
    lines = pc.binary_join_element_wise(rows, end, pa.scalar("", TEXT))
    first, last = (lines.buffers()[1][: 8 * (len(lines) + 1)], len(lines))
    offsets = np.frombuffer(first, dtype=np.int64)
    return lines.buffers()[2][int(offsets[0]) : int(offsets[last])]


def _cells(column: Column) -> Any:
    """A column as text, as it stands in the file."""
    if isinstance(column, Coded):
        texts = _as_text(pa.array([*map(str, column.values.tolist()), ""], TEXT))
        codes = np.where(column.codes < 0, len(column.values), column.codes)
        return texts.take(pa.array(codes))
    array = column if isinstance(column, pa.Array) else pa.array(column)
    if pa.types.is_boolean(array.type):
        return pc.if_else(array, "True", "False").cast(TEXT).fill_null("")
    is_text = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
    texts = array.cast(TEXT).fill_null("")
    is_number = pa.types.is_integer(array.type) or pa.types.is_floating(array.type)
    return _as_text(texts) if is_text or not is_number else texts


def _as_text(texts: Any) -> Any:
    """Text that is safe in a spreadsheet, in quotes where it needs them."""
    risky = pc.match_substring_regex(texts, f"^[{FORMULA[0]}{FORMULA[1]}\\-{FORMULA[3:]}]")
    if pc.any(risky).as_py():
        safe = pa.array([harmless(cell) for cell in texts.filter(risky).to_pylist()], TEXT)
        texts = pc.replace_with_mask(texts, risky, safe)
    special = pc.match_substring_regex(texts, SPECIAL)
    if pc.any(special).as_py():
        escaped = pc.replace_substring(texts, '"', '""')
        quote = pa.scalar('"', TEXT)
        quoted = pc.binary_join_element_wise(quote, escaped, quote, pa.scalar("", TEXT))
        texts = pc.if_else(special, quoted, texts)
    return texts


class ArrowParts:
    """A file of record batches with the columns and types of the first part."""

    def __init__(self, open_writer: Callable[[Any], Any]) -> None:
        self._open = open_writer
        self._writer: Any = None
        self._schema: Any = None

    def write(self, columns: Mapping[str, Column]) -> None:
        batch = as_batch(columns)
        if self._writer is None:
            self._writer, self._schema = self._open(batch.schema), batch.schema
        try:
            self._writer.write_batch(batch.cast(self._schema))
        except pa.ArrowInvalid as error:
            raise InputError(f"a column changes its type within the data: {error}") from error

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()


def write_parquet(file: IO[bytes]) -> ArrowParts:
    """A Parquet file; each part is a row group."""
    return ArrowParts(lambda schema: pq.ParquetWriter(file, schema))


def write_arrow(file: IO[bytes], *, stream: bool) -> ArrowParts:
    """An Arrow file, or a stream of the same batches for another command."""
    make = pa.ipc.new_stream if stream else pa.ipc.new_file
    return ArrowParts(lambda schema: make(file, schema))


def as_batch(columns: Mapping[str, Column]) -> Any:
    """Columns as a record batch."""
    arrays = [_as_array(column) for column in columns.values()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _as_array(column: Column) -> Any:
    """The values of a column; null where they are missing."""
    if not isinstance(column, Coded):
        return column if isinstance(column, pa.Array) else pa.array(column)
    return pa.array(column.values).take(pa.array(column.codes, mask=column.codes < 0))
