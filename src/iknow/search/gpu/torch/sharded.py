"""ShardedIndex: rows spread over several devices, searched at the same time.

Evidence merges: the distance to a class is the least of its distances in the shards, the lowest row
number breaks ties, and the nearest k rows are among the nearest k of each shard. Each shard is a
`TorchIndex`, whose answers have the same bits on every device, so the answer is that of one index,
however the rows are spread. We deal the rows of each class out in turn, as cards: every shard then
has a share of every class, and the shards have equal work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import torch

from iknow.core.arrays import Bools, Floats32, Ints
from iknow.core.evidence import Evidence, empty_evidence, merge_evidence
from iknow.core.neighborhood import Neighborhood
from iknow.core.overriding import said
from iknow.core.quorum import ONE
from iknow.core.text import shown
from iknow.errors import InputError
from iknow.search.gpu.torch.index import TorchIndex
from iknow.search.index import check_k, check_per_class
from iknow.search.stored import StoredRows

Answer = TypeVar("Answer")


class ShardedIndex(StoredRows):
    """Activations of one layer with their class codes, searched on several devices.

    Args:
        activations: Of shape (n_rows, n_features).
        labels: Class codes of shape (n_rows,).
        n_classes: Number of classes.
        rows: Numbers that identify the rows, of shape (n_rows,). Default: their positions.
        devices: Where to search, as torch names them; one may be named twice. Default: every CUDA
            device that torch sees.
        options: Further arguments of each `TorchIndex`, such as filter="bf16".

    Examples:
        >>> index = ShardedIndex(rows, labels, 2, devices=["cpu", "cpu"])
        >>> index.gather([[4.0]]).class_distances
        array([[3., 1.]])
    """

    def __init__(
        self,
        activations: Any,
        labels: Any,
        n_classes: int,
        rows: Ints | None = None,
        devices: Sequence[str | torch.device] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(activations, labels, n_classes, rows)
        if devices is None:
            devices = [f"cuda:{i}" for i in range(torch.cuda.device_count())]
        if isinstance(devices, (str, torch.device)) or len(devices) == 0:
            raise InputError(
                "devices must name at least one device, such as ['cuda:0', 'cuda:1']; "
                f"got {shown(devices)}"
            )
        shares = range(min(len(devices), max(1, self.n_rows)))
        places = np.arange(self.n_rows)
        self.shards = [self._deal(places % len(shares) == i, devices[i], options) for i in shares]

    def gather(self, queries: Any, k: int = 0, per_class: int = 1) -> Evidence:
        """Gather evidence about `queries`, (n_queries, n_features), with `k` neighbor distances.

        It holds the `per_class` nearest samples of each class.
        """
        points = self._check(queries)
        check_k(k, self.n_rows)
        per_class = check_per_class(per_class)
        if len(points) == 0:
            return empty_evidence(0, self.n_classes, k, per_class)
        return merge_evidence(self._ask(lambda shard: _gather(shard, points, k, per_class)))

    def find_support(
        self, queries: Any, neighborhood: Neighborhood, belief: Ints | None = None
    ) -> Bools:
        """Find the classes in `neighborhood`: a mask (n_queries, n_classes) for `queries`.

        `belief`: class codes of shape (n_queries,), for rules that depend on it.
        """
        # Within fixed radii, a class is near if it is in any shard.
        radius = said(neighborhood, "decided_within")
        is_union = radius is not None and said(neighborhood, "empty_beyond") == radius
        if not is_union or neighborhood.quorum != ONE:
            return super().find_support(queries, neighborhood, belief)
        points = self._check(queries)
        found = self._ask(lambda shard: shard.find_support(points, neighborhood, belief))
        support: Bools = np.logical_or.reduce(found)
        return support

    def warm_up(self) -> None:
        """Prepare and compile everything that searching needs, on every device."""
        self._ask(lambda shard: shard.warm_up())

    def _deal(self, is_in: Bools, device: str | torch.device, options: Any) -> TorchIndex:
        arrays = self.points[is_in], self.labels[is_in]
        return TorchIndex(*arrays, self.n_classes, rows=self.rows[is_in], device=device, **options)

    def _ask(self, question: Callable[[TorchIndex], Answer]) -> list[Answer]:
        """The answers of all shards, each by a thread: torch waits for devices without the GIL."""
        with ThreadPoolExecutor(len(self.shards)) as pool:
            return list(pool.map(question, self.shards))


def _gather(shard: TorchIndex, points: Floats32, k: int, per_class: int) -> Evidence:
    """Evidence of a shard, with inf past its last row."""
    evidence = shard.gather(points, min(k, shard.n_rows), per_class)
    missing = np.full((len(points), k - evidence.n_neighbors), np.inf)
    neighbors = np.concatenate([evidence.neighbor_distances, missing], axis=1)
    columns = {**vars(evidence), "neighbor_distances": neighbors}
    return Evidence(**columns)
