"""MinkowskiIndex: exact search in the ℓp norm, by measuring every distance.

Only ℓ2 turns into matrix products, so here we measure every distance in float64, tile by tile, and
keep the best. scipy's distance functions release Python's lock, so batches share the cores.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from iknow.core.arrays import Floats, Ints
from iknow.core.evidence import Evidence, empty_evidence
from iknow.core.scalars import as_real
from iknow.search.cpu.ranking import lowest_few
from iknow.search.index import check_k, check_per_class
from iknow.search.stored import StoredRows
from iknow.search.threads import for_each, n_cores

QUERIES_PER_TILE = 256
ROWS_PER_TILE = 4096
BYTES_PER_TILE = 32 << 20
LARGEST_PLAIN_POWER = 6.0
"""Up to this p, powers of differences of float32 numbers (1e-45 to 7e38) fit into float64."""


class MinkowskiIndex(StoredRows):
    """Activations of one layer with their class codes, searched in the ℓp norm.

    Args:
        activations: Of shape (n_rows, n_features).
        labels: Class codes of shape (n_rows,).
        n_classes: Number of classes.
        rows: Numbers that identify the rows, of shape (n_rows,). Default: their positions.
        p: The order of the norm, in [1, inf].

    Examples:
        >>> MinkowskiIndex(rows, labels, 2, p=1.0).gather([[4.0]]).exemplars
        array([[1, 2]])
    """

    def __init__(
        self,
        activations: Any,
        labels: Any,
        n_classes: int,
        rows: Ints | None = None,
        p: float = 1.0,
    ) -> None:
        super().__init__(activations, labels, n_classes, rows)
        self.p = as_real(p, "p", "be a number from 1 to inf", lambda number: number >= 1)

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
            lambda part: self._fill(evidence[part], points[part].astype(np.float64)),
            [slice(start, start + size) for start in range(0, len(points), size)],
        )
        return evidence

    def _fill(self, evidence: Evidence, queries: Floats) -> None:
        """Write the evidence about the queries into `evidence`, tile by tile."""
        k = evidence.n_neighbors
        for tile in self._tiles():
            distances = measure(queries, self.points[tile].astype(np.float64), self.p)
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

        distances: of shape (n_queries, rows in the tile). Rows ascend within a class, so on ties
        the first ones, within a tile and among tiles, have the lowest rows.
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


def measure(queries: Floats, points: Floats, p: float) -> Floats:
    """ℓp distances in float64 between queries (n, d) and points (m, d), of shape (n, m)."""
    if p == 1:
        return cdist(queries, points, "cityblock")
    if math.isinf(p):
        return cdist(queries, points, "chebyshev")
    if p <= LARGEST_PLAIN_POWER:
        return cdist(queries, points, "minkowski", p=p)
    return np.stack([_scaled_norms(points - query, p) for query in queries])


def _scaled_norms(differences: Floats, p: float) -> Floats:
    """ℓp norms of rows, each scaled by its largest entry so that no power leaves the range."""
    sizes = np.abs(differences)
    largest = sizes.max(axis=1, initial=0.0)
    scaled = sizes / np.where(largest > 0, largest, 1.0)[:, None]
    norms: Floats = largest * np.power(scaled, p).sum(axis=1) ** (1 / p)
    return norms
