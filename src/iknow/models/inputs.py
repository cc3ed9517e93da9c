"""Inputs: batches of any kind of container, and the few things that iknow does with one.

Arrays, tensors, data frames, sparse matrices, lists, named arrays and observations all hold samples
along their first axis, but count, take and copy them in different ways. `container_of` looks at the
kind once, and each kind says here how it does everything.

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
from numpy.typing import NDArray
from scipy.sparse import csr_array

from iknow.core.arrays import Floats, Ints
from iknow.core.text import as_whole, names, shown
from iknow.errors import InputError
from iknow.metrics.lipschitz import ROUND_UP
from iknow.models.numbers import NUMERIC_KINDS, is_missing, is_number, is_sparse

BYTES_PER_BATCH = 64 << 20  # of inputs; the activations take about as much
LARGEST_BATCH = 4096  # enough to keep every core busy, small enough to move a progress bar
BATCH_OF_UNKNOWN_SIZE = 1024  # for inputs whose size in bytes is unknown, such as text
PROBES = 8  # how many inputs to copy, to run a model on them again
NUMBERS_AT_ONCE = 1 << 22  # how many squared numbers to hold in memory at a time

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

    Examples:
        >>> both = as_fields({"ids": np.zeros((5, 2)), "mask": np.ones((5, 2))})
        >>> len(both), len(both[1:3]), both[1:3].arrays["mask"].shape
        (5, 2, (2, 2))
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


class Container:
    """Handles batches of one kind; this one, of anything that has a length and gives its rows."""

    def count(self, batch: Any) -> int:
        return len(batch)

    def take(self, batch: Any, rows: slice | Ints) -> Any:
        return batch[rows]

    def n_bytes(self, batch: Any) -> int | None:
        """Return the bytes of all samples; None if they hold text or other objects, of any size."""
        return getattr(batch, "nbytes", None)

    def has_gaps(self, batch: Any) -> bool:
        """Whether numbers are missing."""
        return False

    def mark(self, batch: Any) -> Any:
        """Return the kind of each value, in an array like the batch; None if nobody can tell."""
        return None

    def fill(self, batch: Any) -> Any:
        """Return a copy with a value of the same column, or nothing, where one is not ordinary."""
        return batch

    def measure(self, batch: Any) -> Sizes:
        return Sizes(tuple(getattr(batch, "shape", ())[1:]), None, None, None)


class _Arrays(Container):
    def n_bytes(self, batch: Any) -> int | None:
        return None if batch.dtype.kind == "O" else int(batch.nbytes)

    def has_gaps(self, batch: Any) -> bool:
        return batch.dtype.kind == "f" and bool(np.isnan(batch).any())

    def mark(self, batch: Any) -> Any:
        return _mark_array(batch)

    def fill(self, batch: Any) -> Any:
        nothing = "" if batch.ndim == 1 else 0  # only text has one axis
        return np.where(_mark_array(batch) == ORDINARY, batch, nothing).astype(batch.dtype)

    def measure(self, batch: Any) -> Sizes:
        lengths = norms(batch) if batch.dtype.kind in NUMERIC_KINDS else None
        return Sizes(batch.shape[1:], batch.dtype, batch[:PROBES].copy(), lengths)


class _SparseMatrices(Container):
    def count(self, batch: Any) -> int:
        return int(batch.shape[0])

    def n_bytes(self, batch: Any) -> int | None:  # as if dense, because the layers are
        return int(np.dtype(np.float32).itemsize * batch.shape[0] * batch.shape[1])

    def mark(self, batch: Any) -> Any:
        parts = _mark_array(batch.data), batch.indices, batch.indptr
        marks = csr_array(parts, shape=batch.shape, copy=True)
        marks.eliminate_zeros()  # in place, and the batch is the user's
        return marks

    def fill(self, batch: Any) -> Any:
        filled = batch.copy()
        filled.data = np.where(_mark_array(batch.data) > 0, 0, batch.data).astype(batch.dtype)
        return filled


class _Frames(Container):
    """Data frames and Series of pandas."""

    def take(self, batch: Any, rows: slice | Ints) -> Any:
        return batch.iloc[rows]

    def n_bytes(self, batch: Any) -> int | None:
        dtypes = [batch.dtype] if batch.ndim == 1 else batch.dtypes
        is_known = not any(map(_is_text, dtypes))
        return int(np.sum(batch.memory_usage(index=False))) if is_known else None

    def has_gaps(self, batch: Any) -> bool:
        return bool(batch.isna().to_numpy().any())

    def mark(self, batch: Any) -> Any:
        marks = np.where(batch.isna().to_numpy(), MISSING, ORDINARY).astype(np.uint8)
        if batch.ndim == 2:
            numeric = np.flatnonzero([is_number(dtype) for dtype in batch.dtypes])
            numbers = batch.iloc[:, numeric].to_numpy(dtype=np.float64, na_value=np.nan)
            marks[:, numeric] = _mark_floats(numbers)
        return marks

    def fill(self, batch: Any) -> Any:
        good = self.mark(batch) == ORDINARY
        if batch.ndim == 1:
            return _fill_column(batch, good)
        filled = batch.copy()
        for j in np.flatnonzero(~good.all(axis=0)):
            filled.isetitem(j, _fill_column(batch.iloc[:, j], good[:, j]))
        return filled

    def measure(self, batch: Any) -> Sizes:
        dtype = batch.iloc[:0].to_numpy().dtype
        lengths = norms(batch.to_numpy()) if dtype.kind in NUMERIC_KINDS else None
        return Sizes(batch.shape[1:], dtype, batch.iloc[:PROBES].copy(), lengths)


class _Tensors(Container):
    def measure(self, batch: Any) -> Sizes:
        odd = batch.is_complex() or batch.is_sparse or batch.is_quantized
        probe = batch[:PROBES].detach().clone()
        return Sizes(tuple(batch.shape[1:]), None, probe, None if odd else norms(batch))


class _Lists(Container):
    def take(self, batch: Any, rows: slice | Ints) -> Any:
        return batch[rows] if isinstance(rows, slice) else [batch[row] for row in rows]


ARRAYS, SPARSE, FRAMES, TENSORS = _Arrays(), _SparseMatrices(), _Frames(), _Tensors()
LISTS, OTHERS = _Lists(), Container()


def container_of(batch: Any) -> Container:
    """What handles batches of this kind."""
    if isinstance(batch, np.ndarray):
        return ARRAYS
    if hasattr(batch, "iloc"):
        return FRAMES
    if is_sparse(batch):
        return SPARSE
    if hasattr(batch, "detach"):
        return TENSORS
    return LISTS if isinstance(batch, list) else OTHERS


def count_samples(inputs: Any) -> int:
    try:
        return container_of(inputs).count(inputs)
    except TypeError:
        raise InputError(
            f"inputs must hold samples along their first axis; got {shown(inputs)}"
        ) from None


def take_rows(inputs: Any, rows: slice | Ints) -> Any:
    """The samples at these positions."""
    return container_of(inputs).take(inputs, rows)


def own_copy(inputs: Any) -> Any:
    """A copy that a model may write to, as scalers and imputers with copy=False do."""
    return inputs.copy() if hasattr(inputs, "copy") else inputs.clone()


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


def affordable_batch_size(inputs: Any) -> int:
    """How many samples fit in the memory for a batch, at least 1."""
    n_bytes = container_of(inputs).n_bytes(inputs)
    if n_bytes is None:
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
    return container_of(inputs).measure(inputs)


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


def _mark_array(values: NDArray[Any]) -> NDArray[np.uint8]:
    if values.dtype.kind == "f":
        return _mark_floats(values)
    marks = np.zeros(values.shape, dtype=np.uint8)
    if values.dtype.kind == "O":
        for place, value in np.ndenumerate(values):
            number = value if isinstance(value, float) else 0.0
            marks[place] = MISSING if is_missing(value) else _mark_floats(np.array(number))
    return marks


def _mark_floats(values: NDArray[Any]) -> NDArray[np.uint8]:
    large = np.abs(values) > np.finfo(np.float32).max
    conditions = [np.isnan(values), values == np.inf, values == -np.inf, large]
    kinds = [MISSING, INFINITE, NEGATIVE_INFINITE, BEYOND_FLOAT32]
    return np.select(conditions, kinds, default=ORDINARY).astype(np.uint8)


def _fill_column(column: Any, good: NDArray[np.bool_]) -> Any:
    if is_number(column.dtype) and column.dtype.kind != "b":
        return column.where(good, 0)
    return column.where(good, next(iter(column[good]), "" if _is_text(column.dtype) else None))


def _is_text(dtype: Any) -> bool:
    """Whether a column of pandas with this dtype holds text or other objects."""
    return getattr(dtype, "kind", "O") == "O" and not hasattr(dtype, "categories")
