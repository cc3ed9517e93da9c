"""MinkowskiIndex: exact search in the ℓp norm, by measuring every distance.

Only ℓ2 turns into matrix products, so here we measure every distance in float64. scipy's distance
functions release Python's lock, so batches share the cores.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist

from iknow.core.arrays import Floats, Floats32, Ints
from iknow.core.scalars import as_real
from iknow.search.cpu.tile_index import TileIndex

LARGEST_PLAIN_POWER = 6.0
"""Up to this p, powers of differences of float32 numbers (1e-45 to 7e38) fit into float64."""


class MinkowskiIndex(TileIndex):
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

    def _place(self, queries: Floats32) -> Floats:
        return queries.astype(np.float64)

    def _measure(self, queries: Floats, tile: slice) -> Floats:
        return measure(queries, self.points[tile].astype(np.float64), self.p)


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
