"""DiskIndex: exact search among rows that do not fit into memory.

The rows lie in a mapped file, sorted by class, and a second time, coded as bytes, in a scratch
file. A block is a few hundred close rows of one class. With its center c, rounded to float32, and a
unit s, a 127th of the largest |x_j - c_j|, a row x is coded as z_j = rint((x_j - c_j) / s). What
coding loses is measured: the error e of a block is the largest |x - (c + s z)|, its radius R the
largest |x - c|, both in float64 and rounded up by far more than that arithmetic loses.

**Bounds.** For a query q let v = (q - c) / s, rounded to float32 (unit roundoff u = 2^-24), and

    S = fl( Σ_j (v_j - z_j)² )

The differences are rounded, squared and added: no term is negative, so in whatever order they are
added, S is off by at most the relative error γ = (d + 3) u / (1 - (d + 3) u). Rounding v moves
|v - z| by at most u |v|. With σ = 2 u |v| + 2^-20, which covers underflow too, and
g = (d + 8) 2^-23 > γ, by the triangle inequality

    s (√(S / (1 + g)) - σ) - e  <=  |q - x|  <=  s (√(S (1 + g)) + σ) + e

A distance measured in float64 is off by a relative error far below 2^-40, and so is the arithmetic
of these bounds; the factors 1 ± 2^-30 below cover both. Where |v| > 2^55, float32 might overflow:
there all rows of the block are within R of the distance to the center, and that is bound enough.

**Search.** The m-th smallest upper bound of a class limits where its m nearest rows can be. First
every query looks at the blocks whose centers are nearest, which sets such limits; then we go
through all blocks in the order of the file. A block holds no row within ρ of q if |q - c| > ρ + R,
and products of centers bound |q - c| from below (`bounds`). Blocks that some query needs are read
once for all, their codes rule out most rows, and the few that are left are read and measured.
Within a horizon the believed class comes first, and the others only as far as they matter.
"""

from __future__ import annotations

import mmap
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from iknow.core.arrays import Bools, Floats, Floats32, Ints
from iknow.core.codes import NO_BELIEF
from iknow.core.decision import Scope, find_cap, scope_of
from iknow.core.evidence import NO_EXEMPLAR, Evidence, stack_evidence
from iknow.core.rule import Rule
from iknow.core.text import as_whole
from iknow.errors import InputError
from iknow.locking import cached_property
from iknow.pages import cut, find_map, read_through, release, slices, take
from iknow.search.bounds import LowerBounds
from iknow.search.engine import merge_list, positions
from iknow.search.index import RowIndex
from iknow.search.kernels.numba import is_compiled
from iknow.search.kernels.numpy import choose_blocks, measure_pairs
from iknow.search.scratch import Folder, ScratchFile, as_folder, write_rows
from iknow.search.threads import for_each, n_cores, share, single_threaded_blas

USUAL_MEMORY, LEAST_MEMORY = 1 << 29, 1 << 20
USUAL_BLOCK = 128  # rows
COPIES = 8  # of a part, in memory while it is coded
SAMPLE, FINER = 256, 2  # rows that decide where to divide a class, and further halvings
BYTES_AT_ONCE, BYTES_READ_AT_ONCE = 1 << 22, 1 << 24
QUERIES_AT_ONCE, QUERIES_PER_LANE = 4096, 256
NEAREST_FIRST = 2  # blocks of each class, or of all others if only the nearest class matters
BLOCKS_PER_CHUNK, CANDIDATES = 4096, 1 << 16
ROUND_UP = 1 + 2.0**-30
LEAST_SLACK, FAR = 2.0**-20, 2.0**55  # in units


