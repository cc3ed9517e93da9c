"""Units: columns whose values are all far from those in training, as if in another unit.

A unit shows in many values alone: nearly all of a column lie outside the range in training and half
of them are 1.5 times larger or smaller than is typical; or half of them a hundred times. Of many
columns without names, such as pixels, half must be like that. So a year, a season or a rare sample
is nothing to tell. Zeros count as no value, as amounts are often mostly 0.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from iknow.core.arrays import Floats
from iknow.core.text import shown
from iknow.errors import warn
from iknow.metrics import Euclidean
from iknow.metrics.table import NUMBERS, Scaled, Table

FEWEST_VALUES = 20
MOST_NUMBERS = 40_000  # of all columns, taken evenly from the samples
MOST_COLUMNS = 1_000
MOST_ROWS = 2_000  # of training samples, taken evenly
NEARLY_ALL = 0.95
OTHERWISE, FAR = 1.5, 100.0  # how much larger or smaller values must be typically


class Ranges(NamedTuple):
    """The least, the largest and the typical size of columns in training, each of shape (d,)."""

    low: Floats
    high: Floats
    typical: Floats  # the median of |x| where it is not 0


def find_ranges(index: Any) -> Ranges | None:
    """The ranges of a layer's columns, NaN for categories; None if its points do not tell."""
    metric = index.metric
    d = len(metric.center) if isinstance(metric, (Table, Scaled)) else index.n_features
    known = metric == Euclidean or isinstance(metric, (Table, Scaled))
    if not known or d > MOST_COLUMNS:
        return None
    values = np.asarray(index.points[:: -(-index.n_rows // MOST_ROWS), :d], dtype=np.float64)
    if isinstance(metric, (Table, Scaled)):
        values = values * metric.scale + metric.center
    low, high, sizes = values.min(axis=0), values.max(axis=0), np.abs(values)
    there = (size[size > 0] for size in sizes.T)
    typical = np.array([np.median(some) if len(some) else np.nan for some in there])
    if isinstance(metric, Table):
        typical[metric.kind != NUMBERS] = np.nan
    return Ranges(low, high, typical)


def warn_of_units(ranges: Ranges, activations: Any, names: Any) -> None:
    """Warn of the columns of a layer that seem to be in another unit than in training.

    activations: of shape (n, d), or (n, 2 d) with flags of values. names: of the columns, or None.
    """
    d = len(ranges.low)
    step = max(1, len(activations) * d // MOST_NUMBERS)
    few = activations[::step].astype(np.float64)
    values = np.abs(few[:, :d])
    there = (values > 0) & (few[:, d:] == 0 if few.shape[1] > d else True)
    enough = there.sum(axis=0)
    with np.errstate(invalid="ignore"):  # NaN where a column is no number
        outside = (few[:, :d] < ranges.low) | (few[:, :d] > ranges.high)
        all_outside = (outside & there).sum(axis=0) >= NEARLY_ALL * enough

        def mostly(factor: float) -> Any:
            beyond = values >= factor * ranges.typical, values <= ranges.typical / factor
            return 2 * np.array([(each & there).sum(axis=0) for each in beyond]) >= enough

        strange = (all_outside & mostly(OTHERWISE)) | mostly(FAR)
    found = np.flatnonzero(strange.any(axis=0) & (enough >= FEWEST_VALUES))
    # Pixels have no names and share one unit, and some of them are hardly ever on.
    least = 1 if names is not None else max(1, np.isfinite(ranges.typical).sum() / 2)
    if len(found) >= least:
        j = found[0]
        name = j if names is None else shown(names[j])
        more = f" (columns affected: {len(found)})" if len(found) > 1 else ""
        warn(
            f"the values of column {name} are much {'larger' if strange[0, j] else 'smaller'} than "
            f"in training, where {ranges.typical[j]:.3g} is typical{more}: check its unit"
        )
