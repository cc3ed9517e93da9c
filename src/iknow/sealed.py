"""Sealed arrays: files that are mapped at once, and compared with their checksums before use.

Mapping a file reads its header and nothing else, however large it is. Its content is compared with
the checksum later and where it was mapped, not where its name now leads: a file that was replaced
in the meantime is neither mistaken for a damaged one nor used unseen.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.lib import format as npy

from iknow.errors import BundleError

LONGEST_HEADER = 10_000
"""numpy's own limit: what is longer may be slow to parse, and no array of ours has such a one."""


class SealedArray:
    """An array file of a bundle, memory-mapped, with the sha256 it must have.

    folder, name: where it is, and how errors call it. `array` may be looked at before `verify`, but
    nothing that depends on its content may be told to anybody.
    """

    def __init__(self, folder: Path, name: str, sha256: str) -> None:
        self._folder, self._name, self._sha256 = folder, name, sha256
        file = folder / name
        if not file.is_file():
            raise BundleError(f"{folder} is damaged: {name} is missing")
        try:
            with file.open("rb") as stream:
                self.array = _map(stream)
                stream.seek(0)
                self._header = stream.read(os.fstat(stream.fileno()).st_size - self.array.nbytes)
        except Exception as error:  # numpy reads a damaged header as Python: any way to fail
            raise BundleError(f"{folder} is damaged: {name} cannot be read ({error})") from error

    def verify(self) -> None:
        """Compare the whole file with its checksum."""
        digest = hashlib.sha256(self._header)
        digest.update(memoryview(self.array.ravel(order="K")).cast("B"))
        if digest.hexdigest() != self._sha256:
            raise BundleError(
                f"{self._folder} is damaged: {self._name} does not match its checksum"
            )


class Seal:
    """Arrays that are verified together, once: by the first who asks."""

    def __init__(self, arrays: Iterable[SealedArray]) -> None:
        self._unverified = list(arrays)
        self._lock = threading.Lock()

    def check(self) -> None:
        """Verify the arrays unless that was done; what is damaged is refused every time."""
        with self._lock, ThreadPoolExecutor() as pool:
            list(pool.map(SealedArray.verify, self._unverified))
            self._unverified = []


def _map(stream: Any) -> Any:
    """The array in an open .npy file, memory-mapped; the file must end where the array does."""
    version = npy.read_magic(stream)
    read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, is_fortran, dtype = read_header(stream, max_header_size=LONGEST_HEADER)
    if dtype.hasobject:
        raise ValueError("it holds Python objects")
    start = stream.tell()
    expected = start + dtype.itemsize * int(np.prod(shape, dtype=object))
    found = os.fstat(stream.fileno()).st_size
    if found != expected:
        raise ValueError(f"expected {expected} bytes for an array of shape {shape}; got {found}")
    order: Literal["C", "F"] = "F" if is_fortran else "C"
    if expected == start:
        return np.empty(shape, dtype, order=order)  # there is nothing to map
    return np.memmap(stream, dtype, "r", start, shape, order=order)
