"""Latencies: durations counted in bins, from which quantiles follow at any time.

Each bin is 2^(1/8) times as wide as the one before, about 9 percent, from 61 µs to 128 s, so that a
quantile is known to within that factor however many requests there were. Counts of several buckets
add up, as quantiles would not.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Floats

PER_OCTAVE = 8
SHORTEST = 2.0**-14
N_BINS = 21 * PER_OCTAVE


def bin_of(seconds: float) -> int:
    """The bin of a duration; what is shorter or longer than all bins goes into the first or last.

    Examples:
        >>> bin_of(0.0), bin_of(SHORTEST * 2), bin_of(1e9) == N_BINS - 1
        (0, 8, True)
    """
    if not seconds > SHORTEST:  # not a number, too
        return 0
    return min(math.floor(PER_OCTAVE * math.log2(min(seconds, 1e6) / SHORTEST)), N_BINS - 1)


def quantiles(counts: NDArray[np.integer[Any]], *shares: float) -> list[Floats]:
    """The durations that shares of the requests do not exceed, each of shape (n,); NaN without any.

    counts: of shape (n, N_BINS). Each answer is the middle of the bin that holds it.
    """
    cumulated = np.cumsum(counts, axis=1, dtype=counts.dtype)
    total, found = cumulated[:, -1], []
    for share in shares:
        needed = np.maximum(np.ceil(share * total), 1).astype(counts.dtype)
        place = (cumulated >= needed[:, None]).argmax(axis=1)
        middle = SHORTEST * 2.0 ** ((place + 0.5) / PER_OCTAVE)
        found.append(np.where(total > 0, middle, np.nan))
    return found
