"""Files of named columns, by pyarrow and in parts: text, JSON lines, Parquet and Arrow's own.

A part is a record batch, and only a part is ever in memory, so a file may be larger than that.

In a format without types a cell is text until our rules make it a number: pyarrow's guesses would
turn the label 007 into 7 and NA into nothing. A column of such cells is text if not one of them is
a number in the first part of the file, and only if the model may take text; else a cell that is no
number is an error, which names its row. A blank cell is a missing value.

A spreadsheet runs a cell that begins with =, +, -, @, a tab or a carriage return as a formula. So
such text, unless it is a number, is written to .csv with an apostrophe in front, which makes it
text. Readers take cells as they are; in other formats text is never changed.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv
import pyarrow.parquet as pq

from iknow.core.arrays import Floats, Labels
from iknow.core.text import name as shorten
from iknow.core.text import names as quoted
from iknow.errors import InputError
from iknow.explain.answers import Coded
from iknow.tables.table import (
    Column,
    DataTable,
    Roles,
    Write,
    as_labels,
    as_text,
    check_fits,
    decoded,
    decoding,
    make_frame,
    rows_at_once,
)

FIRST_ROW = 2  # of text, in errors: below the header
BLOCK = 1 << 23  # bytes of text at a time; a longer row is no row of a table: it is a trap
JSON_PART = 1 << 23  # bytes of lines that make up a part
JSON_KINDS = {str: "text", int: "a number", float: "a number", bool: "a number"}
ADVICE = "; save it as UTF-8 text: a header and rows of equally many cells"
NUMBER = re.compile(r"[+-]?(inf|nan|([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?)", re.IGNORECASE)
RISKY = '^[-=+@\t\r]|[,"\r\n]'  # text that a spreadsheet may run, or that needs quotes
INDEX_NAME = re.compile(r"__index_level_\d+__")
NUMERIC = ("integer", "floating", "boolean", "decimal", "null")
PLAIN = (*NUMERIC, "string", "large_string", "temporal")


@dataclass(frozen=True, eq=False)
class Batches:
    """A file in parts.

    names: of its columns. parts: record batches. index: columns by which pandas numbers the rows.
    untyped: whether every cell is text. n_bytes: about what all of it takes when unpacked, if that
    is known.
    """

    names: tuple[str, ...]
    parts: Iterator[Any]
    index: frozenset[str] = frozenset()
    untyped: bool = False
    n_bytes: int | None = None


def _small(batches: Iterator[Any], source: Path, advice: str = "") -> Iterator[Any]:
    """The same rows in parts that fit well into memory."""
    for batch in decoded(batches, source, advice):
        step = rows_at_once(batch.num_columns)
        for start in range(0, batch.num_rows, step):
            yield batch.slice(start, step)


class _Counted(io.RawIOBase):
    """A stream that counts the quotes that pass."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self.n_quotes = file, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        content = self._file.read(len(buffer)) or b""
        buffer[: len(content)] = content
        self.n_quotes += content.count(b'"')
        return len(content)


def open_csv(file: IO[bytes], source: Path) -> Batches:
    """Comma-separated text, every cell a string; the header is row 1, blank lines are none."""
    counted = _Counted(file)
    text = io.BufferedReader(counted, BLOCK)
    with decoding(source, ADVICE):
        # Bytes that are no text are told here only in the header: pyarrow names their row.
        begin = io.TextIOWrapper(
            io.BytesIO(text.peek(BLOCK)), "utf-8-sig", "surrogateescape", newline=""
        )
        header = next(filter(None, csv.reader(begin)), [])
        names = tuple(name.encode("utf-8", "surrogateescape").decode() for name in header)
        reader = pcsv.open_csv(
            text,
            pcsv.ReadOptions(use_threads=False, block_size=BLOCK),  # threads lose count of rows
            pcsv.ParseOptions(newlines_in_values=True),
            pcsv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
        )
        if tuple(reader.schema.names) != names:  # columns of other names would have types
            raise InputError(f"{source} has a header that can be read in two ways{ADVICE}")
    parts = _small(_csv_parts(reader, counted, source), source, ADVICE)
    return Batches(names, parts, untyped=True)


def _csv_parts(reader: Any, counted: _Counted, source: Path) -> Iterator[Any]:
    yield from reader
    # pyarrow closes an odd quote at the next one, or at the end.
    if counted.n_quotes % 2:
        raise InputError(
            f"{source} has an odd number of quotes, {counted.n_quotes:,}: one is never closed, or "
            'stands inside a cell; put such a cell in quotes and write its own twice, as in "6"" '
            'pipe"'
        )


