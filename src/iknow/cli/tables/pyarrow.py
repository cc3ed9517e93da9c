"""Parquet files, through pyarrow: the same rules as for comma-separated text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from iknow.cli.tables.table import Table, as_labels, as_text, check_fits, check_names, decoding
from iknow.core.arrays import Floats, Labels
from iknow.core.text import name as name_of
from iknow.errors import InputError


def read_parquet(path: Path, label: str | None, *, labelled: bool = True) -> Table:
    """Read a table whose features are all columns but the label."""
    # pq.read_table would take folders named like label=cat for columns.
    with decoding(path), pq.ParquetFile(path) as file:
        schema, n_rows = file.schema_arrow, file.metadata.num_rows
        check_names(schema.names, label, path)
        names = tuple(name for name in schema.names if name != label)
        for name in names:
            _check_numbers(schema.field(name).type, f"column {name!r} of {path}")
        if not n_rows:
            raise InputError(f"{path} is empty: it has columns but no rows")
        check_fits(_bytes_of(file.metadata), str(path))
        content = file.read()
    features = np.empty((content.num_rows, len(names)))
    for j, name in enumerate(names):
        features[:, j] = _numbers(content[name])
    labels = None
    if label is not None and labelled:
        labels = _labels(content[label], f"column {label!r} of {path}")
    return Table(features=features, labels=labels, feature_names=names)


def _bytes_of(metadata: Any) -> int:
    """About what the columns take once they are unpacked, and their copy in float64."""
    unpacked = sum(metadata.row_group(i).total_byte_size for i in range(metadata.num_row_groups))
    return int(unpacked) + 16 * int(metadata.num_rows) * int(metadata.num_columns)


def write_parquet(columns: Mapping[str, NDArray[Any]], file: IO[bytes]) -> None:
    """Write columns of shape (n,)."""
    pq.write_table(pa.table({name: pa.array(column) for name, column in columns.items()}), file)


def _numbers(column: Any) -> Floats:
    """A column as float64 of shape (n,), NaN where it is null."""
    # Unsafe as numpy is: an int of more than 53 bits is rounded.
    values: Floats = _plain(column).cast(pa.float64(), safe=False).to_numpy()
    return values


def _check_numbers(kind: Any, source: str) -> None:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_null(kind)
    ):
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
