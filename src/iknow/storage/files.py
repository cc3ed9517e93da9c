"""Writing a file in one step, and the lock of a file: all of it, or nothing; one writer at a time.

**In one step**: the content goes to a temporary sibling, which replaces the file once it is on
disk. Readers see the old file or the new one, never a part. A killed process leaves its sibling
behind, and the next writer of the same file removes it. It spares those of running writers: each
writer locks its own. Devices such as /dev/null, pipes, and open descriptors such as /dev/stdout are
not replaced: the content is written into them once it is complete.

**The lock** is on the file itself, for all processes, and the system releases it when its holder
ends, however it ends. Readers never wait. A writer may put another file in the place of the locked
one, so whoever waited checks that it is still the same file, and else waits for the new one. A
lock belongs to a file, not to its name: a file with two names would be written by the one and
replaced by the other, so whoever changes it in place asks for a file with one name.
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
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from iknow.errors import BundleError, InputError

HELD_IN_MEMORY = 1 << 26
"""Bytes for a stream to collect in memory; more go to a temporary file."""
LONGEST_NAME = 200
"""Bytes of a file's name that its sibling repeats: most systems allow 255 in total."""
PATIENCE = 120.0
"""Seconds to wait for another writer, which may compact a large bundle."""
PAUSE = 0.01
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
        with os.fdopen(descriptor, "w+b") as file:
            if existing is not None:
                _keep_owner_and_mode(file.fileno(), existing)
            yield file
            file.flush()
            os.fsync(file.fileno())
            _find_existing(target, may_replace)
            if sys.platform == "win32":
                file.close()  # Windows cannot rename open files; elsewhere we keep the lock
            os.replace(temporary, target)
        sync_folder(target.parent)
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
def locked(path: Path, *, in_place: bool = False) -> Iterator[int | None]:
    """Hold the lock of a file; gives a descriptor to write with, None if there is no file.

    in_place: whether the file is to be changed where it lies, and so may have only one name.

    Raises:
        BundleError: Another process has held the lock for too long, or the file has two names.
    """
    descriptor = _acquire(path)
    try:
        if in_place and descriptor is not None and (n := os.fstat(descriptor).st_nlink) > 1:
            raise BundleError(
                f"{path} has {n} names (hard links), and a change by one of them could be lost by "
                "the other: remove the others, or change a copy"
            )
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def lock(descriptor: int, *, wait: bool) -> bool | None:
    """Lock an open file; False if another process holds the lock, None if the system has none."""
    try:
        import fcntl
    except ImportError:  # Windows: its writers exclude each other only by what they find changed
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return None
    return True


def _acquire(path: Path) -> int | None:
    until = time.monotonic() + PATIENCE
    while (descriptor := _open_to_lock(path)) is not None:
        try:
            if lock(descriptor, wait=False) is not False:
                if _is_at(descriptor, path):
                    return descriptor
            elif time.monotonic() > until:
                raise BundleError(
                    f"{path} is being changed by another process for {PATIENCE:g} s: try again"
                )
            else:
                time.sleep(PAUSE)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    return None


def _open_to_lock(path: Path) -> int | None:
    flags = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    for access in (os.O_RDWR, os.O_RDONLY):  # who may not write can still replace the file
        try:
            return os.open(path, access | flags)
        except (PermissionError, IsADirectoryError):
            continue
        except (OSError, ValueError):
            return None
    return None


def _is_at(descriptor: int, path: Path) -> bool:
    """Whether a path still leads to an open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


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
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL
    flags |= getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    while True:
        sibling = target.with_name(f"{_stem(target)}{secrets.token_hex(8)}.tmp")
        descriptor = os.open(sibling, flags, mode)
        lock(descriptor, wait=True)
        # Until it was locked, another process may have removed it as abandoned.
        if _is_at(descriptor, sibling):
            return descriptor, sibling
        os.close(descriptor)


def _remove_abandoned(target: Path) -> None:
    """Remove temporary siblings whose writers were killed: those that nobody locks."""
    name = re.compile(re.escape(_stem(target)) + r"[0-9a-f]{16}\.tmp")
    for sibling in [file for file in os.listdir(target.parent) if name.fullmatch(file)]:
        with suppress(OSError):
            found = os.open(target.parent / sibling, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
            try:
                if stat.S_ISREG(os.fstat(found).st_mode) and lock(found, wait=False):
                    os.unlink(target.parent / sibling)
            finally:
                os.close(found)


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


def sync_folder(folder: Path) -> None:
    """Make names in a folder survive a power failure, on systems that can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
