"""Inputs as bytes: one row, one text of bytes, whatever batch it came in.

A row of numbers becomes a .npy file: its type, its shape, its values in C order and little endian.
Text, a row of mixed values and a mapping of columns to values become JSON, with sorted keys and
without spaces. The first byte tells them apart, and nothing that is read back can execute code.

The hash of an input is the sha256 of these bytes, so equal rows have equal hashes, and a stored
input is compared with its hash without being decoded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date
from hashlib import sha256
from typing import Any

import numpy as np

from iknow.core.text import shown
from iknow.errors import AuditError, InputError
from iknow.npy import decode_array, encode_array

NUMBERS = "biufcmM"
"""Kinds of arrays whose rows are numbers. Text has the width of its batch: it is JSON."""


def encode_input(row: Any) -> bytes:
    """One input as bytes.

    Args:
        row: An array of any shape, a text, a mapping of columns to values, or a list of values.

    Raises:
        InputError: The row holds something that is neither a number, nor text, a date or None.

    Examples:
        >>> encode_input({"b": 1, "a": "x"})
        b'{"a":"x","b":1}'
        >>> decode_input(encode_input(np.array([1, 2], dtype=np.int8)))
        array([1, 2], dtype=int8)
    """
    if isinstance(row, (np.ndarray, np.generic)):
        if row.dtype.kind in NUMBERS:
            return encode_inputs(np.asarray(row)[None])[0]
        row = row.tolist()
    try:
        return json.dumps(
            row, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=as_plain
        ).encode("ascii")
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            "an input must hold numbers, text, dates or None, by column names that are text, to be "
            f"recorded: {error}"
        ) from error


def encode_inputs(rows: Any) -> list[bytes]:
    """Each row as `encode_input` has it.

    rows: an array of shape (n, ...), a sequence of rows, or columns of length n by their names.
    """
    if isinstance(rows, Mapping):
        rows = [dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)]
    if not isinstance(rows, np.ndarray) or rows.dtype.kind not in NUMBERS:
        return [encode_input(row) for row in rows]
    if not len(rows):
        return []
    header, _ = encode_array(np.zeros(rows.shape[1:], rows.dtype))  # which all rows share
    values = np.ascontiguousarray(rows, dtype=rows.dtype.newbyteorder("<"))
    content = values.reshape(-1).view(np.uint8).data
    size = len(content) // len(rows)
    return [header + content[i * size : (i + 1) * size] for i in range(len(rows))]


def hash_input(row: Any) -> str:
    """The sha256 of `encode_input(row)`, in hexadecimal.

    Examples:
        >>> hash_input(np.float32([1, 2])) == hash_input(np.float32([[1, 2], [3, 4]])[0])
        True
        >>> hash_input(np.float32([1, 2])) == hash_input(np.float64([1, 2]))
        False
    """
    return sha256(encode_input(row)).hexdigest()


def decode_input(content: bytes) -> Any:
    """The row in the bytes of `encode_input`: an array, a text or a dict.

    Raises:
        AuditError: These are no such bytes.
    """
    try:
        if content[:1] == b"\x93":
            return decode_array(np.frombuffer(content, dtype=np.uint8))
        found = json.loads(content.decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise AuditError(f"a stored input cannot be read: {error}") from error
    if isinstance(found, (str, dict)):
        return found
    values = np.empty(len(found) if isinstance(found, list) else (), dtype=object)
    values[...] = found
    return values


def as_plain(value: Any) -> Any:
    """What JSON does not know: numpy's numbers and mappings as such, dates as text."""
    if isinstance(value, (np.datetime64, np.timedelta64, date)):
        return str(value)
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{shown(value)} is none of these")
