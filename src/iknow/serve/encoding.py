"""Samples as the body of a request, in the smallest form that keeps them as they are.

Numbers in an array or in lists become .npy; data frames, tables of Arrow, texts, dicts and all else
JSON.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.text import shown
from iknow.errors import InputError
from iknow.npy import encode_array
from iknow.serve.schema import JSON, NPY

EXPECTED = "X must be an array, a list of rows, texts or dicts, a data frame, or arrays by name"


def encode(X: Any) -> tuple[str, bytes]:
    """The content type and the body for some samples; an `InputError` if they are none."""
    if isinstance(X, (str, bytes)):
        raise InputError(f"{EXPECTED}; got one text: send it in a list")
    if isinstance(X, Mapping):
        return JSON, to_json({"inputs": {str(name): each for name, each in X.items()}})
    if (rows := _as_dicts(X)) is not None:
        return JSON, to_json({"rows": rows})
    if isinstance(X, (list, tuple)):
        try:
            array = np.array([] if any(isinstance(row, (str, Mapping)) for row in X) else X)
        except Exception:  # rows of different lengths: the service says which
            array = np.array([])
        is_array = array.size > 0 and array.dtype.kind in "biuf"
        return _as_npy(array) if is_array else (JSON, to_json({"rows": X}))
    if not hasattr(X, "__array__"):
        raise InputError(f"{EXPECTED}; got {shown(X)}")
    array = _as_array(X)
    return (JSON, to_json({"rows": array.tolist()})) if array.dtype.kind == "O" else _as_npy(array)


def _as_npy(array: NDArray[Any]) -> tuple[str, bytes]:
    if array.dtype.kind not in "biufU" or not array.dtype.itemsize:
        raise InputError(f"X must hold numbers or text; got an array of {array.dtype}")
    return NPY, b"".join(encode_array(array))


def _as_dicts(X: Any) -> list[dict[str, Any]] | None:
    """A data frame of pandas or polars, or a table of Arrow, as a dict for each row; else None.

    What is missing is None.
    """
    columns = getattr(X, "column_names", getattr(X, "columns", None))
    methods = ("iloc", "to_dicts", "to_pylist")  # of pandas, of polars and of Arrow
    method = next((each for each in methods if hasattr(X, each)), None)
    if isinstance(X, type) or columns is None or method is None:
        return None
    names = [str(name) for name in columns]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"this table cannot be sent: it has two columns {shown(twice)}")
    rows = X.to_dict("records") if method == "iloc" else getattr(X, method)()
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


def to_json(value: Any) -> bytes:
    """A value in JSON, whose parts may be scalars and arrays of numpy, series, and tensors."""
    try:
        return json.dumps(value, default=_as_plain).encode()
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"this has no form in JSON: {error}") from error


def _as_plain(value: Any) -> Any:
    if hasattr(value, "__array__"):
        return _as_array(value).tolist()
    raise TypeError(f"expected numbers, text or None; got {shown(value, 60)}")
