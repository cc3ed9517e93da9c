"""Files of named columns in parts: comma-separated text, JSON lines, Parquet and Arrow's own.

A part is a record batch. Only a part is ever in memory, so a file may be larger than that.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from iknow.errors import InputError
from iknow.tables.jsonl import read_lines
from iknow.tables.streams import Counted
from iknow.tables.table import decoding

# Bytes of text at a time. A longer row is no row of a table: it is another file, or a trap.
BLOCK = 1 << 23
HEADER = 1 << 16  # bytes in which a header ends, mostly
PART = 1 << 23  # bytes that a part takes as numbers, about
MOST_ROWS = 1 << 16
ADVICE = "; save it as UTF-8 text: a header and rows of equally many cells"
INDEX_NAME = re.compile(r"__index_level_\d+__")


@dataclass(frozen=True, eq=False)
class Batches:
    """A file in parts.

    names: of its columns. parts: record batches. index: columns by which pandas numbers the rows.
    untyped: whether every cell is text. first_row: the number of the first row in errors. n_bytes:
    about what all of it takes when unpacked, if that is known.
    """

    names: tuple[str, ...]
    parts: Iterator[Any]
    index: frozenset[str] = frozenset()
    untyped: bool = False
    first_row: int = 1
    n_bytes: int | None = None


@contextmanager
def open_csv(file: IO[bytes], source: Path) -> Iterator[Batches]:
    """Comma-separated text, every cell a string; the header is row 1, blank lines are none."""
    text = Counted(file)
    with decoding(source, ADVICE):
        names = _csv_header(text)
        reader = _csv_reader(text, names)
    with reader:
        parts = _decoded(_csv_parts(reader, text, source), source, ADVICE)
        yield Batches(names, parts, untyped=True, first_row=2)


def rows_at_once(n_columns: int) -> int:
    """How many rows make up a part."""
    return max(1, min(MOST_ROWS, PART // (8 * max(1, n_columns))))


def _decoded(parts: Iterator[Any], source: Path, advice: str = "") -> Iterator[Any]:
    """The same parts; an error in making one names the file, and no other error does."""
    while True:
        with decoding(source, advice):
            part = next(parts, None)
        if part is None:
            return
        step = rows_at_once(part.num_columns)
        for start in range(0, part.num_rows, step):
            yield part.slice(start, step)


def _csv_header(text: Counted) -> tuple[str, ...]:
    """The names of the columns, from the beginning of a file."""
    begin = text.peek(min(HEADER, BLOCK))
    with suppress(pa.ArrowInvalid, StopIteration), _csv_reader(begin) as reader:
        if reader.read_next_batch().num_rows:  # the header has ended before
            return _as_utf8(reader.schema.names)
    with _csv_reader(text.peek(BLOCK)) as reader:
        return _as_utf8(reader.schema.names)


def _as_utf8(names: Sequence[str]) -> tuple[str, ...]:
    """Names whose characters are bytes, as text."""
    return tuple(name.encode("latin-1").decode() for name in names)


def _csv_reader(file: Any, names: tuple[str, ...] = ()) -> Any:
    """A reader of text in these columns; without names, of the header, a character for each byte.

    The last row of a beginning may be cut: it is skipped. pyarrow shows such rows to a function as
    text, and complains of bytes that are none.
    """
    if not names and file.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
        file.seek(0)
    read = pcsv.ReadOptions(  # threads lose count of rows
        use_threads=False, block_size=BLOCK, encoding="utf8" if names else "latin-1"
    )
    skip = None if names else lambda _: "skip"
    parse = pcsv.ParseOptions(newlines_in_values=True, invalid_row_handler=skip)
    convert = pcsv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    return pcsv.open_csv(file, read, parse, convert)


def _csv_parts(reader: Any, text: Counted, source: Path) -> Iterator[Any]:
    yield from reader
    # pyarrow closes an odd quote at the next one, or at the end.
    if text.n_quotes % 2:
        raise InputError(
            f"{source} has an odd number of quotes, {text.n_quotes:,}: one is never closed, or "
            'stands inside a cell; put such a cell in quotes and write its own twice, as in "6"" '
            'pipe"'
        )


@contextmanager
def open_jsonl(file: IO[bytes], source: Path) -> Iterator[Batches]:
    """Lines of JSON, each an object with the same names."""
    parts = read_lines(file, source, BLOCK)
    first = next(parts)
    batches = map(_batch_of, chain([first], parts))
    yield Batches(tuple(first), _decoded(batches, source), first_row=1)


def _batch_of(columns: Mapping[str, Any]) -> Any:
    arrays = [pa.array(values) for values in columns.values()]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


@contextmanager
def open_parquet(
    file: IO[bytes], source: Path, chosen: Sequence[int] | None = None
) -> Iterator[Batches]:
    """A Parquet file, whatever the size of its row groups. chosen: read only these, if any."""
    # pq.read_table would take folders named like label=cat for columns.
    with decoding(source):
        meta = pq.read_metadata(file)
        file.seek(0)
        # Without a buffer, a whole column of a row group is read at once.
        buffer = max(1 << 12, min(1 << 20, PART // max(1, meta.num_columns)))
        opened = pq.ParquetFile(file, metadata=meta, buffer_size=buffer)
        groups = [meta.row_group(i).total_byte_size for i in range(meta.num_row_groups)]
        schema = opened.schema_arrow
        names = tuple(schema.names)
    with opened:
        yield Batches(
            names,
            _decoded(_parquet_parts(opened, len(names), chosen), source),
            index=_index_of(schema),
            # And their copy in float64.
            n_bytes=sum(groups) + 16 * meta.num_rows * meta.num_columns,
        )


def _parquet_parts(opened: Any, n_columns: int, chosen: Sequence[int] | None) -> Iterator[Any]:
    """Batches of one row group after another; over all of them, pyarrow keeps what it has read."""
    for i in range(opened.num_row_groups) if chosen is None else chosen:
        yield from opened.iter_batches(batch_size=rows_at_once(n_columns), row_groups=[i])


@contextmanager
def open_arrow(file: IO[bytes], source: Path) -> Iterator[Batches]:
    """Arrow's own format, as a file (Feather) or as a stream."""
    with decoding(source):
        is_file = file.read(6) == b"ARROW1"
        file.seek(0)
        # A batch may be as large as the file: of a mapped one only what is used is read.
        name = getattr(file, "name", None)
        mapped = pa.memory_map(name) if isinstance(name, str) else file
        opened = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(mapped)
        names = tuple(opened.schema.names)  # which need not be text
    with opened:
        parts = map(opened.get_batch, range(opened.num_record_batches)) if is_file else opened
        batches = _decoded(map(_checked, parts), source)
        yield Batches(names, batches, index=_index_of(opened.schema))


def _checked(batch: Any) -> Any:
    """The same batch, if its texts and codes lie where it says: Arrow would read beyond it."""
    batch.validate(full=True)
    return batch


def _index_of(schema: Any) -> frozenset[str]:
    """The columns in which pandas keeps the index of a frame."""
    named = {name for name in schema.names if INDEX_NAME.fullmatch(name)}
    try:
        columns = json.loads(schema.metadata[b"pandas"])["index_columns"]
        named |= {name for name in columns if isinstance(name, str)}
    except (KeyError, TypeError, ValueError, RecursionError):
        pass  # no metadata of pandas, or none that it wrote
    return frozenset(named & set(schema.names))
