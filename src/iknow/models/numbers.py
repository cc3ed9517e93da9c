"""Numbers: every array, table and list that a user passes comes in through here.

What numpy would silently drop or reinterpret (a mask, a date, an imaginary part) is an error here.

Tables and columns of polars, Arrow and others become those of pandas, which scikit-learn knows
best; narwhals keeps names, categories and missing values. We recognize them by the interface
through which all of them share their memory, so that none of their packages is imported here.

Texts, dicts and lists of words, which the first step of a pipeline may read, have one axis. Numbers
with one axis are an error: nobody can tell whether they are one sample or one feature.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from numbers import Number, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from iknow.core.text import shown
from iknow.errors import InputError, MissingExtraError
from iknow.locking import unforked

NUMERIC_KINDS = "fiub"  # numpy's letters for floats, signed and unsigned integers, and bools
NO_OBJECTS = "fiubcmM"  # numpy's letters for all that is a number or a time
OBJECTS = (str, bytes, Mapping)
COMMON = frozenset(map(np.dtype, ("float32", "float64", "int64")))
MISSING_TYPES = ("NoneType", "NAType", "NaTType", "MaskedConstant")
SHARED_MEMORY = ("__arrow_c_stream__", "__arrow_c_array__", "__narwhals_dataframe__")

is_sparse: Callable[[Any], bool] = issparse  # in any format of scipy


def as_array(values: Any, what: str, error: type[InputError] = InputError) -> NDArray[Any]:
    """Values, named `what` in errors, as an array of at least one axis and any dtype.

    It refuses masked entries, sparse matrices, ragged lists, and anything without a first axis.
    """
    if hasattr(values, "detach"):  # a tensor, perhaps on another device or with a gradient
        try:
            values = values.detach().cpu()
            try:
                values = values.numpy()
            except (TypeError, RuntimeError):  # a precision that numpy lacks, such as bfloat16
                values = values.to_dense().float().numpy()
        except Exception as cause:  # a meta, nested or quantized tensor
            raise error(f"{what} is a tensor that cannot be read as numbers: {cause}") from cause
    if hasattr(values, "toarray"):
        raise error(f"{what} must be dense; got a sparse matrix: use {what}.toarray()")
    if isinstance(values, (list, tuple)) and any(map(np.ma.isMaskedArray, values)):
        values = np.ma.stack(values)  # numpy would drop the masks of the parts
    if np.ma.isMaskedArray(values) and np.ma.getmaskarray(values).any():
        mask = np.atleast_1d(np.ma.getmaskarray(values))
        masked = mask.reshape(len(mask), -1).any(axis=1)
        raise error(
            f"{what} has masked entries, the first in row {int(masked.argmax())} "
            f"(rows affected: {int(masked.sum())}); remove these rows, or fill the entries, for "
            f"example with {what}.filled(np.nan) if the model accepts NaN"
        )
    try:
        array = np.asarray(values)
    except Exception as cause:  # the object may raise anything
        raise error(f"{what} must be an array, not {type(values).__name__}: {cause}") from cause
    if array.ndim == 0:
        kind = type(values).__name__
        raise error(f"{what} must be an array with samples along its first axis; got {kind}")
    return array


def as_numbers(values: Any, what: str, error: type[InputError] = InputError) -> NDArray[Any]:
    """Values as an array of real numbers of at most 8 bytes each; missing values become NaN.

    It refuses text, dates, time spans, complex numbers and records.
    """
    if type(values) is np.ndarray and values.dtype in COMMON and values.ndim:
        return values  # what follows would take longer than a small model
    values = as_pandas(values, what)
    array = (_frame_to_array if hasattr(values, "iloc") else as_array)(values, what, error)
    if array.dtype.kind == "O":
        array = _as_floats(array, what, error)
    if array.dtype.kind not in NUMERIC_KINDS:
        raise error(f"{what} must hold real numbers; got dtype {array.dtype}")
    with np.errstate(over="ignore"):  # a long double that overflows becomes inf
        return array.astype(np.float64) if array.dtype.itemsize > 8 else array


def as_dense(inputs: Any) -> Any:
    """Samples as scikit-learn takes them.

    A table, or columns by name, as a data frame; a Series of text as it is; a sparse matrix as one
    whose rows can be taken; texts, dicts and lists of words as an array of shape (n,); anything
    else as an array of shape (n, ...). The only one of columns by name stands for itself.
    """
    if type(inputs) is np.ndarray and inputs.dtype in COMMON and inputs.ndim > 1:
        return inputs
    if is_sparse(inputs) and inputs.ndim == 2:  # first, as one format of them is a dict
        return inputs.tocsr()
    if isinstance(inputs, Mapping):
        if len(inputs) == 1:
            return as_dense(next(iter(inputs.values())))
        try:
            import pandas as pd

            columns = {k: as_array(v, k) if hasattr(v, "detach") else v for k, v in inputs.items()}
            return pd.DataFrame(columns)
        except ImportError as error:
            raise MissingExtraError("reading columns by name", "pandas") from error
        except (ValueError, TypeError) as error:
            raise InputError(f"columns by name must be of one length and axis: {error}") from error
    inputs = as_pandas(inputs)
    if hasattr(inputs, "iloc") and inputs.ndim == 2:
        return inputs
    if (objects := _as_objects(inputs)) is not None:
        return objects
    array = as_array(inputs, "X")
    if array.dtype.kind == "c":  # in scikit-learn's words
        raise InputError(f"Complex data not supported: X must be real; got {array.dtype}")
    if array.dtype.kind in "mMV":
        raise InputError(
            f"X must hold numbers or text; got dtype {array.dtype}: turn dates into numbers, or "
            "pass a data frame to a pipeline that does"
        )
    if array.ndim < 2:
        raise InputError(
            "inputs must be text, or numbers of shape (n_samples, n_features); got "
            f"{array.shape}. Reshape your data by X.reshape(-1, 1) if it has one feature, "
            "X.reshape(1, -1) if it is one sample"
        )
    return array


def as_pandas(values: Any, what: str = "X") -> Any:
    """A table of another package as a data frame, a column as a Series; anything else as it is."""
    is_query = hasattr(values, "collect") and hasattr(values, "collect_schema")
    if is_query and not hasattr(values, "__len__"):  # polars' LazyFrame
        raise InputError(f"{what} is a query that has not run yet: pass {what}.collect()")
    is_known = isinstance(values, type) or hasattr(values, "iloc")
    if is_known or not any(hasattr(values, name) for name in SHARED_MEMORY):
        return values
    try:
        with unforked():
            import narwhals as nw  # only users of such tables load it
        try:
            table: Any = nw.from_native(values, allow_series=True)
        except TypeError:  # an Arrow array, a batch of a table, or what Arrow can read as one
            has_columns = hasattr(values, "schema")
            table = nw.from_arrow(values, backend="pyarrow") if has_columns else values
        return table.to_pandas()
    except ImportError as error:  # narwhals itself needs no pandas
        extra = "pandas" if "pandas" in str(error) else "tables"
        raise MissingExtraError("reading tables of polars and Arrow", extra) from error
    except Exception as error:  # a foreign object may raise anything
        kind = type(values)
        raise InputError(
            f"{what} is a {kind.__module__.partition('.')[0]} {kind.__name__} that cannot be read "
            f"as a table ({error}): pass an array or a data frame"
        ) from error


def is_number(dtype: Any) -> bool:
    """Whether a column of this dtype, of numpy or pandas, holds numbers."""
    return getattr(dtype, "kind", "O") in NUMERIC_KINDS and not hasattr(dtype, "categories")


def is_text(dtype: Any) -> bool:
    """Whether an array or a column of this dtype holds text or other objects, of any size."""
    return getattr(dtype, "kind", "") == "O" and not hasattr(dtype, "categories")


def is_missing(value: Any) -> bool:
    """Whether an object is a missing value: None, NaN, NaT or pandas' NA."""
    if type(value).__name__ in MISSING_TYPES:
        return True
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return bool(np.isnat(value))
    return isinstance(value, (float, np.floating)) and bool(value != value)


