"""Texts, other plain objects and sparse matrices as plain arrays, and back.

Objects are kept as JSON, one after another in one array of bytes: texts of any length take no more
room than they need, and nothing can run when they are read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.sparse import csr_array, csr_matrix, sparray

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
