"""Inputs: batches of any kind of container, and the few things that iknow does with one.

Arrays, tensors, data frames, sparse matrices, lists, named arrays and observations all hold samples
along their first axis, but count, take and copy them in different ways.

Of inputs we measure the ℓ2 lengths, with which the rounding of their activations grows, and copy a
few, before the model runs: when certificates need them, the caller may have reused the array.

**Numbers.** Every array, table and list that a user passes comes in through here.

What numpy would silently drop or reinterpret (a mask, a date, an imaginary part) is an error here.

Tables and columns of polars, Arrow and others become those of pandas, which scikit-learn knows
best; narwhals keeps names, categories and missing values. We recognize them by the interface
through which all of them share their memory, so that none of their packages is imported here.

Texts, dicts and lists of words, which the first step of a pipeline may read, have one axis. Numbers
with one axis are an error: nobody can tell whether they are one sample or one feature.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from numbers import Number, Real
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from iknow.core.arrays import Floats, Ints
from iknow.core.text import as_whole, names, shown
from iknow.errors import InputError, MissingExtraError
from iknow.locking import unforked
from iknow.metrics.lipschitz import ROUND_UP

BYTES_PER_BATCH = 64 << 20  # of inputs; the activations take about as much
LARGEST_BATCH = 4096  # enough to keep every core busy, small enough to move a progress bar
BATCH_OF_UNKNOWN_SIZE = 1024  # for inputs whose size in bytes is unknown, such as text
PROBES = 8  # how many inputs to copy, to run a model on them again
NUMBERS_AT_ONCE = 1 << 22  # how many squared numbers to hold in memory at a time
NUMERIC_KINDS = "fiub"  # numpy's letters for floats, signed and unsigned integers, and bools
NO_OBJECTS = "fiubcmM"  # numpy's letters for all that is a number or a time
OBJECTS = (str, bytes, Mapping)
COMMON = frozenset(map(np.dtype, ("float32", "float64", "int64")))
MISSING_TYPES = ("NoneType", "NAType", "NaTType", "MaskedConstant")
SHARED_MEMORY = ("__arrow_c_stream__", "__arrow_c_array__", "__narwhals_dataframe__")

is_sparse: Callable[[Any], bool] = issparse  # in any format of scipy
ORDINARY, MISSING, INFINITE, NEGATIVE_INFINITE, BEYOND_FLOAT32 = range(5)
"""Kinds of values; a model may accept one and refuse another."""


@dataclass(frozen=True, eq=False)
class Sizes:
    """What iknow keeps of n inputs, to certify them later.

    Attributes:
        shape: Shape of one input.
        dtype: Their data type; None if they are not an array.
        probe: A copy of the first few, or None.
        lengths: Lengths in ℓ2, rounded up, of shape (n,); None if the inputs are not real numbers,
            and not finite where an input is not.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any] | None
    probe: Any
    lengths: Floats | None


@dataclass(frozen=True, eq=False)
class Fields:
    """The same n samples in several arrays or tensors by name, each with n rows.

    A tokenizer's `input_ids` and `attention_mask`, for example.
    """

    arrays: Mapping[str, Any]

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def __getitem__(self, rows: Any) -> Fields:
        return Fields({name: take_rows(values, rows) for name, values in self.arrays.items()})

    @property
    def nbytes(self) -> int:
        return sum(int(values.nbytes) for values in self.arrays.values())

    def copy(self) -> Fields:
        return Fields({name: own_copy(values) for name, values in self.arrays.items()})


def as_fields(arrays: Mapping[str, Any]) -> Fields:
    """Fields of arrays or tensors by name; all must hold the same number of samples."""
    if not arrays or not all(isinstance(name, str) for name in arrays):
        raise InputError(f"inputs by name must be arrays with text as names; got {names(arrays)}")
    lengths = {name: len(values) for name, values in arrays.items()}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name!r} holds {n}" for name, n in lengths.items())
        raise InputError(f"all inputs must hold the same number of samples; {counts}")
    return Fields(dict(arrays))


def count_samples(inputs: Any) -> int:
    try:
        return len(inputs)
    except TypeError:
        if is_sparse(inputs):
            return int(inputs.shape[0])
        got = shown(inputs)
        raise InputError(f"inputs must hold samples along their first axis; got {got}") from None


def take_rows(inputs: Any, rows: slice | Ints) -> Any:
    """The samples at these positions."""
    if isinstance(inputs, list) and not isinstance(rows, slice):
        return [inputs[row] for row in rows]
    return inputs.iloc[rows] if hasattr(inputs, "iloc") else inputs[rows]


