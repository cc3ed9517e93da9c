"""Buckets: counts by time, in a ring. The newest bucket takes the place of the oldest.

A moment t belongs to bucket ⌊t / width⌋, and bucket i lies in place i mod n. Adding and reading
clear the places that time has passed over since, so a silent hour reads as zeros and not as what
happened before it.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Ints

Counts = NDArray[np.integer[Any]]


class Stretch(NamedTuple):
    """Counts of consecutive buckets, of shape (n_buckets, n_columns), and when the first begins."""

    width: float
    start: float
    counts: Counts

    def last(self, seconds: float) -> Stretch:
        """The buckets of the last seconds; all, if there are no more."""
        left_out = max(len(self.counts) - int(seconds / self.width), 0)
        return Stretch(self.width, self.start + left_out * self.width, self.counts[left_out:])


class Buckets:
    """Counts in columns over the last `n_buckets` times `width` seconds.

    Args:
        width: Seconds in a bucket.
        n_buckets: How many are kept.
        n_columns: Counts in each of them.

    Examples:
        >>> buckets = Buckets(width=5, n_buckets=3, n_columns=2)
        >>> buckets.add(101.0, np.array([1, 0]))
        >>> buckets.add(112.0, np.array([2, 7]))
        >>> buckets.read(112.0).counts.tolist()
        [[1, 0], [0, 0], [2, 7]]
    """

    def __init__(self, width: float, n_buckets: int, n_columns: int) -> None:
        self.width = width
        self._counts = np.zeros((n_buckets, n_columns), dtype=np.int32)
        self._first: int | None = None  # the first bucket that was ever used
        self._latest = 0

    def add(self, now: float, counts: Ints) -> None:
        """Add counts of shape (n_columns,) to the bucket of a moment."""
        self._advance(now)
        self._counts[self._latest % len(self._counts)] += counts

    def read(self, now: float) -> Stretch:
        """All buckets up to a moment, oldest first, from the first that was ever used."""
        self._advance(now)
        first = self._latest if self._first is None else self._first
        oldest = max(first, self._latest - len(self._counts) + 1)
        places = np.arange(oldest, self._latest + 1) % len(self._counts)
        return Stretch(self.width, oldest * self.width, self._counts[places])

    def _advance(self, now: float) -> None:
        bucket = math.floor(now / self.width)
        if self._first is None:
            self._first = self._latest = bucket
        passed = min(bucket - self._latest, len(self._counts))
        if passed > 0:  # a clock that was set back goes on in the latest bucket
            self._counts[np.arange(bucket - passed + 1, bucket + 1) % len(self._counts)] = 0
            self._latest = bucket
