"""Sealed files: opened once, compared with their checksums before use, and watched afterwards.

A small file is copied into memory, where nobody changes it. A large one is mapped: nothing of it is
read before it is needed, and opening it takes no time however large it is. But what is mapped is
the file itself: whoever writes into it changes the arrays, and whoever cuts it short ends the
process that reads on. So the file's identity, its size and the times at which it was changed, is
looked at before each use. If it is another, all checksums are compared again; a file whose size
changed is refused unseen.

A file that was replaced is another file: who has opened the old one keeps it.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from iknow.errors import BundleError
from iknow.locking import Lock

COPIED_UP_TO = 1 << 28
"""Bytes of a file that is copied into memory: 256 MiB, read in about a tenth of a second."""

WORTH_THREADS = 1 << 22
"""Bytes from which on hashing takes longer than starting threads for it."""


class Identity(NamedTuple):
    """What tells that a file was changed. A file that is renamed or replaced has a new `ctime`."""

    size: int
    mtime: int
    ctime: int


class SealedFile:
    """An open file: `content`, its bytes as a read-only array of uint8, copied or mapped.

    copied_up_to: the size up to which it is copied.
    """

    def __init__(self, path: Path, copied_up_to: int | None = None) -> None:
        descriptor = _open(path)
        close = weakref.finalize(self, os.close, descriptor)
        self.opened = _identify(descriptor)
        limit = COPIED_UP_TO if copied_up_to is None else copied_up_to
        self.is_mapped = self.opened.size > limit
        self._descriptor = descriptor
        try:
            read = _map if self.is_mapped else _copy
            self.content = read(descriptor, self.opened.size)
        except (OSError, ValueError, OverflowError, MemoryError) as error:
            raise BundleError(f"{path} cannot be read: {error}") from error
        if not self.is_mapped:
            close()

    def read(self, start: int, stop: int) -> bytes:
        """A small part of the content, which may be shorter where the file is."""
        if self.is_mapped and hasattr(os, "pread"):  # which no cut can hurt
            return os.pread(self._descriptor, stop - start, start)
        return bytes(self.content[start:stop])

    def identify(self) -> Identity:
        """The file's identity now; a copy never changes."""
        return _identify(self._descriptor) if self.is_mapped else self.opened


class Guard:
    """Says before each use of a file whether it may be used.

    verify: raises `BundleError` if the content is wrong. by_content: whether it sees every change.
    """

    def __init__(
        self, path: Path, file: SealedFile, verify: Callable[[], None], *, by_content: bool
    ) -> None:
        self._path, self._file, self._verify, self._by_content = path, file, verify, by_content
        self._passed: Identity | None = None
        self._lock = Lock()

    def check(self) -> None:
        """Refuse a file that is wrong or was changed, every time; quick if nothing changed."""
        if self._file.identify() == self._passed:
            return
        with self._lock.held():
            now, opened = self._file.identify(), self._file.opened
            if now == self._passed:
                return
            if now.size != opened.size or (now.mtime != opened.mtime and not self._by_content):
                raise self._changed()
            try:
                self._verify()
            except BundleError as error:
                raise (self._changed() if now != opened else error) from error
            after = self._file.identify()
            # Another `ctime` may mean that the file was replaced: the next check will tell.
            if (after.size, after.mtime) != (now.size, now.mtime):
                raise self._changed()
            self._passed = now

    def _changed(self) -> BundleError:
        return BundleError(
            f"{self._path} was changed after it was loaded: load it again, and replace bundles in "
            "one step, as save does, while they are in use"
        )


def verify_all(checksums: Iterable[tuple[str, Any, str]]) -> None:
    """Compare contents with their sha256; each a name, its bytes and the checksum it must have."""

    def verify(sealed: tuple[str, Any, str]) -> None:
        name, content, expected = sealed
        if hashlib.sha256(content).hexdigest() != expected:
            raise BundleError(f"{name} does not match its checksum")

    sealed = list(checksums)
    if sum(len(content) for _, content, _ in sealed) < WORTH_THREADS:
        for each in sealed:
            verify(each)
        return
    with ThreadPoolExecutor() as pool:
        list(pool.map(verify, sealed))


def _open(path: Path) -> int:
    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # a pipe would wait
    except FileNotFoundError as error:
        raise BundleError(f"{path} is not a bundle: there is no such file") from error
    except (OSError, ValueError) as error:
        raise BundleError(f"{path} cannot be opened: {error}") from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise BundleError(
                f"{path} is not a bundle but a folder. If an older version of iknow wrote it, load "
                "it with that version, or fit and save again: a bundle is one file now"
            )
        raise BundleError(f"{path} is not a bundle: it is no file")
    return descriptor


def _identify(descriptor: int) -> Identity:
    found = os.fstat(descriptor)
    return Identity(found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _copy(descriptor: int, size: int) -> Any:
    """The whole file in memory, aligned as it is in the file."""
    room = np.empty(size + 64, dtype=np.uint8)
    content = room[-room.ctypes.data % 64 :][:size]
    done = 0
    with os.fdopen(os.dup(descriptor), "rb", buffering=0) as stream:
        while done < size:
            n_read = stream.readinto(content[done:].data)
            if not n_read:
                raise OSError("it was cut short meanwhile")
            done += n_read
    content.flags.writeable = False
    return content


def _map(descriptor: int, size: int) -> Any:
    return np.frombuffer(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ), dtype=np.uint8)
