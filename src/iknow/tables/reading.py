"""Reading a file in parts, each a table of its own, so that only one of them is in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from iknow.core.arrays import Labels
from iknow.errors import InputError, MissingExtraError
from iknow.tables.numpy import read_npy, read_npy_labels, read_npz
from iknow.tables.streams import OUT_OF_ORDER, STDIN, format_to_read, opening
from iknow.tables.table import Roles, Table, check_fits, check_rows, settle_labels


@contextmanager
def reading(
    path: Path,
    labels_path: Path | None,
    roles: Roles,
    *,
    form: str | None = None,
    mixed: bool = False,
    whole: bool = False,
) -> Iterator[Iterator[Table]]:
    """The samples of a file, part by part; see `iknow.tables.read_table`.

    Labels of .csv cells stay text, as those in a later part may be no numbers: see `settle_labels`.
    whole: refuse what does not fit into memory as a whole, and read an .npy in one part.
    """
    form = format_to_read(path, form)
    labels = None if labels_path is None else _read_labels(labels_path)
    with opening(path, seekable=form in OUT_OF_ORDER) as file:
        path = Path("standard input") if path == STDIN else path  # in errors
        how: dict[str, Any] = {"labelled": labels is None}
        if form == "npy":
            parts = read_npy(file, path, roles, whole=whole)
        elif form == "npz":
            parts = iter([read_npz(file, path, roles, **how)])
        else:
            batches, columns = _pyarrow(f"reading .{form} files")
            with getattr(batches, f"open_{form}")(file, path) as opened:
                if whole and opened.n_bytes is not None:
                    check_fits(opened.n_bytes, str(path))
                parts = columns.read_parts(opened, path, roles, mixed=mixed, **how)
                yield parts if labels is None else _with_labels(parts, labels, path, labels_path)
            return
        yield parts if labels is None else _with_labels(parts, labels, path, labels_path)


def _pyarrow(feature: str) -> tuple[Any, Any]:
    """Our modules that need pyarrow; if that is missing, the error names the extra."""
    try:
        from iknow.tables.pyarrow import batches, columns
    except ImportError as error:
        raise MissingExtraError(feature, "tables") from error
    return batches, columns


def _read_labels(path: Path) -> Labels:
    """Labels of shape (n,) from a file of their own."""
    match path.suffix.lower():
        case ".npy":
            with opening(path, seekable=True) as file:
                return read_npy_labels(file, path)
        case ".csv":
            batches, columns = _pyarrow("reading .csv files")
            with opening(path, seekable=False) as file, batches.open_csv(file, path) as opened:
                return settle_labels(columns.read_labels(opened, path))
        case _:
            raise InputError(
                f"labels cannot be read from {path}: expected a file ending in .npy or .csv"
            )


def _with_labels(
    parts: Iterator[Table], labels: Labels, path: Path, labels_path: Any
) -> Iterator[Table]:
    """The same samples with labels from a file of their own."""
    n_samples = 0
    for part in parts:
        start, n_samples = n_samples, n_samples + len(part)
        if n_samples <= len(labels):  # else only count the rest, for the error
            yield replace(part, labels=labels[start:n_samples])
    check_rows({str(path): n_samples, str(labels_path): len(labels)})
