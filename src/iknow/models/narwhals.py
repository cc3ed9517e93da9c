"""Tables of polars, Arrow and others by narwhals, as pandas has them."""

from __future__ import annotations

from typing import Any

import narwhals as nw

from iknow.errors import InputError, MissingExtraError


def to_pandas(values: Any, what: str) -> Any:
    """A table as a data frame, a column as a Series, with its categories and missing values."""
    try:
        return _read(values).to_pandas()
    except ImportError as error:  # narwhals itself needs neither
        extra = "pandas" if "pandas" in str(error) else "tables"
        raise MissingExtraError("reading tables of polars and Arrow", extra) from error
    except Exception as error:  # a foreign object may raise anything
        kind = type(values)
        raise InputError(
            f"{what} is a {kind.__module__.partition('.')[0]} {kind.__name__} that cannot be read "
            f"as a table ({error}): pass an array or a data frame"
        ) from error


def _read(values: Any) -> Any:
    """What has a method to_pandas: what narwhals makes of it, or an Arrow array itself."""
    try:
        return nw.from_native(values, allow_series=True)
    except TypeError:  # a batch of an Arrow table, or another table that Arrow can read
        if hasattr(values, "schema"):
            return nw.from_arrow(values, backend="pyarrow")
        return values
