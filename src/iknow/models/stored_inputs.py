"""Inputs of a model as plain arrays and values, and back, without pickle or loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from iknow.core.arrays import Ints
from iknow.models.fields import Fields, as_fields
from iknow.models.numbers import is_sparse
from iknow.models.stored_objects import (
    restore_objects,
    restore_sparse,
    store_objects,
    store_sparse,
)

KINDS = "biufUmM"  # arrays that need no pickle: numbers, bools, text and times


def take_rows(inputs: Any, rows: Ints) -> Any:
    """A copy of these samples; None for inputs of a kind that no bundle can keep."""
    if isinstance(inputs, Fields):
        parts = {name: take_rows(values, rows) for name, values in inputs.arrays.items()}
        return None if any(part is None for part in parts.values()) else Fields(parts)
    if hasattr(inputs, "iloc"):
        return inputs.iloc[rows].reset_index(drop=True)
    if isinstance(inputs, np.ndarray) or hasattr(inputs, "detach") or is_sparse(inputs):
        return inputs[rows]
    if isinstance(inputs, list):
        return [inputs[row] for row in rows]
    return None


def store_inputs(inputs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Plain values and arrays by name; ValueError if these inputs cannot be stored."""
    if isinstance(inputs, Fields):
        found = [store_inputs(values) for values in inputs.arrays.values()]
        if any(record != {"kind": "array"} for record, _ in found):
            raise ValueError("inputs by name that are not all arrays cannot be kept in a bundle")
        arrays = {f"inputs{i}": stored["inputs"] for i, (_, stored) in enumerate(found)}
        return {"kind": "fields", "names": list(inputs.arrays)}, arrays
    if hasattr(inputs, "iloc"):
        from iknow.models.pandas import store_frame, store_series

        return store_frame(inputs) if inputs.ndim == 2 else store_series(inputs)
    if is_sparse(inputs):
        return store_sparse(inputs)
    if isinstance(inputs, list) or (np.ndim(inputs) == 1 and inputs.dtype == object):
        return store_objects(inputs)
    if hasattr(inputs, "detach"):
        inputs = inputs.detach().cpu()
        # numpy has no bfloat16; single precision holds every number in half precision.
        is_half = inputs.is_floating_point() and inputs.element_size() < 4
        inputs = (inputs.float() if is_half else inputs).numpy()
    if type(inputs) is not np.ndarray or inputs.dtype.kind not in KINDS:
        raise ValueError(f"inputs of dtype {inputs.dtype} cannot be kept in a bundle")
    return {"kind": "array"}, {"inputs": inputs}


def restore_inputs(record: Mapping[str, Any], arrays: Mapping[str, Any]) -> Any:
    """The inputs that `store_inputs` got; a tensor comes back as an array, as good to a model."""
    if record["kind"] == "frame":
        from iknow.models.pandas import restore_frame

        return restore_frame(record, arrays)
    if record["kind"] == "fields":
        listed = [str(name) for name in record["names"]]
        return as_fields({name: np.array(arrays[f"inputs{i}"]) for i, name in enumerate(listed)})
    if record["kind"] == "series":
        from iknow.models.pandas import restore_series

        return restore_series(record, arrays)
    if record["kind"] == "sparse":
        return restore_sparse(record, arrays)
    if record["kind"] == "objects":
        return restore_objects(record, arrays)
    return np.array(arrays["inputs"])
