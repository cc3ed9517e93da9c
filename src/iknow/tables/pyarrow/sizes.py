"""Sizes: how many rows a table has and what it takes in memory, each told before it is unpacked.

A table that comes from strangers may be a trap: 200 bytes announce a billion rows without a value,
zeros compress to nothing, and a text in a dictionary is stored once and read for every row. Whoever
reads such a table takes one size after another, and stops at the first that is too large.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from iknow.core.text import name
from iknow.errors import InputError
from iknow.tables.pyarrow.batches import checked
from iknow.tables.pyarrow.columns import NUMERIC
from iknow.tables.pyarrow.messages import announced, as_stream
from iknow.tables.table import decoding

CELL = 16
"""Bytes of a number as it was read, and of its copy in float64."""


class Size(NamedTuple):
    """Rows and bytes, at least."""

    rows: int
    n_bytes: int


def arrow_sizes(content: bytes, source: Path) -> Iterator[Size]:
    """Sizes of a stream or a file of Arrow's, ever closer to the truth."""
    with decoding(source):
        stream = as_stream(content)
        schema = pa.ipc.read_schema(stream)
        _check_types(schema, source)
        rows = n_bytes = 0
    for batch in _decoding(announced(stream), source):
        rows, n_bytes = rows + batch.rows, n_bytes + batch.n_bytes
        yield Size(rows, n_bytes + CELL * rows * len(schema))
    coded = [i for i, field in enumerate(schema) if pa.types.is_dictionary(field.type)]
    if coded:
        with decoding(source), pa.ipc.open_stream(stream) as reader:
            n_bytes += sum(_text_bytes(batch[i]) for batch in map(checked, reader) for i in coded)
        yield Size(rows, n_bytes)


def parquet_sizes(content: bytes, source: Path) -> Iterator[Size]:
    """Sizes of a Parquet file, ever closer to the truth."""
    with decoding(source):
        meta = pq.read_metadata(BytesIO(content))
        schema = meta.schema.to_arrow_schema()
        _check_types(schema, source)
        groups = [meta.row_group(i).total_byte_size for i in range(meta.num_row_groups)]
        n_bytes = sum(groups) + CELL * meta.num_rows * meta.num_columns
    yield Size(meta.num_rows, n_bytes)
    text = [field.name for field in schema if not _is_number(field.type)]
    if text:
        with decoding(source):
            opened = pq.ParquetFile(BytesIO(content), metadata=meta, read_dictionary=text)
            for batch in opened.iter_batches(columns=text):
                n_bytes += sum(map(_text_bytes, batch.columns))
        yield Size(meta.num_rows, n_bytes)


def _decoding(parts: Iterator[Any], source: Path) -> Iterator[Any]:
    while True:
        with decoding(source):
            part = next(parts, None)
        if part is None:
            return
        yield part


def _text_bytes(column: Any) -> int:
    """Bytes of the texts of a column, each as often as it is used."""
    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    if _is_number(column.type.value_type):
        return CELL * len(column)
    lengths = pc.binary_length(column.dictionary).take(column.indices)
    return int(pc.sum(lengths.cast(pa.int64())).as_py() or 0)


def _check_types(schema: Any, source: Path) -> None:
    """Refuse columns that no model takes before they are read: what they nest may be a trap."""
    for field in schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        if not (_is_number(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)):
            raise InputError(
                f"column {name(field.name)!r} of {source} must hold numbers or text; got "
                f"{name(field.type)}"
            )


def _is_number(kind: Any) -> bool:
    return any(getattr(pa.types, f"is_{each}")(kind) for each in NUMERIC)
