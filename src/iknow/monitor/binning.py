"""Bins: a score between 0 and 1 becomes one of a fixed number of bins, lower for stranger.

An alarm remembers all scores it has seen. In bins that takes the same memory after a thousand
samples and after a billion. The edges are fixed numbers: had the reference samples chosen them,
these would no longer be exchangeable with the samples to come, and the promise would be gone.

Drift shows first in the lowest levels, so bins are finer there: 64 of equal width from 1/8 up, and
below eight to each halving, down to 2^-14, about one in 16,000. Level 0, never IK, and level 1 have
bins of their own, as many samples may share them. All edges are exact binary fractions, the same on
every machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.core.arrays import Floats, Ints
from iknow.core.text import shown
from iknow.errors import InputError

LOWEST_OCTAVE = -14
OCTAVES = [np.ldexp(1 + np.arange(8) / 8, exponent) for exponent in range(LOWEST_OCTAVE, -3)]
EDGES: Floats = np.concatenate([[np.nextafter(0.0, 1.0)], *OCTAVES, np.arange(8, 65) / 64])
"""The lower ends of all bins but the first, which holds 0 alone, ascending."""

N_BINS = len(EDGES) + 1


def find_bins(scores: Any, what: str) -> Ints:
    """The bin of each score, from 0 for a score of 0 to `N_BINS - 1` for 1, in their shape.

    Examples:
        >>> find_bins([0.0, 0.5, 1.0], "levels").tolist()
        [0, 114, 146]
    """
    try:
        found = np.asarray(scores, dtype=np.float64)
    except (TypeError, ValueError):
        found = np.array(np.nan)
    if not ((found >= 0) & (found <= 1)).all():  # NaN is neither
        raise InputError(f"{what} must be numbers from 0 to 1; got {shown(scores)}")
    return np.searchsorted(EDGES, found, side="right")
