"""Feeding: inputs as a user has them, in the types that a graph declares.

A graph with one input takes an array; with several, a dict of arrays by their names, or a data
frame whose columns bear these names. Numbers become what the graph declares where nothing but
rounding is lost; a fraction never becomes a whole number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Bools
from iknow.core.text import names, shown
from iknow.errors import InputError, RefusedError
from iknow.models.inputs import Fields, as_fields
from iknow.models.numbers import as_array, as_numbers
from iknow.models.onnx.graph import TEXT, Declared, Graph

Batch = NDArray[Any] | Fields


def prepare(inputs: Any, graph: Graph, name: str) -> Batch:
    """Inputs as an array, or as fields for a graph with several inputs; name: the graph's."""
    declared = {each.name: each for each in graph.inputs}
    if isinstance(inputs, Fields):
        inputs = inputs.arrays
    if len(declared) > 1 and hasattr(inputs, "iloc") and getattr(inputs, "ndim", 0) == 2:
        inputs = {column: inputs[column] for column in inputs.columns}
    if not isinstance(inputs, Mapping):
        if len(declared) > 1:
            raise InputError(
                f"{name} has {len(declared)} inputs: give a dict of arrays by their names, "
                f"{names(declared)}; got {type(inputs).__name__}"
            )
        return _as_declared(inputs, graph.inputs[0], "X")
    if set(inputs) != set(declared):
        raise InputError(
            f"the inputs of {name} are {', '.join(map(str, graph.inputs[:20]))}; got "
            f"{names(inputs, 20)}"
        )
    arrays = {each: _as_declared(inputs[each], declared[each], each) for each in declared}
    return as_fields(arrays) if len(arrays) > 1 else next(iter(arrays.values()))


def feed(batch: Batch, graph: Graph) -> dict[str, NDArray[Any]]:
    """A prepared batch by the names of a graph's inputs, in their types."""
    arrays = batch.arrays if isinstance(batch, Fields) else {graph.inputs[0].name: batch}
    return {each.name: _cast(arrays[each.name], each) for each in graph.inputs}


def find_strange(batch: Batch, graph: Graph) -> Bools:
    """Which samples have a number that is not finite in the graph's precision, of shape (n,)."""
    arrays = batch.arrays if isinstance(batch, Fields) else {graph.inputs[0].name: batch}
    strange = np.zeros(len(batch), dtype=bool)
    for declared in graph.inputs:
        values = arrays[declared.name]
        if values.dtype.kind == "f":
            seen = _cast(values, declared) if declared.is_float else values
            strange |= ~np.isfinite(seen).reshape(len(seen), -1).all(axis=1)
    return strange


def without_numbers(batch: Batch) -> Batch:
    """A batch of the same shape with zeros for all numbers."""
    if isinstance(batch, Fields):
        return Fields({name: without_numbers(values) for name, values in batch.arrays.items()})
    return np.zeros_like(batch) if batch.dtype.kind in "fiub" else batch


def _as_declared(values: Any, declared: Declared, what: str) -> NDArray[Any]:
    array = as_array(values, what) if declared.kind == TEXT else as_numbers(values, what)
    # A converter declares each column of a table as (n, 1).
    is_column = declared.shape is not None and len(declared.shape) == 2 and declared.shape[1] == 1
    return array.reshape(-1, 1) if is_column and array.ndim == 1 else array


def _cast(values: NDArray[Any], declared: Declared) -> NDArray[Any]:
    if declared.kind == TEXT:
        return _as_text(values, declared)
    dtype = _find_dtype(declared)
    if declared.is_float:
        with np.errstate(over="ignore"):  # what becomes infinite is marked
            return np.ascontiguousarray(values, dtype=dtype)
    with np.errstate(invalid="ignore"):
        cast = values.astype(dtype)
    # Compared as numbers: numpy would say that -1 equals what uint64 makes of it.
    lost = (cast != values) | ((cast < 0) != (values < 0)) if dtype.kind in "iu" else cast != values
    if lost.any():
        raise RefusedError(
            f"input {declared} takes {declared.kind}, and {shown(values[lost][0].item())} is no "
            "such number"
        )
    return np.ascontiguousarray(cast)


def _as_text(values: NDArray[Any], declared: Declared) -> NDArray[Any]:
    strange = [each for each in values.ravel().tolist() if not isinstance(each, str)][:1]
    if strange:
        raise RefusedError(
            f"input {declared} takes text; got {shown(strange[0], 60)} of type "
            f"{type(strange[0]).__name__}"
        )
    return values.astype(object)


def _find_dtype(declared: Declared) -> np.dtype[Any]:
    try:
        dtype = np.dtype(declared.kind)
    except TypeError:  # a sequence, a map
        dtype = np.dtype(object)
    if dtype.kind not in "fiub":
        raise InputError(
            f"input {declared} takes neither numbers that numpy has nor text: export the model "
            "with inputs of float32"
        )
    return dtype
