"""A lock that one process holds, until it ends.

It is a lock on a file, released by the system when the process ends, even by SIGKILL. The file
stays behind, and says nothing. A forked child would share the lock and keep it beyond its parent's
end, so it closes its copy.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path

from iknow.core.text import shown
from iknow.errors import AuditError


class FileLock:
    """The lock on a file, acquired at once or not at all. of: what it protects, for the error."""

    def __init__(self, path: Path, of: str) -> None:
        self._descriptor: int | None = None
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise AuditError(
                f"{of} cannot be opened: {error.strerror}: {shown(str(path))}. Its folder must be "
                "writable"
            ) from error
        if not _lock(self._descriptor):
            self.release()
            raise AuditError(
                f"{of} is open for writing elsewhere: one process writes to a journal, others may "
                "read it. Stop the other one, or name another journal"
            )
        _held.add(self)

    def release(self) -> None:
        """Let others have it. Called twice, it does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


_held: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _lock(descriptor: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _release_in_child() -> None:
    for lock in list(_held):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)
