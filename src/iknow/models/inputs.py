"""Inputs: whatever holds samples along its first axis, cut into batches and checked for finiteness.

Arrays, tensors, data frames and observations all do; only a data frame needs its rows asked for by
position.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.core.arrays import Bools
from iknow.errors import InputError

BYTES_PER_BATCH = 64 << 20
"""Memory for the inputs of a batch; its activations are of the same order."""

LARGEST_BATCH = 4096
"""Enough queries for every core, few enough that a progress bar moves."""

BATCH_OF_UNKNOWN_SIZE = 1024
"""Samples in a batch of inputs that do not say how many bytes they take."""


def as_dense(inputs: Any) -> Any:
    """A data frame as it is, a sparse matrix refused, all else as an array of shape (n, ...)."""
    if hasattr(inputs, "iloc"):
        return inputs
    if hasattr(inputs, "toarray"):
        raise InputError("distances need dense inputs; got a sparse matrix: use X.toarray()")
    array = np.asarray(inputs)
    if array.ndim < 2:
        raise InputError(
            f"inputs must have shape (n_samples, n_features); got {array.shape}. Reshape your data "
            "by X.reshape(-1, 1) if it has one feature, by X.reshape(1, -1) if it is one sample"
        )
    return array


def count_samples(inputs: Any) -> int:
    """Number of samples."""
    try:
        return len(inputs)
    except TypeError:
        raise InputError(f"inputs must hold samples along an axis; got {inputs!r}") from None


def cut_batches(inputs: Any, size: int | None = None) -> list[Any]:
    """Successive batches of at most `size` samples; at least one sample is needed.

    Unless a size is given, it is the one that memory affords.
    """
    n = count_samples(inputs)
    if n == 0:
        raise InputError("there is nothing to work on: X holds no samples")
    if size is None:
        size = affordable_batch_size(inputs)
    if size < 1:
        raise InputError(f"batch_size must be >= 1; got {size}")
    rows = inputs.iloc if hasattr(inputs, "iloc") else inputs
    return [rows[start : start + size] for start in range(0, n, size)]


def affordable_batch_size(inputs: Any) -> int:
    """How many samples fit the memory set aside for a batch, at least 1."""
    n_bytes = _count_bytes(inputs)
    if n_bytes is None:
        return BATCH_OF_UNKNOWN_SIZE
    per_sample = n_bytes / max(1, count_samples(inputs))
    return max(1, min(LARGEST_BATCH, int(BYTES_PER_BATCH / max(1.0, per_sample))))


def _count_bytes(inputs: Any) -> int | None:
    """Bytes of all samples, where that can be told: arrays, tensors, observations, data frames."""
    n_bytes = getattr(inputs, "nbytes", None)
    if n_bytes is None and hasattr(inputs, "memory_usage"):
        n_bytes = inputs.memory_usage(index=False).sum()
    return None if n_bytes is None else int(n_bytes)


def zero_nonfinite(batch: Any) -> tuple[Any, Bools]:
    """A batch with its non-finite values set to 0, and the mask of the samples that had some.

    The model can then be asked about the whole batch: a bad sample disturbs no other. Of a data
    frame only the numeric columns are looked at.
    """
    if not hasattr(batch, "iloc"):
        values = np.asarray(batch)
        if values.dtype.kind not in "fc":
            return batch, np.zeros(len(values), dtype=bool)
        finite = np.isfinite(values)
        bad: Bools = ~finite.reshape(len(values), -1).all(axis=1)
        return (np.where(finite, values, 0) if bad.any() else batch), bad
    numeric = batch.select_dtypes("number")
    finite = np.isfinite(numeric.to_numpy(dtype=np.float64, na_value=np.nan))
    bad = ~finite.all(axis=1)
    if bad.any():
        batch = batch.copy()
        batch[numeric.columns] = numeric.where(finite, 0)  # each column keeps its dtype
    return batch, bad
