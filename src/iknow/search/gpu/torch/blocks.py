"""Blocks: rows on a device, sorted by class and norm and cut into blocks of one class each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from iknow.core.arrays import Floats32, Ints
from iknow.search.gpu.torch.bounds import Filter, Frame, make_frame

NO_ROW = torch.iinfo(torch.int64).max
BYTES_FOR_BUILDING = 256 << 20


@dataclass(frozen=True)
class Blocks:
    """Rows in blocks of `size`, short blocks padded; block b holds rows b·size to (b+1)·size - 1.

    points: of shape (n_blocks * size, n_features), float32. numbers: of shape (n_blocks * size,),
    row numbers in the training set, NO_ROW for padding. classes: codes of the classes that have
    rows, of shape (n_inhabited,). class_starts: first block of each of them and, last, n_blocks.
    ranks: of shape (n_blocks,), the position of each block's class in `classes`. together: each
    class has a multiple of so many blocks.
    """

    frame: Frame
    size: int
    points: Tensor
    numbers: Tensor
    classes: Tensor
    class_starts: Tensor
    ranks: Tensor
    together: int = 1

    @property
    def n_blocks(self) -> int:
        return len(self.ranks)

    @property
    def n_features(self) -> int:
        return int(self.points.shape[1])

    @property
    def device(self) -> torch.device:
        return self.points.device

    def slices(self) -> Iterator[slice]:
        """Ranges of blocks, small enough to process in float64 at once."""
        step = max(1, BYTES_FOR_BUILDING // (32 * self.size * max(1, self.n_features)))
        for first in range(0, self.n_blocks, step):
            yield slice(first, min(first + step, self.n_blocks))


def make_blocks(
    points: Floats32,
    labels: Ints,
    numbers: Ints,
    size: int,
    filter: Filter,
    device: torch.device,
    together: int = 1,
) -> Blocks:
    """Lay out at least one row on a device that supports float64.

    points: of shape (n_rows, n_features). labels, numbers: of shape (n_rows,). size, together: see
    `Blocks`.
    """
    rows = to_device(points, device)
    frame = make_frame(rows, filter)
    codes = to_device(labels, device)
    order = torch.argsort(_squared_norms(rows, frame))
    order = order[torch.argsort(codes[order], stable=True)]
    classes, counts = torch.unique_consecutive(codes[order], return_counts=True)
    blocks_per_class = (counts + size * together - 1) // (size * together) * together
    class_starts = _starts(blocks_per_class)
    n_blocks = int(class_starts[-1])
    # A row goes to the first slot of its class plus its position within the class.
    place = torch.arange(len(order), device=device)
    place -= (_starts(counts)[:-1] - size * class_starts[:-1]).repeat_interleave(counts)
    padded = rows.new_zeros(n_blocks * size, rows.shape[1])
    padded[place] = rows[order]
    padded_numbers = torch.full((n_blocks * size,), NO_ROW, device=device)
    padded_numbers[place] = to_device(numbers, device)[order]
    ranks = torch.arange(len(classes), device=device).repeat_interleave(blocks_per_class)
    return Blocks(frame, size, padded, padded_numbers, classes, class_starts, ranks, together)


def to_device(array: np.ndarray, device: torch.device) -> Tensor:
    """A copy of an array, so that nothing on the device changes when the array does."""
    # torch warns if it must view a read-only array, such as a memory map.
    source = array if array.flags.writeable else array.copy()
    return torch.from_numpy(np.ascontiguousarray(source)).to(device, copy=True)


def _squared_norms(rows: Tensor, frame: Frame) -> Tensor:
    step = max(1, BYTES_FOR_BUILDING // (32 * max(1, rows.shape[1])))
    starts = range(0, len(rows), step)
    return torch.cat([frame.place(rows[i : i + step]).square().sum(1) for i in starts])


def _starts(counts: Tensor) -> Tensor:
    """The start of each of several consecutive ranges and, last, their end."""
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)])
