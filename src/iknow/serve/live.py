"""Live: what a model has been saying lately, for the page and for `GET /v1/status`.

Memory is bounded: counts by time lie in rings (`tally.py`), five seconds wide over a quarter of an
hour and a minute wide over a day; of single rows the last `N_RECENT` leave their belief, assertion
and level, and the last `N_UNKNOWN` IDKs their evidence (`seen.py`). Totals since the start change
ever more slowly: the last rows tell what a model does not know now, and whether its levels lie as
those of the reference samples do.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from iknow.core.arrays import Floats, Ints, Labels
from iknow.core.assertion import Assertion
from iknow.core.codes import NO_BELIEF
from iknow.core.text import name
from iknow.locking import Lock
from iknow.serve.seen import Seen
from iknow.serve.tally import N_COLUMNS, Buckets, as_series, count, latencies, rates, totals

N_RECENT = 10_000
N_BINS = 20  # of levels, each 0.05 wide
MOST_CLASSES = 50

NOT_THERE = -2  # the belief in a place that no row has taken yet
SERIES = ((5, 180), (60, 1440))  # seconds in a bucket, buckets
N_UNKNOWN = 20
RATE_SECONDS = 60
LATELY = 300  # seconds


class Recent:
    """Belief, assertion and level of the last rows. Not for threads to share.

    Args:
        n_classes: Number of classes.
        reference: Levels of reference samples, of shape (n_reference,), if they are known.
        threshold: The level from which on an answer is IK, if there is one.
    """

    def __init__(
        self, n_classes: int, reference: Floats | None = None, threshold: float | None = None
    ) -> None:
        self._n_classes = n_classes
        self._reference = None if reference is None else _shares(_histogram(reference))
        self._threshold = threshold
        self._belief = np.full(N_RECENT, NOT_THERE, dtype=np.int64)
        self._assertion = np.zeros(N_RECENT, dtype=np.int8)
        self._level = np.full(N_RECENT, np.nan)
        self._next = 0

    def add(self, seen: Seen) -> None:
        """Remember rows; the oldest are forgotten."""
        count = min(len(seen), N_RECENT)
        places = (self._next + np.arange(count)) % N_RECENT
        last = slice(len(seen) - count, None)
        self._belief[places] = seen.belief[last]
        self._assertion[places] = seen.assertion[last]
        self._level[places] = np.nan if seen.level is None else seen.level[last]
        self._next = (self._next + count) % N_RECENT

    def levels(self) -> dict[str, Any] | None:
        """How many rows have which level, for JSON; None without levels.

        `counts` and `reference`, shares, have an entry for each of `N_BINS` bins of equal width
        between 0 and 1.
        """
        counts = _histogram(self._level)
        if not counts.any() and self._reference is None:
            return None
        return {
            "n": int(counts.sum()),
            "counts": counts.tolist(),
            "reference": self._reference,
            "threshold": self._threshold,
        }

    def by_class(self, labels: list[str]) -> dict[str, Any]:
        """How often each class was believed with which assertion, for JSON.

        `rows`, those with most IDKs first; `more`, how many further classes there are; `n`, rows.
        """
        there = self._belief != NOT_THERE
        codes = np.where(self._belief == NO_BELIEF, self._n_classes, self._belief)[there]
        joint = codes * len(Assertion) + self._assertion[there]
        counts = np.bincount(joint, minlength=(self._n_classes + 1) * len(Assertion))
        table = counts.reshape(-1, len(Assertion))
        seen = np.flatnonzero(table.sum(axis=1))
        order = seen[np.lexsort((-table[seen].sum(axis=1), -table[seen, Assertion.IDK]))]
        rows = [
            {
                "label": labels[code] if code < self._n_classes else None,
                **{each.name: int(table[code, each]) for each in Assertion},
            }
            for code in order[:MOST_CLASSES].tolist()
        ]
        return {"n": int(there.sum()), "rows": rows, "more": max(len(order) - MOST_CLASSES, 0)}


def _histogram(levels: Floats) -> Ints:
    """Rows by level, of shape (N_BINS,); those without a level, NaN, do not count."""
    known = levels[~np.isnan(levels)]
    bins = np.clip((known * N_BINS).astype(np.int64), 0, N_BINS - 1)
    return np.bincount(bins, minlength=N_BINS)


def _shares(counts: Ints) -> list[float] | None:
    total = int(counts.sum())
    return (counts / total).tolist() if total else None


class Live:
    """What a model has been saying lately. Threads may share one.

    Args:
        classes: Labels of shape (n_classes,).
        layers: Names of the layers.
        reference: Levels of reference samples, of shape (n_reference,), to show beside those seen.
        threshold: The level from which on an answer is IK.
        clock: Seconds since 1970 that never run backward.

    Examples:
        >>> from iknow.serve.seen import Looker
        >>> live = Live(ec.classes_, ec.layers_)
        >>> live.take(Looker().look(ec.assess(X)), seconds=0.004, request="8c1f")
        >>> live.to_dict()["total"]["rows"] == len(X)
        True
    """

    def __init__(
        self,
        classes: Labels,
        layers: Sequence[str],
        *,
        reference: Floats | None = None,
        threshold: float | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._clock = steady_clock() if clock is None else clock
        self._since = self._clock()
        self._labels = [name(label) for label in np.asarray(classes).tolist()]
        self._layers = [name(layer) for layer in layers]
        self._lock = Lock()
        self._total = np.zeros(N_COLUMNS, dtype=np.int64)
        self._series = [Buckets(width, n, N_COLUMNS) for width, n in SERIES]
        self._recent = Recent(len(self._labels), reference, threshold)
        self._unknown: deque[dict[str, Any]] = deque(maxlen=N_UNKNOWN)

    def take(self, seen: Seen, seconds: float, request: str) -> None:
        """Count a request: what a `Looker` saw of it, perhaps in another process, and its time."""
        counts, now = count(seen, seconds), self._clock()
        moment = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
        about = {"time": moment.replace("+00:00", "Z"), "request": name(request)}
        with self._lock.held():
            self._total += counts
            for buckets in self._series:
                buckets.add(now, counts)
            self._recent.add(seen)
            self._unknown.extendleft(portrait | about for portrait in seen.unknown)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON.

        Returns:
            `now` and `since`, in seconds since 1970; `layers`; `total` and `lately`, rows and
            requests since the start and in the last minutes; `rate`, both per second; `latency`,
            its quantiles in seconds; `series`, counts by time; `levels` and `by_class` of the last
            rows; `unknown`, the last IDKs, newest first.
        """
        with self._lock.held():
            now = self._clock()
            series = [each.read(now) for each in self._series]
            total, unknown = self._total.copy(), list(self._unknown)
            levels, by_class = self._recent.levels(), self._recent.by_class(self._labels)
        lately, minute = (series[0].last(seconds) for seconds in (LATELY, RATE_SECONDS))
        tally = lately.counts.sum(axis=0)
        return {
            "now": now,
            "since": self._since,
            "layers": self._layers,
            "total": totals(total),
            "lately": {**totals(tally), "seconds": LATELY},
            "rate": rates(minute.counts.sum(axis=0), now - max(minute.start, self._since)),
            "latency": {**latencies(tally), "seconds": LATELY},
            "series": [as_series(stretch) for stretch in series],
            "levels": levels,
            "by_class": by_class,
            "unknown": unknown,
        }


def steady_clock() -> Callable[[], float]:
    """A clock that counts seconds since 1970 and never runs backward, unlike the machine's own."""
    offset = time.time() - time.monotonic()
    return lambda: offset + time.monotonic()
