"""PanelSearch: search compiled for the CPU, over rows packed in panels."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from iknow.core.arrays import Floats32, Ints
from iknow.core.evidence import NO_EXEMPLAR, Evidence
from iknow.search.cpu.numba.kernels import gather_batch
from iknow.search.cpu.numba.records import Blocks, Pack, Queries
from iknow.search.cpu.numba.vectors import QUERIES_AT_ONCE
from iknow.search.cpu.packed import PackedRows
from iknow.search.index import RowIndex
from iknow.search.threads import n_cores, share

BYTES_FOR_MINIMA = 128 << 20
"""Memory for the minima of all batches in flight, in total."""
QUERIES_PER_BATCH = 85 * QUERIES_AT_ONCE
FEWEST_PER_BATCH = 64 * QUERIES_AT_ONCE


class PanelSearch:
    """Stored rows packed for compiled search.

    order: positions of the rows in packing order, class by class; by default as stored.
    """

    def __init__(self, stored: RowIndex, order: Ints | None = None) -> None:
        points, rows = np.ascontiguousarray(stored.points), np.asarray(stored.rows)
        order = np.arange(len(points)) if order is None else order
        self.packed = packed = PackedRows(points, stored.class_starts, order)
        arrays = packed.panels.reshape(-1), packed.slots, read_only(points), read_only(rows)
        self.pack = Pack(*arrays, packed.scale, packed.error, packed.underflow)
        self.blocks = cut_blocks(packed.class_panels, balanced_size(packed))

    def fill(self, queries: Floats32, evidence: Evidence) -> None:
        """Write the evidence about queries of shape (n_queries, n_features) into `evidence`."""

        def work(part: slice) -> None:
            own = evidence[part]  # views
            # Class by class, as they are searched.
            distances = np.full((own.n_classes, len(own), own.per_class), np.inf)
            numbers = np.full(distances.shape, NO_EXEMPLAR, dtype=np.int64)
            batch = self.place(queries[part])
            gather_batch(self.pack, self.blocks, batch, distances, numbers, own.neighbor_distances)
            own.class_distances[:], own.exemplars[:] = distances[:, :, 0].T, numbers[:, :, 0].T
            own.further_distances[:] = distances[:, :, 1:].transpose(1, 0, 2)
            own.further_exemplars[:] = numbers[:, :, 1:].transpose(1, 0, 2)

        share(work, self.batches(len(queries)))

    def place(self, queries: Floats32) -> Queries:
        """A batch of queries as the compiled functions take it."""
        points, squared = self.packed.place(queries)
        return Queries(read_only(queries), points, squared)

    def batches(self, n_queries: int) -> list[slice]:
        """Slices of queries that fit the memory set aside, enough to keep all cores busy."""
        return batches_of(n_queries, self.blocks)


def batches_of(n_queries: int, blocks: Blocks) -> list[slice]:
    """Slices of queries whose minima fit the memory set aside, enough to keep all cores busy."""
    n_blocks = max(1, len(blocks.starts) - 1)
    affordable = BYTES_FOR_MINIMA // (n_cores() * 4 * n_blocks)
    size = max(1, min(QUERIES_PER_BATCH, affordable))
    return list(cut_evenly(n_queries, size))


def cut_evenly(n: int, most: int) -> Iterator[slice]:
    """Slices of similar size, at most `most`, in a number that the cores can share evenly."""
    n_parts = min(n, -(-n // (most * n_cores())) * n_cores())
    size = max(1, -(-n // max(1, n_parts)))
    # Whole groups of queries go through the vector units together.
    size = -(-size // QUERIES_AT_ONCE) * QUERIES_AT_ONCE if size > QUERIES_AT_ONCE else size
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def balanced_size(packed: PackedRows) -> int:
    """Panels per block where every class is searched.

    Small blocks mean more minima to compare and large ones more rows to measure, which takes about
    as long per feature as a comparison: the root balances the two.
    """
    n_panels, n_classes = int(packed.class_panels[-1]), len(packed.class_panels) - 1
    return round(math.sqrt(n_panels / (max(1, n_classes) * packed.n_features)))


def cut_blocks(class_panels: Ints, size: int) -> Blocks:
    """Blocks of `size` panels of one class each, or of more if the index is so large that the
    minima of enough queries would not fit the memory set aside.
    """
    most = BYTES_FOR_MINIMA // (n_cores() * 4 * FEWEST_PER_BATCH)
    size = max(1, size, -(-int(class_panels[-1]) // most))
    n_blocks = -(-np.diff(class_panels) // size)
    classes = np.concatenate([[0], np.cumsum(n_blocks)]).astype(np.int64)
    number = np.arange(classes[-1]) - np.repeat(classes[:-1], n_blocks)
    starts = np.repeat(class_panels[:-1], n_blocks) + number * size
    return Blocks(np.append(starts, class_panels[-1]).astype(np.int64), classes)


def read_only(array: Any) -> Any:
    """A read-only view, so that arrays in memory and mapped ones have the same type."""
    view = array.view(np.ndarray)[:]
    view.flags.writeable = False
    return view
