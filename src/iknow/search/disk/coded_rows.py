"""CodedRows: the rows of an index as coded blocks in a scratch file, and what is known of each.

The rows of a class are divided into parts that fit into memory, and each part is sorted into blocks
of close rows (`dividing`), which are coded (`coding`) and written where they belong. A part is read
from the front to the end. So building takes memory for one part on each core, and reads every row
three times at most: to check it, to find its part, and to code it.

In memory stay the center, unit, error and radius of each block, and the position of each row.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from iknow.core.arrays import Floats, Floats32, Ints
from iknow.pages import release, take
from iknow.search.bounds import LowerBounds
from iknow.search.disk.coding import encode
from iknow.search.disk.dividing import Divider, sort_close
from iknow.search.disk.scratch import Folder, ScratchFile
from iknow.search.index import RowIndex
from iknow.search.threads import for_each, n_cores

USUAL_BLOCK = 128  # rows
BLOCKS_PER_CHUNK = 4096
COPIES = 8  # of a part, in memory while it is coded
SAMPLE_PER_PART = 64  # rows that decide where to cut
FINER = 2  # parts of a Divider are this many halvings smaller than what fits into memory
BYTES_AT_ONCE = 1 << 22


class Chunk(NamedTuple):
    """Successive blocks, bounded together.

    blocks: their slice of all. classes: for each class among them, its code and the slice of its
    blocks within the chunk. bounds: lower bounds on the distances to their centers.
    """

    blocks: slice
    classes: list[tuple[int, slice]]
    bounds: LowerBounds


class CodedRows:
    """The coded blocks of stored rows.

    memory: bytes to use while building, roughly. size: rows per block, a power of two.

    Attributes:
        starts: The first slot of each block and, last, their number, of shape (n_blocks + 1,). A
            slot is a place in the order of the blocks.
        classes: The class of each block, of shape (n_blocks,).
        positions: The stored row in each slot, of shape (n_rows,).
        centers, units, errors, radii: Of each block; see `Coded`.
    """

    def __init__(self, stored: RowIndex, folder: Folder, memory: int, size: int) -> None:
        self._stored, self._size = stored, size
        self.n_features = stored.n_features
        per_row = 4 * self.n_features * COPIES * n_cores()
        self._part = max(1, memory // (per_row * size)) * size
        firsts = stored.class_starts
        cuts = [np.arange(firsts[c], firsts[c + 1], size) for c in range(stored.n_classes)]
        self.starts: Ints = np.append(np.concatenate(cuts), stored.n_rows).astype(np.int64)
        self.classes: Ints = np.repeat(np.arange(stored.n_classes), [len(cut) for cut in cuts])
        n_blocks = len(self.classes)
        self.positions = np.empty(stored.n_rows, np.uint32 if stored.n_rows < 1 << 32 else np.int64)
        self.centers: Floats32 = np.empty((n_blocks, self.n_features), dtype=np.float32)
        self.units: Floats = np.empty(n_blocks)
        self.errors: Floats = np.empty(n_blocks)
        self.radii: Floats = np.empty(n_blocks)
        self._file = ScratchFile(folder, stored.n_rows * self.n_features)
        for_each(self._divide, range(stored.n_classes))
        for_each(self._code, list(self._parts()))
        self.chunks = list(self._chunks())
        del self._stored

    def read(self, blocks: Ints, room: np.ndarray, places: Ints) -> None:
        """Read the codes of ascending blocks to their `places` in int8 `room`, (n, n_features)."""
        # Neighbors are read at once.
        cuts = np.flatnonzero(np.diff(blocks) != 1) + 1
        runs = [0, *cuts.tolist(), len(blocks)]
        for first, last in pairwise(runs):
            start = int(self.starts[blocks[first]]) * self.n_features
            self._file.read_into(room[places[first] : places[last]], start)

    def _divide(self, code: int) -> None:
        """Order the rows of a class by parts of space; all that is left is to sort the parts."""
        start, end = self._stored.class_starts[code : code + 2].tolist()
        order = self.positions[start:end]
        order[:] = np.arange(start, end)
        n_parts = -(-(end - start) // self._part)
        if n_parts <= 1:
            return
        depth = int(np.ceil(np.log2(n_parts))) + FINER
        points = self._stored.points
        wanted = min(end - start, SAMPLE_PER_PART << depth)
        sample = take(points, np.linspace(start, end - 1, wanted).astype(np.int64))
        divider = Divider(sample, depth)
        parts = np.empty(end - start, dtype=np.uint16 if depth <= 16 else np.uint32)
        for piece in _pieces(start, end, self.n_features):
            parts[piece.start - start : piece.stop - start] = divider.divide(points[piece])
            release(points)
        order[:] = start + np.argsort(parts, kind="stable")

    def _parts(self) -> Iterator[tuple[slice, int]]:
        """Slices of slots whose rows fit into memory, with the first block of each."""
        for start, end in pairwise(self._stored.class_starts.tolist()):
            for first in range(start, end, self._part):
                block = int(np.searchsorted(self.starts, first))
                yield slice(first, min(first + self._part, end)), block

    def _code(self, part: tuple[slice, int]) -> None:
        """Sort the rows of a part into blocks, code and write them."""
        slots, block = part
        taken = np.sort(self.positions[slots])  # from the front to the end of the file
        rows = take(self._stored.points, taken)
        order = sort_close(rows, self._size)
        self.positions[slots] = taken[order]
        whole = len(order) // self._size * self._size
        for first, last, size in (
            (0, whole, self._size),
            (whole, len(order), len(order) - whole),
        ):
            step = max(1, BYTES_AT_ONCE // (8 * self._size * self.n_features)) * size
            for start in range(first, last, step or 1):
                chosen = order[start : min(start + step, last)]
                n = len(chosen) // size
                coded = encode(rows[chosen].reshape(n, size, self.n_features))
                at = slice(block, block + n)
                self.centers[at], self.units[at] = coded.centers, coded.units
                self.errors[at], self.radii[at] = coded.errors, coded.radii
                self._file.write(coded.codes, (slots.start + start) * self.n_features)
                block += n

    def _chunks(self) -> Iterator[Chunk]:
        n_blocks = len(self.classes)
        for first in range(0, n_blocks, BLOCKS_PER_CHUNK):
            blocks = slice(first, min(first + BLOCKS_PER_CHUNK, n_blocks))
            codes, starts = np.unique(self.classes[blocks], return_index=True)
            ends = [*starts[1:].tolist(), blocks.stop - blocks.start]
            found = zip(codes.tolist(), map(slice, starts.tolist(), ends), strict=True)
            each = np.arange(blocks.stop - blocks.start)
            bounds = LowerBounds(self.centers[blocks], each, each + 1, 1)
            yield Chunk(blocks, list(found), bounds)


def _pieces(start: int, end: int, n_features: int) -> Iterator[slice]:
    step = max(1, BYTES_AT_ONCE // (4 * n_features))
    for first in range(start, end, step):
        yield slice(first, min(first + step, end))
