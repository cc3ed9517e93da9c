"""Activity: what a model has been answering lately, for the page and for `GET /v1/status`.

A tally is one row of whole numbers: rows by assertion, rows by reason, requests, and requests by
duration. Tallies of any stretch of time add up, and everything the page shows about that stretch
follows from the sum.

Memory is bounded. Tallies by time lie in rings, five seconds wide over a quarter of an hour and a
minute wide over a day; of single rows the last `N_RECENT` leave their belief, assertion, level and
probability, and the last `N_UNKNOWN` IDKs their portraits.

Durations are counted in bins, each 2^(1/8) times as wide as the one before, from 61 µs to 128 s, so
that a quantile is known to within 9 percent, and counts of several buckets add up, as quantiles
would not.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Floats, Ints, Labels
from iknow.core.assertion import Assertion, Reason
from iknow.core.calibration import Calibration
from iknow.core.text import name
from iknow.explain.answers import Answers
from iknow.locking import Lock

Counts = NDArray[np.integer[Any]]
PER_OCTAVE = 8
SHORTEST = 2.0**-14
N_DURATIONS = 21 * PER_OCTAVE
REASONS = len(Assertion)  # where in a tally they begin
REQUESTS = REASONS + len(Reason)
DURATIONS = REQUESTS + 1
N_COLUMNS = DURATIONS + N_DURATIONS

N_RECENT = 10_000
N_BINS = 20  # of levels, each 0.05 wide
MOST_CLASSES = 50
SERIES = ((5, 180), (60, 1440))  # seconds in a bucket, buckets
N_UNKNOWN = 20
RATE_SECONDS = 60
LATELY = 300  # seconds


class Ring:
    """Counts in columns over the last `n_buckets` times `width` seconds.

    A moment t belongs to bucket ⌊t / width⌋. Buckets in which nothing happened are not kept, and
    read as zeros. A clock that was set back goes on in the latest bucket.
    """

    def __init__(self, width: int, n_buckets: int, n_columns: int) -> None:
        self.width, self._n_buckets = width, n_buckets
        self._nothing = np.zeros(n_columns, dtype=np.int32)
        self._buckets: dict[int, Counts] = {}
        self._first: int | None = None  # the first bucket that was ever used
        self._latest = 0

    def add(self, now: float, counts: Ints) -> None:
        """Add counts of shape (n_columns,) to the bucket of a moment."""
        self._advance(now)
        self._buckets[self._latest] = self._buckets.get(self._latest, self._nothing) + counts

    def read(self, now: float) -> tuple[float, Counts]:
        """All buckets up to a moment, oldest first, from the first that was ever used: when that
        begins, and counts of shape (n, n_columns).
        """
        first = max(self._advance(now), self._latest - self._n_buckets + 1)
        found = [self._buckets.get(i, self._nothing) for i in range(first, self._latest + 1)]
        return first * self.width, np.stack(found)

    def _advance(self, now: float) -> int:
        """Forget the buckets that a moment is too late for; the first that was ever used."""
        bucket = math.floor(now / self.width)
        if self._first is None:
            self._first = self._latest = bucket
        self._latest = max(self._latest, bucket)
        while self._buckets and (old := next(iter(self._buckets))) <= bucket - self._n_buckets:
            del self._buckets[old]
        return self._first


class Recent:
    """Belief, assertion, level and probability of the last rows. Not for threads to share.

    Args:
        labels: Names of the classes.
        reference: Levels of reference samples, of shape (n_reference,), if they are known.
        threshold: The level from which on an answer is IK, if there is one.
        calibration: What estimates an accuracy from the probabilities, if anything does.
    """

    def __init__(
        self,
        labels: Sequence[str],
        reference: Floats | None = None,
        threshold: float | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        self._labels, self._threshold = [*labels, None], threshold  # the last one for no belief
        self._calibration = calibration
        counts = _histogram(np.empty(0) if reference is None else reference)
        self._reference = (counts / counts.sum()).tolist() if counts.any() else None
        self._rows: deque[NDArray[Any]] = deque([np.empty((4, 0))])
        self._n = 0

    def add(self, answers: Answers) -> None:
        """Remember rows; the oldest are forgotten."""
        unknown = np.full(len(answers.belief), np.nan)
        numbers = [unknown if x is None else x for x in (answers.level, answers.probability)]
        rows = np.stack([answers.belief, np.asarray(answers.assertion), *numbers])[:, -N_RECENT:]
        self._rows.append(rows)
        self._n += rows.shape[1]
        while self._n - self._rows[0].shape[1] >= N_RECENT:
            self._n -= self._rows.popleft().shape[1]

    def to_dict(self) -> dict[str, Any]:
        """`levels`, `by_class` and `estimate` of the last rows, for JSON.

        Of `levels`, None without any, `counts` and `reference`, shares, have an entry for each of
        `N_BINS` bins of equal width between 0 and 1. `by_class` counts assertions, the classes with
        most IDKs first. `estimate`, None if it is unknown: `n` answers, their estimated `accuracy`
        between `low` and `high`, and `unseen`, the share at level 0.
        """
        belief, assertion, level, probability = np.concatenate(self._rows, axis=1)[:, -N_RECENT:]
        counts = _histogram(level)
        levels = {"n": int(counts.sum()), "counts": counts.tolist(), "reference": self._reference,
                  "threshold": self._threshold}  # fmt: skip
        table = np.zeros((len(self._labels), len(Assertion)), dtype=np.int64)
        np.add.at(table, (belief.astype(np.int64), assertion.astype(np.int64)), 1)  # -1 is the last
        seen = np.flatnonzero(table.sum(axis=1))
        order = seen[np.lexsort((-table[seen].sum(axis=1), -table[seen, Assertion.IDK]))]
        rows = [
            {"label": self._labels[code]} | {a.name: int(table[code, a]) for a in Assertion}
            for code in order[:MOST_CLASSES].tolist()
        ]
        more = max(len(order) - MOST_CLASSES, 0)
        return {
            "levels": levels if counts.any() or self._reference is not None else None,
            "by_class": {"n": len(belief), "rows": rows, "more": more},
            "estimate": self._estimate(level, probability),
        }

    def _estimate(self, level: Floats, probability: Floats) -> dict[str, Any] | None:
        if self._calibration is None or np.isnan(probability).all():
            return None
        tally = self._calibration.tally(level, probability)
        accuracy, low, high = self._calibration.estimate(tally)
        n, unseen = int(tally.sum()), int(tally[0])
        return {"n": n, "accuracy": accuracy, "low": low, "high": high, "unseen": unseen / n}


def _histogram(levels: Floats) -> Ints:
    """Rows by level, of shape (N_BINS,); those without a level, NaN, do not count."""
    known = levels[~np.isnan(levels)]
    return np.bincount(np.clip((known * N_BINS).astype(np.int64), 0, N_BINS - 1), minlength=N_BINS)


class Activity:
    """What a model has been answering lately. Threads may share one.

    Args:
        classes: Labels of shape (n_classes,).
        layers: Names of the layers.
        reference: Levels of reference samples, of shape (n_reference,), to show beside those seen.
        threshold: The level from which on an answer is IK.
        calibration: What estimates an accuracy from the probabilities.
        clock: Seconds since 1970.
    """

    def __init__(
        self,
        classes: Labels,
        layers: Sequence[str],
        *,
        reference: Floats | None = None,
        threshold: float | None = None,
        calibration: Calibration | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._clock = clock
        self._since = clock()
        self._layers = [name(layer) for layer in layers]
        self._lock = Lock()
        self._total = np.zeros(N_COLUMNS, dtype=np.int64)
        self._rings = [Ring(width, n, N_COLUMNS) for width, n in SERIES]
        labels = [name(label) for label in np.asarray(classes).tolist()]
        self._recent = Recent(labels, reference, threshold, calibration)
        self._unknown: deque[dict[str, Any]] = deque(maxlen=N_UNKNOWN)

    def add(
        self, answers: Answers, seconds: float, request: str, portraits: Sequence[Any] = ()
    ) -> None:
        """Count a request, the time it took, and keep the portraits of its IDKs."""
        counts, now = tally(answers, seconds), self._clock()
        moment = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
        about = {"time": moment.replace("+00:00", "Z"), "request": name(request)}
        with self._lock.held():
            self._total += counts
            for ring in self._rings:
                ring.add(now, counts)
            self._recent.add(answers)
            self._unknown.extendleft(portrait | about for portrait in portraits)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values for JSON.

        `total`, `lately` and `rate` tell of rows and requests since the start, in the last minutes,
        and per second; `unknown` of the last IDKs, newest first. Times are in seconds since 1970.
        """
        with self._lock.held():
            now = self._clock()
            series = [(ring.width, *ring.read(now)) for ring in self._rings]
            total, unknown = self._total.copy(), list(self._unknown)
            recent = self._recent.to_dict()
        width, start, counts = series[0]
        lately, minute = (counts[-seconds // width :] for seconds in (LATELY, RATE_SECONDS))
        start += width * (len(counts) - len(minute))
        passed = max(now - max(start, self._since), 1.0)  # the first moment is no rate yet
        said, last = totals(lately.sum(axis=0)), totals(minute.sum(axis=0))
        latency = quantiles(lately.sum(axis=0)[None], 50, 95, 99)
        return {
            "now": now,
            "layers": self._layers,
            "total": totals(total),
            "lately": {**said, "seconds": LATELY},
            "rate": {each: last[each] / passed for each in ("rows", "requests")},
            "latency": {percent: column[0] for percent, column in latency.items()},
            "series": [as_series(*each) for each in series],
            **recent,
            "unknown": unknown,
        }


def tally(answers: Answers, seconds: float) -> Ints:
    """The tally of a request that took some seconds, of shape (N_COLUMNS,)."""
    counts = np.zeros(N_COLUMNS, dtype=np.int64)
    counts[:REASONS] = np.bincount(answers.assertion, minlength=len(Assertion))
    counts[REASONS:REQUESTS] = np.bincount(answers.reason, minlength=len(Reason))
    counts[REQUESTS] = counts[DURATIONS + bin_of(seconds)] = 1
    return counts


def bin_of(seconds: float) -> int:
    """The bin of a duration; what is shorter or longer than all bins goes into the first or last.

    Examples:
        >>> bin_of(0.0), bin_of(SHORTEST * 2), bin_of(1e9) == N_DURATIONS - 1
        (0, 8, True)
    """
    if not seconds > SHORTEST:  # not a number, too
        return 0
    return min(math.floor(PER_OCTAVE * math.log2(min(seconds, 1e6) / SHORTEST)), N_DURATIONS - 1)


def totals(counts: Counts) -> dict[str, Any]:
    """Rows and requests of a tally, for JSON."""
    by_assertion = {each.name: int(counts[each]) for each in Assertion}
    reasons = {each.name: int(counts[REASONS + each]) for each in Reason}
    rows, requests = sum(by_assertion.values()), int(counts[REQUESTS])
    return {"rows": rows, "requests": requests, **by_assertion, "reasons": reasons}


def as_series(width: float, start: float, counts: Counts) -> dict[str, Any]:
    """Tallies of buckets as lists with an entry for each, for JSON."""
    columns = {each.name: counts[:, each].tolist() for each in Assertion}
    columns["requests"] = counts[:, REQUESTS].tolist()
    return {"width": width, "start": start, **columns, **quantiles(counts, 50, 99)}


def quantiles(counts: Counts, *percents: int) -> dict[str, list[float | None]]:
    """The seconds that shares of the requests do not exceed, by the names p50, ..., of each tally.

    counts: tallies of shape (n, N_COLUMNS). Each answer is the middle of the bin that holds it, to
    the microsecond: 1,440 minutes of more digits than are known would fill the page. None where
    there was no request.
    """
    cumulated = np.cumsum(counts[:, DURATIONS:], axis=1, dtype=counts.dtype)
    total, found = cumulated[:, -1], dict[str, list[float | None]]()
    for percent in percents:
        needed = np.maximum(np.ceil(percent / 100 * total), 1).astype(counts.dtype)
        place = (cumulated >= needed[:, None]).argmax(axis=1)
        middle = SHORTEST * 2.0 ** ((place + 0.5) / PER_OCTAVE)
        column = middle.round(6).astype(object)
        column[total == 0] = None
        found[f"p{percent}"] = column.tolist()
    return found
