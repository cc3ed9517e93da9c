"""From a record batch to a table: numbers, text, labels and ids, by one set of rules.

In a format without types a cell is text until our rules make it a number: pyarrow's guesses would
turn the label 007 into 7 and NA into nothing. A column of such cells is text if not one of them is
a number in the first part of the file, and only if the model may take text; else a cell that is no
number is an error, which names its row. A blank cell is a missing value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from iknow.core.arrays import Floats, Labels
from iknow.core.text import name as name_of
from iknow.core.text import names as quoted
from iknow.errors import InputError, MissingExtraError
from iknow.tables.pyarrow.batches import Batches
from iknow.tables.table import Roles, Table, as_labels, as_text

NUMERIC = ("integer", "floating", "boolean", "decimal", "null")
PLAIN = (*NUMERIC, "string", "large_string", "temporal")


@dataclass(frozen=True, eq=False)
class Reading:
    """How to read the columns of one file.

    features: their names, in order. text: those that are no numbers. untyped: whether every cell is
    text. labelled: whether the label is read, or only kept from being a feature.
    """

    source: Path
    roles: Roles
    features: tuple[str, ...]
    text: frozenset[str]
    untyped: bool
    labelled: bool

    def place(self, name: str) -> str:
        return f"{self.source}, column {name!r}, row "


def read_parts(
    batches: Batches, source: Path, roles: Roles, *, labelled: bool, mixed: bool
) -> Iterator[Table]:
    """The parts of a file as tables; labels of untyped cells stay text, as others may follow.

    mixed: whether text may be a feature.
    """
    features = roles.find_features(batches.names, str(source), batches.index)
    row, reading = batches.first_row, None
    for batch in batches.parts:
        if reading is None:
            text = _find_text(batch, features, roles, batches.untyped, mixed=mixed)
            reading = Reading(source, roles, features, text, batches.untyped, labelled)
        yield _as_table(batch, row, reading)
        row += batch.num_rows
    if reading is None:
        heading = "a header" if batches.untyped else "columns"
        raise InputError(f"{source} is empty: it has {heading} but no rows")


def _find_text(
    batch: Any, features: tuple[str, ...], roles: Roles, untyped: bool, *, mixed: bool
) -> frozenset[str]:
    """The features that are text."""
    if not mixed:
        return frozenset(roles.text)
    is_text = _has_no_number if untyped else _is_text
    return frozenset(name for name in features if is_text(batch[name])) | frozenset(roles.text)


def _is_text(column: Any) -> bool:
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _has_no_number(column: Any) -> bool:
    """Whether some cell is not blank, and none of these is a number."""
    cells = (cell for cell in map(str, column) if cell.strip())  # mostly the first one tells
    first = next(cells, None)
    return first is not None and not any(map(_is_number, chain([first], cells)))


def _as_table(batch: Any, row: int, reading: Reading) -> Table:
    roles = reading.roles
    columns = {name: _feature(batch[name], name, row, reading) for name in reading.features}
    labels = None
    if roles.label is not None and reading.labelled:
        labels = _labels(batch[roles.label], roles.label, row, reading)
    ids = None if roles.id is None else _ids(batch[roles.id], reading)
    made = make_frame(columns) if reading.text else np.column_stack(list(columns.values()))
    return Table(made, labels=labels, feature_names=reading.features, ids=ids, id_name=roles.id)


def _feature(column: Any, name: str, row: int, reading: Reading) -> Any:
    """Numbers of shape (n,), NaN where they are missing; or text, null where it is."""
    if name in reading.text:
        if reading.untyped:
            return pc.if_else(pc.equal(pc.utf8_trim_whitespace(column), ""), None, column)
        return column if _is_text(column) else column.cast(pa.string())
    if reading.untyped:
        return _parse(column, reading.place(name), row)
    plain = plain_column(column)
    if not any(getattr(pa.types, f"is_{kind}")(plain.type) for kind in NUMERIC):
        raise InputError(
            f"column {name!r} of {reading.source} must hold numbers or bools; got "
            f"{name_of(plain.type)}"
        )
    # Unsafe as numpy is: an int of more than 53 bits is rounded.
    return plain.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)


def make_frame(columns: Mapping[str, Any]) -> Any:
    try:
        from iknow.tables import pandas
    except ImportError as error:
        raise MissingExtraError("reading columns of text", "pandas") from error
    return pandas.make_frame(columns)


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
        raise InputError(f"{place}: expected a number, got {name_of(repr(cell))}")
    return float(cell)


def _is_number(cell: str) -> bool:
    # float() also takes 1_000 and the digits of other scripts, which no file means as numbers.
    with suppress(ValueError):
        return cell.isascii() and "_" not in cell and float(cell) is not None
    return False


def _labels(column: Any, name: str, row: int, reading: Reading) -> Labels:
    """Labels of shape (n,); those of untyped cells are text, until `settle_labels`."""
    source = f"column {name!r} of {reading.source}"
    if reading.untyped:
        return check_cells(column, reading.place(name), row, str(reading.source))
    if column.null_count:
        raise InputError(f"{source} has no label for {column.null_count} of {len(column)} samples")
    values = plain_column(column)
    if _is_text(values):
        return as_labels(as_text(values.to_pylist(), source), source)
    return as_labels(np.array(values.to_pylist()), source)


def read_labels(batches: Batches, source: Path) -> Labels:
    """Labels of shape (n,), as text, from the only column of a file."""
    if len(batches.names) != 1:
        raise InputError(
            f"{source} must have one column, the labels; it has {quoted(batches.names)}"
        )
    parts, row = list[Labels](), batches.first_row
    for batch in batches.parts:
        parts.append(check_cells(batch[0], f"{source}, row ", row, str(source)))
        row += batch.num_rows
    if row == batches.first_row:
        raise InputError(f"{source} is empty: it has a header but no rows")
    return np.concatenate(parts)


def check_cells(column: Any, place: str, row: int, source: str) -> Labels:
    """Cells of labels as text; an `InputError` names the row of a blank one."""
    cells: list[str] = column.to_pylist()
    for i, cell in enumerate(cells, start=row):
        if not cell.strip():
            raise InputError(f"{place}{i}: expected a label, got {name_of(repr(cell))}")
    return as_text(cells, source)


def _ids(column: Any, reading: Reading) -> Any:
    """What identifies the samples, as it is, to be written again."""
    plain = plain_column(column)
    if not any(getattr(pa.types, f"is_{kind}")(plain.type) for kind in PLAIN):
        raise InputError(
            f"the id, column {reading.roles.id!r} of {reading.source}, must hold text, numbers or "
            f"dates; got {name_of(plain.type)}"
        )
    return plain


def plain_column(column: Any) -> Any:
    """The column without dictionary encoding, which is how categories are stored."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
