"""How search is compiled: on the first call of a function, unless an earlier process did it.

numba's own cache stops the program when the disk is full or a file is damaged, and runs any file it
finds, no matter who wrote it. Here a file that cannot be read, written, trusted or understood
counts as missing, and the function is compiled again, in memory. Each function and signature has
its own file, named after the function and the processor.

Reading such a file may run code. So it counts only if nobody else can have written it: it and its
folder belong to this user, and neither group nor others may write to them. We check the open folder
and open files through it, so we use what we checked even if its path changes meanwhile.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import stat
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core import serialize
from numba.core.caching import CompileResultCacheImpl, NullCache
from numba.core.compiler_lock import global_compiler_lock

from iknow.errors import warn
from iknow.locking import fork_waits_for

SEARCH = Path(__file__).parents[2]

config: Any = numba.config  # its attributes are created on import
_HAS_OWNERS = hasattr(os, "geteuid") and os.open in os.supports_dir_fd
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
_PICKLE: Any = serialize  # it is untyped
_KIND: Any = object.__new__(CompileResultCacheImpl)
"""How numba packs compiled functions, without its search for a place to keep them."""

# A child forked while another thread compiles could never compile anything itself.
fork_waits_for(global_compiler_lock)


def compiled(function: Callable[..., Any], **options: Any) -> Any:
    """A function compiled on its first call; it releases Python's lock."""
    dispatcher: Any = numba.njit(function, nogil=True, error_model="numpy", **options)
    dispatcher._cache = CompileCache(function)
    return dispatcher


compiled_freely = partial(compiled, fastmath={"reassoc", "contract", "nsz", "arcp"})
"""Like `compiled`, for sums whose last bits do not matter: vector units may reorder them."""
compiled_bare = partial(compiled, _nrt=False)
"""Like `compiled`, for inner functions that allocate nothing.

numba does not count the references of their arrays, which can cost more than the work itself, so
these may be passed in records. Whatever such a function calls must be like it.
"""


def inlined(function: Callable[..., Any]) -> Any:
    """A function compiled into each of its callers."""
    return numba.njit(function, inline="always", error_model="numpy")


class UnsafeError(Exception):
    """A file or folder that someone else may have written."""


class CompileCache(NullCache):
    """The compiled versions of a function by signature, with the interface numba expects."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = f"{function.__module__}.{function.__qualname__}"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The version compiled for a signature, or None."""
        target_context.refresh()
        with _tolerant():
            content = read_file(_folder(), self._file(sig, target_context.codegen()))
            return _KIND.rebuild(target_context, pickle.loads(content))
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the version compiled for a signature, if possible."""
        with _tolerant(saving=True):
            if _KIND.check_cachable(data):
                content = _PICKLE.dumps(_KIND.reduce(data))
                write_file(_folder(), self._file(sig, data.codegen), content)

    def _file(self, sig: Any, codegen: Any) -> str:
        key = f"{self._function} {sig} {codegen.magic_tuple()}"
        name = self._function.rpartition(".")[2]
        return f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:32]}"


@contextmanager
def _tolerant(*, saving: bool = False) -> Iterator[None]:
    """Go on without the cache, whatever is wrong: a damaged file, a full disk, no home.

    Compiling replaces a file that cannot be read; one that cannot be written is told.
    """
    try:
        yield
    except UnsafeError as error:
        _warn_once(
            f"{error}. iknow does not run code that someone else may have written: remove it, make "
            "it writable by you alone (chown, chmod go-w), or set XDG_CACHE_HOME to another folder"
        )
    except Exception as error:
        if saving:  # without the path, which differs from file to file
            where = f"NUMBA_CACHE_DIR={config.CACHE_DIR}: " if config.CACHE_DIR else ""
            _warn_once(
                f"{where}{getattr(error, 'strerror', None) or error}. Set NUMBA_CACHE_DIR or "
                "XDG_CACHE_HOME to a folder that you can write to, with room for 100 MB"
            )


def read_file(folder: Path, name: str) -> bytes:
    """The content of a file, complete and as it was written by this user alone.

    OSError if it is missing or damaged, `UnsafeError` if someone else may have written it.
    """
    with _opened(folder) as (at, opened):
        descriptor = os.open(at / name, os.O_RDONLY | _NOFOLLOW, dir_fd=opened)
        with open(descriptor, "rb") as file:
            _check(folder / name, os.fstat(descriptor))
            content = file.read()
    checksum, content = content[:32], content[32:]
    if hashlib.sha256(content).digest() != checksum:
        raise OSError(f"{folder / name} is damaged")
    return content


def write_file(folder: Path, name: str, content: bytes) -> None:
    """Write a file in one step: a reader finds all of it, or the previous content."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    with _opened(folder) as (at, opened):
        temporary = at / f"{name}.{uuid.uuid4().hex}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NOFOLLOW
        try:
            with open(os.open(temporary, flags, 0o600, dir_fd=opened), "wb") as file:
                file.write(hashlib.sha256(content).digest() + content)
            os.replace(temporary, at / name, src_dir_fd=opened, dst_dir_fd=opened)
        finally:
            with suppress(OSError):  # it is there only if something failed
                os.unlink(temporary, dir_fd=opened)


@contextmanager
def _opened(folder: Path) -> Iterator[tuple[Path, int | None]]:
    """The path to files of a checked folder, from its descriptor if the system supports that."""
    if not _HAS_OWNERS:
        yield folder, None
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | _NOFOLLOW)
    try:
        _check(folder, os.fstat(descriptor))
        yield Path(), descriptor
    finally:
        os.close(descriptor)


def _check(path: Path, status: os.stat_result) -> None:
    """Refuse a file or folder that someone else may have written."""
    if not _HAS_OWNERS:
        return
    owner, user = status.st_uid, os.geteuid()
    if owner != user:
        raise UnsafeError(f"{path} belongs to user {owner}; this process runs as user {user}")
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise UnsafeError(f"others can write to {path} (mode {stat.filemode(status.st_mode)})")


def user_cache() -> Path:
    """Iknow's folder in the system's cache."""
    chosen = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if not chosen.is_absolute():  # the specification of this variable says to ignore relative paths
        usual = {"darwin": "Library/Caches", "win32": "AppData/Local"}
        chosen = Path.home() / usual.get(sys.platform, ".cache")
        if sys.platform == "win32":
            chosen = Path(os.environ.get("LOCALAPPDATA") or chosen)
    return chosen / "iknow"


def _folder() -> Path:
    """The folder of these sources, in the one chosen for numba or in a trusted one of ours."""
    if config.CACHE_DIR:
        Path(config.CACHE_DIR).mkdir(parents=True, exist_ok=True)  # as numba does
        return Path(config.CACHE_DIR) / _name_folder()
    base = user_cache()
    base.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        base.mkdir(mode=0o700)
    _check(base, os.stat(base))
    return base / _name_folder()


@cache
def _name_folder() -> str:
    """The folder's name encodes all sources, as functions are compiled into each other."""
    versions = numba.__version__, llvmlite.__version__, np.__version__, sys.version
    digest = hashlib.sha256(repr(versions).encode())
    for file in sorted(SEARCH.rglob("*.py")):
        digest.update(file.read_bytes())
    return f"compiled-{digest.hexdigest()[:16]}"


@cache
def _warn_once(reason: str) -> None:
    warn(f"compiled search cannot be cached, so each process compiles it again: {reason}")
