"""Parquet and Arrow files, written a part at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from iknow.errors import InputError
from iknow.tables.columns import Coded, Column


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
