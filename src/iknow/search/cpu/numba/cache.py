"""What was compiled, kept for the next process: a cache, and nothing but a cache.

numba's own stops the program when the disk is full or a file is damaged, and runs what it finds
whoever put it there. Here a file that cannot be read, written, trusted or understood is one that is
not there: the function is compiled again, in memory.

Each function and signature has a file, whose name says what it is, for which processor, and what
all of the sources were.
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

config: Any = numba.config  # its names are made when it is loaded


class CompileCache(NullCache):
    """The compiled versions of a function, by signature, as numba's dispatchers ask for them."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = f"{function.__module__}.{function.__qualname__}"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What was compiled for a signature, or None."""
        target_context.refresh()
        try:
            content = _folder().read(self._file(sig, target_context.codegen()))
            return _KIND.rebuild(target_context, pickle.loads(content))
        except UnsafeError as error:
            _warn_once(str(error))
        except Exception:  # whatever is wrong with a file, its place is taken by compiling
            pass
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep what was compiled for a signature, if there is a place for it."""
        try:
            if _KIND.check_cachable(data):
                content = _PICKLE.dumps(_KIND.reduce(data))
                _folder().write(self._file(sig, data.codegen), content)
        except UnsafeError as error:
            _warn_once(str(error))
        except Exception:  # a full disk, no home, a folder that is read-only
            pass

    def _file(self, sig: Any, codegen: Any) -> str:
        key = f"{self._function} {sig} {codegen.magic_tuple()}"
        name = self._function.rpartition(".")[2]
        return f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:32]}"


_PICKLE: Any = serialize  # which is not typed
_KIND: Any = object.__new__(CompileResultCacheImpl)
"""How numba packs what it compiled; its search for a place to keep it is left out."""


def _folder() -> TrustedFolder:
    # A folder that was chosen for numba is kept to.
    base = Path(config.CACHE_DIR) if config.CACHE_DIR else make_user_cache()
    return TrustedFolder(base / _name_folder())


@cache
def _name_folder() -> str:
    """The folder's name says what was in all sources: functions are compiled into each other.

    Code that has changed is never mixed with what was compiled before.
    """
    versions = numba.__version__, llvmlite.__version__, np.__version__, sys.version
    digest = hashlib.sha256(repr(versions).encode())
    for file in sorted(SEARCH.rglob("*.py")):
        digest.update(file.read_bytes())
    return f"compiled-{digest.hexdigest()[:16]}"


@cache
def _warn_once(reason: str) -> None:
    warnings.warn(
        f"compiled search is not kept, and compiled again by each process: {reason}. Code that "
        "somebody else may have put there is not run: remove it, make it yours and yours alone to "
        "write (chown, chmod go-w), or let XDG_CACHE_HOME name another folder",
        stacklevel=2,
    )
