"""Whether a file holds what it should: two people who load a dataset have the same data.

A file is compared with its sha256. An .npz file has many forms of the same content, since its bytes
depend on the compressor, so it is the sha256 of its arrays x and y that counts.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ARRAYS = ("x", "y")


@dataclass(frozen=True)
class DataFile:
    """A file: its path within a data folder, such as "mnist/a.gz", and what it should hold.

    size: in bytes; None for an .npz file, which has many forms.
    """

    name: str
    sha256: str
    size: int | None = None


def difference(path: Path, file: DataFile) -> str | None:
    """What was expected and what is there, or None if they are the same."""
    expected = f"sha256 {file.sha256}"
    if file.size is not None:
        expected = f"{file.size:,} bytes with {expected}"
    try:
        digest = content_digest(path)
    except Exception as error:  # numpy reads a damaged header as Python, which can fail in any way
        return f"expected {expected}, found what cannot be read ({type(error).__name__}: {error})"
    if digest == file.sha256:
        return None
    return f"expected {expected}, found {path.stat().st_size:,} bytes with sha256 {digest}"


def content_digest(path: Path) -> str:
    """The sha256 of a file; of an .npz file that of its arrays, with their dtypes and shapes."""
    if path.suffix != ".npz":
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    digest = hashlib.sha256()
    # A stream of our own, because numpy leaves the file of a damaged archive open.
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
        for name in ARRAYS:
            array = np.ascontiguousarray(arrays[name])
            digest.update(f"{name} {array.dtype.str} {array.shape}".encode())
            digest.update(array.data)
    return digest.hexdigest()
