"""Parquet files, through pyarrow: the same rules as for comma-separated text."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from iknow.core.arrays import Floats, Labels
from iknow.errors import InputError
from iknow.tables.table import Table, as_labels, check_names, decoding


def read_parquet(path: Path, label: str | None, *, labelled: bool = True) -> Table:
    """Read a table whose features are all columns but the label."""
    # pq.read_table would take folders named like label=cat for columns.
    with decoding(path), pq.ParquetFile(path) as file:
        content = file.read()
    check_names(content.column_names, label, path)
    if not content.num_rows:
        raise InputError(f"{path} is empty: it has columns but no rows")
    names = tuple(name for name in content.column_names if name != label)
    features = np.empty((content.num_rows, len(names)))
    for j, name in enumerate(names):
        features[:, j] = _numbers(content[name], f"column {name!r} of {path}")
    labels = None
    if label is not None and labelled:
        labels = _labels(content[label], f"column {label!r} of {path}")
    return Table(features=features, labels=labels, feature_names=names)


def write_parquet(columns: Mapping[str, NDArray[Any]], file: IO[bytes]) -> None:
    """Write columns of shape (n,)."""
    pq.write_table(pa.table({name: pa.array(column) for name, column in columns.items()}), file)


def _numbers(column: Any, source: str) -> Floats:
    """A column as float64 of shape (n,), NaN where it is null."""
    column = _plain(column)
    kind = column.type
    if not (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_decimal(kind)
        or pa.types.is_null(kind)
    ):
        raise InputError(f"{source} must hold numbers or bools; got {kind}")
    # Unsafe as numpy is: an int of more than 53 bits is rounded.
    values: Floats = column.cast(pa.float64(), safe=False).to_numpy()
    return values


def _labels(column: Any, source: str) -> Labels:
    if column.null_count:
        raise InputError(f"{source} has no label for {column.null_count} of {len(column)} samples")
    return as_labels(np.array(_plain(column).to_pylist()), source)


def _plain(column: Any) -> Any:
    """The column without dictionary encoding, which is how categories are stored."""
    return column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
