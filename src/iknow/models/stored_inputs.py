"""Inputs of a model as plain arrays and values, and back, without pickle or loss.

Texts and other plain objects are kept as JSON,
one after another in one array of bytes: texts of any length take no more room than they need, and
nothing can run when they are read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.sparse import csr_array, csr_matrix, sparray

from iknow.core.arrays import Ints
from iknow.models.fields import Fields, as_fields
from iknow.models.numbers import is_sparse

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


Stored = tuple[dict[str, Any], dict[str, Any]]


def store_objects(objects: Any) -> Stored:
    """A list, or an array of shape (n,), of texts, dicts and others that JSON can hold."""
    listed = list(objects)
    try:
        texts = [json.dumps(each) for each in listed]
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"these inputs cannot be kept in a bundle: {error}") from error
    if [json.loads(text) for text in texts] != listed:  # tuples, keys that are numbers, NaN
        kinds = sorted({type(each).__name__ for each in listed})
        raise ValueError(f"inputs of type {', '.join(kinds)} cannot be kept in a bundle")
    parts = [text.encode("ascii") for text in texts]
    ends = np.cumsum([len(part) for part in parts], dtype=np.int64)
    arrays = {"inputs": np.frombuffer(b"".join(parts), dtype=np.uint8), "ends": ends}
    return {"kind": "objects", "listed": isinstance(objects, list)}, arrays


def restore_objects(record: Mapping[str, Any], arrays: Mapping[str, Any]) -> Any:
    """What `store_objects` was given."""
    whole, ends = np.asarray(arrays["inputs"], dtype=np.uint8).tobytes(), arrays["ends"].tolist()
    starts = [0, *ends[:-1]]
    listed = [json.loads(whole[a:b]) for a, b in zip(starts, ends, strict=True)]
    if record["listed"]:
        return listed
    found = np.empty(len(listed), dtype=object)
    for i, each in enumerate(listed):
        found[i] = each
    return found


def store_sparse(matrix: Any) -> Stored:
    """A sparse matrix or array of numbers, by rows."""
    rows = matrix.tocsr()
    if rows.dtype.kind not in "biuf":
        raise ValueError(f"sparse inputs of dtype {rows.dtype} cannot be kept in a bundle")
    record = {"kind": "sparse", "shape": list(rows.shape), "array": isinstance(rows, sparray)}
    return record, {"inputs": rows.data, "columns": rows.indices, "starts": rows.indptr}


def restore_sparse(record: Mapping[str, Any], arrays: Mapping[str, Any]) -> Any:
    """What `store_sparse` was given, by rows."""
    parts = arrays["inputs"], arrays["columns"], arrays["starts"]
    make = csr_array if record["array"] else csr_matrix
    found = make(tuple(np.array(part) for part in parts), shape=tuple(record["shape"]))
    found.check_format(full_check=True)  # scipy's loops trust the positions
    return found
