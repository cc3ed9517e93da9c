"""Copying: how many samples, and how many training samples, have a copy in the training set.

A network's activations for one input vary slightly with the batch size, so two samples count as
copies if they are at most a hundred-thousandth of the layer's size apart. The same rule applies to
training samples among themselves, which keeps the comparison fair.

Leaves of trees say nothing here: a tree grows until it tells its training samples apart, and every
other sample shares a leaf with one.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.evidence import Evidence
from iknow.core.quorum import Contrast
from iknow.models.inputs import norms
from iknow.search.layer import LayerIndex

TOLERANCE = 1e-5
SAMPLES_MEASURED = 4096
ROWS_AT_ONCE = 512


def count_copies(
    evidence: Mapping[str, Evidence] | Mapping[str, Contrast], indexes: Mapping[str, LayerIndex]
) -> tuple[int, int, int, int]:
    """Count the copies and all samples, then the same for the training samples.

    Training samples are checked only if there is a copy, at most `SAMPLES_MEASURED` of them.
    """
    telling = {layer: index for layer, index in indexes.items() if index.metric.p != 0}
    limits = {layer: TOLERANCE * _size(index) for layer, index in telling.items()}
    n_samples = max(map(len, evidence.values()))
    n_rows = next(iter(indexes.values())).n_rows
    if not telling:
        return 0, n_samples, 0, n_rows

    def copies(nearest: Mapping[str, Floats]) -> int:
        close = [nearest[layer] <= limit for layer, limit in limits.items()]
        return int(np.logical_and.reduce(close).sum())

    copied = copies({layer: _nearest(evidence[layer]) for layer in telling})
    if not copied:
        return 0, n_samples, 0, n_rows
    rows = np.arange(0, n_rows, -(-n_rows // SAMPLES_MEASURED))
    repeated = copies({layer: _nearest_other(index, rows) for layer, index in telling.items()})
    return copied, n_samples, repeated, len(rows)


def _nearest(evidence: Evidence | Contrast) -> Floats:
    """The distance to the nearest sample of all, which a quorum may not count."""
    held = evidence.n_neighbors > 0
    return evidence.neighbor_distance(1) if held else evidence.nearest_distance()


def _nearest_other(index: LayerIndex, rows: Ints) -> Floats:
    """The distance from each of these training samples to its nearest other, of shape (n,)."""
    parts = [rows[start : start + ROWS_AT_ONCE] for start in range(0, len(rows), ROWS_AT_ONCE)]
    # Each sample is its own nearest neighbor, so the other one comes second.
    return np.concatenate([index.gather_among(part, 2).neighbor_distance(2) for part in parts])


def _size(index: LayerIndex) -> float:
    """The typical length of a layer's activations."""
    lengths = norms(index.points[:: -(-index.n_rows // SAMPLES_MEASURED)])
    return float(np.sqrt(np.square(lengths).mean()))