def _frame_to_array(frame: Any, what: str, error: type[InputError]) -> NDArray[Any]:
    """A data frame or one of its columns as numbers, column by column if dtypes differ."""
    if frame.ndim == 1:
        has_mask = is_number(frame.dtype) and not isinstance(frame.dtype, np.dtype)
        return np.asarray(frame.to_numpy(np.float64, na_value=np.nan) if has_mask else frame)
    if all(isinstance(kind, np.dtype) and kind.kind in NUMERIC_KINDS for kind in frame.dtypes):
        return np.asarray(frame)
    named = enumerate(frame.columns)
    columns = [as_numbers(frame.iloc[:, j], f"column {k!r} of {what}", error) for j, k in named]
    return np.column_stack(columns) if columns else np.empty((len(frame), 0))


def _as_floats(array: NDArray[Any], what: str, error: type[InputError]) -> NDArray[Any]:
    """Objects as float64, missing ones as NaN; what is too large becomes infinite."""
    found = np.empty(array.shape)
    for place, value in np.ndenumerate(array):
        is_span = isinstance(value, np.timedelta64)  # which numpy counts as a whole number
        real = isinstance(value, (Real, Decimal, np.bool_)) and not is_span
        if not real and not is_missing(value):
            it = f"{shown(value, 60)} of type {type(value).__name__}"
            raise error(f"{what} must hold real numbers; at {place} it has {it}")
        try:
            found[place] = float(value) if real else np.nan
        except OverflowError:
            found[place] = np.inf if value > 0 else -np.inf
    return found


def _as_objects(inputs: Any) -> Any:
    """Texts, dicts and lists of words as an array of shape (n,), a Series as it is, else None.

    It refuses a mixture of objects and numbers.
    """
    if isinstance(inputs, (list, tuple)):
        lists = all(isinstance(item, (list, tuple)) for item in inputs)
        uneven = lists and len(set(map(len, inputs))) > 1  # of one length they are a table
        of_words = uneven and all(isinstance(word, str) for item in inputs for word in item)
        if not of_words and not any(isinstance(item, OBJECTS) for item in inputs):
            return None
        # numpy would look into lists, and pad texts.
        inputs = np.fromiter(inputs, dtype=object, count=len(inputs))
    elif not isinstance(inputs, np.ndarray) and not hasattr(inputs, "iloc"):
        return None
    kind = getattr(inputs.dtype, "kind", "O")
    if inputs.ndim != 1 or kind in NO_OBJECTS or np.ma.isMaskedArray(inputs):
        return None
    objects = np.asarray(inputs, dtype=object)
    missing = np.array([is_missing(each) for each in objects], dtype=bool)
    numbers = np.array([isinstance(each, Number) for each in objects], dtype=bool) & ~missing
    only_numbers = len(objects) > 0 and bool((numbers | missing).all())
    if only_numbers and inputs.dtype == object:
        return None
    if numbers.any() and not only_numbers:
        row = int(numbers.argmax())
        raise InputError(
            f"X must hold text in every row; row {row} is {shown(objects[row], 60)} of type "
            f"{type(objects[row]).__name__} (rows affected: {int(numbers.sum())})"
        )
    return inputs.astype(object) if kind == "T" else inputs
