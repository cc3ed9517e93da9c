"""Search with numpy alone: block by block, by matrix products, on all cores.

Rows are sorted by class and cut into small blocks. One float32 product bounds all distances from
below and keeps one minimum per block (`lower_bounds`). For each query and class we measure the
block with the lowest bound in float64, then every other block whose bound does not exceed the
distance found: usually none (`block_batch`). The result is exact, whatever float32 lost.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from iknow.core.arrays import Floats32
from iknow.core.evidence import Evidence
from iknow.search.cpu.block_batch import Batch
from iknow.search.cpu.lower_bounds import LowerBounds
from iknow.search.stored import StoredRows
from iknow.search.threads import for_each, n_cores

QUERIES_PER_TASK = 512
BYTES_FOR_MINIMA = 32 << 20


class BlockSearch:
    """Blocks of stored rows, searched with numpy."""

    def __init__(self, stored: StoredRows) -> None:
        # Not `stored` itself: a part of an index must be freed as soon as nobody refers to it.
        self.points, self.labels, self.rows = stored.points, stored.labels, stored.rows
        self.n_features, self.n_classes = stored.n_features, stored.n_classes
        self.block_size = size = _choose_block_size(stored)
        firsts, codes = stored.class_starts, range(stored.n_classes)
        starts = np.concatenate([np.arange(firsts[c], firsts[c + 1], size) for c in codes])
        ends = np.append(starts[1:], stored.n_rows)
        self.block_starts, self.block_ends = starts, ends
        found = np.searchsorted(starts, firsts).tolist()
        # The classes that have rows, with their blocks.
        self.class_blocks = [
            (c, slice(found[c], found[c + 1])) for c in codes if found[c] < found[c + 1]
        ]
        self.bounds = LowerBounds(self.points, starts, ends, size)

    def fill(self, queries: Floats32, evidence: Evidence) -> None:
        """Write the evidence about queries of shape (n_queries, n_features) into `evidence`."""
        # The slices of `evidence` are views: each task fills in its own queries.
        for_each(
            lambda part: Batch(self, queries[part]).fill(evidence[part]),
            self._parts(len(queries)),
        )

    def _parts(self, n_queries: int) -> Iterator[slice]:
        """Slices of queries that fit the memory budget, enough to keep all cores busy."""
        affordable = BYTES_FOR_MINIMA // (4 * len(self.block_starts))
        share = -(-n_queries // n_cores())
        size = max(1, min(QUERIES_PER_TASK, affordable, share))
        for start in range(0, n_queries, size):
            yield slice(start, start + size)


def _choose_block_size(stored: StoredRows) -> int:
    """Rows per block: small blocks cost minima to compare, large ones rows to measure.

    The optimum scales with the root of rows / (classes * features); the factor is measured.
    Blocks grow with the index so that the minima of a task stay within budget.
    """
    balance = 0.5 * np.sqrt(stored.n_rows / (stored.n_classes * stored.n_features))
    budget = stored.n_rows * 4 * QUERIES_PER_TASK / (2 * BYTES_FOR_MINIMA)
    smallest = min(4, max(1, stored.n_rows // stored.n_classes))
    return int(2 ** np.ceil(np.log2(max(balance, budget, smallest))))