def own_copy(inputs: Any) -> Any:
    """A copy that a model may write to, as scalers and imputers with copy=False do."""
    return inputs.copy() if hasattr(inputs, "copy") else inputs.clone()


def cut_batches(inputs: Any, size: int | None = None) -> list[Any]:
    """Successive batches of at most `size` samples; by default, as many as fit in memory."""
    n = count_samples(inputs)
    if n == 0:
        raise InputError("X holds no samples")
    numbers = isinstance(inputs, np.ndarray) and inputs.dtype.kind in NUMERIC_KINDS
    if size is None and numbers and n <= LARGEST_BATCH and inputs.nbytes <= BYTES_PER_BATCH // 2:
        return [inputs[:]]  # most queries are few rows: nothing else is to be asked about them
    size = affordable_batch_size(inputs) if size is None else size
    size = as_whole(size, "batch_size", "be a whole number >= 1", 1)
    return [take_rows(inputs, slice(start, start + size)) for start in range(0, n, size)]


def affordable_batch_size(inputs: Any) -> int:
    """How many samples fit in the memory for a batch, at least 1."""
    is_frame = hasattr(inputs, "iloc")
    dtypes = inputs.dtypes if is_frame and inputs.ndim == 2 else [getattr(inputs, "dtype", None)]
    n_bytes = getattr(inputs, "nbytes", None)
    if is_sparse(inputs):  # as if dense, because the layers are
        n_bytes = np.dtype(np.float32).itemsize * math.prod(inputs.shape)
    elif is_frame:
        n_bytes = np.sum(inputs.memory_usage(index=False))
    if n_bytes is None or any(map(is_text, dtypes)):
        return BATCH_OF_UNKNOWN_SIZE
    per_sample = max(1.0, n_bytes / max(1, count_samples(inputs)))
    return max(1, min(LARGEST_BATCH, int(BYTES_PER_BATCH / per_sample)))


def choose_rows(codes: Ints, most: int) -> Ints:
    """Positions of at most `most` samples, from each class in turn; the same on every call."""
    order = np.random.default_rng(0).permutation(len(codes))
    by_class = order[np.argsort(codes[order], kind="stable")]
    ranked = codes[by_class]
    within = np.arange(len(codes)) - np.searchsorted(ranked, ranked)
    return by_class[np.lexsort((ranked, within))[:most]]


def measure(inputs: Any) -> Sizes:
    """The sizes of prepared inputs, such as an array, for `Model.sensitivity`."""
    shape, dtype, few, lengths = tuple(getattr(inputs, "shape", ())[1:]), None, None, None
    if hasattr(inputs, "detach"):
        few = inputs[:PROBES].detach().clone()
        is_odd = inputs.is_complex() or inputs.is_sparse or inputs.is_quantized
        lengths = None if is_odd else norms(inputs)
    elif isinstance(inputs, np.ndarray) or hasattr(inputs, "iloc"):
        few = take_rows(inputs, slice(PROBES)).copy()
        dtype = np.asarray(take_rows(few, slice(0))).dtype
        lengths = norms(np.asarray(inputs)) if dtype.kind in NUMERIC_KINDS else None
    return Sizes(shape, dtype, few, lengths)


def measure_later(inputs: Any) -> Callable[[], Sizes]:
    """A function that returns the sizes: of a few inputs it copies them now and measures later."""
    if isinstance(inputs, np.ndarray) and len(inputs) <= PROBES:
        return partial(measure, inputs.copy("K"))
    sizes = measure(inputs)
    return lambda: sizes


def join_sizes(measured: Sequence[Callable[[], Sizes]]) -> Sizes:
    """The sizes of successive batches as one; nothing is known if they are of different kinds."""
    parts = [find() for find in measured]
    first = parts[0]
    if any((part.shape, part.dtype) != (first.shape, first.dtype) for part in parts):
        return Sizes((), None, None, None)
    known = [part.lengths for part in parts if part.lengths is not None]
    lengths = np.concatenate(known) if len(known) == len(parts) else None
    return Sizes(first.shape, first.dtype, first.probe, lengths)


def as_rows(inputs: Any) -> Floats:
    """A few inputs as numbers, of shape (n, n_features)."""
    if hasattr(inputs, "detach"):
        inputs = inputs.detach().double().cpu().numpy()
    values = np.asarray(inputs, dtype=np.float64)
    return values.reshape(len(values), -1) if values.size else np.zeros((len(values), 0))


