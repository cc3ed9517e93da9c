"""Inputs: anything that holds samples along its first axis, cut into batches.

Arrays, tensors, data frames, sparse matrices, lists and observations all do. Data frames need
`iloc` to take rows, and sparse matrices have no length.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from iknow.core.arrays import Ints
from iknow.core.text import as_whole, shown
from iknow.errors import InputError, MissingExtraError
from iknow.models.foreign import as_pandas
from iknow.models.numbers import as_array, is_sparse
from iknow.models.objects import as_objects

BYTES_PER_BATCH = 64 << 20  # of inputs; the activations take about as much
LARGEST_BATCH = 4096  # enough to keep every core busy, small enough to move a progress bar
BATCH_OF_UNKNOWN_SIZE = 1024  # for inputs whose size in bytes is unknown, such as text


def as_dense(inputs: Any) -> Any:
    """Samples as scikit-learn takes them.

    A data frame, and a Series of text, as it is; tables of polars and Arrow as a data frame; a
    sparse matrix as one whose rows can be taken; texts, dicts and lists of words as an array of
    shape (n,); anything else as an array of shape (n, ...). Columns by name, as a dataset yields
    them, are a data frame, or the only one of them.
    """
    if is_sparse(inputs) and inputs.ndim == 2:  # first, as one format of them is a dict
        return inputs.tocsr()
    if isinstance(inputs, Mapping):
        return as_dense(next(iter(inputs.values()))) if len(inputs) == 1 else as_frame(inputs)
    inputs = as_pandas(inputs)
    if hasattr(inputs, "iloc") and inputs.ndim == 2:
        return inputs
    if (objects := as_objects(inputs)) is not None:
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


def as_frame(columns: Mapping[str, Any]) -> Any:
    """Columns by name as a data frame."""
    try:
        from iknow.models.pandas import frame_of_columns
    except ImportError as error:
        raise MissingExtraError("reading columns by name", "pandas") from error
    return frame_of_columns(columns)


def count_samples(inputs: Any) -> int:
    try:
        return int(inputs.shape[0]) if is_sparse(inputs) else len(inputs)
    except TypeError:
        raise InputError(
            f"inputs must hold samples along their first axis; got {shown(inputs)}"
        ) from None


def cut_batches(inputs: Any, size: int | None = None) -> list[Any]:
    """Successive batches of at most `size` samples; by default, as many as fit in memory."""
    n = count_samples(inputs)
    if n == 0:
        raise InputError("X holds no samples")
    if size is None:
        size = affordable_batch_size(inputs)
    if as_whole(size, "batch_size", "be a whole number >= 1") < 1:
        raise InputError(f"batch_size must be a whole number >= 1; got {shown(size)}")
    return [take_rows(inputs, slice(start, start + size)) for start in range(0, n, int(size))]


def take_rows(inputs: Any, rows: slice | Ints) -> Any:
    """The samples at these positions."""
    if hasattr(inputs, "iloc"):
        return inputs.iloc[rows]
    if isinstance(inputs, list) and not isinstance(rows, slice):
        return [inputs[row] for row in rows]
    return inputs[rows]


def choose_rows(codes: Ints, most: int) -> Ints:
    """Positions of at most `most` samples, from each class in turn; the same on every call."""
    order = np.random.default_rng(0).permutation(len(codes))
    by_class = order[np.argsort(codes[order], kind="stable")]
    ranked = codes[by_class]
    within = np.arange(len(codes)) - np.searchsorted(ranked, ranked)
    return by_class[np.lexsort((ranked, within))[:most]]


def has_gaps(inputs: Any) -> bool:
    """Whether a value of an array or a data frame is missing."""
    if hasattr(inputs, "iloc"):
        return bool(inputs.isna().to_numpy().any())
    numeric = isinstance(inputs, np.ndarray) and inputs.dtype.kind == "f"
    return numeric and bool(np.isnan(inputs).any())


def own_copy(inputs: Any) -> Any:
    """A copy that a model may write to, as scalers and imputers with copy=False do."""
    return inputs.copy() if hasattr(inputs, "copy") else inputs.clone()


def affordable_batch_size(inputs: Any) -> int:
    """How many samples fit in the memory for a batch, at least 1."""
    if isinstance(inputs, np.ndarray) and inputs.dtype.kind in "fiub":
        return _fitting(inputs.nbytes, len(inputs))
    n_bytes = getattr(inputs, "nbytes", None)
    if is_sparse(inputs):  # as if dense, because the layers are
        n_bytes = np.dtype(np.float32).itemsize * inputs.shape[0] * inputs.shape[1]
    elif hasattr(inputs, "memory_usage"):  # a data frame or a Series
        n_bytes = np.sum(inputs.memory_usage(index=False))
    if n_bytes is None or _holds_objects(inputs):
        return BATCH_OF_UNKNOWN_SIZE
    return _fitting(int(n_bytes), count_samples(inputs))


def _fitting(n_bytes: int, n_samples: int) -> int:
    per_sample = n_bytes / max(1, n_samples)
    return max(1, min(LARGEST_BATCH, int(BYTES_PER_BATCH / max(1.0, per_sample))))


def _holds_objects(inputs: Any) -> bool:
    """Whether samples hold text or other objects, of any size."""
    dtypes = getattr(inputs, "dtypes", getattr(inputs, "dtype", None))
    each = np.ravel(np.array(dtypes, dtype=object))
    return any(getattr(t, "kind", "") == "O" and not hasattr(t, "categories") for t in each)
