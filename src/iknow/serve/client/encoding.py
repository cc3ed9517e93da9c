"""Encoding: samples as the body of a request, in the smallest form that keeps them as they are.

Numbers in an array or in lists become .npy; data frames, tables of Arrow, texts, dicts and all else
JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.text import shown
from iknow.errors import InputError

JSON = "application/json"
NPY = "application/x-npy"
EXPECTED = "X must be an array, a list of rows, texts or dicts, a data frame, or arrays by name"


def encode(X: Any) -> tuple[str, bytes]:
    """The content type and the body for some samples.

    Raises:
        InputError: These are no samples.
    """
    if isinstance(X, (str, bytes)):
        raise InputError(f"{EXPECTED}; got one text: send it in a list")
    if isinstance(X, Mapping):
        return _as_json("inputs", {str(name): _listed(each) for name, each in X.items()})
    if is_table(X):
        return _as_json("rows", _records(X))
    if isinstance(X, (list, tuple)):
        return _from_list(X)
    if not hasattr(X, "__array__"):
        raise InputError(f"{EXPECTED}; got {shown(X)}")
    return _from_array(_as_array(X))


def is_table(X: Any) -> bool:
    """Whether this is a data frame of pandas or polars, or a table of Arrow."""
    return not isinstance(X, type) and (
        (hasattr(X, "columns") and (hasattr(X, "iloc") or hasattr(X, "to_dicts")))
        or (hasattr(X, "column_names") and hasattr(X, "to_pylist"))
    )


def _from_array(array: NDArray[Any]) -> tuple[str, bytes]:
    if array.dtype.kind in "O":
        return _as_json("rows", array.tolist())
    if array.dtype.kind not in "biufU":
        raise InputError(f"X must hold numbers or text; got an array of {array.dtype}")
    buffer = BytesIO()
    plain = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False))
    np.lib.format.write_array(buffer, plain.reshape(array.shape), (1, 0), allow_pickle=False)
    return NPY, buffer.getvalue()


def _from_list(rows: Any) -> tuple[str, bytes]:
    if rows and not any(isinstance(row, (str, Mapping)) for row in rows):
        try:
            array = np.array(rows)
        except Exception:  # rows of different lengths: the service says which
            return _as_json("rows", rows)
        if array.dtype.kind in "biuf":
            return _from_array(array)
    return _as_json("rows", rows)


def _records(table: Any) -> list[dict[str, Any]]:
    """A table as dicts, one for each row; what is missing is None."""
    columns = table.column_names if hasattr(table, "column_names") else table.columns
    names = [str(name) for name in columns]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"this table cannot be sent: it has two columns {shown(twice)}")
    if hasattr(table, "iloc"):  # of pandas
        rows = table.to_dict("records")
    else:
        rows = table.to_dicts() if hasattr(table, "to_dicts") else table.to_pylist()
    return [
        {str(name): None if _is_missing(value) else value for name, value in row.items()}
        for row in rows
    ]


def _is_missing(value: Any) -> bool:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return True
    return type(value).__name__ in ("NAType", "NaTType")  # of pandas


def _as_array(X: Any) -> NDArray[Any]:
    try:
        return np.asarray(X)
    except Exception as error:  # a tensor on a GPU, or one that a gradient is wanted for
        raise InputError(f"{EXPECTED}; got a {type(X).__name__}: {error}") from error


def _listed(values: Any) -> Any:
    return _as_array(values).tolist() if hasattr(values, "__array__") else values


def _as_json(key: str, value: Any) -> tuple[str, bytes]:
    try:
        return JSON, json.dumps({key: value}, default=_plain).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"X holds what JSON has no form for: {error}") from error


def _plain(value: Any) -> Any:
    """What json asks about: scalars and arrays of numpy, and tensors."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"expected numbers, text or None; got {shown(value, 60)}")
