"""TorchIndex: exact search on any device of torch, with its own kernels on a GPU.

Products in low precision bound all distances from below (`bounds`), and we measure the rows that
the bounds leave open in float64 (`search`). An index too large for the device is searched part by
part. The answers are always the same, to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from iknow.core.arrays import Ints
from iknow.core.evidence import NO_EXEMPLAR, Evidence, empty_evidence, stack_evidence
from iknow.core.text import shorten, shown
from iknow.errors import InputError
from iknow.locking import Lock
from iknow.search.gpu.torch.blocks import NO_ROW, make_blocks, to_device
from iknow.search.gpu.torch.bounds import SMALLEST_FACTOR, Filter
from iknow.search.gpu.torch.operations import Operations, PlainOperations
from iknow.search.gpu.torch.search import DeviceEvidence, merge, no_evidence, search
from iknow.search.index import check_k, check_per_class
from iknow.search.stored import StoredRows

WORK_BYTES = 2 << 30
WORK_BYTES_ON_CPU = 64 << 20
SHARE_OF_FREE_MEMORY = 0.8


class TorchIndex(StoredRows):
    """Activations of one layer with their class codes, searched in the Euclidean norm by torch.

    Args:
        activations: Of shape (n_rows, n_features).
        labels: Class codes of shape (n_rows,).
        n_classes: Number of classes.
        rows: Numbers that identify the rows, of shape (n_rows,). Default: their positions.
        device: Where to search, as torch names it.
        filter: Precision of the products that bound the distances: "fp16", "bf16", "tf32" or
            "float32". It changes the time, never the answer. Default: the fastest for the device.
        memory: Bytes to use on the device. Default: most of what is free when the search begins.
        fused: Whether to search with Triton's kernels. Default: on CUDA if Triton is installed.

    Examples:
        >>> TorchIndex(rows, labels, 2, device="cpu").gather([[4.0]]).class_distances
        array([[3., 1.]])
    """

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
        filter: Filter | None = None,
        memory: int | None = None,
        fused: bool | None = None,
    ) -> None:
        super().__init__(activations, labels, n_classes, rows)
        self.device = _check_device(device)
        on_cuda = self.device.type == "cuda"
        self._fused = on_cuda and find_spec("triton") is not None if fused is None else fused
        self.filter: Filter = filter or ("fp16" if self._fused else "float32")
        if self.filter not in SMALLEST_FACTOR:
            raise InputError(f"filter must be one of {', '.join(SMALLEST_FACTOR)}; got {filter!r}")
        self._memory = memory
        self._derive()

    def gather(self, queries: Any, k: int = 0, per_class: int = 1) -> Evidence:
        """Gather evidence about `queries`, (n_queries, n_features), with `k` neighbor distances.

        It holds the `per_class` nearest samples of each class.
        """
        points = self._check(queries)
        check_k(k, self.n_rows)
        per_class = check_per_class(per_class)
        if len(points) == 0:
            return empty_evidence(0, self.n_classes, k, per_class)
        # All at once if their evidence fits: a larger index moves to the device once per batch.
        bytes_per_query = 48 * self.n_classes * per_class + 24 * k + 16 * self.n_features + 1
        step = max(1, 2 * self._work_bytes() // bytes_per_query)
        parts = []
        for start in range(0, len(points), step):
            batch = to_device(points[start : start + step], self._exact_device)
            found = self.gather_on_device(batch, k, per_class)._asdict()
            parts.append(Evidence(**{name: _to_numpy(each) for name, each in found.items()}))
        return parts[0] if len(parts) == 1 else stack_evidence(parts)

    def gather_on_device(self, queries: Tensor, k: int = 0, per_class: int = 1) -> DeviceEvidence:
        """Gather for a tensor of `queries` on the device; nothing goes to the host.

        `k` and `per_class` are those of `gather`.
        """
        points = self._check_queries(queries)
        check_k(k, self.n_rows)
        check_per_class(per_class)
        found = None
        for operations in self._parts() if len(points) else ():
            of_part = self._search_in_batches(operations, points, k, per_class)
            found = of_part if found is None else merge(found, of_part)
        if found is None:
            found = no_evidence(points, self.n_classes, k, per_class)
        elif self.class_starts.size > 1 and np.diff(self.class_starts).min() >= per_class:
            return found  # every place is taken
        named = {
            name: torch.where(each == NO_ROW, NO_EXEMPLAR, each)
            for name, each in found._asdict().items()
            if name.endswith("exemplars")
        }
        return found._replace(**named)

    def _check_queries(self, queries: Tensor) -> Tensor:
        """Queries as a float32 tensor on a device that supports float64."""
        points = queries.detach().to(self._exact_device, torch.float32).contiguous()
        if points.ndim != 2:
            raise InputError(f"queries must have shape (n, n_features); got {tuple(points.shape)}")
        if points.shape[1] != self.n_features or not bool(points.isfinite().all()):
            self._check(points.cpu().numpy())
        return points

    def _search_in_batches(
        self, operations: Operations, queries: Tensor, k: int, per_class: int
    ) -> DeviceEvidence:
        blocks = operations.blocks
        bytes_per_query = 4 * blocks.n_blocks + 64 * blocks.n_features + 512 * k
        # Of several rows, the candidates of as many blocks are ranked at once.
        n_candidates = per_class * operations.count_candidates(per_class) if per_class > 1 else 1
        bytes_per_query += 32 * len(blocks.classes) * (1 + n_candidates)
        step = max(1, self._work_bytes() // bytes_per_query)
        parts = [
            search(operations, queries[start : start + step], self.n_classes, k, per_class)
            for start in range(0, len(queries), step)
        ]
        if len(parts) == 1:
            return parts[0]
        return DeviceEvidence(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))

    def _parts(self) -> Iterator[Operations]:
        """The index on the device, ready to search: whole and kept, or part by part."""
        with self._lock.held():
            if self._n_parts is None:
                self._n_parts = self._count_parts()
            if self._n_parts == 1 and self._whole is None:
                self._whole = self._lay_out(slice(None))
        if self._whole is not None:
            yield self._whole
            return
        bounds = np.linspace(0, self.n_rows, self._n_parts + 1).astype(int)
        for start, end in pairwise(bounds.tolist()):
            if start < end:
                yield self._lay_out(slice(start, end))

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
        asked = points, labels, numbers, size, self.filter, self._exact_device
        if not self._fused:
            return PlainOperations(make_blocks(*asked), self.device)
        from iknow.search.gpu.torch.by_triton import TritonOperations
        from iknow.search.gpu.torch.tiles import blocks_together

        return TritonOperations(make_blocks(*asked, blocks_together(size, self.filter, counts)))

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
        return most if self._memory is None else min(most, self._memory // 4)

    def _derive(self) -> None:
        """Set what is not pickled; the index moves to the device on the first search."""
        self._exact_device = _device_with_float64(self.device)
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


def _to_numpy(tensor: Tensor) -> np.ndarray:
    """A copy row by row: on the device a tensor may be a view."""
    array: np.ndarray = tensor.contiguous().cpu().numpy()
    return array


def _check_device(device: str | torch.device) -> torch.device:
    """A device that torch can create tensors on and read them from."""
    try:
        checked = torch.device(device)
        torch.zeros(1, device=checked).cpu()
    except (RuntimeError, AssertionError, NotImplementedError, TypeError, ValueError) as error:
        reason = shorten((str(error) or type(error).__name__).splitlines()[0])
        given = str(device) if isinstance(device, torch.device) else device
        raise InputError(
            f"torch {torch.__version__} cannot use device {shown(given)} here ({reason}): "
            "use device='cpu' or install a torch build for that device"
        ) from error
    return checked


def _device_with_float64(device: torch.device) -> torch.device:
    """The device itself, or the CPU if the device has no float64 (MPS does not)."""
    try:
        torch.zeros(1, dtype=torch.float64, device=device)
    except (RuntimeError, TypeError):
        return torch.device("cpu")
    return device
