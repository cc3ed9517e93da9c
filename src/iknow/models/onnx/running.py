"""Running: the tensors for any number of samples, whatever batches a graph takes.

A graph may be made for batches of one size: the last batch then repeats its last sample, and the
result is cut. A graph with dynamic quantization rounds by the largest number in the whole batch:
the other samples would decide how a sample is rounded, so it gets one sample at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.text import name
from iknow.errors import InputError, LayerError
from iknow.models.onnx.file import File
from iknow.models.onnx.session import Session

SCALES_BY_BATCH = {"DynamicQuantizeLinear", "DynamicQuantizeMatMul", "DynamicQuantizeLSTM"}


def run(
    session: Session, tensors: Sequence[str], feeds: Mapping[str, NDArray[Any]], n: int
) -> dict[str, Any]:
    """Tensors by name for n samples; anything but a tensor as a list."""
    size = find_batch_size(session.file)
    step = 1 if not SCALES_BY_BATCH.isdisjoint(session.file.graph.ops) else size or n
    if step == n == (size or n):
        return dict(zip(tensors, session.run(tensors, feeds), strict=True))
    parts = []
    for start in range(0, n, step):
        end = min(start + step, n)
        rows = np.minimum(np.arange(start, start + (size or step)), end - 1)
        found = session.run(tensors, {each: values[rows] for each, values in feeds.items()})
        for each, values in zip(tensors, found, strict=True):
            if isinstance(values, np.ndarray):
                check_rows(each, values, len(rows), session.file.name)
        parts.append([values[: end - start] for values in found])
    joined = [_join(list(each)) for each in zip(*parts, strict=True)]
    return dict(zip(tensors, joined, strict=True))


def find_batch_size(file: File) -> int | None:
    """The size of every batch that a graph takes; None for any."""
    fixed = {each.shape[0] for each in file.graph.inputs if each.shape} - {None}
    if len(fixed) > 1:
        raise InputError(
            f"the inputs of {file.name} must all have samples along their first axis; they are "
            f"{', '.join(map(str, file.graph.inputs[:20]))}"
        )
    return next(iter(fixed), None)


def check_rows(layer: str, values: Any, n: int, model: str) -> None:
    """Refuse anything but an array with a row for each of n samples; layer: its name in errors."""
    if not isinstance(values, np.ndarray):
        raise LayerError(
            f"{name(layer)} of {model} is a sequence or a map, not a tensor: choose the tensor "
            "that it is made from"
        )
    if values.ndim == 0 or len(values) != n:
        raise LayerError(
            f"{name(layer)} of {model} has shape {values.shape} for {n} samples, and needs one "
            "row for each: choose another tensor"
        )


def _join(parts: list[Any]) -> Any:
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    return [each for part in parts for each in part]
