"""Scratch files: large arrays on disk that vanish when nothing uses them any more."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from iknow.core.arrays import Floats32, Ints
from iknow.core.text import shown
from iknow.errors import InputError
from iknow.locking import Lock

Folder = str | os.PathLike[str] | None
"""Where scratch files go: a folder, made if there is none; None for the system's temporary one."""

SPARE_BYTES = 1 << 24  # of a disk, which others may need at the same moment
BYTES_PER_VALUE = 9  # of rows as they come, in the order of the classes, and coded


class ScratchFile:
    """A file without a name in a folder, for `needed` bytes, if so many are known to be needed.

    Nobody else can find, change or truncate it, and the system frees its space when its user closes
    it or dies, however that happens: nothing is left to recognize as half written, or to clean up.
    """

    def __init__(self, folder: Folder, needed: int = 0) -> None:
        self.folder = as_folder(folder)
        check_room(self.folder, needed)
        self._lock = Lock()
        with explained(self.folder):
            self._file: Any = tempfile.TemporaryFile(dir=self.folder, buffering=0)  # noqa: SIM115
        weakref.finalize(self, self._file.close)

    def write(self, content: Any, start: int) -> None:
        """Write the bytes of a contiguous array from byte `start` on."""
        rest = np.ascontiguousarray(content).reshape(-1).view(np.uint8).data
        with explained(self.folder), self._lock.held():
            self._file.seek(start)
            while len(rest):
                rest = rest[self._file.write(rest) :]

    def as_rows(self, n_rows: int, n_features: int, dtype: Any = np.float32) -> Any:
        """The file as an array of this shape, mapped, not read."""
        if n_rows == 0:
            return np.empty((0, n_features), dtype=dtype)
        return np.memmap(self._file, dtype, "r", shape=(n_rows, n_features)).view(np.ndarray)


class Spool:
    """Rows in files, by the name of their layer, as one part of them comes after another.

    n_expected: about how many rows will come, if that is known, to see whether there is room.
    """

    def __init__(self, folder: Folder, n_expected: int | None) -> None:
        self._folder, self._n_expected, self._n = folder, n_expected or 0, 0
        self._files: dict[str, ScratchFile] = {}
        self._widths: dict[str, int] = {}

    def take(self, parts: Mapping[str, Floats32]) -> None:
        """Write the next rows of every layer."""
        if not self._files:
            self._widths = {layer: values.shape[1] for layer, values in parts.items()}
            needed = BYTES_PER_VALUE * sum(self._widths.values()) * self._n_expected
            check_room(as_folder(self._folder), needed)
            self._files = {layer: ScratchFile(self._folder) for layer in parts}
        for layer, values in parts.items():
            start = 4 * self._n * self._widths[layer]
            self._files[layer].write(values.astype(np.float32, copy=False), start)
        self._n += len(next(iter(parts.values())))

    def rows(self) -> dict[str, Floats32]:
        """All rows by layer, mapped."""
        widths = self._widths
        return {layer: file.as_rows(self._n, widths[layer]) for layer, file in self._files.items()}


def write_rows(
    folder: Folder, order: Ints, n_features: int, pieces: Iterable[Floats32]
) -> Floats32:
    """Rows on disk in another order, as a mapped array of shape (n_rows, n_features).

    order: which row comes at each place, (n_rows,). pieces: some rows at a time, (m, n_features).
    """
    places, width, first = np.empty_like(order), 4 * n_features, 0
    places[order] = np.arange(len(order))
    file = ScratchFile(folder, width * len(order))
    for rows in pieces:
        mine = places[first : first + len(rows)]
        by_place, first = np.argsort(mine), first + len(rows)
        ordered, mine = rows[by_place].astype(np.float32, copy=False), mine[by_place]
        cuts = np.flatnonzero(np.diff(mine) != 1) + 1
        for start, end in pairwise([0, *cuts.tolist(), len(mine)]):
            file.write(ordered[start:end], int(mine[start]) * width)
    written: Floats32 = file.as_rows(len(order), n_features)
    return written


def as_folder(folder: Folder) -> Path:
    """The folder for scratch files, made if there is none."""
    if folder is not None and not isinstance(folder, (str, os.PathLike)):
        raise InputError(f"folder must be the name of a folder; got {shown(folder)}")
    path = Path(tempfile.gettempdir() if folder is None else folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:  # a file, a loop of links, a NUL
        raise InputError(f"{shown(str(path))} cannot be used as a folder: {error}") from error
    return path


def check_room(folder: Path, needed: int) -> None:
    """Refuse to begin what would fill the disk."""
    free = shutil.disk_usage(folder).free
    if needed and needed + SPARE_BYTES > free:
        raise InputError(
            f"{folder} needs room for {needed:,} bytes; {free:,} are free: choose a folder on "
            "another disk, or make room"
        )


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Say what is wrong with a folder that cannot be written to."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise InputError(f"{folder} cannot be written to: {error}") from error
        raise InputError(
            f"the disk of {folder} is full: make room, or choose a folder on another disk. "
            "Nothing was left on it"
        ) from error