class DiskIndex(RowIndex):
    """Activations of one layer with their class codes, on disk, searched in the Euclidean norm.

    A mapped array that is sorted by class, as in a large bundle, is used in place; others are
    written to disk first. In memory stay 20 bytes for each row, its label among them, and about one
    number in 32 of the activations.

    Args:
        *arrays: Activations, labels, n_classes and rows, as for any `RowIndex`.
        **named: Those of them that are given by name.
        memory: About how many bytes to use while building.
        folder: Where to keep the files, which vanish with the index; they take one byte for each
            number, and five if the activations are not mapped. Default: the system's temporary
            folder.
        block: Rows in a block, a power of two.

    Examples:
        >>> DiskIndex(rows, labels, n_classes=2).gather([[4.0]], k=1).class_distances
        array([[3., 1.]])
    """

    def __init__(
        self,
        *arrays: Any,
        memory: int = USUAL_MEMORY,
        folder: Folder = None,
        block: int = USUAL_BLOCK,
        **named: Any,
    ) -> None:
        enough = f"be a whole number of bytes >= {LEAST_MEMORY:,}"
        self.memory = as_whole(memory, "memory", enough, LEAST_MEMORY)
        self.block = as_whole(block, "block", "be a power of two", 1)
        if self.block & (self.block - 1):
            raise InputError(f"block must be a power of two; got {block}")
        self.folder = as_folder(folder)
        super().__init__(*arrays, **named)
        if find_map(self.points) is None:
            self.points = self._take(self.points, np.arange(self.n_rows))

    def search(self, points: Floats32, scope: Scope) -> Evidence:
        if len(points) > QUERIES_AT_ONCE:
            parts = slices(len(points), QUERIES_AT_ONCE)
            return stack_evidence([self.search(points[part], scope.at(part)) for part in parts])
        if scope.horizon is None:
            scope = scope.in_full()
        parts = slices(len(points), min(QUERIES_PER_LANE, -(-len(points) // n_cores())))
        lanes = [Lane(self, points[part], scope.at(part)) for part in parts]
        # The believed class first: how far the others matter depends on it. But neighbors are of
        # all classes, and no row must be counted twice.
        stages = (None,) if scope.horizon is None or scope.any else (True, False)
        with single_threaded_blas():
            share(Lane.begin, lanes)
            self._look(lanes)
            for own in stages:
                share(Lane.measure, lanes)
                for chunk in self._coded.chunks:
                    share(partial(Lane.select, chunk=chunk, own=own), lanes)
                    self._look(lanes)
            share(Lane.measure, lanes)
        return stack_evidence([lane.evidence() for lane in lanes])

    def decides(self, rule: Rule) -> bool:
        return scope_of(rule).horizon is not None

    def _look(self, lanes: list[Lane]) -> None:
        """Read the blocks that any lane needs, some at a time, and scan them."""
        coded, needed = self._coded, np.unique(np.concatenate([lane.pairs[:, 0] for lane in lanes]))
        for part in slices(len(needed), BYTES_READ_AT_ONCE // (coded.table.size * self.n_features)):
            blocks = needed[part]
            coded.expect(blocks)
            share(partial(Lane.scan, first=blocks[0], last=blocks[-1]), lanes)
            release(coded.codes)

    @cached_property
    def _coded(self) -> CodedRows:
        return CodedRows(self)

    def _take(self, points: Floats32, order: Ints) -> Floats32:
        """The points in this order, in a file."""
        pieces = read_through(points, BYTES_AT_ONCE // (4 * points.shape[1]))
        return write_rows(self.folder, order, points.shape[1], pieces)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the rows themselves; they are written to a file again."""
        make = partial(type(self), memory=self.memory, folder=self.folder, block=self.block)
        return make, (np.array(self.points), self.labels, self.n_classes, self.rows)


class BlockTable(NamedTuple):
    """What is known of each of n blocks. A slot is a place in the order of the blocks."""

    starts: Ints  # its first slot and, last, the number of slots: (n + 1,)
    classes: Ints  # (n,)
    centers: Floats32  # c, (n, n_features)
    units: Floats  # s, (n,)
    errors: Floats  # e, (n,)
    radii: Floats  # R, (n,)
    size: int  # rows of the largest


Chunk = tuple[int, list[tuple[int, slice]], LowerBounds]
"""The first of some blocks, the slice of them in each class, and bounds on their centers."""


class CodedRows:
    """The rows of an index as coded blocks in a scratch file.

    The rows of a class are divided into parts that fit into memory, and each part is sorted into
    blocks of close rows, which are coded and written where they belong. So building takes memory
    for one part on each core, and reads every row three times at most.

    codes: the coded rows by slot, int8 of shape (n_rows, n_features), mapped. positions: the stored
    row in each slot, of shape (n_rows,). table, chunks: all blocks, in order.
    """

    def __init__(self, index: DiskIndex) -> None:
        n, width, size, points = index.n_rows, index.n_features, index.block, index.points
        part = max(1, index.memory // (4 * width * COPIES * n_cores() * size)) * size
        classes = list(pairwise(index.class_starts.tolist()))
        cuts = [np.arange(start, end, size) for start, end in classes]
        starts = np.append(np.concatenate(cuts), n).astype(np.int64)
        labels = np.repeat(np.arange(len(cuts)), [len(each) for each in cuts])
        centers: Floats32 = np.empty((len(labels), width), dtype=np.float32)
        units, errors, radii = np.empty((3, len(labels)))
        largest = np.diff(starts).max()
        self.table = BlockTable(starts, labels, centers, units, errors, radii, largest)
        self.positions = np.empty(n, np.uint32 if n < 1 << 32 else np.int64)
        file = ScratchFile(index.folder, n * width)
        parts = [slice(at, min(at + part, b)) for a, b in classes for at in range(a, b, part)]
        for_each(lambda each: self._divide(points, *each, part), classes)
        for_each(lambda each: self._code(points, each, size, file), parts)
        self.codes = file.as_rows(n, width, np.int8)
        self.chunks: list[Chunk] = []
        for chunk in slices(len(self.table.classes), BLOCKS_PER_CHUNK):
            centers = self.table.centers[chunk]
            codes, firsts = np.unique(self.table.classes[chunk], return_index=True)
            ranges = map(slice, firsts, [*firsts[1:], len(centers)])
            bounds = LowerBounds(centers, np.arange(len(centers)), 1)
            self.chunks.append((chunk.start, list(zip(codes, ranges, strict=True)), bounds))

    def expect(self, blocks: Ints) -> None:
        """Have the system read blocks before they are needed."""
        mapped, width = find_map(self.codes), self.codes.shape[1]
        if mapped is not None and hasattr(mapped, "madvise"):  # Windows has none
            starts = self.table.starts[blocks] * width // mmap.PAGESIZE * mmap.PAGESIZE
            sizes = self.table.starts[blocks + 1] * width - starts
            for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
                mapped.madvise(mmap.MADV_WILLNEED, start, size)

    def _divide(self, points: Floats32, start: int, end: int, part: int) -> None:
        """Order the rows of a class by parts of space; all that is left is to sort the parts.

        Each direction in which the class spreads most is cut in the middle. Nothing here need be
        exact: bad parts only make loose bounds, which cost time.
        """
        self.positions[start:end] = np.arange(start, end)
        if end - start <= part:
            return
        chosen = np.linspace(start, end - 1, SAMPLE).astype(np.int64)
        sample = take(points, chosen).astype(np.float64)
        directions = np.linalg.svd(sample - sample.mean(axis=0), full_matrices=False)[2]
        depth = min(30, ((end - start - 1) // part).bit_length() + FINER)
        directions = directions[:depth][::-1].T  # the first one counts most
        middle, bits = np.median(sample @ directions, axis=0), 1 << np.arange(directions.shape[1])
        parts = np.empty(end - start, dtype=np.uint32)
        for each in slices(end - start, BYTES_AT_ONCE // (8 * points.shape[1])):
            parts[each] = (points[start:end][each] @ directions > middle) @ bits
            release(points)
        self.positions[start:end] = start + np.argsort(parts, kind="stable")

    def _code(self, points: Floats32, slots: slice, size: int, file: ScratchFile) -> None:
        """Sort the rows of a part into blocks, code and write them."""
        taken = np.sort(self.positions[slots])  # from the front to the end of the file
        rows = take(points, taken)
        order = np.arange(len(rows))
        if is_compiled() and size >= 16:
            from iknow.search.kernels.numba.tree import sort_into_cells

            sort_into_cells(rows, order)
        else:
            order = sort_close(rows, order, size)
        self.positions[slots] = taken[order]
        # The last block may be shorter: a row is repeated, so that all are coded alike.
        blocks = np.append(order, np.repeat(order[-1:], -len(order) % size)).reshape(-1, size)
        first, width = int(np.searchsorted(self.table.starts, slots.start)), rows.shape[1]
        for part in slices(len(blocks), BYTES_AT_ONCE // (8 * size * width)):
            codes, *known = encode(rows[blocks[part]])
            for column, values in zip(self.table[2:6], known, strict=True):
                column[first + part.start : first + part.stop] = values  # type: ignore[index]
            at = part.start * size
            codes = codes.reshape(-1, width)[: len(rows) - at]
            file.write(codes, (slots.start + at) * width)


class DiskLimits(NamedTuple):
    """How far n queries look, and which rows may matter. belief, own, other: as in `Scope`."""

    belief: Ints
    own: int
    other: int
    within: Floats  # the horizon, (n,): no row of another class beyond it and `nearest` is wanted
    nearest: Floats  # of other classes, (n,)
    upper: Floats  # bounds on the distances to the nearest of each class, ascending: (n, C, m)
    any: Floats  # the same of all classes, (n, k)
    found: Ints  # queries and slots of rows that may matter, (capacity, 2)
    low: Floats  # lower bounds on their distances, (capacity,)
    n_found: Ints  # how many there are, (1,)

    def reach(self, query: Ints, code: Any) -> Any:
        """How far a row of a class may be from a query to matter now."""
        is_own = self.belief[query] == code
        reach = self.upper[query, code, np.where(is_own, self.own, self.other) - 1]
        cap = np.maximum(self.within[query], self.nearest[query])
        reach = np.where(is_own, reach, np.minimum(reach, cap))
        return np.maximum(reach, self.any[query, -1]) if self.any.shape[1] else reach


class Lane:
    """Some queries of a batch, which one core answers, and what is found for them."""

    def __init__(self, index: DiskIndex, queries: Floats32, scope: Scope) -> None:
        self.index, self.coded, self.queries, self.scope = index, index._coded, queries[:], scope
        self.queries.flags.writeable = False  # of one type for the compiler, whatever came
        n, n_classes, m = len(queries), index.n_classes, scope.per_class
        self.distances: Floats = np.full((n, n_classes, m), np.inf)
        self.rows: Ints = np.full((n, n_classes, m), NO_EXEMPLAR, dtype=np.int64)
        self.neighbors: Floats = np.full((n, scope.any), np.inf)
        belief = np.full(n, NO_BELIEF) if scope.belief is None else np.array(scope.belief)
        self.is_own: Bools = np.arange(n_classes) == belief[:, None]
        self._has_own = self.is_own & (np.diff(index.class_starts) >= scope.own)
        candidates = np.empty((max(CANDIDATES, self.coded.table.size), 2), dtype=np.int64)
        self.limits = DiskLimits(
            belief, scope.own, scope.other, np.full(n, np.inf), np.full(n, np.inf),
            self.distances.copy(), self.neighbors.copy(),
            candidates, np.empty(len(candidates)), np.zeros(1, dtype=np.int64),
        )  # fmt: skip
        self.pairs: Ints  # of a block to look at and a query, ascending by block: (n_pairs, 2)
        self._first: Ints  # those that were looked at first

    def begin(self) -> None:
        """Pair queries with the nearest blocks of each class; of others than the belief, of all."""
        (n, n_classes, m), table = self.distances.shape, self.coded.table
        n_first, found = NEAREST_FIRST + max(m, self.scope.any) // table.size, []
        for first, classes, bounds in self.coded.chunks:
            minima, _ = bounds.bound(self.queries)
            for _, blocks in classes:
                lowest = choose_blocks(minima[blocks], n_first) + first + blocks.start
                found.append(np.stack([lowest, np.broadcast_to(np.arange(n), lowest.shape)], 2))
        pairs = np.concatenate(found).reshape(-1, 2)
        block, query = pairs.T
        away, code = measure_pairs(table.centers, self.queries, query, block), table.classes[block]
        kept = nearest_of(query * n_classes + code, away, n_first)
        if self.scope.horizon is not None:
            away[self.is_own[query, code]] = -1.0
            kept = kept[nearest_of(query[kept], away[kept], 2 * n_first)]
        self.pairs = self._first = pairs[kept[np.argsort(block[kept], kind="stable")]]

    def select(self, *, chunk: Chunk, own: bool | None) -> None:
        """Pair queries with further blocks of a chunk: of the belief, of others, or of all."""
        asked = np.ones_like(self.is_own) if own is None else self.is_own == own
        first, classes, bounds = chunk
        minima, to_limits = bounds.bound(self.queries)
        marked: Bools = np.zeros(minima.shape, dtype=bool)
        every, radii = np.arange(len(self.queries)), self.coded.table.radii[first:, None]
        for code, blocks in classes:
            if asked[:, code].any():
                limits = to_limits((self.limits.reach(every, code) + radii[blocks]) * ROUND_UP)
                np.logical_and(minima[blocks] <= limits, asked[:, code], out=marked[blocks])
        block, query = self._first.T - [[first], [0]]
        known = (block >= 0) & (block < len(marked))
        marked[block[known], query[known]] = False
        block, query = positions(np, marked)
        self.pairs = np.column_stack([block + first, query])

    def scan(self, *, first: int, last: int) -> None:
        """Bound the distances to the rows of some blocks, and measure those that may matter."""
        start, end = np.searchsorted(self.pairs[:, 0], [first, last + 1])
        coded, pairs, at = self.coded, self.pairs[start:end], 0
        while (at := scan(coded, self.queries, pairs, at, self.limits)) < len(pairs):
            self.measure()

    def measure(self) -> None:
        """Measure the rows found so far that may still matter, and keep the nearest."""
        index, limits, scope = self.index, self.limits, self.scope
        n, limits.n_found[0] = int(limits.n_found[0]), 0
        query, slot = limits.found[:n].T
        position = self.coded.positions[slot].astype(np.int64)
        left = np.flatnonzero(limits.low[:n] <= limits.reach(query, index.labels[position]))
        left = left[np.argsort(position[left], kind="stable")]  # from the front to the end
        query, position, distance = query[left], position[left], np.empty(len(left))
        for part in cut(index.points, position):
            distance[part] = measure_pairs(index.points, self.queries, query[part], position[part])
            release(index.points)
        if scope.any:
            equal = np.zeros_like(self.neighbors.T)
            merge_list(np, self.neighbors.T, equal, distance, 0.0 * query, query)
            np.minimum(limits.any, self.neighbors, out=limits.any)
        _, n_classes, m = self.distances.shape
        known, numbers = self.distances.reshape(-1, m).T, self.rows.reshape(-1, m).T
        group = query * n_classes + index.labels[position]
        merge_list(np, known, numbers, distance, index.rows[position], group)
        np.minimum(limits.upper, self.distances, out=limits.upper)
        if scope.horizon is not None:
            fixed, ratio, _ = scope.horizon
            own = np.where(self._has_own, limits.upper[:, :, scope.own - 1], 0.0).sum(axis=1)
            with np.errstate(over="ignore"):
                np.maximum(fixed, ratio * own if ratio else 0.0, out=limits.within)
            others = np.where(self.is_own, np.inf, limits.upper[:, :, scope.other - 1])
            others.min(axis=1, out=limits.nearest)

    def evidence(self) -> Evidence:
        """What was found; beyond the cap, and beyond the wanted ranks, rows may be missing."""
        found = Evidence(self.distances, self.neighbors, self.rows)
        if self.scope.horizon is not None:
            _, cap = find_cap(found, self.scope)
            is_own, place = self.is_own[:, :, None], np.arange(found.per_class)
            kept = is_own | (found.distances <= cap[:, None, None])
            kept &= place < np.where(is_own, self.scope.own, self.scope.other)
            found.distances[~kept], found.rows[~kept] = np.inf, NO_EXEMPLAR
            found.complete_below[:, 1] = np.nextafter(cap, np.inf)
        return found


def nearest_of(group: Ints, distance: Floats, n: int) -> Ints:
    """The n nearest of each group, as places in `group` and `distance`, both of shape (m,)."""
    order = np.lexsort((distance, group))
    group = group[order]
    return order[np.arange(len(group)) - np.searchsorted(group, group) < n]


def scan(coded: CodedRows, queries: Floats32, pairs: Ints, first: int, limits: DiskLimits) -> int:
    """Compare blocks and queries, from the `first` pair on, until `limits` has no room for more.

    pairs: of a block and a query, of shape (n_pairs, 2), ascending by block. Returns the first pair
    that is left. Without the extra `fast`, float64 loses less than the errors were rounded up by.
    """
    table, codes = coded.table, coded.codes
    if is_compiled():
        from iknow.search.kernels.numba.coded import scan_pairs

        return int(scan_pairs(table, codes, queries, pairs, first, limits))
    while first < len(pairs):
        block, n = int(pairs[first, 0]), int(limits.n_found[0])
        slots = slice(*table.starts[block : block + 2].tolist())
        room = (len(limits.low) - n) // (slots.stop - slots.start)
        if room == 0:
            break
        last = min(first + room, int(np.searchsorted(pairs[:, 0], block, "right")))
        query, code, error = pairs[first:last, 1], table.classes[block], table.errors[block]
        away = queries[query] - table.centers[block].astype(np.float64)
        root = cdist(away, table.units[block] * codes[slots])
        low, high = root / ROUND_UP - error, root * ROUND_UP + error
        at, row = np.nonzero(low <= limits.reach(query, code)[:, None])
        end = limits.n_found[0] = n + len(at)
        limits.found[n:end] = np.column_stack([query[at], slots.start + row])
        limits.low[n:end] = low[at, row]
        for known in filter(np.size, (limits.upper[:, code], limits.any)):  # views
            upper = np.sort(np.concatenate([known[query], high], axis=1))
            known[query] = upper[:, : known.shape[1]]
        first = last
    return first


def encode(blocks: Floats32) -> tuple[Any, Floats32, Floats, Floats, Floats]:
    """Code blocks of rows of shape (n_blocks, size, n_features).

    Returns the codes, int8 of the same shape, and centers, units, errors and radii as in a
    `BlockTable`.
    """
    centers = blocks.mean(axis=1, dtype=np.float64).astype(np.float32)
    away = np.subtract(blocks, centers[:, None], dtype=np.float64)
    largest = np.abs(away).max(axis=(1, 2))
    units = np.where(largest > 0, largest / 127, 1.0)
    radii = np.sqrt(np.einsum("bij,bij->bi", away, away).max(axis=1)) * ROUND_UP
    away /= units[:, None, None]
    codes = np.rint(away)
    away -= codes
    # What float64 loses above is less than 2^-40 of the largest number of the block.
    lost = 2.0**-40 * largest * np.sqrt(blocks.shape[2])
    farthest = np.sqrt(np.einsum("bij,bij->bi", away, away).max(axis=1))
    errors = (units * farthest + lost) * ROUND_UP
    return codes.astype(np.int8), centers, units, errors, radii


def sort_close(rows: Floats32, order: Ints, size: int) -> Ints:
    """The rows in `order`, sorted so that each run of `size`, a power of two, lies close."""
    half = -(-len(order) // size) // 2 * size
    if not half:
        return order
    widest = rows[order].var(axis=0, dtype=np.float64).argmax()
    order = order[np.argpartition(rows[order, widest], half)]
    return np.concatenate([sort_close(rows, part, size) for part in np.split(order, [half])])
