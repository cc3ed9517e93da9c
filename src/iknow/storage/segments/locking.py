"""The lock of a bundle: one writer at a time, in all processes. Readers never wait.

It is a lock on the file itself, which the system releases when its holder ends, however it ends.
Saving and compacting put another file in its place, so whoever waited looks whether it is still the
same one, and else waits for the new one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from iknow.errors import BundleError

PATIENCE = 120.0
"""Seconds to wait for another writer, which may compact a large bundle."""
PAUSE = 0.01


@contextmanager
def locked(path: Path) -> Iterator[int | None]:
    """Hold the lock of a file; gives a descriptor to write with, None if there is no file.

    Raises:
        BundleError: Another process has held the lock for too long.
    """
    descriptor = _acquire(path)
    try:
        yield descriptor
    finally:
        if descriptor is not None:
            os.close(descriptor)


def _acquire(path: Path) -> int | None:
    until = time.monotonic() + PATIENCE
    while (descriptor := _open(path)) is not None:
        try:
            if _try_to_lock(descriptor):
                if _is_same(descriptor, path):
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


def _open(path: Path) -> int | None:
    flags = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    for access in (os.O_RDWR, os.O_RDONLY):  # who may not write can still replace the file
        try:
            return os.open(path, access | flags)
        except (PermissionError, IsADirectoryError):
            continue
        except (OSError, ValueError):
            return None
    return None


def _try_to_lock(descriptor: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows: its writers exclude each other only by what they find changed
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _is_same(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
