"""Arrays as .npy files, read without evaluating anything.

numpy parses the header of such a file as Python. Here it must match, to the letter, a pattern of
what numpy writes for a plain array in version 1.0.
"""

from __future__ import annotations

import re
import sys
from math import prod
from typing import Any

import numpy as np

MAGIC = b"\x93NUMPY\x01\x00"
PATTERN = re.compile(
    r"\{'descr': '([<|][biufcmMSU]\d{1,9}(?:\[\d{0,9}[a-zA-Z]{1,2}\])?)', 'fortran_order': "
    r"(True|False), 'shape': \(((?:\d{1,18},|\d{1,18}(?:, \d{1,18})+)?)\), \} *\n"
)
KINDS = "biufcmMSU"


def encode_array(array: Any) -> tuple[bytes, memoryview]:
    """An array as a .npy file: its header and its values, copied only if necessary."""
    values = np.ascontiguousarray(array).reshape(np.shape(array))  # it turns scalars into 1-D
    if values.dtype.byteorder not in "=|<" or values.dtype.newbyteorder("<") != values.dtype:
        values = values.astype(values.dtype.newbyteorder("<"))
    if values.dtype.kind not in KINDS or values.dtype.itemsize == 0:
        raise ValueError(f"an array of dtype {values.dtype} cannot be stored without pickle")
    text = f"{{'descr': {values.dtype.str!r}, 'fortran_order': False, 'shape': {values.shape}, }}"
    filling = -(len(MAGIC) + 2 + len(text) + 1) % 64
    header = MAGIC + (len(text) + filling + 1).to_bytes(2, "little")
    header += text.encode("ascii") + b" " * filling + b"\n"
    return header, values.reshape(-1).view(np.uint8).data


def decode_array(content: Any, *, by_columns: bool = False) -> Any:
    """The array in the bytes of a .npy file, given as uint8; the values are not copied.

    by_columns: whether it may be stored column by column.
    """
    if bytes(content[:8]) != MAGIC:
        raise ValueError("it is not a .npy file of version 1.0")
    start = 10 + int.from_bytes(bytes(content[8:10]), "little")
    found = PATTERN.fullmatch(bytes(content[10:start]).decode("latin-1"))
    if found is None or start % 64 or start > len(content):
        raise ValueError("its header is not one that numpy writes for plain numbers or text")
    if found[2] == "True" and not by_columns:
        raise ValueError("its values must be stored row by row")
    shape = tuple(int(size) for size in found[3].replace(",", " ").split())
    try:
        dtype = np.dtype(found[1])
    except TypeError as error:
        raise ValueError(f"numpy has no dtype {found[1]}") from error
    size = start + dtype.itemsize * prod(shape)
    if dtype.itemsize == 0 or len(content) != size:
        raise ValueError(f"expected {size} bytes for an array of shape {shape}; got {len(content)}")
    # numpy stores any number as a character, and Python fails in odd ways on those that are none.
    if dtype.kind == "U" and (content[start:].view("<u4") > sys.maxunicode).any():
        raise ValueError("its text holds numbers that are no characters")
    order: Any = "F" if found[2] == "True" else "C"
    return content[start:].view(dtype).reshape(shape, order=order)


def check_array(array: Any, where: str, dtype: str, shape: tuple[int | None, ...]) -> None:
    """Refuse an array of another type or shape; None stands for any size but 0."""
    fits = array.dtype == np.dtype(dtype) and array.ndim == len(shape)
    for size, wanted in zip(array.shape, shape, strict=False):
        fits &= size > 0 if wanted is None else size == wanted
    if not fits:
        sizes = ", ".join("at least one" if size is None else str(size) for size in shape)
        raise ValueError(
            f"{where} must hold {np.dtype(dtype)} of shape ({sizes}); it has shape {array.shape} "
            f"and dtype {array.dtype}"
        )