def open_jsonl(file: IO[bytes], source: Path) -> Batches:
    """JSON lines: an object on each, with the same names; a value is a number, a text or null."""
    parts = _json_parts(file, source)
    with decoding(source):
        first = next(parts)
    return Batches(tuple(first.schema.names), _small(chain([first], parts), source))


def _json_parts(file: IO[bytes], source: Path) -> Iterator[Any]:
    kinds: dict[str, str | None] = {}  # of the first value in each column that is not null
    rows: list[dict[str, Any]] = []
    size = 0
    for number in count(1):
        line, place = file.readline(BLOCK + 1), f"{source}, line {number}"
        if len(line) > BLOCK:
            raise InputError(f"{place}: it is longer than {BLOCK:,} bytes")
        if line.strip():
            rows.append(_json_row(line, place, kinds))
        size += len(line)
        if rows and (size >= JSON_PART or not line):
            columns = [_json_column([r.get(name) for r in rows], kinds[name]) for name in kinds]
            yield pa.RecordBatch.from_arrays(columns, names=list(kinds))
            rows, size = [], 0
        if not line:
            break
    if not kinds:
        raise InputError(f"{source} is empty: expected an object on each line")


def _json_row(line: bytes, place: str, kinds: dict[str, str | None]) -> dict[str, Any]:
    """The values of a line by name, each of the kind that its column has."""
    try:
        row = json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{place}: it is no JSON: {error}") from error
    if not isinstance(row, dict) or not row:
        raise InputError(f"{place}: expected an object of named values, got {shorten(repr(row))}")
    if not kinds:
        kinds.update(dict.fromkeys(row))
    if extra := row.keys() - kinds.keys():
        raise InputError(
            f"{place}: {quoted(sorted(extra))} is unknown; the first line has {quoted(list(kinds))}"
        )
    for name, value in row.items():
        if value is None:
            continue
        kind = JSON_KINDS.get(type(value))
        wanted = "a number or text" if kind is None else kinds[name] or kind
        if kind != wanted:
            raise InputError(f"{place}, {name!r}: expected {wanted}, got {shorten(repr(value))}")
        kinds[name] = kind
    return row


def _json_column(values: list[Any], kind: str | None) -> Any:
    if kind != "a number":
        return pa.array(values, pa.string() if kind == "text" else pa.null())
    if all(type(value) is int and -(2**63) <= value < 2**63 for value in values):
        return pa.array(values, pa.int64())
    return pa.array(np.array(values, dtype=np.float64))  # None is NaN


