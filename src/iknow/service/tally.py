"""Tally: what is counted about answers and requests, as one row of whole numbers.

Its columns: rows by assertion, rows by reason, requests, and requests by duration. Tallies of any
stretch of time add up, and everything the page shows about that stretch follows from the sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from iknow.core.arrays import Ints
from iknow.core.assertion import Assertion, Reason
from iknow.service.buckets import Counts, Stretch
from iknow.service.latencies import N_BINS, bin_of, quantiles
from iknow.service.seen import Seen

REASONS = len(Assertion)
REQUESTS = REASONS + len(Reason)
DURATIONS = REQUESTS + 1
N_COLUMNS = DURATIONS + N_BINS


def count(seen: Seen, durations: Sequence[float]) -> Ints:
    """The tally of a batch, of shape (N_COLUMNS,). durations: of its requests, in seconds."""
    counts = np.zeros(N_COLUMNS, dtype=np.int64)
    counts[:REASONS] = np.bincount(seen.assertion, minlength=len(Assertion))
    counts[REASONS:REQUESTS] = np.bincount(seen.reason, minlength=len(Reason))
    counts[REQUESTS] = len(durations)
    for seconds in durations:
        counts[DURATIONS + bin_of(seconds)] += 1
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
