"""Rows packed for the vector units of a CPU, with the terms of safe bounds on distances.

Rows lie class by class in panels of 16, so that one instruction works on 16 rows at once. A panel
of d features is d + 1 vectors of 16 numbers:

    h            |x̂|²/2 minus an allowance for rounding; inf in empty slots
    -x̂_1 … -x̂_d  the rows, shifted by their mean and scaled by a power of two

so that h - x̂·q̂, summed in any order in float32, is a lower bound as derived in `bounds`:
for every row within a distance ρ of the query it is at most

    s²ρ²/2 - |q̂|²/2 + 2c|q̂|² + underflow             (the query's limit for ρ)

because cN² = c(|x̂| + |q̂|)² <= 2c|x̂|² + 2c|q̂|², and h contains the first term.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from iknow.core.arrays import Floats, Floats32, Ints
from iknow.search.bounds import error_of_product, power_of_two_scale
from iknow.search.threads import for_each

LANES = 16
"""Rows in a panel: one or two registers on any current CPU."""
ROWS_PER_TASK = 1 << 14
TOO_FAR = 1e37
"""The squared norm from which products might leave the range of float32."""


class Placed(NamedTuple):
    """Queries shifted and scaled like the rows.

    points: of shape (n_queries, n_features). squared: |q̂|² of shape (n_queries,), inf for queries
    so far away that float32 might overflow: every limit is then inf, and rules nothing out.
    """

    points: Floats32
    squared: Floats


class PackedRows:
    """Rows in panels, class by class.

    rows: of shape (n_rows, n_features). class_starts: see `RowIndex`. order: positions of the
    rows in packing order, of shape (n_rows,), class by class.
    """

    def __init__(self, rows: Floats32, class_starts: Ints, order: Ints) -> None:
        self.n_features = int(rows.shape[1])
        self.center: Floats = rows.mean(axis=0, dtype=np.float64)
        self.scale = power_of_two_scale(rows, self.center)
        self.error, self.underflow = error_of_product(self.n_features)
        sizes = np.diff(class_starts)
        ends = np.cumsum(-(-sizes // LANES))
        # The first panel of each class and, last, the number of panels: shape (n_classes + 1,).
        self.class_panels: Ints = np.concatenate([[0], ends]).astype(np.int64)
        n_panels = int(self.class_panels[-1])
        # The row in each slot, -1 if the slot is empty: shape (n_panels * LANES,).
        self.slots: Ints = np.full(n_panels * LANES, -1, dtype=np.int64)
        shift = np.repeat(self.class_panels[:-1] * LANES - class_starts[:-1], sizes)
        self.slots[np.arange(len(rows)) + shift] = order
        self.panels: Floats32 = np.empty((n_panels, self.n_features + 1, LANES), dtype=np.float32)
        step = max(1, ROWS_PER_TASK // LANES)
        parts = [slice(first, first + step) for first in range(0, n_panels, step)]
        for_each(lambda part: self._pack(rows, part), parts)

    def place(self, queries: Floats32) -> Placed:
        """Queries of shape (n_queries, n_features), shifted and scaled."""
        with np.errstate(over="ignore"):
            points = self._shift(queries)
            squared = np.einsum("ij,ij->i", points, points, dtype=np.float64)
        far = ~(squared < TOO_FAR)
        if far.any():
            points[far], squared[far] = 0.0, np.inf
        return Placed(points, squared)

    def _shift(self, points: Floats32) -> Floats32:
        return ((points - self.center) * self.scale).astype(np.float32)

    def _pack(self, rows: Floats32, part: slice) -> None:
        panels = self.panels[part]
        slots = self.slots[part.start * LANES : part.start * LANES + len(panels) * LANES]
        shifted = self._shift(rows[np.maximum(slots, 0)])
        shifted[slots < 0] = 0.0
        squared = np.einsum("ij,ij->i", shifted, shifted, dtype=np.float64)
        bounds = (squared * (0.5 - 2 * self.error)).astype(np.float32)
        bounds = np.nextafter(bounds, np.float32(-np.inf))  # rounded down
        panels[:, 0] = np.where(slots < 0, np.float32(np.inf), bounds).reshape(-1, LANES)
        np.negative(shifted.reshape(-1, LANES, self.n_features).transpose(0, 2, 1), panels[:, 1:])
