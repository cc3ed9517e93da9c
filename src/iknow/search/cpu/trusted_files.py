"""The cache folder, and files in it that can be trusted.

Reading a cached file may run code. So a file counts only if nobody else can have written it: it and
its folder belong to this user, and neither group nor others may write to them. We check the open
folder and open files through it, so we use what we checked even if its path changes meanwhile.
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
    """A file or folder that someone else may have written."""


def user_cache() -> Path:
    """Iknow's folder in the system's cache."""
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(chosen):  # the specification of this variable says to ignore relative paths
        base = Path(chosen)
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path.home() / ".cache"
    return base / "iknow"


def make_user_cache() -> Path:
    """The same folder, created for this user alone if missing, and refused if it is not theirs."""
    folder = user_cache()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    _check(folder, os.stat(folder))
    return folder


class TrustedFolder:
    """A folder of small files that only this user can have written.

    Its methods raise OSError if the file is missing or does not fit on the disk, and `UnsafeError`
    if the folder or the file cannot be trusted.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, name: str) -> bytes:
        """The content of a file, complete and as it was written."""
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
        """Write a file in one step: a reader finds all of it, or the previous content."""
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
        """The checked folder, as a descriptor if the system supports that."""
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
        """How to refer to a file: by name if the folder is open, else by path."""
        return name if _HAS_OWNERS else str(self._path / name)


_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def _check(path: Path, status: os.stat_result) -> None:
    """Refuse a file or folder that someone else may have written."""
    if not _HAS_OWNERS:
        return
    if status.st_uid != os.geteuid():
        owner, user = status.st_uid, os.geteuid()
        raise UnsafeError(f"{path} belongs to user {owner}; this process runs as user {user}")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UnsafeError(f"others can write to {path} (mode {stat.filemode(status.st_mode)})")
