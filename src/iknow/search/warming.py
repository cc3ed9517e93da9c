"""Warming up: compile search before anyone waits for it."""

from __future__ import annotations

import numpy as np

from iknow.search.cpu.cell_index import CellIndex
from iknow.search.cpu.dense_index import is_compiled
from iknow.search.cpu.hamming_index import HammingIndex

N_ROWS = 64  # more than one cell per class, so that there are cells of cells


def warm_up() -> None:
    """Compile the search for CPUs, or read the cached code, before the first request needs it.

    Without the extra `fast` it does nothing. Run it while you build an image, and each process
    finds its search compiled: `python -c "import iknow; iknow.warm_up()"`.

    Examples:
        >>> warm_up()
    """
    points = np.arange(2 * N_ROWS, dtype=np.float32).reshape(N_ROWS, 2)
    mapped = points.copy()
    mapped.flags.writeable = False  # like the arrays of a bundle
    for rows in (points, mapped):
        CellIndex(rows, np.arange(N_ROWS) // (N_ROWS // 2), 2).warm_up()
    if is_compiled():
        from iknow.search.cpu.deciding import DecidingSearch

        DecidingSearch(CellIndex(points, np.arange(N_ROWS) % 2, 2)).warm_up()
    for rows in (points, np.zeros_like(points)):  # looked up and compared
        HammingIndex(rows, np.arange(N_ROWS) // (N_ROWS // 2), 2).warm_up()
