"""How much memory is free, and how much work fits into it."""

from __future__ import annotations

import os

SHARE = 0.5  # of the free memory, for copies of rows


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
    size = max(1, -(-n_rows // n_parts))
    return [slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]
