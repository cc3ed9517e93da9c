"""Reading a file or a stream, as a whole or in parts, each a table of its own."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from iknow.core.arrays import Labels
from iknow.errors import InputError, MissingExtraError
from iknow.storage.files import is_stream
from iknow.tables.arrays import read_npy, read_npy_labels, read_npz
from iknow.tables.table import (
    DataTable,
    Roles,
    check_rows,
    existing,
    settle_labels,
)

STDIN = Path("-")
"""The name of what comes from another command, or goes to one."""
ENDINGS = {
    ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet", ".arrow": "arrow",
    ".feather": "arrow", ".npz": "npz", ".npy": "npy",
}  # fmt: skip
READABLE = ("csv", "jsonl", "parquet", "arrow", "npz", "npy")
WRITABLE = ("csv", "jsonl", "parquet", "arrow", "npz")
OUT_OF_ORDER = ("parquet", "arrow", "npz", "npy")
"""Formats whose readers move around in a file, so that a pipe must be kept first."""


def read_table(
    path: str | os.PathLike[str],
    *,
    label: str | None = None,
    labels_path: str | os.PathLike[str] | None = None,
    roles: Roles | None = None,
    form: str | None = None,
    mixed: bool = False,
) -> DataTable:
    """Read samples, and their labels if present, from one file as a whole.

    label: the column (or array of an .npz, by default `y`) of the labels, which is never a feature.
    labels_path: an .npy, or a .csv with one column, whose labels replace those in `path`.
    roles: what the other columns are for. form: the format, if not by the ending. mixed: whether
    text may be a feature.
    """
    roles = Roles(label=label) if roles is None else roles
    where = Path(path), None if labels_path is None else Path(labels_path)
    with reading(*where, roles, form=form, mixed=mixed, whole=True) as parts:
        (table,) = parts
    labels = table.labels
    if labels is None or labels_path is not None or format_to_read(Path(path), form) != "csv":
        return table
    return replace(table, labels=settle_labels(labels))


@contextmanager
def reading(
    path: Path,
    labels_path: Path | None,
    roles: Roles,
    *,
    form: str | None = None,
    mixed: bool = False,
    whole: bool = False,
) -> Iterator[Iterator[DataTable]]:
    """The samples of a file, part by part; see `read_table`.

    Labels of .csv cells stay text, as those in a later part may be no numbers: see `settle_labels`.
    whole: give all samples in one part, and refuse what does not fit into memory.
    """
    form = format_to_read(path, form)
    labels = None if labels_path is None else _read_labels(labels_path)
    with _opening(path, seekable=form in OUT_OF_ORDER) as file:
        path = Path("standard input") if path == STDIN else path  # in errors
        labelled = labels is None
        if form == "npy":
            parts = read_npy(file, path, roles, whole=whole)
        elif form == "npz":
            parts = iter([read_npz(file, path, roles, labelled=labelled)])
        else:
            columns = load_columns(f"reading .{form} files")
            how: Any = {"labelled": labelled, "mixed": mixed, "whole": whole}
            parts = columns.read_parts(columns.OPENERS[form](file, path), path, roles, **how)
        yield parts if labels is None else _with_labels(parts, labels, path, labels_path)


def load_columns(feature: str) -> Any:
    """Our module that needs pyarrow; if that is missing, the error names the extra."""
    try:
        from iknow.tables import columns
    except ImportError as error:
        raise MissingExtraError(feature, "tables") from error
    return columns


def _read_labels(path: Path) -> Labels:
    """Labels of shape (n,) from a file of their own."""
    form = path.suffix.lower()
    if form not in (".npy", ".csv"):
        raise InputError(
            f"labels cannot be read from {path}: expected a file ending in .npy or .csv"
        )
    with _opening(path, seekable=form == ".npy") as file:
        if form == ".npy":
            return read_npy_labels(file, path)
        columns = load_columns("reading .csv files")
        return settle_labels(columns.read_labels(columns.open_csv(file, path), path))


def _with_labels(
    parts: Iterator[DataTable], labels: Labels, path: Path, labels_path: Any
) -> Iterator[DataTable]:
    """The same samples with labels from a file of their own."""
    n_samples = 0
    for part in parts:
        start, n_samples = n_samples, n_samples + len(part)
        if n_samples <= len(labels):  # else only count the rest, for the error
            yield replace(part, labels=labels[start:n_samples])
    check_rows({str(path): n_samples, str(labels_path): len(labels)})


@contextmanager
def _opening(path: Path, *, seekable: bool) -> Iterator[IO[bytes]]:
    """A file, or standard input, open for reading.

    seekable: whether the format must be read out of order; a pipe then goes to a temporary file.
    """
    if path != STDIN:
        with existing(path).open("rb") as file:
            yield file
    elif sys.stdin is None or sys.stdin.isatty():
        raise InputError("'-' reads from another command or a file, as in `iknow ... - < new.csv`")
    elif not seekable:
        yield sys.stdin.buffer
    else:
        with tempfile.TemporaryFile() as spooled:
            while content := sys.stdin.buffer.read(1 << 20):
                spooled.write(content)
            spooled.seek(0)
            yield spooled


def format_to_read(path: Path, named: str | None = None) -> str:
    """The format of a file to read: as named, or by its ending; CSV from a pipe."""
    if found := _find(path, named, READABLE, "--input-format"):
        return found
    raise InputError(
        f"{path} cannot be read: expected a file ending in {_endings(READABLE)}, or '-' and "
        "--input-format"
    )


def format_to_write(path: Path, named: str | None = None) -> str:
    """The format of a file to write; refuse one that cannot hold a table."""
    if found := _find(path, named, WRITABLE, "--output-format"):
        return found
    is_array = path.suffix.lower() == ".npy"
    reason = "cannot hold named columns, only one array" if is_array else "cannot be written"
    raise InputError(f"{path} {reason}: expected a file ending in {_endings(WRITABLE)}")


def _find(path: Path, named: str | None, known: Collection[str], option: str) -> str | None:
    if named is not None and named not in known:
        raise InputError(f"{option} must be one of {', '.join(known)}; got {named!r}")
    found = named or ENDINGS.get(path.suffix.lower())
    if found in known:
        return found
    return "csv" if path == STDIN or (found is None and is_stream(path)) else None


def _endings(known: Collection[str]) -> str:
    *some, last = [ending for ending, name in ENDINGS.items() if name in known]
    return f"{', '.join(some)} or {last}"
