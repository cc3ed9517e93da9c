"""Columns to be written: arrays, and codes with the few values that they stand for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.errors import InputError
from iknow.explain.answers import Coded
from iknow.tables.table import as_text, check_rows

Column = Any
"""An array of numbers, bools or text, `Coded`, or a column of pyarrow's, as it was read."""


def as_columns(columns: Mapping[str, Any]) -> dict[str, Column]:
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


def as_array(column: Column) -> NDArray[Any]:
    """A column as an array of numbers, bools or text, which is empty where it is missing."""
    if isinstance(column, Coded):
        return column.expand()
    if not hasattr(column, "to_pylist"):
        array: NDArray[Any] = column
        return array
    values = column.to_pylist()
    numbers = all(type(value) in (int, float, bool) for value in values)
    texts = ["" if value is None else str(value) for value in values]
    return np.array(values) if numbers else as_text(texts, "a column")


def as_list(column: Column) -> list[Any]:
    """A column as plain values, None where one is missing or not finite."""
    if isinstance(column, Coded):
        return column.tolist()
    values = column.to_pylist() if hasattr(column, "to_pylist") else column.tolist()
    return [_plain(value) for value in values]


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if value is None or isinstance(value, (str, int)) else str(value)
