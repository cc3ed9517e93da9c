"""Data frames as plain arrays and values, column by column, and back."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from iknow.errors import InputError

PLAIN = "biufmM"  # kinds of numpy arrays that hold a column as it is
WITH_GAPS = re.compile(r"object|str|string(\[\w{1,20}\])?|boolean|U?Int(8|16|32|64)|Float(32|64)")
"""Names of dtypes whose columns we store as values and a mask of the missing ones."""


def frame_of_columns(columns: Mapping[str, Any]) -> Any:
    """A frame of columns by name, arrays, lists or tensors of one length."""
    try:
        return pd.DataFrame({name: _column(values) for name, values in columns.items()})
    except (ValueError, TypeError) as error:
        raise InputError(f"columns by name must be of one length and one axis: {error}") from error


def _column(values: Any) -> Any:
    return values.detach().cpu().numpy() if hasattr(values, "detach") else values


def store_frame(frame: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Plain values and arrays by name; ValueError if they cannot restore the same frame."""
    arrays: dict[str, Any] = {}
    names = list(frame.columns)
    if not all(isinstance(name, str | int) and not isinstance(name, bool) for name in names):
        raise ValueError("a data frame can be kept only if its column names are text or integers")
    columns = [
        {"name": name, **_store_column(frame.iloc[:, i], f"column{i}", arrays)}
        for i, name in enumerate(names)
    ]
    record = {"kind": "frame", "columns": columns, "n_rows": len(frame)}
    try:
        again = restore_frame(record, arrays)
        pd.testing.assert_frame_equal(
            frame, again, check_exact=True, check_column_type=True, check_categorical=True
        )
    except (AssertionError, TypeError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"this data frame cannot be kept in a bundle: {reason}") from error
    return record, arrays


def restore_frame(record: Mapping[str, Any], arrays: Mapping[str, Any]) -> Any:
    """The frame that `store_frame` was given, with rows numbered from 0."""
    columns = [_restore_column(column, arrays) for column in record["columns"]]
    index = pd.RangeIndex(int(record["n_rows"]))
    if any(len(column) != len(index) for column in columns):
        raise ValueError(f"a column has more or fewer than {len(index)} rows")
    frame = pd.DataFrame(dict(enumerate(columns)), index=index)
    frame.columns = pd.Index([column["name"] for column in record["columns"]])
    return frame


def store_series(series: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The same for a single column."""
    name = series.name
    if name is not None and (not isinstance(name, str | int) or isinstance(name, bool)):
        raise ValueError("a Series can be kept only if its name is text or an integer")
    record, arrays = store_frame(series.to_frame("series"))
    return {**record, "kind": "series", "name": name}, arrays


def restore_series(record: Mapping[str, Any], arrays: Mapping[str, Any]) -> Any:
    """The column that `store_series` was given."""
    return restore_frame(record, arrays).iloc[:, 0].rename(record["name"])


def _store_column(column: Any, name: str, arrays: dict[str, Any]) -> dict[str, Any]:
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        arrays[name] = column.cat.codes.to_numpy(dtype=np.int64)
        of = _store_column(pd.Series(dtype.categories), f"{name}-of", arrays)
        return {"array": name, "ordered": bool(dtype.ordered), "of": of}
    if isinstance(dtype, np.dtype) and dtype.kind in PLAIN:
        arrays[name] = column.to_numpy()
        return {"array": name}
    missing = column.isna().to_numpy()
    present = column[~missing].tolist()
    kinds = {type(value) for value in present}
    is_known = WITH_GAPS.fullmatch(str(dtype)) is not None
    if not is_known or len(kinds) > 1 or not kinds <= {str, bool, int, float}:
        raise ValueError(f"data frames with a column of {dtype} cannot be kept in a bundle")
    filled = np.zeros(len(column), dtype=np.array(present).dtype if present else np.bool_)
    filled[~missing] = present
    arrays[name], arrays[f"{name}-missing"] = filled, missing
    lacks_nan = any(value is None for value in column[missing])
    return {"array": name, "dtype": str(dtype), "none": lacks_nan}


def _restore_column(record: Mapping[str, Any], arrays: Mapping[str, Any]) -> Any:
    values = arrays[record["array"]]
    if "of" in record:
        categories = pd.Index(_restore_column(record["of"], arrays))
        return pd.Series(pd.Categorical.from_codes(values, categories, ordered=record["ordered"]))
    if "dtype" not in record:
        return pd.Series(np.array(values))
    if not WITH_GAPS.fullmatch(record["dtype"]):
        raise ValueError("a column has a dtype of no known name")
    nothing = None if record["none"] or record["dtype"] != "object" else np.nan
    missing = arrays[f"{record['array']}-missing"]
    pairs = zip(values.tolist(), missing.tolist(), strict=True)
    return pd.Series(
        [nothing if is_missing else value for value, is_missing in pairs], dtype=record["dtype"]
    )
