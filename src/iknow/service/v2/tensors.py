"""Tensors of the protocol: their types, their bytes and their checks."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.text import names, shown
from iknow.service.refusal import Refusal

DTYPES = {
    "BOOL": np.bool_, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32,
    "UINT64": np.uint64, "INT8": np.int8, "INT16": np.int16, "INT32": np.int32, "INT64": np.int64,
    "FP16": np.float16, "FP32": np.float32, "FP64": np.float64,
}  # fmt: skip
MOST_AXES = 8


def read_tensor(tensor: Any, rest: memoryview, tensors: dict[str, NDArray[Any]]) -> int:
    """Add a tensor to those read; the number of bytes it took behind the text."""
    keys = ("name", "shape", "datatype")
    if not isinstance(tensor, Mapping) or any(key not in tensor for key in keys):
        raise Refusal(422, f"a tensor needs {names(keys)} and data; got {shown(tensor, 80)}")
    name, shape, kind = (tensor[key] for key in keys)
    if not isinstance(name, str) or name in tensors:
        raise Refusal(422, f"each tensor needs a name of its own; got {shown(name, 60)}")
    if not isinstance(kind, str) or (kind not in DTYPES and kind != "BYTES"):
        raise Refusal(
            422, f"the datatype must be one of {names([*DTYPES, 'BYTES'])}; got {shown(kind, 60)}"
        )
    size = _check_shape(shape, name)
    parameters = tensor.get("parameters") or {}
    taken = parameters.get("binary_data_size") if isinstance(parameters, Mapping) else None
    if taken is not None:
        taken = as_length(taken, len(rest))
        values = _from_bytes(bytes(rest[:taken]), kind, size, name)
    else:
        taken, values = 0, _from_list(tensor.get("data"), kind, size, name)
    tensors[name] = values.reshape(shape)
    return taken


def datatype(array: NDArray[Any]) -> str:
    if array.dtype.kind == "O":
        return "BYTES"
    return next(kind for kind, dtype in DTYPES.items() if array.dtype == dtype)


def to_bytes(array: NDArray[Any]) -> bytes:
    if array.dtype.kind != "O":
        return array.astype(array.dtype.newbyteorder("<")).tobytes()
    texts = [text.encode() for text in array.ravel().tolist()]
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)


def as_length(value: Any, most: int) -> int:
    """A number of bytes, from a header or a parameter."""
    digits = str(value)
    if isinstance(value, bool) or not (digits.isascii() and digits.isdigit()) or len(digits) > 12:
        raise Refusal(400, f"a number of bytes was expected; got {shown(value, 60)}")
    if int(digits) > most:
        raise Refusal(400, f"{int(digits)} bytes are announced, and {most} are there")
    return int(digits)


def _check_shape(shape: Any, name: str) -> int:
    is_shape = isinstance(shape, list) and 1 <= len(shape) <= MOST_AXES
    if not is_shape or any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in shape):
        raise Refusal(
            422, f"the shape of {shown(name, 60)} must be up to {MOST_AXES} whole numbers"
        )
    return prod(shape)


def _from_bytes(content: bytes, kind: str, size: int, name: str) -> NDArray[Any]:
    if kind == "BYTES":
        return np.array(_split_texts(content, size, name), dtype=object)
    dtype = np.dtype(DTYPES[kind]).newbyteorder("<")
    if len(content) != size * dtype.itemsize:
        raise Refusal(
            422, f"{shown(name, 60)} takes {size * dtype.itemsize} bytes; got {len(content)}"
        )
    return np.frombuffer(content, dtype).astype(DTYPES[kind])


def _split_texts(content: bytes, size: int, name: str) -> list[str]:
    texts: list[str] = []
    at = 0
    while at + 4 <= len(content) and len(texts) < size:
        (length,) = struct.unpack_from("<I", content, at)
        texts.append(_text(content[at + 4 : at + 4 + length], name))
        at += 4 + length
    if at != len(content) or len(texts) != size:
        raise Refusal(422, f"{shown(name, 60)} must hold {size} texts, each after its length")
    return texts


def _from_list(data: Any, kind: str, size: int, name: str) -> NDArray[Any]:
    if not isinstance(data, list):
        raise Refusal(422, f"{shown(name, 60)} needs data, a list; got {shown(data, 60)}")
    try:
        if kind == "BYTES":
            values = np.array(data, dtype=object)
            strange = [each for each in values.ravel().tolist() if not isinstance(each, str)]
            if strange:
                raise Refusal(
                    422, f"{shown(name, 60)} must hold texts; got {shown(strange[0], 60)}"
                )
        else:
            values = np.array(data, dtype=np.float64 if kind.startswith("FP") else None)
            if values.size and values.dtype.kind not in "biuf":
                raise ValueError
            values = _cast(values, DTYPES[kind])
    except (ValueError, TypeError, OverflowError) as error:
        raise Refusal(422, f"the data of {shown(name, 60)} is no list of {kind}") from error
    if values.size != size:
        raise Refusal(422, f"the shape of {shown(name, 60)} takes {size} values; got {values.size}")
    return values.ravel()


def _cast(values: NDArray[Any], dtype: Any) -> NDArray[Any]:
    with np.errstate(over="ignore", invalid="ignore"):
        cast = values.astype(dtype)
    if np.dtype(dtype).kind != "f" and not np.array_equal(cast, values):
        raise ValueError("a number does not fit")
    return cast


def _text(content: bytes, name: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise Refusal(422, f"{shown(name, 60)} holds text that is not UTF-8") from error
