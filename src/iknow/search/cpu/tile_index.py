"""TileIndex: exact search by measuring every distance, tile by tile, and keeping the best.

Queries share the cores. Rows ascend within a class, so on ties the first ones, within a tile and
among tiles, have the lowest numbers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np

from iknow.core.arrays import Floats, Floats32, Ints
from iknow.core.evidence import Evidence, empty_evidence
from iknow.search.index import check_k, check_per_class
from iknow.search.kernels.numpy import lowest_few
from iknow.search.stored import StoredRows
from iknow.search.threads import for_each, n_cores

QUERIES_PER_TILE = 256
ROWS_PER_TILE = 4096
BYTES_PER_TILE = 32 << 20


class TileIndex(StoredRows):
    """Activations of one layer with their class codes, in a distance that a subclass measures."""

    @abstractmethod
    def _place(self, queries: Floats32) -> Any:
        """Queries of shape (n, n_features) as `_measure` takes them, once for all tiles."""

    @abstractmethod
    def _measure(self, queries: Any, tile: slice) -> Floats:
        """Distances in float64 from placed queries to the rows of a tile, of shape (n, rows)."""

    def gather(self, queries: Any, k: int = 0, per_class: int = 1) -> Evidence:
        """Gather evidence about `queries`, (n_queries, n_features), with `k` neighbor distances.

        It holds the `per_class` nearest rows of each class.
        """
        points = self._check(queries)
        sizes = check_k(k, self.n_rows), check_per_class(per_class)
        evidence = empty_evidence(len(points), self.n_classes, *sizes)
        size = max(1, min(QUERIES_PER_TILE, -(-len(points) // n_cores())))
        # The slices of `evidence` are views: each task fills in its own queries.
        for_each(
            lambda part: self._fill(evidence[part], self._place(points[part])),
            [slice(start, start + size) for start in range(0, len(points), size)],
        )
        return evidence

    def _fill(self, evidence: Evidence, queries: Any) -> None:
        """Write the evidence about the placed queries into `evidence`, tile by tile."""
        k = evidence.n_neighbors
        for tile in self._tiles():
            distances = self._measure(queries, tile)
            if k:
                known = np.concatenate([evidence.neighbor_distances, distances], axis=1)
                known.partition(k - 1, axis=1)
                evidence.neighbor_distances[:] = known[:, :k]
            self._improve(evidence, distances, tile.start)
        evidence.neighbor_distances.sort(axis=1)

    def _tiles(self) -> Iterator[slice]:
        """Slices of rows whose float64 copies fit the memory set aside."""
        affordable = BYTES_PER_TILE // (8 * max(1, self.n_features))
        size = max(1, min(ROWS_PER_TILE, affordable))
        for start in range(0, self.n_rows, size):
            yield slice(start, min(start + size, self.n_rows))

    def _improve(self, evidence: Evidence, distances: Floats, first_row: int) -> None:
        """Keep the nearest samples of each class in a tile if they are nearer than those before.

        distances: of shape (n_queries, rows in the tile).
        """
        labels = self.labels[first_row : first_row + distances.shape[1]]
        numbers = self.rows[first_row : first_row + distances.shape[1]]
        codes, starts = np.unique(labels, return_index=True)
        ends = np.append(starts[1:], len(labels))
        for code, start, end in zip(codes, starts, ends, strict=True):
            own, among = distances[:, start:end], numbers[start:end]
            if evidence.per_class > 1:
                _rank(evidence, int(code), own, among)
                continue
            place = own.argmin(axis=1)
            nearest = own[np.arange(len(place)), place]
            better = nearest < evidence.class_distances[:, code]
            evidence.class_distances[better, code] = nearest[better]
            evidence.exemplars[better, code] = among[place[better]]


def _rank(evidence: Evidence, code: int, distances: Floats, numbers: Ints) -> None:
    """Rank the rows of one class in a tile among the nearest before, which come first on ties.

    distances: of shape (n_queries, n_rows). numbers: of the rows, of shape (n_rows,).
    """
    known = evidence.class_distances[:, code, None], evidence.further_distances[:, code]
    rows = evidence.exemplars[:, code, None], evidence.further_exemplars[:, code]
    m = evidence.per_class
    nearest, column = lowest_few(np.concatenate([*known, distances], axis=1), m)
    before = np.take_along_axis(np.concatenate(rows, axis=1), np.minimum(column, m - 1), axis=1)
    after = numbers[np.maximum(column - m, 0)]
    ranked = np.where(column < m, before, after)
    evidence.class_distances[:, code] = nearest[:, 0]
    evidence.further_distances[:, code] = nearest[:, 1:]
    evidence.exemplars[:, code] = ranked[:, 0]
    evidence.further_exemplars[:, code] = ranked[:, 1:]
