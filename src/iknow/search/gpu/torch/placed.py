"""PlacedRows: rows that move to a device of torch, whole or part by part, as its memory allows."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from iknow.core.arrays import Ints
from iknow.errors import InputError
from iknow.locking import Lock
from iknow.search.gpu.torch.blocks import make_blocks
from iknow.search.gpu.torch.bounds import Filter
from iknow.search.gpu.torch.devices import check_device, device_with_float64, has_kernels
from iknow.search.gpu.torch.operations import Operations, PlainOperations
from iknow.search.index import RowIndex

WORK_BYTES = 4 << 30
WORK_BYTES_ON_CPU = 64 << 20
SHARE_OF_FREE_MEMORY = 0.8


class PlacedRows(RowIndex):
    """Rows for a device; see `TorchIndex` for the arguments."""

    _n_parts: int | None
    _whole: Operations | None

    def __init__(
        self,
        activations: Any,
        labels: Any,
        n_classes: int,
        rows: Ints | None = None,
        device: str | torch.device = "cpu",
        *,
        memory: int | None = None,
    ) -> None:
        super().__init__(activations, labels, n_classes, rows)
        self.device = check_device(device)
        self._fused = has_kernels(self.device)
        self._memory = memory
        self._derive()

    def _parts(self) -> Iterator[Operations]:
        """The index on the device, ready to search: whole and kept, or part by part."""
        whole = self._only_part()
        if whole is not None:
            yield whole
            return
        bounds = np.linspace(0, self.n_rows, (self._n_parts or 0) + 1).astype(int)
        for start, end in pairwise(bounds.tolist()):
            if start < end:
                yield self._lay_out(slice(start, end))

    def _only_part(self) -> Operations | None:
        """The index on the device, if it fits whole; it is then kept."""
        with self._lock.held():
            if self._n_parts is None:
                self._n_parts = self._count_parts()
            if self._n_parts == 1 and self._whole is None:
                self._whole = self._lay_out(slice(None))
            return self._whole

    def _count_parts(self) -> int:
        """The number of parts in which to search the index; 0 if it is empty."""
        if self.n_rows == 0:
            return 0
        memory = self._available()
        if memory is None:
            return 1
        # Laying out a part needs its rows twice, plus their factors and a few numbers.
        per_row = 8 * self.n_features + 4 * max(16, self.n_features) + 96
        reserved = self._work_bytes() * 3 // 2
        if memory - reserved < per_row:
            raise InputError(
                f"searching on {self.device} needs at least {reserved + per_row:,} bytes; "
                f"{memory:,} are available: free memory, raise `memory`, or use device='cpu'"
            )
        return -(-self.n_rows * per_row // (memory - reserved))

    def _lay_out(self, rows: slice) -> Operations:
        points, labels, numbers = self.points[rows], self.labels[rows], self.rows[rows]
        counts = np.unique_counts(labels).counts
        size = self._block_size(len(labels), len(counts))
        filter: Filter = "fp16" if self._fused else "float32"
        asked = points, labels, numbers, size, filter, self._exact_device
        if not self._fused:
            return PlainOperations(make_blocks(*asked), self.device)
        from iknow.search.gpu.torch.by_triton import TritonOperations
        from iknow.search.gpu.torch.tiles import blocks_together

        return TritonOperations(make_blocks(*asked, blocks_together(size, counts)))

    def _block_size(self, n_rows: int, n_inhabited: int) -> int:
        """Rows per block: small blocks cost minima to compare, large ones rows to measure.

        The optimum scales with the root of rows / (classes * features); the factors are measured.
        Small classes get small blocks to limit padding.
        """
        factor, smallest, largest = (2.8, 8, 128) if self._fused else (0.5, 4, 256)
        balance = factor * np.sqrt(n_rows / (n_inhabited * max(1, self.n_features)))
        smallest = min(smallest, 2 ** int(np.log2(n_rows / n_inhabited)))
        return int(np.clip(2 ** round(np.log2(balance)), smallest, largest))

    def _available(self) -> int | None:
        """Bytes to use on the device; None if unknown."""
        if self._memory is not None or self.device.type != "cuda":
            return self._memory
        free, _ = torch.cuda.mem_get_info(self.device)
        unused = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return int(SHARE_OF_FREE_MEMORY * (free + unused))

    def _work_bytes(self) -> int:
        """Bytes for the search of a batch of queries, besides the index and the evidence."""
        most = WORK_BYTES_ON_CPU if self._exact_device.type == "cpu" else WORK_BYTES
        if self._exact_device.type == "cuda":
            memory = torch.cuda.get_device_properties(self._exact_device).total_memory
            most = min(most, memory // 8)
        return most if self._memory is None else min(most, self._memory // 4)

    def _derive(self) -> None:
        """Set what is not pickled; the index moves to the device on the first search."""
        self._exact_device = device_with_float64(self.device)
        self._lock = Lock()
        self._n_parts = None
        self._whole = None

    def __getstate__(self) -> dict[str, Any]:
        """Pickle only what cannot be derived."""
        derived = ("_exact_device", "_lock", "_n_parts", "_whole")
        return {name: value for name, value in vars(self).items() if name not in derived}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._derive()
