"""Numbers: every array comes in through here.

What numpy would silently drop or reinterpret (a mask, a date, an imaginary part) is an error here.
"""

from __future__ import annotations

from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from iknow.core.text import shown
from iknow.errors import InputError
from iknow.models.foreign import as_pandas

NUMERIC_KINDS = "fiub"  # numpy's letters for floats, signed and unsigned integers, and bools
COMMON = frozenset(map(np.dtype, ("float32", "float64", "int64")))
MISSING_TYPES = ("NoneType", "NAType", "NaTType", "MaskedConstant")


def as_array(values: Any, what: str, error: type[InputError] = InputError) -> NDArray[Any]:
    """Values, named `what` in errors, as an array of at least one axis and any dtype.

    It refuses masked entries, sparse matrices, ragged lists, and anything without a first axis.
    """
    if hasattr(values, "detach"):  # a tensor, perhaps on another device or with a gradient
        try:
            values = _tensor_to_array(values)
        except Exception as cause:  # a meta, nested or quantized tensor
            raise error(f"{what} is a tensor that cannot be read as numbers: {cause}") from cause
    if hasattr(values, "toarray"):
        raise error(f"{what} must be dense; got a sparse matrix: use {what}.toarray()")
    if isinstance(values, (list, tuple)) and any(map(np.ma.isMaskedArray, values)):
        values = np.ma.stack(values)  # numpy would drop the masks of the parts
    check_unmasked(values, what, error)
    try:
        array = np.asarray(values)
    except Exception as cause:  # the object may raise anything
        raise error(f"{what} must be an array, not {type(values).__name__}: {cause}") from cause
    if array.ndim == 0:
        raise error(
            f"{what} must be an array with samples along its first axis; got "
            f"{type(values).__name__}"
        )
    return array


def as_numbers(values: Any, what: str, error: type[InputError] = InputError) -> NDArray[Any]:
    """Values as an array of real numbers of at most 8 bytes each; missing values become NaN.

    It refuses text, dates, time spans, complex numbers and records.
    """
    if type(values) is np.ndarray and values.dtype in COMMON and values.ndim:
        return values  # what follows would take longer than a small model
    values = as_pandas(values, what)
    read = _frame_to_array if hasattr(values, "iloc") else as_array
    array = read(values, what, error)
    if array.dtype.kind == "O":
        array = _objects_to_floats(array, what, error)
    if array.dtype.kind not in NUMERIC_KINDS:
        raise error(f"{what} must hold real numbers; got dtype {array.dtype}")
    with np.errstate(over="ignore"):  # a long double that overflows becomes inf
        return array.astype(np.float64) if array.dtype.itemsize > 8 else array


def check_unmasked(values: Any, what: str, error: type[InputError] = InputError) -> None:
    """Refuse masked entries: the numbers below a mask mean nothing."""
    if not np.ma.isMaskedArray(values):
        return
    mask = np.atleast_1d(np.ma.getmaskarray(values))
    masked = mask.reshape(len(mask), -1).any(axis=1)
    if masked.any():
        raise error(
            f"{what} has masked entries, the first in row {int(masked.argmax())} "
            f"(rows affected: {int(masked.sum())}); remove these rows, or fill the entries, for "
            f"example with {what}.filled(np.nan) if the model accepts NaN"
        )


def is_sparse(values: Any) -> bool:
    """Whether this is a sparse matrix or array of scipy, in any format."""
    return bool(issparse(values))


def is_missing(value: Any) -> bool:
    """Whether an object is a missing value: None, NaN, NaT or pandas' NA."""
    if type(value).__name__ in MISSING_TYPES:
        return True
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return bool(np.isnat(value))
    return isinstance(value, (float, np.floating)) and bool(value != value)


def _tensor_to_array(tensor: Any) -> Any:
    try:
        tensor = tensor.detach().cpu()
        return tensor.numpy()
    except (TypeError, RuntimeError):  # a precision that numpy does not have, such as bfloat16
        return tensor.to_dense().float().numpy()


def _frame_to_array(frame: Any, what: str, error: type[InputError]) -> NDArray[Any]:
    """A data frame or one of its columns as numbers, column by column if dtypes differ."""
    kinds = [getattr(frame, "dtype", None)] if frame.ndim == 1 else list(frame.dtypes)
    if all(isinstance(kind, np.dtype) and kind.kind in NUMERIC_KINDS for kind in kinds):
        return np.asarray(frame)
    if frame.ndim == 1:
        kind = getattr(kinds[0], "kind", "O")
        if isinstance(kinds[0], np.dtype) or kind not in NUMERIC_KINDS:
            return np.asarray(frame)
        return np.asarray(frame.to_numpy(dtype=np.float64, na_value=np.nan))
    columns = [
        as_numbers(frame.iloc[:, j], f"column {name!r} of {what}", error)
        for j, name in enumerate(frame.columns)
    ]
    return np.column_stack(columns) if columns else np.empty((len(frame), 0))


def _objects_to_floats(
    array: NDArray[Any], what: str, error: type[InputError]
) -> NDArray[np.float64]:
    found = np.empty(array.shape)
    for place, value in np.ndenumerate(array):
        is_time = isinstance(value, np.timedelta64)
        real = isinstance(value, (Real, Decimal, np.bool_)) and not is_time
        if not real and not is_missing(value):
            raise error(
                f"{what} must hold real numbers; at {place} it has {shown(value, 60)} of type "
                f"{type(value).__name__}"
            )
        try:
            found[place] = float(value) if real else np.nan
        except OverflowError:
            found[place] = np.inf if value > 0 else -np.inf
    return found
