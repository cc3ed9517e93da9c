"""How much memory is free, how much work fits into it, and giving pages of mapped files back."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

SHARE = 0.5  # of the free memory, for copies of rows
AROUND = 1 << 21
MAPPED_AT_ONCE = 1 << 26


def free_memory() -> int | None:
    """Bytes of memory available without swapping; None if unknown."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:  # includes reclaimable caches
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return None


def slices_that_fit(n_rows: int, bytes_per_row: int) -> list[slice]:
    """The fewest even slices of n_rows that each fit into a share of the free memory."""
    free = free_memory()
    most = n_rows if free is None else max(1, int(SHARE * free) // bytes_per_row)
    n_parts = max(1, -(-n_rows // most))
    return slices(n_rows, -(-n_rows // n_parts))


def slices(n: int, size: int) -> list[slice]:
    """Slices of `size`, but at least 1, that cover the first n items."""
    size = max(1, size)
    return [slice(start, min(start + size, n)) for start in range(0, n, size)]


def find_map(array: Any) -> mmap.mmap | None:
    """The read-only map of a file that holds an array's values; None if there is none."""
    owner = array
    while owner is not None and not isinstance(owner, mmap.mmap):
        owner = owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)
    return owner if owner is not None and memoryview(owner).readonly else None


def release(array: Any) -> None:
    """Give back the memory of an array in a mapped file, which is read again when it is used.

    Nothing happens to other arrays, nor to maps that may be written to: a private one would forget
    what was written.
    """
    found = find_map(array)
    if found is not None and hasattr(found, "madvise"):  # Windows has none
        found.madvise(mmap.MADV_DONTNEED)


def cut(array: Any, items: Any) -> list[slice]:
    """Slices of ascending positions in a mapped array that are safe to read before a `release`.

    However small an item is, Linux may map `AROUND` bytes around it.
    """
    if not len(items) or find_map(array) is None:
        return [slice(0, len(items))]
    gaps = np.diff(items.astype(np.int64), prepend=int(items[0])) * array.strides[0]
    touched = np.cumsum(np.minimum(gaps, AROUND) + array.strides[0]) // MAPPED_AT_ONCE
    cuts = (np.flatnonzero(np.diff(touched)) + 1).tolist()
    return [slice(*ends) for ends in pairwise([0, *cuts, len(items)])]


def take(array: Any, items: Any) -> Any:
    """A copy of some items, by ascending position; of a mapped array, little else is in memory."""
    taken = []
    for part in cut(array, items):
        taken.append(array[items[part]])
        release(array)
    return taken[0] if len(taken) == 1 else np.concatenate(taken)


def read_through(array: Any, step: int) -> Iterator[Any]:
    """Successive slices of `step` items; of a mapped file, only one is in memory at a time."""
    for part in slices(len(array), step):
        yield array[part]
        release(array)
