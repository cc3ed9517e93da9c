"""Shards: parts of the rows of layers, in a process of their own, one of Ray's actors.

A process holds one shard of each layer, so that a classifier of many layers takes no more processes
than one of a single layer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from iknow.core.arrays import Floats32, Ints
from iknow.core.evidence import Evidence
from iknow.core.neighborhood import Neighborhood
from iknow.search.index import RowIndex
from iknow.search.ray.deciding import Opinion


class Sizes(NamedTuple):
    """What an index says about itself."""

    n_rows: int
    n_features: int
    n_classes: int


class Shards:
    """Builds indexes from rows, and answers for each by its key.

    threads: how many this process may use, all if not given.
    """

    def __init__(self, threads: int | None = None) -> None:
        if threads is not None:  # read by joblib when the first search asks for it
            os.environ["LOKY_MAX_CPU_COUNT"] = str(threads)
        self._indexes: dict[str, RowIndex] = {}

    def build(
        self,
        key: str,
        make: Callable[..., RowIndex],
        arrays: tuple[Any, Any, Any],
        n_classes: int,
        forgotten: Iterable[str] = (),
    ) -> Sizes:
        """Make the index of these points, labels and row numbers. forgotten: keys not in use."""
        for each in forgotten:
            self._indexes.pop(each, None)
        # Ray's own arrays are read-only, and stay in its store as long as somebody holds them.
        points, labels, rows = (np.array(array) for array in arrays)
        self._indexes[key] = made = make(points, labels, n_classes, rows=rows)
        return Sizes(made.n_rows, made.n_features, made.n_classes)

    def gather(self, key: str, queries: Floats32, k: int, per_class: int) -> Evidence:
        """Evidence of this part, with inf for the neighbors that it lacks."""
        index = self._indexes[key]
        held = min(k, index.n_rows)
        found = index.gather(queries, held, per_class)
        gap = np.full((len(found), k - held), np.inf)
        columns = vars(found) | {"neighbor_distances": np.hstack([found.neighbor_distances, gap])}
        return Evidence(**columns)

    def decides(self, key: str, neighborhood: Neighborhood) -> bool:
        """Whether `judge` is faster than `gather`, as far as it is known."""
        return self._indexes[key].decides(neighborhood)

    def judge(
        self, key: str, queries: Floats32, neighborhood: Neighborhood, belief: Ints
    ) -> Opinion:
        """How near this part is to the beliefs about queries, and to anything else."""
        found = self._indexes[key].decide(queries, neighborhood, belief)
        return Opinion(found.contrast.own, found.contrast.other, found.exemplars)

    def warm_up(self, key: str) -> None:
        """Prepare and compile everything that searching needs."""
        self._indexes[key].warm_up()

    def process(self) -> int:
        """The number of this process."""
        return os.getpid()
