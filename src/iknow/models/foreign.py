"""Foreign tables: polars, Arrow and all else that is a table or a column, but not of pandas.

scikit-learn knows pandas best, so a foreign table becomes a pandas one where it enters: narwhals
keeps names, categories and missing values. We recognize it by the interface through which all of
them share their memory, so that none of their packages is imported here.
"""

from __future__ import annotations

from typing import Any

from iknow.errors import InputError, MissingExtraError
from iknow.locking import unforked

INTERFACES = ("__arrow_c_stream__", "__arrow_c_array__", "__narwhals_dataframe__")


def is_foreign(values: Any) -> bool:
    """Whether this is a table or a column of another package than pandas."""
    is_own = isinstance(values, type) or hasattr(values, "iloc")
    return not is_own and any(hasattr(values, name) for name in INTERFACES)


def is_lazy(values: Any) -> bool:
    """Whether this is a query that has not run yet, such as polars' LazyFrame."""
    return hasattr(values, "collect") and hasattr(values, "collect_schema")


def as_pandas(values: Any, what: str = "X") -> Any:
    """A foreign table as a data frame, a foreign column as a Series; anything else as it is."""
    if is_lazy(values) and not hasattr(values, "__len__"):
        raise InputError(f"{what} is a query that has not run yet: pass {what}.collect()")
    if not is_foreign(values):
        return values
    try:
        return _read(values).to_pandas()
    except ImportError as error:  # narwhals itself needs no pandas
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
    with unforked():
        import narwhals as nw  # only users of such tables load it
    try:
        return nw.from_native(values, allow_series=True)
    except TypeError:  # a batch of an Arrow table, or another table that Arrow can read
        if hasattr(values, "schema"):
            return nw.from_arrow(values, backend="pyarrow")
        return values
