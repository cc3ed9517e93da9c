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
        with unforked():
            from iknow.models.narwhals import to_pandas  # only users of such tables load it
    except ImportError as error:
        raise MissingExtraError("reading tables of polars and Arrow", "tables") from error
    return to_pandas(values, what)
