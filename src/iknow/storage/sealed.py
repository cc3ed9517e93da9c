"""Sealed files: opened once, compared with their checksums before use, and watched afterwards.

A small file is copied into memory, safe from changes. A large one is mapped, so opening it is quick
and only what is needed is read. But then writing to the file changes the arrays, and truncating it
kills the process that reads on. So before each use we compare the file's size and times with those
seen before. If they differ, we compare all checksums again; if the file ends before what we use, we
refuse it. A file may grow behind that. Replacing a file is safe: the old one stays open.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import stat
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from iknow.errors import BundleError
from iknow.locking import Lock
from iknow.pages import read_through

COPIED_UP_TO = 1 << 28
"""The largest file to copy into memory: 256 MiB, read in about a tenth of a second."""
BYTES_AT_ONCE = 1 << 24
WORTH_THREADS = 1 << 22
"""Bytes that take longer to hash than it takes to start threads."""


class Identity(NamedTuple):
    """What reveals that a file changed; renaming or replacing it changes `ctime`."""

    size: int
    mtime: int
    ctime: int


class SealedFile:
    """An open file whose bytes are `content`, a read-only array of uint8.

    A file of up to `copied_up_to` bytes is copied into memory, a larger one mapped.
    """

    def __init__(self, path: Path, copied_up_to: int | None = None) -> None:
        self._descriptor = _open(path)
        close = weakref.finalize(self, os.close, self._descriptor)
        self.opened = _identify(self._descriptor)
        limit = COPIED_UP_TO if copied_up_to is None else copied_up_to
        self.is_mapped = self.opened.size > limit
        try:
            self.content = (_map if self.is_mapped else _copy)(self._descriptor, self.opened.size)
        except (OSError, ValueError, OverflowError, MemoryError) as error:
            raise BundleError(f"{path} cannot be read: {error}") from error
        if not self.is_mapped:
            close()

    def read(self, start: int, stop: int) -> bytes:
        """A small part of the content; less if the file is shorter."""
        if not (self.is_mapped and hasattr(os, "pread")):
            return bytes(self.content[start:stop])
        parts, place = [], start  # safe even if the file is truncated
        while place < stop and (part := os.pread(self._descriptor, stop - place, place)):
            parts.append(part)  # the system gives 2 GiB at most
            place += len(part)
        return b"".join(parts)

    def identify(self) -> Identity:
        """The file's identity now; a copy never changes."""
        return _identify(self._descriptor) if self.is_mapped else self.opened


@dataclass(eq=False)
class Guard:
    """Decides before each use of a file whether it may be used.

    If a file that was verified once grew, or its turn did, that explains why its times differ: it
    is used at once, and compared again meanwhile, so that nobody waits for a writer.
    """

    path: Path
    file: SealedFile
    verify: Callable[[], None]  # raises `BundleError` if the content is wrong
    end: int  # of the content; what follows may come and go
    find_turn: Callable[[], int]  # a number that grows with each change appended
    by_content: bool  # whether `verify` finds every change

    def __post_init__(self) -> None:
        self._turn = self.find_turn()
        self._passed: Identity | None = None
        self._broken: BundleError | None = None
        self._again: threading.Thread | None = None
        self._lock = Lock()

    def check(self) -> None:
        """Refuse a wrong or changed file; quick if nothing changed."""
        if self._broken is not None:
            raise self._changed() from self._broken
        if self.file.identify() == self._passed:
            return
        with self._lock.held():
            now, opened = self.file.identify(), self.file.opened
            if now == self._passed:
                return
            grew = self._grew(now)
            last = self._passed or opened
            touched = now[:2] != last[:2] and not self.by_content and not grew
            if now.size < self.end or touched:
                raise self._changed()
            if grew and self._passed is not None:
                self._passed = now
                self._verify_meanwhile()
                return
            try:
                self.verify()
            except BundleError as error:
                raise (self._changed() if now != opened else error) from error
            after = self.file.identify()
            # A new `ctime` may mean that the file was replaced; the next check will tell.
            if after.size < self.end:
                raise self._changed()
            if (after.size, after.mtime) == (now.size, now.mtime):
                self._passed = now

    def _grew(self, now: Identity) -> bool:
        """Whether something was appended since the last look."""
        before, self._turn = self._turn, self.find_turn()
        return self._turn > before or now.size > (self._passed or self.file.opened).size

    def _verify_meanwhile(self) -> None:
        """Compare the content in a thread, if none does already; a forked child starts its own."""
        if self._again is None or not self._again.is_alive():
            self._again = threading.Thread(target=self._find_damage, daemon=True)
            self._again.start()

    def _find_damage(self) -> None:
        seen = None
        while seen != self._passed:  # once more if it grew meanwhile
            seen = self._passed
            try:
                self.verify()
            except BundleError as error:
                self._broken = error
                return

    def _changed(self) -> BundleError:
        return BundleError(
            f"{self.path} was changed after it was loaded: load it again; while a bundle is in "
            "use, replace it in one step, as save does"
        )


class Pieces(list[bytes | memoryview]):
    """Parts of a content; reading them in order gives small pieces, as `read_through` does."""

    def __iter__(self) -> Iterator[bytes | memoryview]:
        for part in super().__iter__():
            yield from read_through(memoryview(part), BYTES_AT_ONCE)


def verify_all(checksums: Iterable[tuple[str, Any, str]]) -> None:
    """Compare contents, each a name, its bytes and the expected sha256."""

    def verify(sealed: tuple[str, Any, str]) -> None:
        name, content, expected = sealed
        digest = hashlib.sha256()
        for piece in Pieces([memoryview(content)]):  # a mapped file may be larger than memory
            digest.update(piece)
        if digest.hexdigest() != expected:
            raise BundleError(f"{name} does not match its checksum")

    sealed = list(checksums)
    if sum(len(content) for _, content, _ in sealed) < WORTH_THREADS:
        list(map(verify, sealed))
        return
    with ThreadPoolExecutor() as pool:
        list(pool.map(verify, sealed))


def _open(path: Path) -> int:
    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    try:
        descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))  # a pipe would block
    except FileNotFoundError as error:
        raise BundleError(f"{path} is not a bundle: the file does not exist") from error
    except (OSError, ValueError) as error:
        raise BundleError(f"{path} cannot be opened: {error}") from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        if stat.S_ISDIR(mode):
            raise BundleError(f"{path} is not a bundle but a folder: a bundle is one file")
        raise BundleError(f"{path} is not a bundle: it is not a file")
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
                raise OSError("it became shorter while being read")
            done += n_read
    content.flags.writeable = False
    return content


def _map(descriptor: int, size: int) -> Any:
    return np.frombuffer(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ), dtype=np.uint8)
