"""Compiled functions, kept for the next process.

numba's own cache stops the program when the disk is full or a file is damaged, and runs any file it
finds, no matter who wrote it. Here a file that cannot be read, written, trusted or understood
counts as missing, and the function is compiled again, in memory. Each function and signature has
its own file, named after the function and the processor.
"""

from __future__ import annotations

import hashlib
import pickle
import sys
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
from numba.core import serialize
from numba.core.caching import CompileResultCacheImpl, NullCache

from iknow.search.cpu.trusted_files import TrustedFolder, UnsafeError, make_user_cache

SEARCH = Path(__file__).parents[2]

config: Any = numba.config  # its attributes are created on import


class CompileCache(NullCache):
    """The compiled versions of a function by signature, with the interface numba expects."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = f"{function.__module__}.{function.__qualname__}"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The version compiled for a signature, or None."""
        target_context.refresh()
        try:
            content = _folder().read(self._file(sig, target_context.codegen()))
            return _KIND.rebuild(target_context, pickle.loads(content))
        except UnsafeError as error:
            _warn_once(str(error))
        except Exception:  # whatever is wrong with a file, compiling replaces it
            pass
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep the version compiled for a signature, if possible."""
        try:
            if _KIND.check_cachable(data):
                content = _PICKLE.dumps(_KIND.reduce(data))
                _folder().write(self._file(sig, data.codegen), content)
        except UnsafeError as error:
            _warn_once(str(error))
        except Exception:  # a full disk, no home, a read-only folder
            pass

    def _file(self, sig: Any, codegen: Any) -> str:
        key = f"{self._function} {sig} {codegen.magic_tuple()}"
        name = self._function.rpartition(".")[2]
        return f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:32]}"


_PICKLE: Any = serialize  # it is untyped
_KIND: Any = object.__new__(CompileResultCacheImpl)
"""How numba packs compiled functions, without its search for a place to keep them."""


def _folder() -> TrustedFolder:
    # Respect a folder chosen for numba.
    base = Path(config.CACHE_DIR) if config.CACHE_DIR else make_user_cache()
    return TrustedFolder(base / _name_folder())


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
    warnings.warn(
        f"compiled search cannot be cached, so each process compiles it again: {reason}. iknow "
        "does not run code that someone else may have written: remove it, make it writable by you "
        "alone (chown, chmod go-w), or set XDG_CACHE_HOME to another folder",
        stacklevel=2,
    )
