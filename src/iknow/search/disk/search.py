"""DiskSearch: block by block, each read once for all queries that need it.

First every query looks at the blocks whose centers are nearest: that limits how far it still has to
look. Then we go through all blocks in the order of the file. By the triangle inequality, a block
with center c and radius R holds no row within ρ of a query q if |q - c| > ρ + R, and products of
centers bound |q - c| from below (`lower_bounds`). The blocks that some query needs are read, and
their codes rule out most rows (`scanning`). The few rows left are read themselves, and measured.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from iknow.core.arrays import Bools, Floats, Floats32, Ints
from iknow.core.codes import NO_BELIEF
from iknow.core.evidence import Evidence
from iknow.core.quorum import Quorum
from iknow.search.disk.coded_rows import Chunk, CodedRows
from iknow.search.disk.coding import ROUND_UP
from iknow.search.disk.hunt import Hunt
from iknow.search.disk.scanning import Finds, Loaded, load, scan
from iknow.search.index import RowIndex
from iknow.search.kernels.numpy import positions
from iknow.search.threads import n_cores, share, single_threaded_blas

QUERIES_AT_ONCE = 4096
QUERIES_PER_LANE = 256
BYTES_READ_AT_ONCE = 1 << 24
NEAREST_FIRST = 2  # blocks of each class, or of all others if only the nearest class matters


class Lane:
    """Some queries of a batch, which one core answers."""

    def __init__(self, coded: CodedRows, queries: Floats32, hunt: Hunt, n_first: int) -> None:
        self.coded, self.queries, self.hunt = coded, queries, hunt
        shape = len(queries), hunt.limits.shape[1], n_first
        self._near: Floats = np.full(shape, np.inf)
        self._first: Ints = np.full(shape, -1)
        self.pairs: Ints = np.empty((0, 2), dtype=np.int64)
        self.finds = Finds(int(np.diff(coded.starts).max()))

    def rank(self, chunk: Chunk) -> None:
        """Note the blocks of each wanted class whose centers are nearest."""
        placed, _ = chunk.bounds.place(self.queries)
        minima = chunk.bounds.block_minima(placed)
        every = np.arange(len(self.queries))
        for code, blocks in chunk.classes:
            asked = np.flatnonzero(self.hunt.limits[:, code] >= 0)
            if not len(asked):
                continue
            n = min(self._near.shape[2], blocks.stop - blocks.start)
            found = minima[blocks] if len(asked) == len(every) else minima[blocks][:, asked]
            lowest = np.argpartition(found, n - 1, axis=0)[:n].T + blocks.start + chunk.blocks.start
            away = self.coded.centers[lowest].astype(np.float64) - self.queries[asked, None]
            near = np.concatenate([self._near[asked, code], np.linalg.norm(away, axis=2)], axis=1)
            first = np.concatenate([self._first[asked, code], lowest], axis=1)
            order = np.argsort(near, axis=1, kind="stable")[:, : self._near.shape[2]]
            self._near[asked, code] = np.take_along_axis(near, order, axis=1)
            self._first[asked, code] = np.take_along_axis(first, order, axis=1)

    def begin(self, *, nearest_class_only: bool) -> Ints:
        """The blocks to look at first, as pairs of a block and a query, ascending by block."""
        n, _, n_first = self._near.shape
        if nearest_class_only:
            near, first = self._near.reshape(n, -1), self._first.reshape(n, -1)
            order = np.argsort(near, axis=1, kind="stable")[:, n_first:]
            np.put_along_axis(first, order, -1, axis=1)
        query, code, place = np.nonzero(self._first >= 0)
        block = self._first[query, code, place]
        order = np.lexsort((query, block))
        return np.stack([block[order], query[order]], axis=1)

    def select(self, chunk: Chunk) -> Ints:
        """The blocks of a chunk that may hold a row that matters, except those looked at before."""
        placed, half_norms = chunk.bounds.place(self.queries)
        minima = chunk.bounds.block_minima(placed)
        marked: Bools = np.zeros(minima.shape, dtype=bool)
        radii = self.coded.radii[chunk.blocks]
        for code, blocks in chunk.classes:
            reach = self.hunt.reach(code)
            asked = reach >= 0
            if not asked.any():
                continue
            furthest = (reach + radii[blocks, None]) * ROUND_UP
            limits = chunk.bounds.to_bound(furthest, half_norms)
            np.logical_and(minima[blocks] <= limits, asked, out=marked[blocks])
        first = self._first.reshape(len(self.queries), -1)
        query, place = np.nonzero((first >= chunk.blocks.start) & (first < chunk.blocks.stop))
        marked[first[query, place] - chunk.blocks.start, query] = False
        block, query = positions(marked)
        return np.stack([block + chunk.blocks.start, query], axis=1)

    def scan(self, loaded: Loaded, pairs: Ints, stored: RowIndex) -> None:
        """Compare pairs of a loaded block and a query, and measure what may matter."""
        at = 0
        while at < len(pairs):
            at = scan(loaded, self.queries, pairs, at, self.hunt, self.finds)
            if at < len(pairs):
                self.measure(stored)

    def measure(self, stored: RowIndex) -> None:
        """Measure the rows found so far that may still matter."""
        n = int(self.finds.count[0])
        query, slot = self.finds.pairs[:n].T
        position = self.coded.positions[slot].astype(np.int64)
        self.hunt.measure(stored, self.queries, query, position, self.finds.bounds[:n])
        self.finds.count[0] = 0


class DiskSearch:
    """Searches stored rows by their coded blocks."""

    def __init__(self, stored: RowIndex, coded: CodedRows) -> None:
        self._stored, self._coded = stored, coded

    def gather(self, queries: Floats32, k: int, per_class: int) -> Evidence:
        """Evidence about queries of shape (n, n_features)."""
        wanted = np.ones((len(queries), self._stored.n_classes), dtype=bool)
        hunt = Hunt(wanted, per_class, k)
        self._run(queries, hunt, nearest_class_only=False)
        return hunt.evidence()

    def decide(
        self, queries: Floats32, belief: Ints, quorum: Quorum, horizon: tuple[float, float]
    ) -> tuple[Floats, Ints]:
        """Truncated distances as a quorum counts them, (n, n_classes), and the exemplars, (n,).

        They are inf beyond all that matters: see `iknow.core.decision`. The exemplars are the
        nearest rows of the believed class, of shape (n,).
        """
        every = np.arange(len(queries))
        believed = (belief[:, None] == np.arange(self._stored.n_classes)) & (belief >= 0)[:, None]
        own = Hunt(believed, quorum[0])
        self._run(queries, own, nearest_class_only=False)
        near = np.where(belief == NO_BELIEF, np.inf, own.distances[every, belief, -1])
        reach = np.maximum(horizon[0], horizon[1] * np.where(np.isinf(near), 0.0, near))
        others = Hunt(~believed, quorum[1], within=reach)
        self._run(queries, others, nearest_class_only=True)
        distances = np.where(believed, own.distances[:, :, -1], others.distances[:, :, -1])
        nearest = others.distances[:, :, -1].min(axis=1)
        beyond = distances > np.maximum(reach, nearest)[:, None]
        distances[beyond & ~believed] = np.inf
        rows = own.evidence().exemplars
        return distances, np.where(belief == NO_BELIEF, -1, rows[every, belief])

    def _run(self, queries: Floats32, hunt: Hunt, *, nearest_class_only: bool) -> None:
        """Find what a hunt looks for, for as many queries at once as memory is set aside for."""
        for start in range(0, len(queries), QUERIES_AT_ONCE):
            part = slice(start, start + QUERIES_AT_ONCE)
            self._run_some(queries[part], hunt.part(part), nearest_class_only=nearest_class_only)

    def _run_some(self, queries: Floats32, hunt: Hunt, *, nearest_class_only: bool) -> None:
        coded, m = self._coded, hunt.upper.shape[2]
        n_first = NEAREST_FIRST + m // int(np.diff(coded.starts).max())
        size = max(1, min(QUERIES_PER_LANE, -(-len(queries) // n_cores())))
        parts = [slice(start, start + size) for start in range(0, len(queries), size)]
        lanes = [Lane(coded, queries[part], hunt.part(part), n_first) for part in parts]

        def begin(lane: Lane) -> None:
            for chunk in coded.chunks:
                lane.rank(chunk)
            lane.pairs = lane.begin(nearest_class_only=nearest_class_only)

        with single_threaded_blas():
            share(begin, lanes)
            self._look(lanes)
            share(lambda lane: lane.measure(self._stored), lanes)
            for chunk in coded.chunks:
                share(lambda lane: setattr(lane, "pairs", lane.select(chunk)), lanes)  # noqa: B023
                self._look(lanes)
            share(lambda lane: lane.measure(self._stored), lanes)

    def _look(self, lanes: list[Lane]) -> None:
        """Read the blocks that any lane needs, some at a time, and scan them."""
        needed = np.unique(np.concatenate([lane.pairs[:, 0] for lane in lanes]))
        for blocks in self._cut(needed):
            loaded = load(self._coded, blocks)

            def work(lane: Lane) -> None:
                start = np.searchsorted(lane.pairs[:, 0], blocks[0])  # noqa: B023
                end = np.searchsorted(lane.pairs[:, 0], blocks[-1], side="right")  # noqa: B023
                pairs = lane.pairs[start:end].copy()
                pairs[:, 0] = np.searchsorted(blocks, pairs[:, 0])  # noqa: B023
                lane.scan(loaded, pairs, self._stored)  # noqa: B023

            share(work, lanes)

    def _cut(self, blocks: Ints) -> Iterator[Ints]:
        largest = int(np.diff(self._coded.starts).max()) * self._coded.n_features
        step = max(1, BYTES_READ_AT_ONCE // largest)
        for start in range(0, len(blocks), step):
            yield blocks[start : start + step]