def norms(values: Any) -> Floats:
    """ℓ2 norms of an array's or a tensor's samples, rounded up; not finite where a value is not."""
    found = np.zeros(len(values))
    step = max(1, NUMBERS_AT_ONCE * len(values) // max(1, math.prod(values.shape)))
    for start in range(0, len(values), step):
        part = as_rows(values[start : start + step])
        with np.errstate(over="ignore", invalid="ignore"):
            found[start : start + step] = np.sqrt(np.einsum("ij,ij->i", part, part))
    return found * ROUND_UP


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
        lengths = (
            {len(row) for row in values if hasattr(row, "__len__")}
            if type(values) in (list, tuple)
            else set()
        )
        if len(lengths) > 1:
            raise error(
                f"{what} holds rows of different lengths, from {min(lengths)} to {max(lengths)}: "
                "each sample needs a value for every feature, None or NaN where one is missing"
            ) from cause
        raise error(f"{what} must be an array, not {type(values).__name__}: {cause}") from cause
    if array.ndim == 0:
        is_path = isinstance(values, (str, os.PathLike))
        kind = (
            f"{shown(str(values), 60)}: read the file first" if is_path else type(values).__name__
        )
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
        text = (
            f"text, {shown(str(array.flat[0]), 60)}"
            if array.dtype.kind in "UST" and array.size
            else ""
        )
        advice = ": turn it into numbers, as an encoder or a tokenizer does" if text else ""
        raise error(f"{what} must hold real numbers; got {text or f'dtype {array.dtype}'}{advice}")
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
        if not array.size:
            raise InputError("X holds no samples")
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


def find_kinds(batch: Any) -> Ints:
    """Group samples with the same kinds of strange values in the same places, of shape (n,)."""
    kinds = np.zeros(count_samples(batch), dtype=np.int64)
    if is_sparse(batch):
        rows = np.unique(batch.tocoo().row[_mark_array(batch.data) != ORDINARY])
        marks = _mark_array(batch[rows].toarray())
    elif not len(kinds) or (marks := _mark(batch)) is None:
        return kinds
    else:
        marks = marks.reshape(len(kinds), -1)
        rows = np.flatnonzero(marks.any(axis=1))
        marks = marks[rows]
    if len(rows):
        kinds[rows] = 1 + np.unique(marks, axis=0, return_inverse=True)[1].ravel()
    return kinds


def _mark(batch: Any) -> Any:
    """The kind of each value, in an array like the batch, which is not sparse; None if unknown."""
    if not hasattr(batch, "iloc"):
        return _mark_array(batch) if isinstance(batch, np.ndarray) else None
    marks = np.where(batch.isna().to_numpy(), MISSING, ORDINARY).astype(np.uint8)
    if batch.ndim == 2:
        numeric = np.flatnonzero([is_number(dtype) for dtype in batch.dtypes])
        numbers = batch.iloc[:, numeric].to_numpy(dtype=np.float64, na_value=np.nan)
        marks[:, numeric] = _mark_array(numbers)
    return marks


def _mark_array(values: NDArray[Any]) -> NDArray[np.uint8]:
    if values.dtype.kind == "O":
        floats = [
            v if isinstance(v, float) else np.nan if is_missing(v) else 0.0 for v in values.flat
        ]
        values = np.array(floats).reshape(values.shape)
    if values.dtype.kind != "f":
        return np.zeros(values.shape, dtype=np.uint8)
    large = np.abs(values) > np.finfo(np.float32).max
    conditions = [np.isnan(values), values == np.inf, values == -np.inf, large]
    kinds = [MISSING, INFINITE, NEGATIVE_INFINITE, BEYOND_FLOAT32]
    return np.select(conditions, kinds, default=ORDINARY).astype(np.uint8)


def fill_strange(batch: Any) -> Any:
    """A copy with a value of the same column, or nothing, where one is not ordinary."""
    filled = batch.copy()
    if is_sparse(batch):
        filled.data[_mark_array(batch.data) != ORDINARY] = 0
        return filled
    if not isinstance(batch, np.ndarray) and batch.ndim == 1:
        return fill_strange(batch.to_frame()).iloc[:, 0]
    good = _mark(batch) == ORDINARY
    if isinstance(batch, np.ndarray):
        filled[~good] = "" if batch.ndim == 1 and is_text(batch.dtype) else 0
        return filled
    for j in np.flatnonzero(~good.all(axis=0)):
        column, kept = batch.iloc[:, j], good[:, j]
        is_plain = is_number(column.dtype) and column.dtype.kind != "b"
        nothing = 0 if is_plain else "" if is_text(column.dtype) else None
        filled.isetitem(j, column.where(kept, next(iter(column[kept]), nothing)))
    return filled
