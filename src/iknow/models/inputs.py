"""Inputs: batches of any kind of container, and the few things that iknow does with one.

Arrays, tensors, data frames, sparse matrices, lists, named arrays and observations all hold samples
along their first axis, but count, take and copy them in different ways.

Of inputs we measure the ℓ2 lengths, with which the rounding of their activations grows, and copy a
few, before the model runs: when certificates need them, the caller may have reused the array.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.text import as_whole, names, shown
from iknow.errors import InputError
from iknow.metrics.lipschitz import ROUND_UP
from iknow.models.numbers import NUMERIC_KINDS, is_sparse, is_text

BYTES_PER_BATCH = 64 << 20  # of inputs; the activations take about as much
LARGEST_BATCH = 4096  # enough to keep every core busy, small enough to move a progress bar
BATCH_OF_UNKNOWN_SIZE = 1024  # for inputs whose size in bytes is unknown, such as text
PROBES = 8  # how many inputs to copy, to run a model on them again
NUMBERS_AT_ONCE = 1 << 22  # how many squared numbers to hold in memory at a time


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
        return [inputs[:]]  # half as large as a batch may be
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
    """What finds the sizes on request: of a few inputs from a copy, of more they are found now."""
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
