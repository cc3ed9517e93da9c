"""The folder for what can be made again, and files in it that can be trusted.

What is kept there may be code that is run when it is read. So a file counts only if nobody else can
have written it: it and its folder belong to this user, and neither group nor others may write them.
The folder is opened first and looked at then, and its files are opened through it: what is checked
is what is used, though a name may lead elsewhere a moment later.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_HAS_OWNERS = hasattr(os, "geteuid") and os.open in os.supports_dir_fd


class UnsafeError(Exception):
    """A file or folder that somebody else may have written."""


def user_cache() -> Path:
    """Iknow's folder where the system keeps what can be made again."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(chosen):  # the specification of this variable says to ignore a relative one
        base = Path(chosen)
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path.home() / ".cache"
    return base / "iknow"


def make_user_cache() -> Path:
    """The same, made for this user alone where it is missing, and refused if it is another's."""
    folder = user_cache()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    _check(folder, os.stat(folder))
    return folder


class TrustedFolder:
    """A folder of small files that only this user can have written.

    Its methods raise OSError where there is no such file or no room for it, and `UnsafeError` where
    the folder or the file is not to be trusted.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, name: str) -> bytes:
        """The content of a file, whole and as it was written."""
        with self._opened() as folder:
            descriptor = os.open(self._at(name), os.O_RDONLY | _NOFOLLOW, dir_fd=folder)
            with open(descriptor, "rb") as file:
                _check(self._path / name, os.fstat(descriptor))
                content = file.read()
        checksum, content = content[:32], content[32:]
        if hashlib.sha256(content).digest() != checksum:
            raise OSError(f"{self._path / name} is damaged")
        return content

    def write(self, name: str, content: bytes) -> None:
        """Write a file: whoever reads it finds all of it, or what was there before."""
        with self._opened(make=True) as folder:
            temporary = self._at(f"{name}.{uuid.uuid4().hex}")
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW
            try:
                with open(os.open(temporary, flags, 0o600, dir_fd=folder), "wb") as file:
                    file.write(hashlib.sha256(content).digest() + content)
                os.replace(temporary, self._at(name), src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary, dir_fd=folder)
                raise

    @contextmanager
    def _opened(self, *, make: bool = False) -> Iterator[int | None]:
        """The folder as a descriptor, where the system has such; it is checked."""
        if make:
            with suppress(FileExistsError):
                self._path.mkdir(mode=0o700)
        if not _HAS_OWNERS:
            yield None
            return
        descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | _NOFOLLOW)
        try:
            _check(self._path, os.fstat(descriptor))
            yield descriptor
        finally:
            os.close(descriptor)

    def _at(self, name: str) -> str:
        """How to call a file: by its name in the opened folder, or by its path without one."""
        return name if _HAS_OWNERS else str(self._path / name)


_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def _check(path: Path, status: os.stat_result) -> None:
    """Refuse what somebody else may have written."""
    if not _HAS_OWNERS:
        return
    if status.st_uid != os.geteuid():
        raise UnsafeError(
            f"{path} belongs to user {status.st_uid}, and this process runs as user {os.geteuid()}"
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UnsafeError(f"{path} can be written by others (mode {stat.filemode(status.st_mode)})")
