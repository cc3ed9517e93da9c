"""The m nearest rows of each class, for a batch of queries against blocks of rows.

m promising blocks of a class hold m rows at least, or all of them. Of their rows we measure those
whose bounds are about as low as the m-th lowest: nearly always just m. The m-th distance found is
an upper bound, and the blocks that may hold a nearer row are measured too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from iknow.core.arrays import Bools, Floats, Floats32, Ints
from iknow.search.cpu.ranking import choose_blocks, positions

if TYPE_CHECKING:
    from iknow.search.cpu.block_batch import Batch


def find_few(batch: Batch, m: int) -> tuple[Floats, Ints]:
    """Distances and rows of the m nearest, both of shape (n_queries, n_classes, m); inf and -1."""
    shape = len(batch.queries), batch.index.n_classes, m
    distance, row = np.full(shape, np.inf), np.full(shape, -1)
    done = np.zeros(batch.minima.shape, dtype=bool)
    limits = []
    for code, blocks in batch.index.class_blocks:
        # Ascending, so that of equally near rows the lowest comes first.
        block = np.sort(blocks.start + choose_blocks(batch.minima[blocks], m), axis=0)
        nearest, found, guess = _look_into(batch, block.T, m)
        limit = batch.index.bounds.to_bound(nearest[:, -1], batch.half_norms)
        # Where rounding leaves a doubt, or float32 overflows, every block within the limit is new.
        sure = limit <= guess
        done[block[:, sure], np.flatnonzero(sure)] = True
        distance[sure, code], row[sure, code] = nearest[sure], found[sure]
        limits.append(limit)
    remaining = batch.blocks_within(limits)
    np.greater(remaining, done, out=remaining)
    _rank(batch, distance, row, remaining)
    return distance, row


def _look_into(batch: Batch, block: Ints, m: int) -> tuple[Floats, Ints, Floats32]:
    """The m nearest rows in blocks of shape (n_queries, n) whose bounds are within a guess.

    Distances and rows of shape (n_queries, m), and the guess, of shape (n_queries,).
    """
    index, n_queries = batch.index, len(block)
    query = np.repeat(np.arange(n_queries), block.shape[1])
    bounds = index.bounds.row_bounds(batch.placed, query, block.ravel()).reshape(n_queries, -1)
    lowest = np.full(n_queries, np.inf, dtype=np.float32)
    if m <= bounds.shape[1]:
        lowest = np.partition(bounds, m - 1, axis=1)[:, m - 1]
    guess = index.bounds.guess(lowest, batch.half_norms)
    query, column = positions(bounds <= guess[:, None])
    number, place = np.divmod(column, index.block_size)
    rows = index.block_starts[block[query, number]] + place
    exists = rows < index.block_ends[block[query, number]]
    query, rows = query[exists], rows[exists]
    measured = batch.measure_rows(query, rows)
    order = np.lexsort((measured, query))  # stable: of equals the lowest row stays first
    first = np.searchsorted(query, np.arange(n_queries))
    rank = np.arange(len(query)) - first[query]
    order, rank = order[rank < m], rank[rank < m]
    nearest, found = np.full((n_queries, m), np.inf), np.full((n_queries, m), -1)
    nearest[query[order], rank], found[query[order], rank] = measured[order], rows[order]
    return nearest, found, guess


def _rank(batch: Batch, distance: Floats, row: Ints, marked: Bools) -> None:
    """Measure the marked blocks and rank their rows among the m nearest so far, in place."""
    block, query = positions(marked)
    measured = batch.measure(query, block)
    code = batch.index.labels[batch.index.block_starts[block]]
    near, place = np.nonzero((measured <= distance[query, code, -1, None]) & np.isfinite(measured))
    pair = query[near] * distance.shape[1] + code[near]
    rivals = np.unique(pair)
    m = distance.shape[2]
    flat_distance, flat_row = distance.reshape(-1, m), row.reshape(-1, m)
    pairs = np.concatenate([np.repeat(rivals, m), pair])
    distances = np.concatenate([flat_distance[rivals].ravel(), measured[near, place]])
    rows = batch.index.block_starts[block[near]] + place
    rows = np.concatenate([flat_row[rivals].ravel(), rows])
    order = np.lexsort((rows, distances, pairs))
    first = np.searchsorted(pairs[order], rivals)
    chosen = order[first[:, None] + np.arange(m)]
    flat_distance[rivals], flat_row[rivals] = distances[chosen], rows[chosen]
