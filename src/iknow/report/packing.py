"""Packing: arrays → compressed text inside a page, and data as JSON that cannot break out of it."""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 8  # a browser's typed array must begin at a multiple of its item's size

TYPES = {
    "float64": "Float64Array",
    "float32": "Float32Array",
    "int64": "BigInt64Array",
    "int32": "Int32Array",
    "uint16": "Uint16Array",
    "uint8": "Uint8Array",
}


def compress(data: bytes) -> str:
    """Bytes as gzip in base64; the same bytes always give the same text."""
    return base64.b64encode(gzip.compress(data, compresslevel=6, mtime=0)).decode("ascii")


def pack_arrays(arrays: Mapping[str, NDArray[Any]]) -> tuple[dict[str, Any], str]:
    """Where each array is, by name, and all of them as one compressed text."""
    entries, parts, offset = {}, [], 0
    for name, array in arrays.items():
        data = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).tobytes()
        kind = TYPES[array.dtype.name]
        entries[name] = {"type": kind, "offset": offset, "length": int(array.size)}
        padding = -len(data) % ALIGNMENT
        parts += [data, bytes(padding)]
        offset += len(data) + padding
    return entries, compress(b"".join(parts))


def to_json(value: Any) -> str:
    """JSON for a <script>: no text can end the element; infinity is text that `Number` reads."""
    return json.dumps(_finite(value), allow_nan=False).replace("<", "\\u003c")


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None if np.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value
