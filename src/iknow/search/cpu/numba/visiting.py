"""The order in which queries visit blocks of rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.core.arrays import Ints
from iknow.search.cpu.numba.compile import compiled


@compiled
def sort_by_block(best: Ints, first: int, last: int) -> Any:
    """The queries in the order of their blocks, which are first..last-1."""
    place = np.zeros(last - first + 1, dtype=np.int64)
    for block in best:
        place[block - first + 1] += 1
    for block in range(last - first):
        place[block + 1] += place[block]
    order = np.empty(len(best), dtype=np.int64)
    for i in range(len(best)):
        order[place[best[i] - first]] = i
        place[best[i] - first] += 1
    return order
