"""Writing a table in parts: a file appears whole or not at all, a pipe gets each part at once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from iknow.errors import InputError
from iknow.explain.answers import Coded
from iknow.storage.files import is_stream, replacing
from iknow.tables.arrays import npz_writer
from iknow.tables.reading import STDIN, load_columns
from iknow.tables.table import Column, as_text, check_rows


@contextmanager
def writing(path: Path, form: str) -> Iterator[Callable[[Mapping[str, Any]], None]]:
    """A function that writes the next rows, given as named columns, each of shape (n,).

    The file appears whole or not at all: after a failure the old one, if any, is still there.
    """
    if form == "arrow" and (path == STDIN or is_stream(path)):
        form = "arrow stream"
    if form == "npz":
        writer: Any = npz_writer
    else:
        writer = load_columns(f"writing .{form} files").WRITERS[form]
    with _opening(path) as file:
        with writer(file) as write_part:

            def write(columns: Mapping[str, Any]) -> None:
                write_part(_as_columns(columns))
                file.flush()

            yield write
        file.flush()


@contextmanager
def _opening(path: Path) -> Iterator[IO[bytes]]:
    """The file to write to; standard output is written as it comes, and stays open."""
    if path != STDIN:
        with replacing(path) as file:
            yield file
        return
    output = getattr(sys.stdout, "buffer", None)
    if output is None:
        raise InputError("'-' cannot be written: there is no standard output")
    sys.stdout.flush()
    yield output


def _as_columns(columns: Mapping[str, Any]) -> dict[str, Column]:
    """Columns to be written: numbers, bools or strings, all of one shape (n,)."""
    if not columns:
        raise InputError("nothing to write: expected at least one column, got none")
    found = {name: _as_column(name, values) for name, values in columns.items()}
    check_rows({repr(name): len(column) for name, column in found.items()})
    return found


def _as_column(name: str, values: Any) -> Column:
    if isinstance(values, Coded) or hasattr(values, "to_pylist"):
        return values
    array = np.asarray(values)
    if array.dtype.kind == "O" and all(isinstance(value, str) for value in array.flat):
        array = as_text(array.ravel().tolist(), f"column {name!r}")
    if array.ndim != 1 or array.dtype.kind not in "biufU":
        raise InputError(
            f"column {name!r} must hold numbers, bools or strings along one axis; got an "
            f"array of {array.dtype} of shape {array.shape}"
        )
    return array
