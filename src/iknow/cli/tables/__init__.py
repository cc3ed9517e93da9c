"""Reading and writing the data files of the command line.

The ending of a file says its format: `.csv` and `.parquet` hold named columns, `.npz` named arrays,
`.npy` one array. All formats become the same record; an `InputError` names the file and the place
of what cannot be used. Nothing that is read can execute code. Only reading named columns and
writing Parquet need pyarrow, the extra `tables`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from iknow.cli.tables.csv import write_csv
from iknow.cli.tables.numpy import read_npy, read_npy_labels, read_npz, write_npz
from iknow.cli.tables.table import Table, as_columns, check_rows, existing
from iknow.errors import InputError, MissingExtraError
from iknow.storage.atomic import is_stream, replacing

__all__ = ["Table", "check_ending", "read_table", "write_table"]


def read_table(
    path: str | os.PathLike[str],
    *,
    label: str | None = None,
    labels_path: str | os.PathLike[str] | None = None,
) -> Table:
    """Read samples, and their labels if present, from one file.

    label: the column (.csv, .parquet) or array (.npz, by default `y`) of the labels, which is never
        a feature.
    labels_path: an .npy, or a .csv with one column, whose labels replace those in `path`.
    """
    source, labelled = Path(path), labels_path is None
    match source.suffix.lower():
        case ".csv" | ".parquet" as ending:
            arrow = _pyarrow(f"reading {ending} files")
            read = arrow.read_csv if ending == ".csv" else arrow.read_parquet
            table = read(existing(source), label, labelled=labelled)
        case ".npz":
            table = read_npz(existing(source), label, labelled=labelled)
        case ".npy":
            table = read_npy(existing(source), label)
        case _:
            raise InputError(
                f"{source} cannot be read: expected a file ending in .csv, .npz, .npy or .parquet"
            )
    return table if labels_path is None else _with_labels(table, source, Path(labels_path))


def write_table(path: str | os.PathLike[str], columns: Mapping[str, ArrayLike]) -> None:
    """Write named columns, each of shape (n,), as .csv, .npz or .parquet; into a stream as .csv.

    The file appears whole or not at all: after a failure the old one, if any, is still there.
    """
    ending = check_ending(Path(path))
    arrays = as_columns(columns)
    if ending == ".parquet":
        write = _pyarrow("writing .parquet files").write_parquet
    else:
        write = write_csv if ending == ".csv" else write_npz
    with replacing(Path(path)) as file:
        write(arrays, file)


def check_ending(path: Path) -> str:
    """The ending that says how to write a table; refuse a file that cannot hold one."""
    ending = path.suffix.lower()
    if ending in (".csv", ".npz", ".parquet"):
        return ending
    if is_stream(path):  # such as /dev/stdout
        return ".csv"
    reason = (
        "cannot hold named columns, only one array" if ending == ".npy" else "cannot be written"
    )
    raise InputError(f"{path} {reason}: expected a file ending in .csv, .npz or .parquet")


def _pyarrow(feature: str) -> Any:
    """Our module that needs pyarrow; if that is missing, the error names the extra."""
    try:
        from iknow.cli.tables import pyarrow
    except ImportError as error:
        raise MissingExtraError(feature, "tables") from error
    return pyarrow


def _with_labels(table: Table, source: Path, labels_path: Path) -> Table:
    """The same samples with labels from a file of their own."""
    match labels_path.suffix.lower():
        case ".npy":
            labels = read_npy_labels(existing(labels_path))
        case ".csv":
            labels = _pyarrow("reading .csv files").read_csv_labels(existing(labels_path))
        case _:
            raise InputError(
                f"labels cannot be read from {labels_path}: expected a file ending in .npy or .csv"
            )
    check_rows({str(source): len(table), str(labels_path): len(labels)})
    return replace(table, labels=labels)
