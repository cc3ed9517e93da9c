"""How search is compiled: on the first call of a function, unless an earlier process did it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba.core.compiler_lock import global_compiler_lock

from iknow.locking import fork_waits_for
from iknow.search.cpu.numba.cache import CompileCache

OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
FREE_SUMS = {"reassoc", "contract", "nsz", "arcp"}

# A child forked while another thread compiles could never compile anything itself.
fork_waits_for(global_compiler_lock)


def compiled(function: Callable[..., Any]) -> Any:
    """A function compiled on its first call; it releases Python's lock."""
    return _compile(function, OPTIONS)


def compiled_freely(function: Callable[..., Any]) -> Any:
    """Like `compiled`, for sums whose last bits do not matter: vector units may reorder them."""
    return _compile(function, {**OPTIONS, "fastmath": FREE_SUMS})


def compiled_bare(function: Callable[..., Any]) -> Any:
    """Like `compiled`, for inner functions that allocate nothing.

    numba does not count the references of their arrays, which can cost more than the work itself,
    so these may be passed in records. Whatever such a function calls must be like it.
    """
    return _compile(function, {**OPTIONS, "_nrt": False})


def inlined(function: Callable[..., Any]) -> Any:
    """A function compiled into each of its callers."""
    return numba.njit(function, inline="always", error_model="numpy")


def _compile(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    dispatcher: Any = numba.njit(function, **options)
    dispatcher._cache = CompileCache(function)
    return dispatcher
