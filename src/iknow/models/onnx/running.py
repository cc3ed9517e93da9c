"""Running: the tensors for any number of samples, whatever batches a graph takes.

A graph may be made for batches of one size: the last batch then repeats its last sample, and the
result is cut. A graph with dynamic quantization rounds by the largest number in the whole batch:
the other samples would decide how a sample is rounded, so it gets one sample at a time.

Any other graph gets at most `AT_ONCE` samples. What is inside may be far larger than its inputs:
magika turns 2,048 bytes into 526,336 numbers. On the CPU larger batches are hardly faster: 100,000
rows through a small network take 0.10 s in batches of 64, 0.04 s in batches of 4,096.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Ints
from iknow.core.text import shown
from iknow.errors import InputError, LayerError
from iknow.models.inputs import LARGEST_BATCH
from iknow.models.onnx.file import File
from iknow.models.onnx.session import Session

AT_ONCE, AT_ONCE_ELSEWHERE = 64, 256  # samples; elsewhere is on a GPU
SCALES_BY_BATCH = {"DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM"}


def run(
    session: Session,
    tensors: Sequence[str],
    feeds: Mapping[str, NDArray[Any]],
    n: int,
    optional: Collection[str] = (),
) -> dict[str, Any]:
    """Tensors by name for n samples; optional ones without a row for each sample are left out."""
    parts: dict[str, list[Any]] = {name: [] for name in tensors}
    for rows, n_new in _cut(session, n):
        found = session.run(tensors, {name: values[rows] for name, values in feeds.items()})
        for name, values in zip(tensors, found, strict=True):
            n_found = _count(values)
            if n_found == len(rows):
                parts[name].append(values[:n_new])
            elif name not in optional:
                got = "no axes" if n_found is None else f"{n_found} rows"
                raise LayerError(
                    f"{shown(name)} of {session.file.name} has {got} for {len(rows)} samples, and "
                    "must have one row for each: choose another tensor"
                )
    return {name: _join(each) for name, each in parts.items() if each}


def _cut(session: Session, n: int) -> Iterator[tuple[Ints, int]]:
    """The rows of each batch, and how many of them are new."""
    size = find_batch_size(session.file)
    step = size or (AT_ONCE if session.device in (None, "cpu") else AT_ONCE_ELSEWHERE)
    if not SCALES_BY_BATCH.isdisjoint(session.file.graph.ops):
        step = 1
    for start in range(0, n, step):
        end = min(start + step, n)
        yield np.minimum(np.arange(start, start + (size or end - start)), end - 1), end - start


def find_batch_size(file: File) -> int | None:
    """The size of every batch that a graph takes; None for any."""
    fixed = {each.shape[0] for each in file.graph.inputs if each.shape} - {None}
    if len(fixed) > 1:
        raise InputError(
            f"the inputs of {file.name} must all have samples along their first axis; they are "
            f"{', '.join(map(str, file.graph.inputs[:20]))}"
        )
    size = next(iter(fixed), None)
    if size is not None and size > LARGEST_BATCH:
        raise InputError(
            f"{file.name} takes batches of {size:,} samples and no others: export it with a batch "
            f"size that may vary, or one of at most {LARGEST_BATCH:,}"
        )
    return size


def _count(values: Any) -> int | None:
    """The number of rows of an array or a list; None if it has no rows."""
    if isinstance(values, np.ndarray):
        return len(values) if values.ndim else None
    return len(values) if isinstance(values, list) else None


def _join(parts: list[Any]) -> Any:
    if isinstance(parts[0], np.ndarray):
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
    return [each for part in parts for each in part]