def open_parquet(file: IO[bytes], source: Path, groups: Sequence[int] | None = None) -> Batches:
    """A Parquet file, whatever the size of its row groups. groups: read only these, if given."""
    # pq.read_table would take folders named like label=cat for columns.
    with decoding(source):
        meta = pq.read_metadata(file)
        file.seek(0)
        # Without a buffer, a whole column of a row group is read at once.
        buffer = max(1 << 12, min(1 << 20, JSON_PART // max(1, meta.num_columns)))
        opened = pq.ParquetFile(file, metadata=meta, buffer_size=buffer)
        every = range(meta.num_row_groups)
        size = sum(meta.row_group(i).total_byte_size for i in every)
        schema = opened.schema_arrow
        names = tuple(schema.names)
    # One row group after another: over all of them, pyarrow keeps what it has read.
    batches = (
        batch
        for group in (every if groups is None else groups)
        for batch in opened.iter_batches(batch_size=rows_at_once(len(names)), row_groups=[group])
    )
    return Batches(
        names,
        _small(batches, source),
        index=_index_of(schema),
        n_bytes=size + 16 * meta.num_rows * meta.num_columns,  # and their copy in float64
    )


def open_arrow(file: IO[bytes], source: Path) -> Batches:
    """Arrow's own format, as a file (Feather) or as a stream."""
    with decoding(source):
        is_file = file.read(6) == b"ARROW1"
        file.seek(0)
        # A batch may be as large as the file: of a mapped one only what is used is read.
        name = getattr(file, "name", None)
        mapped = pa.memory_map(name) if isinstance(name, str) else file
        opened = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(mapped)
        names = tuple(opened.schema.names)  # which need not be text
    parts = map(opened.get_batch, range(opened.num_record_batches)) if is_file else iter(opened)
    return Batches(names, _small(map(_checked, parts), source), index=_index_of(opened.schema))


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


OPENERS = {"csv": open_csv, "jsonl": open_jsonl, "parquet": open_parquet, "arrow": open_arrow}


def read_parts(
    batches: Batches,
    source: Path,
    roles: Roles,
    *,
    labelled: bool,
    mixed: bool,
    whole: bool = False,
) -> Iterator[DataTable]:
    """The parts of a file as tables; labels of untyped cells stay text, as others may follow.

    labelled: whether the label is read, or only kept from being a feature. mixed: whether text may
    be a feature. whole: refuse what does not fit into memory, and give all of it as one part.
    """
    features = roles.find_features(batches.names, str(source), batches.index)
    row, text, parts = FIRST_ROW, None, batches.parts
    if whole:
        check_fits(batches.n_bytes or 0, str(source))
        tables = [pa.Table.from_batches([batch]) for batch in parts]
        with decoding(source):
            parts = iter([pa.concat_tables(tables, promote_options="permissive")] if tables else [])
    for batch in parts:
        if text is None:
            text = set(roles.text)
            if mixed:
                is_text = _has_no_number if batches.untyped else _is_text
                text |= {name for name in features if is_text(batch[name])}
        columns = {}
        for name in features:
            place = f"column {name!r} of {source}"
            if name in text:
                columns[name] = _texts(batch[name], batches.untyped)
            elif batches.untyped:
                columns[name] = _parse(batch[name], f"{source}, column {name!r}, row ", row)
            else:
                plain = _plain(batch[name], NUMERIC, f"{place} must hold numbers or bools")
                # Unsafe as numpy is: an int of more than 53 bits is rounded.
                columns[name] = plain.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        made = make_frame(columns) if text else np.column_stack(list(columns.values()))
        labels = ids = None
        if labelled and roles.label is not None:
            labels = _labels(batch[roles.label], source, roles.label, batches.untyped, row)
        if roles.id is not None:
            place = f"the id, column {roles.id!r} of {source}, must hold text, numbers or dates"
            ids = _plain(batch[roles.id], PLAIN, place)
        yield DataTable(made, labels=labels, feature_names=features, ids=ids, id_name=roles.id)
        row += batch.num_rows
    if text is None:
        heading = "a header" if batches.untyped else "columns"
        raise InputError(f"{source} is empty: it has {heading} but no rows")


def _plain(column: Any, kinds: Sequence[str], expected: str) -> Any:
    """The column without dictionary encoding, as categories have it, if it is of these kinds."""
    plain = column.cast(column.type.value_type) if _is_coded(column) else column
    if not any(getattr(pa.types, f"is_{kind}")(plain.type) for kind in kinds):
        raise InputError(f"{expected}; got {shorten(plain.type)}")
    return plain


def _is_coded(column: Any) -> bool:
    return bool(pa.types.is_dictionary(column.type))


def _is_text(column: Any) -> bool:
    kind = column.type.value_type if _is_coded(column) else column.type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _has_no_number(column: Any) -> bool:
    """Whether some cell is not blank, and none of these is a number."""
    cells = (cell for cell in map(str, column) if cell.strip())  # mostly the first one tells
    first = next(cells, None)
    return first is not None and not any(map(_is_number, chain([first], cells)))


def _texts(column: Any, untyped: bool) -> Any:
    """Text, null where it is missing."""
    if untyped:
        return pc.if_else(pc.equal(pc.utf8_trim_whitespace(column), ""), None, column)
    return column if _is_text(column) else column.cast(pa.string())


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
    if not _is_number(cell):
        raise InputError(f"{place}: expected a number, got {shorten(repr(cell))}")
    return float(cell)


def _is_number(cell: str) -> bool:
    # float() also takes 1_000 and the digits of other scripts, which no file means as numbers.
    with suppress(ValueError):
        return cell.isascii() and "_" not in cell and float(cell) is not None
    return False


def _labels(column: Any, source: Path, name: str, untyped: bool, row: int) -> Labels:
    """Labels of shape (n,); those of untyped cells are text, until `settle_labels`."""
    if untyped:
        return _label_cells(column, f"{source}, column {name!r}, row ", row, source)
    place = f"column {name!r} of {source}"
    if column.null_count:
        raise InputError(f"{place} has no label for {column.null_count} of {len(column)} samples")
    cells = column.to_pylist()
    return as_labels(as_text(cells, place) if _is_text(column) else np.array(cells), place)


def _label_cells(column: Any, place: str, row: int, source: Path) -> Labels:
    """Cells of labels as text; an `InputError` names the row of a blank one."""
    cells: list[str] = column.to_pylist()
    for i, cell in enumerate(cells, start=row):
        if not cell.strip():
            raise InputError(f"{place}{i}: expected a label, got {shorten(repr(cell))}")
    return as_text(cells, str(source))


def read_labels(batches: Batches, source: Path) -> Labels:
    """Labels of shape (n,), as text, from the only column of a file."""
    if len(batches.names) != 1:
        raise InputError(
            f"{source} must have one column, the labels; it has {quoted(batches.names)}"
        )
    parts, row = list[Labels](), FIRST_ROW
    for batch in batches.parts:
        parts.append(_label_cells(batch[0], f"{source}, row ", row, source))
        row += batch.num_rows
    if not parts:
        raise InputError(f"{source} is empty: it has a header but no rows")
    return np.concatenate(parts)


# Writing


def as_arrow(column: Column) -> Any:
    """The values of a column; null where they are missing."""
    if isinstance(column, Coded):
        return pa.array(column.values).take(pa.array(column.codes, mask=column.codes < 0))
    return column if isinstance(column, pa.Array) else pa.array(column)


@contextmanager
def _batch_writer(file: IO[bytes], open_writer: Callable[..., Any]) -> Iterator[Write]:
    """Record batches with the columns and types of the first part; in Parquet, row groups."""
    with ExitStack() as stack:
        writer: Any = None
        schema: Any = None

        def write(columns: Mapping[str, Column]) -> None:
            nonlocal writer, schema
            arrays = list(map(as_arrow, columns.values()))
            batch = pa.RecordBatch.from_arrays(arrays, names=list(columns))
            if writer is None:
                writer, schema = stack.enter_context(open_writer(file, batch.schema)), batch.schema
            try:
                writer.write_batch(batch.cast(schema))
            except pa.ArrowInvalid as error:
                raise InputError(f"a column changes its type within the data: {error}") from error

        yield write


@contextmanager
def _json_writer(file: IO[bytes]) -> Iterator[Write]:
    """An object on each line; JSON has no NaN and no infinity, so these are null."""
    encode = json.JSONEncoder(ensure_ascii=False, default=str).encode

    def write(columns: Mapping[str, Column]) -> None:
        rows = zip(*map(as_list, columns.values()), strict=True)
        lines = (f"{encode(dict(zip(columns, row, strict=True)))}\n" for row in rows)
        file.write("".join(lines).encode())

    yield write


def as_list(column: Column) -> list[Any]:
    """A column as plain values, None where one is missing or not finite."""
    array = as_arrow(column)
    if pa.types.is_floating(array.type):
        array = pc.if_else(pc.is_finite(array), array, None)
    return array.to_pylist()  # type: ignore[no-any-return]


@contextmanager
def _csv_writer(file: IO[bytes]) -> Iterator[Write]:
    has_header = False

    def write(columns: Mapping[str, Column]) -> None:
        nonlocal has_header
        if not has_header:
            file.write(to_csv({str(i): np.array([name]) for i, name in enumerate(columns)}))
            has_header = True
        file.write(to_csv(columns))

    yield write


def to_csv(columns: Mapping[str, Column]) -> bytes:
    """Rows without their header; numbers in as many digits as give them back exactly."""
    cells = [_cells(column) for column in columns.values()]
    if len(cells) == 1:  # a blank cell alone would be no row
        blank = pc.equal(cells[0].fill_null(""), "")
        cells = [pc.if_else(blank, '""', cells[0])]
    how = {"null_handling": "replace", "null_replacement": ""}
    # pyarrow's own writer puts all texts in quotes, or none.
    lines = pc.binary_join_element_wise(*cells, pa.scalar(",", pa.large_string()), **how)
    return "".join(f"{line}\r\n" for line in lines.to_pylist()).encode()


def _cells(column: Column) -> Any:
    """The cells of a column as text, in quotes where they need them."""
    if isinstance(column, Coded):  # each word once
        return _cells(column.values).take(pa.array(column.codes, mask=column.codes < 0))
    array = as_arrow(column)
    if pa.types.is_boolean(array.type):
        return pc.if_else(array, "True", "False").cast(pa.large_string())
    texts = array.cast(pa.large_string())
    if pa.types.is_integer(array.type) or pa.types.is_floating(array.type):
        return texts
    risky = pc.match_substring_regex(texts, RISKY).fill_null(False)
    if not pc.any(risky).as_py():
        return texts
    safe = [_quoted(harmless(cell)) for cell in texts.filter(risky).to_pylist()]
    return pc.replace_with_mask(texts, risky, pa.array(safe, texts.type))


def harmless(cell: str) -> str:
    """The cell, unless a spreadsheet would run it: then with an apostrophe in front."""
    formula = cell.startswith(("=", "+", "@", "\t", "\r", "-")) and not NUMBER.fullmatch(cell)
    return f"'{cell}" if formula else cell


def _quoted(cell: str) -> str:
    doubled = cell.replace('"', '""')
    return f'"{doubled}"' if re.search('[,"\r\n]', cell) else cell


WRITERS = {
    "csv": _csv_writer,
    "jsonl": _json_writer,
    "parquet": partial(_batch_writer, open_writer=pq.ParquetWriter),
    "arrow": partial(_batch_writer, open_writer=pa.ipc.new_file),
    "arrow stream": partial(_batch_writer, open_writer=pa.ipc.new_stream),
}
