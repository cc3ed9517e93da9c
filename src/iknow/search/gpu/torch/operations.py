"""The operations that a search needs on a device, and plain torch versions that run anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple, Protocol

import torch
from torch import Tensor

from iknow.search.gpu.torch.blocks import NO_ROW, Blocks
from iknow.search.gpu.torch.bounds import Frame, QueryBounds
from iknow.search.gpu.torch.sums import measure

if TYPE_CHECKING:
    from iknow.search.gpu.torch.winners import Winners

BYTES_FOR_PRODUCTS = 4 << 20
BYTES_FOR_MEASURING = 4 << 20


class Segments(NamedTuple):
    """Sets of blocks: set i is starts[i], starts[i] + step, ... below ends[i]; never empty."""

    starts: Tensor
    ends: Tensor
    step: int


class Operations(Protocol):
    """The steps of a search that deserve their own kernels."""

    @property
    def blocks(self) -> Blocks: ...

    def block_minima(self, queries: Tensor) -> tuple[Tensor, QueryBounds]:
        """A lower bound for each block, of shape (n_blocks, n_queries), and input for limits."""

    @property
    def have_winners(self) -> bool:
        """Whether `find_winners` finds any."""

    def warm_up(self, queries: Tensor) -> None:
        """Compile what only some searches need."""

    def bytes_per_query(self, k: int, per_class: int) -> int:
        """Bytes that a search needs for each query, roughly."""

    def find_winners(self, queries: Tensor) -> Winners | None:
        """What settles the nearest row of each class without a bound of each block; or None."""

    def lowest(self, minima: Tensor, segments: Segments) -> tuple[Tensor, Tensor]:
        """Lowest minimum of each segment and its block, of shape (n_segments, n_queries)."""

    def within(
        self, minima: Tensor, limits: Tensor, ranks: Tensor, at_once: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """Blocks and queries, in lists of at most `at_once`, whose minimum is within the limit.

        limits: of shape (n_limits, n_queries); ranks: each block's limit, of shape (n_blocks,).
        """

    def nearest(self, queries: Tensor, query: Tensor, block: Tensor) -> tuple[Tensor, Tensor]:
        """Distance and number of the row of a block nearest to a query, both of shape (n_pairs,).

        queries: of shape (n_queries, n_features); query, block: of shape (n_pairs,).
        """

    def candidates(
        self, queries: Tensor, query: Tensor, block: Tensor, m: int
    ) -> tuple[Tensor, Tensor]:
        """Distances and numbers of rows of a block, in any order, its `m` nearest among them.

        Both of shape (count_candidates(m), n_pairs); inf and NO_ROW for padding.
        """

    def count_candidates(self, m: int) -> int:
        """How many rows of each block are candidates."""

    def distances(self, queries: Tensor, query: Tensor, block: Tensor) -> Tensor:
        """Distances to all rows of a block, of shape (n_pairs, block size); inf for padding."""


class PlainOperations:
    """The operations with torch alone.

    device: where to compute the products; it need not support float64 (MPS does not). Everything
    else runs where the blocks are. If torch is set to multiply float32 in less than float32, we
    round all factors to bf16 beforehand, which no such setting can change.
    """

    def __init__(self, blocks: Blocks, device: torch.device) -> None:
        self._blocks = blocks
        self._device = device
        self._frames: dict[bool, Frame] = {}
        self._factors: dict[bool, tuple[Tensor, Tensor, Tensor, Tensor]] = {}
        self._prepare(_products_are_full())

    @property
    def blocks(self) -> Blocks:
        return self._blocks

    @property
    def have_winners(self) -> bool:
        return False

    def warm_up(self, queries: Tensor) -> None:
        pass

    def bytes_per_query(self, k: int, per_class: int) -> int:
        return bytes_by_blocks(self, k, per_class)

    def find_winners(self, queries: Tensor) -> None:
        return None

    def block_minima(self, queries: Tensor) -> tuple[Tensor, QueryBounds]:
        full = _products_are_full()
        self._prepare(full)
        bounds = self._frames[full].bound_queries(queries)
        low, half_norms, losses, lengths = self._factors[full]
        numbers = bounds.low.float().T, bounds.scales, bounds.norms, bounds.errors
        columns, scales, norms, errors = (each.to(self._device) for each in numbers)
        size, n_blocks = self._blocks.size, self._blocks.n_blocks
        minima = columns.new_empty(n_blocks, len(queries))
        step = max(1, BYTES_FOR_PRODUCTS // (4 * size * max(1, len(queries))))
        for first in range(0, n_blocks, step):
            part = slice(first, min(first + step, n_blocks))
            rows = slice(part.start * size, part.stop * size)
            with torch.autocast(self._device.type, enabled=False):
                products = low[rows] @ columns
            bound = torch.addcmul(products.neg_(), half_norms[rows, None], scales)
            minima[part] = bound.view(-1, size, len(queries)).amin(1)
        minima.addcmul_(losses[:, None], norms, value=-1)
        minima.addcmul_(lengths[:, None], errors, value=-1)
        return minima.to(self._blocks.device), bounds

    def lowest(self, minima: Tensor, segments: Segments) -> tuple[Tensor, Tensor]:
        low = minima.new_empty(len(segments.starts), minima.shape[1])
        block = torch.empty_like(low, dtype=torch.int64)
        ranges = zip(segments.starts.tolist(), segments.ends.tolist(), strict=True)
        for i, (start, end) in enumerate(ranges):
            low[i], place = minima[start : end : segments.step].min(0)
            block[i] = start + place * segments.step
        return low, block

    def within(
        self, minima: Tensor, limits: Tensor, ranks: Tensor, at_once: int
    ) -> Iterator[tuple[Tensor, Tensor]]:
        block, query = torch.nonzero(minima <= limits[ranks], as_tuple=True)
        for start in range(0, len(block), at_once):
            yield block[start : start + at_once], query[start : start + at_once]

    def nearest(self, queries: Tensor, query: Tensor, block: Tensor) -> tuple[Tensor, Tensor]:
        distances = queries.new_empty(len(query), dtype=torch.float64)
        numbers = torch.empty_like(query)
        for part in self._affordable(len(query)):
            measured = self._measure(queries, query[part], block[part])
            distances[part] = measured.amin(1)
            tied = measured == distances[part, None]
            of_block = self._blocks.numbers.view(-1, self._blocks.size)[block[part]]
            numbers[part] = torch.where(tied, of_block, NO_ROW).amin(1)
        return distances, numbers

    def candidates(
        self, queries: Tensor, query: Tensor, block: Tensor, m: int
    ) -> tuple[Tensor, Tensor]:
        numbers = self._blocks.numbers.view(-1, self._blocks.size)[block]
        distances = self.distances(queries, query, block)
        return distances.T.contiguous(), numbers.T.contiguous()

    def count_candidates(self, m: int) -> int:
        return self._blocks.size  # all: to rank them once, for the whole class, is cheaper

    def distances(self, queries: Tensor, query: Tensor, block: Tensor) -> Tensor:
        measured = queries.new_empty(len(query), self._blocks.size, dtype=torch.float64)
        for part in self._affordable(len(query)):
            measured[part] = self._measure(queries, query[part], block[part])
        return measured

    def _affordable(self, n_pairs: int) -> Iterator[slice]:
        bytes_per_pair = 8 * self._blocks.size * max(1, self._blocks.n_features)
        step = max(1, BYTES_FOR_MEASURING // bytes_per_pair)
        for start in range(0, n_pairs, step):
            yield slice(start, start + step)

    def _measure(self, queries: Tensor, query: Tensor, block: Tensor) -> Tensor:
        size = self._blocks.size
        points = self._blocks.points.view(-1, size, self._blocks.n_features)[block]
        is_row = self._blocks.numbers.view(-1, size)[block] != NO_ROW
        return torch.where(is_row, measure(points, queries[query, None]), torch.inf)

    def _prepare(self, full: bool) -> None:
        """The numbers of all rows on the products' device, for full or reduced precision."""
        if full in self._factors:
            return
        blocks = self._blocks
        frame = blocks.frame
        frame = Frame(frame.center, frame.scale, frame.filter if full else "bf16")
        shape = (-1, blocks.size, blocks.n_features)
        parts = []
        for part in blocks.slices():
            is_row = blocks.numbers.view(-1, blocks.size)[part] != NO_ROW
            bounds = frame.bound_rows(blocks.points.view(shape)[part], is_row)
            per_row = bounds.low.float().flatten(0, 1), bounds.half_norms.flatten()
            per_block = bounds.losses.amax(1), bounds.lengths.amax(1)
            parts.append([each.to(self._device) for each in (*per_row, *per_block)])
        low, half_norms, losses, lengths = (torch.cat(part) for part in zip(*parts, strict=True))
        self._frames[full] = frame
        self._factors[full] = low, half_norms, losses, lengths


def bytes_by_blocks(operations: Operations, k: int, per_class: int) -> int:
    """Bytes for each query of a search that bounds each block."""
    blocks = operations.blocks
    # Of several rows, the candidates of as many blocks are ranked at once.
    n_candidates = per_class * operations.count_candidates(per_class) if per_class > 1 else 1
    per_pair = 32 * (1 + n_candidates)
    return 4 * blocks.n_blocks + 64 * blocks.n_features + 512 * k + per_pair * len(blocks.classes)


def _products_are_full() -> bool:
    """Whether torch multiplies float32 matrices in float32."""
    try:
        return torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # newer versions allow a setting per backend: it may be anything
        return False
