"""Tally: what is counted about answers and requests, as one row of whole numbers.

Its columns: rows by assertion, rows by reason, requests, and requests by duration. Tallies of any
stretch of time add up, and everything the page shows about that stretch follows from the sum.

Counts by time lie in a ring, whose newest bucket takes the place of the oldest. A moment t
belongs to bucket ⌊t / width⌋, and bucket i lies in place i mod n. Adding and reading clear the
places that time has passed over since, so a silent hour reads as zeros and not as what happened
before it.

Durations are counted in bins, from which quantiles follow at any time. Each bin is 2^(1/8)
times as wide as the one before, about 9 percent, from 61 µs to 128 s, so that a quantile is known
to within that factor however many requests there were. Counts of several buckets add up, as
quantiles would not.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Floats, Ints
from iknow.core.assertion import Assertion, Reason
from iknow.serve.seen import Seen

Counts = NDArray[np.integer[Any]]
PER_OCTAVE = 8
SHORTEST = 2.0**-14
N_BINS = 21 * PER_OCTAVE
REASONS = len(Assertion)
REQUESTS = REASONS + len(Reason)
DURATIONS = REQUESTS + 1
N_COLUMNS = DURATIONS + N_BINS


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


def count(seen: Seen, seconds: float) -> Ints:
    """The tally of a request that took some seconds, of shape (N_COLUMNS,)."""
    counts = np.zeros(N_COLUMNS, dtype=np.int64)
    counts[:REASONS] = np.bincount(seen.assertion, minlength=len(Assertion))
    counts[REASONS:REQUESTS] = np.bincount(seen.reason, minlength=len(Reason))
    counts[REQUESTS] = counts[DURATIONS + bin_of(seconds)] = 1
    return counts


def totals(counts: Counts) -> dict[str, Any]:
    """Rows and requests of a tally, for JSON."""
    by_assertion = {each.name: int(counts[each]) for each in Assertion}
    reasons = {each.name: int(counts[REASONS + each]) for each in Reason}
    rows, requests = sum(by_assertion.values()), int(counts[REQUESTS])
    return {"rows": rows, "requests": requests, **by_assertion, "reasons": reasons}


def rates(counts: Counts, seconds: float) -> dict[str, float]:
    """Rows and requests of a tally per second, for JSON. seconds: how long that took."""
    rows, requests = int(counts[:REASONS].sum()), int(counts[REQUESTS])
    seconds = max(seconds, 1.0)  # what came in the first moment is no rate yet
    return {"rows": rows / seconds, "requests": requests / seconds}


def latencies(counts: Counts) -> dict[str, Any]:
    """Quantiles of the durations in a tally, in seconds, for JSON; None without requests."""
    found = {key: column[0] for key, column in _quantiles(counts[None], 50, 95, 99).items()}
    return {**found, "requests": int(counts[REQUESTS])}


def as_series(stretch: Stretch) -> dict[str, Any]:
    """Tallies of buckets as lists with an entry for each, for JSON."""
    counts = stretch.counts
    return {
        "width": stretch.width,
        "start": stretch.start,
        **{each.name: counts[:, each].tolist() for each in Assertion},
        "requests": counts[:, REQUESTS].tolist(),
        **_quantiles(counts, 50, 99),
    }


def _quantiles(counts: Counts, *percents: int) -> dict[str, list[float | None]]:
    """Of each tally, in seconds, under the names p50, ...; None where there was no request.

    To the microsecond: 1,440 minutes of more digits than are known would fill the answer.
    """
    found = quantiles(counts[:, DURATIONS:], *(percent / 100 for percent in percents))
    columns = [each.round(6).astype(object) for each in found]
    for seconds, column in zip(found, columns, strict=True):
        column[np.isnan(seconds)] = None
    return {f"p{each}": column.tolist() for each, column in zip(percents, columns, strict=True)}
