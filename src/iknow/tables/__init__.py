"""Reading and writing the data files of the command line, whole or in parts.

The ending of a file says its format: `.csv`, `.jsonl`, `.parquet` and `.arrow` hold named columns,
`.npz` named arrays, `.npy` one array. All formats become the same record; an `InputError` names the
file and the place of what cannot be used. Nothing that is read can execute code. Reading named
columns, and writing Parquet or Arrow files, needs pyarrow, the extra `tables`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from iknow.tables.reading import reading
from iknow.tables.streams import format_to_read, format_to_write
from iknow.tables.table import Roles, Table, join_tables, settle_labels
from iknow.tables.writing import writing

__all__ = [
    "Roles",
    "Table",
    "format_to_read",
    "format_to_write",
    "read_table",
    "reading",
    "write_table",
    "writing",
]


def read_table(
    path: str | os.PathLike[str],
    *,
    label: str | None = None,
    labels_path: str | os.PathLike[str] | None = None,
    roles: Roles | None = None,
    form: str | None = None,
    mixed: bool = False,
) -> Table:
    """Read samples, and their labels if present, from one file as a whole.

    label: the column (or array of an .npz, by default `y`) of the labels, which is never a feature.
    labels_path: an .npy, or a .csv with one column, whose labels replace those in `path`.
    roles: what the other columns are for. form: the format, if not by the ending. mixed: whether
    text may be a feature.
    """
    roles = Roles(label=label) if roles is None else roles
    where = Path(path), None if labels_path is None else Path(labels_path)
    with reading(*where, roles, form=form, mixed=mixed, whole=True) as parts:
        table = join_tables(list(parts))
    labels = table.labels
    if labels is None or labels_path is not None or format_to_read(Path(path), form) != "csv":
        return table
    return replace(table, labels=settle_labels(labels))


def write_table(path: str | os.PathLike[str], columns: Mapping[str, Any]) -> None:
    """Write named columns, each of shape (n,), in the format of the ending; into a stream as CSV.

    The file appears whole or not at all: after a failure the old one, if any, is still there.
    """
    with writing(Path(path), format_to_write(Path(path))) as write:
        write(columns)
