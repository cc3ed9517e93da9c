"""Lengths: the ℓ2 lengths of inputs, with which the rounding of their activations grows.

We measure them, and copy a few inputs, before the model runs: when certificates need them, the
caller may have reused the array.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from iknow.core.arrays import Floats
from iknow.metrics.lipschitz import ROUND_UP

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


def measure(inputs: Any) -> Sizes:
    """The sizes of prepared inputs: an array, a data frame, a tensor, or anything else."""
    shape = tuple(getattr(inputs, "shape", ())[1:])
    if hasattr(inputs, "detach"):
        odd = inputs.is_complex() or inputs.is_sparse or inputs.is_quantized
        return Sizes(shape, None, inputs[:PROBES].detach().clone(), None if odd else norms(inputs))
    if hasattr(inputs, "iloc"):
        dtype = inputs.iloc[:0].to_numpy().dtype
        lengths = norms(inputs.to_numpy()) if dtype.kind in "fiub" else None
        return Sizes(shape, dtype, inputs.iloc[:PROBES].copy(), lengths)
    if isinstance(inputs, np.ndarray):
        lengths = norms(inputs) if inputs.dtype.kind in "fiub" else None
        return Sizes(shape, inputs.dtype, inputs[:PROBES].copy(), lengths)
    return Sizes(shape, None, None, None)


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
