"""How search is compiled: once for a machine, then read from a folder.

numba keeps what it compiled and looks whether a function's own file has changed since. The
functions here are compiled into each other across files, so the folder's name says what was in all
of them: code that has changed is never mixed with what was compiled before.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

from iknow.caching import user_cache

config: Any = numba.config  # its names are made when it is loaded
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
FREE_SUMS = {"reassoc", "contract", "nsz", "arcp"}


def compiled(function: Callable[..., Any]) -> Any:
    """A function compiled when it is first called; it does not hold Python's lock."""
    return _compile(function, OPTIONS)


def compiled_freely(function: Callable[..., Any]) -> Any:
    """As `compiled`, for sums whose last bits do not matter: the vector units may reorder them."""
    return _compile(function, {**OPTIONS, "fastmath": FREE_SUMS})


def inlined(function: Callable[..., Any]) -> Any:
    """A function compiled into each place that calls it."""
    return numba.njit(function, inline="always", error_model="numpy")


def _compile(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    before = config.CACHE_DIR
    # A folder that was chosen for numba is kept to; numba makes room below it as it does here.
    config.CACHE_DIR = str((Path(before) if before else user_cache()) / _FOLDER)
    try:
        return numba.njit(function, cache=True, **options)
    except RuntimeError:  # there is no place to keep anything: it is compiled in each process
        return numba.njit(function, **options)
    finally:
        config.CACHE_DIR = before


def _name_folder() -> str:
    digest = hashlib.sha256(numba.__version__.encode())
    for file in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    return f"compiled-{digest.hexdigest()[:16]}"


_FOLDER = _name_folder()
