"""Inputs: anything that holds samples along its first axis, cut into batches.

Arrays, tensors, data frames and observations all do; only data frames need `iloc` to take rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.core.arrays import Ints
from iknow.core.scalars import as_whole
from iknow.core.text import shown
from iknow.errors import InputError
from iknow.models.numbers import as_array

BYTES_PER_BATCH = 64 << 20  # of inputs; the activations take about as much
LARGEST_BATCH = 4096  # enough to keep every core busy, small enough to move a progress bar
BATCH_OF_UNKNOWN_SIZE = 1024  # for inputs whose size in bytes is unknown


def as_dense(inputs: Any) -> Any:
    """A data frame as it is, anything else as an array of shape (n, ...); no sparse matrices."""
    if hasattr(inputs, "iloc") and inputs.ndim == 2:
        return inputs
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
            f"inputs must have shape (n_samples, n_features); got {array.shape}. Reshape your data "
            "by X.reshape(-1, 1) if it has one feature, X.reshape(1, -1) if it is one sample"
        )
    return array


def count_samples(inputs: Any) -> int:
    try:
        return len(inputs)
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
    return inputs.iloc[rows] if hasattr(inputs, "iloc") else inputs[rows]


def choose_rows(codes: Ints, most: int) -> Ints:
    """Positions of at most `most` samples, from each class in turn; the same on every call."""
    order = np.random.default_rng(0).permutation(len(codes))
    by_class = order[np.argsort(codes[order], kind="stable")]
    ranked = codes[by_class]
    within = np.arange(len(codes)) - np.searchsorted(ranked, ranked)
    return by_class[np.lexsort((ranked, within))[:most]]


def own_copy(inputs: Any) -> Any:
    """A copy that a model may write to, as scalers and imputers with copy=False do."""
    return inputs.copy()


def affordable_batch_size(inputs: Any) -> int:
    """How many samples fit in the memory for a batch, at least 1."""
    n_bytes = getattr(inputs, "nbytes", None)
    if n_bytes is None and hasattr(inputs, "memory_usage"):  # a data frame
        n_bytes = inputs.memory_usage(index=False).sum()
    if n_bytes is None:
        return BATCH_OF_UNKNOWN_SIZE
    per_sample = int(n_bytes) / max(1, count_samples(inputs))
    return max(1, min(LARGEST_BATCH, int(BYTES_PER_BATCH / max(1.0, per_sample))))
