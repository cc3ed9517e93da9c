"""Condense: which rows to keep in full, and how long the codes of the others are.

The bounds of a code differ by 4 r_p r_q in their squares (`codes`), where r is what the directions
leave out. So the rows with the largest r, summed over layers in units of each layer's mean, stay in
full. Codes are as long as a tolerance τ says: in every layer the fewest principal directions that
leave no more than τ times the squared distance at which predictions find their support.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from iknow.core.arrays import Bools, Floats, Floats32, Ints
from iknow.search.condensed.codes import ROWS_AT_ONCE, make_codes
from iknow.search.condensed.layer import CondensedLayer
from iknow.search.cpu.projection import find_directions
from iknow.search.layer import LayerIndex

SAMPLE = 4096  # rows that choose the directions
MOST_DIRECTIONS = 1024


@dataclass(frozen=True, eq=False)
class Axes:
    """The principal directions of a layer, and how much is left of an average row after each.

    center: of shape (n_features,). directions: of shape (n_features, most). left: mean r², of
    shape (most + 1,), descending.
    """

    center: Floats
    directions: Floats
    left: Floats

    def count(self, limit: float) -> int:
        """The fewest directions that leave at most this; all if none does."""
        return int(np.flatnonzero(np.append(self.left[:-1] <= limit, True))[0])

    def outside(self, points: Floats32, d: int) -> Floats:
        """About what the first d directions leave of points of shape (n, n_features): r, (n,)."""
        found = np.empty(len(points))
        directions = self.directions[:, :d].astype(np.float32)  # this only ranks rows
        for start in range(0, len(points), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            shifted = (points[part] - self.center).astype(np.float32)
            squared = np.square(shifted).sum(axis=1) - np.square(shifted @ directions).sum(axis=1)
            found[part] = np.sqrt(np.maximum(squared, 0.0))
        return found


def find_axes(index: LayerIndex) -> Axes:
    """The axes of a layer's points."""
    center: Floats = index.points.mean(axis=0, dtype=np.float64)
    sample = index.points[:: -(-index.n_rows // SAMPLE)] - center
    directions = find_directions(sample, min(index.n_features, MOST_DIRECTIONS))
    along = np.square(sample @ directions).mean(axis=0)
    left = np.square(sample).sum(axis=1).mean() - np.append(0.0, np.cumsum(along))
    return Axes(center, directions, np.maximum.accumulate(left[::-1])[::-1])


def condense_layers(
    indexes: Mapping[str, LayerIndex],
    axes: Mapping[str, Axes],
    n_directions: Mapping[str, int],
    n_kept: int,
) -> dict[str, CondensedLayer]:
    """Layers that keep the same `n_kept` rows in full, and codes of the others."""
    kept = _choose(indexes, axes, n_directions, n_kept)
    condensed = {}
    for layer, index in indexes.items():
        points, labels, rows = index.points, index.labels, index.rows
        directions = np.ascontiguousarray(axes[layer].directions[:, : n_directions[layer]])
        rest = points[~kept], labels[~kept], rows[~kept]
        condensed[layer] = CondensedLayer(
            points[kept],
            labels[kept],
            index.n_classes,
            rows[kept],
            index.metric,
            index.device,
            index=index.given,
            codes=make_codes(*rest, axes[layer].center, directions),
        )
    return condensed


def _choose(
    indexes: Mapping[str, LayerIndex],
    axes: Mapping[str, Axes],
    n_directions: Mapping[str, int],
    n_kept: int,
) -> Bools:
    """Which rows to keep in full, a mask of shape (n_rows,)."""
    n_rows = next(iter(indexes.values())).n_rows
    missed = np.zeros(n_rows)
    for layer, index in indexes.items():
        outside = axes[layer].outside(index.points, n_directions[layer])
        missed += outside / max(float(outside.mean()), np.finfo(np.float64).tiny)
    # Of equals, any: the first ones would all be of one class.
    order: Ints = np.random.default_rng(0).permutation(n_rows)
    order = order[np.argsort(-missed[order], kind="stable")]
    kept = np.zeros(n_rows, dtype=bool)
    kept[order[:n_kept]] = True
    return kept


def count_bytes(indexes: Mapping[str, LayerIndex]) -> int:
    """Bytes of the evidence of layers: their points, the labels and row numbers, and codes."""
    any_index = next(iter(indexes.values()))
    total = any_index.labels.nbytes + any_index.rows.nbytes
    shared = 0
    for index in indexes.values():
        total += index.points.nbytes
        if isinstance(index, CondensedLayer):
            shared = index.codes.labels.nbytes + index.codes.rows.nbytes  # by all layers
            total += index.codes.n_bytes - shared
    return total + shared
