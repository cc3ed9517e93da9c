"""TorchIndex: exact search on any device of torch, with its own kernels on a GPU.

Products in low precision bound all distances from below (`bounds`), and we measure the rows that
the bounds leave open in float64 (`search`). An index too large for the device is searched part by
part. The answers are always the same, to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from iknow.core.arrays import Floats32, Ints
from iknow.core.codes import NO_BELIEF
from iknow.core.decision import Decision, Scope, decide_weighed, stack_decisions
from iknow.core.evidence import NO_EXEMPLAR, Evidence, stack_evidence
from iknow.core.quorum import ONE, truncated_evidence
from iknow.core.rule import Rule, promise_of
from iknow.search.gpu.torch.blocks import NO_ROW, to_device
from iknow.search.gpu.torch.deciding import truncate
from iknow.search.gpu.torch.devices import to_numpy
from iknow.search.gpu.torch.operations import Operations
from iknow.search.gpu.torch.placed import PlacedRows
from iknow.search.gpu.torch.search import DeviceEvidence, merge, no_evidence, search

if TYPE_CHECKING:
    from iknow.search.gpu.torch.winners import Winners


MANY_CLASSES = 64
"""With fewer, evidence about all of them takes no longer than a decision."""


class TorchIndex(PlacedRows):
    """Activations of one layer with their class codes, searched in the Euclidean norm by torch.

    Args:
        activations: Of shape (n_rows, n_features).
        labels: Class codes of shape (n_rows,).
        n_classes: Number of classes.
        rows: Numbers that identify the rows, of shape (n_rows,). Default: their positions.
        device: Where to search, as torch names it.
        memory: Bytes to use on the device. Default: most of what is free when the search begins.

    Examples:
        >>> TorchIndex(rows, labels, 2, device="cpu").gather([[4.0]]).class_distances
        array([[3., 1.]])
    """

    def search(self, points: Floats32, scope: Scope) -> Evidence:
        """Everything about `points`, (n, n_features), that `scope` may need."""
        k, per_class = scope.any, scope.per_class
        # All at once if their evidence fits: a larger index moves to the device once per batch.
        bytes_per_query = 48 * self.n_classes * per_class + 24 * k + 16 * self.n_features + 1
        step = max(1, 2 * self._work_bytes() // bytes_per_query)
        parts = []
        for start in range(0, len(points), step):
            batch = to_device(points[start : start + step], self._exact_device)
            found = self._gather(batch, k, per_class)._asdict()
            parts.append(Evidence(**{name: to_numpy(each) for name, each in found.items()}))
        return parts[0] if len(parts) == 1 else stack_evidence(parts)

    def _gather(self, points: Tensor, k: int, per_class: int) -> DeviceEvidence:
        """Evidence about points on the device, of shape (n, n_features), which stays there."""
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

    def decides(self, neighborhood: Rule) -> bool:
        """Whether `decide` is faster than `gather` for a `neighborhood`, as far as it is known."""
        return self.n_classes >= MANY_CLASSES and self._can_decide(neighborhood)

    def decide(self, queries: Any, neighborhood: Rule, belief: Ints) -> Decision:
        """Decide by a `neighborhood` about `queries`, (n, n_features), and their `belief`, (n,)."""
        points, codes = self._check(queries), np.ascontiguousarray(belief, dtype=np.int64)
        if len(points) == 0 or not self._can_decide(neighborhood):
            return super().decide(points, neighborhood, codes)
        found = []
        for part, winners in self._find_winners(points):
            found.append(self._decide(winners, neighborhood, codes[part]))
        return stack_decisions(found)

    def _can_decide(self, neighborhood: Rule) -> bool:
        horizon = promise_of(neighborhood, "horizon")
        if horizon is None or not horizon.is_finite or horizon.k or neighborhood.quorum != ONE:
            return False
        return self._winning is not None

    def warm_up(self) -> None:
        """Prepare and compile everything that searching needs, by searching for a stored row."""
        super().warm_up()
        if self._winning is not None:
            self._winning.warm_up(to_device(self.points[:1], self.device))

    def _decide(self, winners: Winners, neighborhood: Rule, belief: Ints) -> Decision:
        classes = to_numpy(winners.tiles.blocks.classes)
        ranks = np.full(self.n_classes + 1, -1)  # the last for NO_BELIEF, which is -1
        ranks[classes] = np.arange(len(classes))
        believed = to_device(ranks[np.where(belief == NO_BELIEF, -1, belief)], self.device)
        nearest, number = truncate(winners, believed, promise_of(neighborhood, "horizon"))
        distances = np.full((len(belief), self.n_classes), np.inf)
        rank, query = nearest.isfinite().nonzero(as_tuple=True)  # usually few
        distances[to_numpy(query), classes[to_numpy(rank)]] = to_numpy(nearest[rank, query])
        none = np.empty((len(belief), 0))
        weighed = truncated_evidence(distances, none, belief, neighborhood.quorum)
        exemplars = to_numpy(torch.where(number == NO_ROW, NO_EXEMPLAR, number))
        return decide_weighed(weighed, neighborhood, exemplars)

    @property
    def _winning(self) -> Operations | None:
        """The whole index on the device, if it can settle classes by winners."""
        operations = self._only_part() if self._fused else None
        return operations if operations is not None and operations.have_winners else None

    def _find_winners(self, points: Floats32) -> Iterator[tuple[slice, Winners]]:
        """Winners of batches of queries, with the batch."""
        operations = self._winning
        if operations is None:
            return
        step = max(1, self._work_bytes() // operations.bytes_per_query(0, 1))
        for start in range(0, len(points), step):
            part = slice(start, start + step)
            winners = operations.find_winners(to_device(points[part], self.device))
            if winners is not None:
                yield part, winners

    def _search_in_batches(
        self, operations: Operations, queries: Tensor, k: int, per_class: int
    ) -> DeviceEvidence:
        step = max(1, self._work_bytes() // operations.bytes_per_query(k, per_class))
        parts = [
            search(operations, queries[start : start + step], self.n_classes, k, per_class)
            for start in range(0, len(queries), step)
        ]
        if len(parts) == 1:
            return parts[0]
        return DeviceEvidence(*(torch.cat(tensors) for tensors in zip(*parts, strict=True)))
