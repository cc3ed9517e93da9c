"""Writing a file in one step: readers see the old file or the new one, never a part.

The content goes to a temporary sibling, which replaces the file once it is on disk. A killed
process leaves its sibling behind, and the next writer of the same file removes it. It spares those
of running writers: each writer locks its own, and the system releases the lock when it ends.

Devices such as /dev/null, pipes, and open descriptors such as /dev/stdout are not replaced: the
content is written into them once it is complete.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from iknow.errors import InputError

HELD_IN_MEMORY = 1 << 26
"""Bytes for a stream to collect in memory; more go to a temporary file."""
LONGEST_NAME = 200
"""Bytes of a file's name that its sibling repeats: most systems allow 255 in total."""
DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/(\d{1,9})")
DESCRIPTORS = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}
REFUSED = {stat.S_IFDIR: "a folder", stat.S_IFBLK: "a block device", stat.S_IFSOCK: "a socket"}


@contextmanager
def replacing(path: Path, may_replace: Callable[[Path], None] | None = None) -> Iterator[IO[bytes]]:
    """Open a temporary sibling that replaces `path` once it is complete; a link stays a link.

    The new file keeps the permissions and, if allowed, the owner of the old one. may_replace: is
    called with an existing file before writing and again just before replacing it; it may raise.
    """
    with _open_stream(path) as stream:
        if stream is not None:
            with tempfile.SpooledTemporaryFile(HELD_IN_MEMORY) as content:
                yield content
                content.seek(0)
                shutil.copyfileobj(content, stream)
            return
    target = _find_target(path)
    existing = _find_existing(target, may_replace)
    _remove_abandoned(target)
    descriptor, temporary = _create_sibling(target, 0o666 if existing is None else 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if existing is not None:
                _keep_owner_and_mode(file.fileno(), existing)
            yield file
            file.flush()
            os.fsync(file.fileno())
            _find_existing(target, may_replace)
            if sys.platform == "win32":
                file.close()  # Windows cannot rename open files; elsewhere we keep the lock
            os.replace(temporary, target)
        _sync_folder(target.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> Path:
    """Write a whole file, creating its folder if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(content)
    return path


def is_stream(path: Path) -> bool:
    """Whether a path is a device, a pipe or an open descriptor: something to write into."""
    if _find_descriptor(path) is not None:
        return True
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISCHR(mode) or stat.S_ISFIFO(mode)


@contextmanager
def _open_stream(path: Path) -> Iterator[IO[bytes] | None]:
    """The device, pipe or descriptor at a path, open for writing; None for a file."""
    descriptor = _find_descriptor(path)
    if descriptor is not None:
        for printed in (sys.stdout, sys.stderr):
            if printed is not None:
                printed.flush()  # what was printed before comes first
        with os.fdopen(os.dup(descriptor), "wb") as stream:
            yield stream
    elif is_stream(path):
        with os.fdopen(os.open(path, os.O_WRONLY | getattr(os, "O_NOCTTY", 0)), "wb") as stream:
            if stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise InputError(f"{path} was a pipe and is now a file: try again")
            yield stream
    else:
        yield None


def _find_descriptor(path: Path) -> int | None:
    """The number of the open descriptor that a path stands for."""
    # It may be a file that a shell opened to append to, which must not be truncated or replaced.
    name = os.path.normpath(path)
    found = DESCRIPTOR.fullmatch(name)
    return int(found[1]) if found else DESCRIPTORS.get(name)


def _find_target(path: Path) -> Path:
    """The file to write, after following links."""
    try:
        target = path.resolve()
        if target.parent.is_dir():
            return target
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a NUL
        raise InputError(f"{path} cannot be written: {error}") from error
    raise InputError(f"{path} cannot be written: the folder {target.parent} does not exist")


def _find_existing(
    target: Path, may_replace: Callable[[Path], None] | None
) -> os.stat_result | None:
    """The status of an existing file that may be replaced; None if there is no file."""
    try:
        existing = target.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(existing.st_mode):
        kind = REFUSED.get(stat.S_IFMT(existing.st_mode), "not a file")
        raise InputError(f"{target} cannot be written: it is {kind}. Choose another name")
    if may_replace is not None:
        may_replace(target)
    return existing


def _stem(target: Path) -> str:
    """The start of the names of all temporary siblings of a file."""
    name = os.fsencode(target.name)
    is_long = len(name) > LONGEST_NAME
    return f".{hashlib.sha256(name).hexdigest()[:32] if is_long else target.name}."


def _create_sibling(target: Path, mode: int) -> tuple[int, Path]:
    """A new file beside the target, open and locked."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    flags |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    while True:
        sibling = target.with_name(f"{_stem(target)}{secrets.token_hex(8)}.tmp")
        descriptor = os.open(sibling, flags, mode)
        _lock(descriptor, wait=True)
        # Until it was locked, another process may have removed it as abandoned.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(sibling)):
                return descriptor, sibling
        os.close(descriptor)


def _remove_abandoned(target: Path) -> None:
    """Remove temporary siblings whose writers were killed: those that nobody locks."""
    name = re.compile(re.escape(_stem(target)) + r"[0-9a-f]{16}\.tmp")
    for sibling in [file for file in os.listdir(target.parent) if name.fullmatch(file)]:
        with suppress(OSError):
            found = os.open(target.parent / sibling, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
            try:
                if stat.S_ISREG(os.fstat(found).st_mode) and _lock(found, wait=False):
                    os.unlink(target.parent / sibling)
            finally:
                os.close(found)


def _lock(descriptor: int, *, wait: bool) -> bool:
    """Lock an open file; False if another process holds the lock or the system has no locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _keep_owner_and_mode(descriptor: int, existing: os.stat_result) -> None:
    """Give a new file the owner, group and permissions of the one it replaces, where allowed."""
    if sys.platform == "win32":
        return
    with suppress(OSError):
        os.fchown(descriptor, existing.st_uid, existing.st_gid)
    with suppress(OSError):
        os.fchown(descriptor, -1, existing.st_gid)
    mode, now = stat.S_IMODE(existing.st_mode), os.fstat(descriptor)
    if now.st_gid != existing.st_gid:  # the new group gets no more rights than everybody
        mode &= ~0o070 | (mode & 0o007) << 3
    if (now.st_uid, now.st_gid) != (existing.st_uid, existing.st_gid):
        mode &= 0o777
    os.fchmod(descriptor, mode)


def _sync_folder(folder: Path) -> None:
    """Make names in a folder survive a power failure, on systems that can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
