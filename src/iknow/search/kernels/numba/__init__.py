"""What numba compiles for search, with the extra `fast`."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

from iknow.errors import warn
from iknow.locking import unforked


@cache
def is_compiled() -> bool:
    """Whether search is compiled: the extra `fast` is installed and works."""
    if find_spec("numba") is None:
        return False
    try:
        with unforked():
            import iknow.search.kernels.numba.search  # noqa: F401
    except Exception as error:  # numba refuses a new numpy, or its library fails to load
        warn(f"numba cannot be loaded, so search is not compiled and slower: {error}")
        return False
    return True
