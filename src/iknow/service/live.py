"""Live: what a model has been saying lately, for the page and for `GET /v1/status`.

Memory is bounded: counts by time lie in rings (`tally.py`), five seconds wide over a quarter of
an hour and a minute wide over a day; durations are counted in bins (`tally.py`); of single rows
the last `N_RECENT` leave their belief, assertion and level, and the last `N_UNKNOWN` IDKs their
evidence (`seen.py`).
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import accumulate
from typing import Any

import numpy as np

from iknow.core.arrays import Floats, Labels
from iknow.core.text import name
from iknow.errors import InputError
from iknow.explain.assessment import Assessment
from iknow.explain.picture import Renderer
from iknow.locking import Lock
from iknow.service.recent import Recent
from iknow.service.seen import Looker, Seen
from iknow.service.tally import N_COLUMNS, Buckets, as_series, count, latencies, rates, totals

SERIES = ((5, 180), (60, 1440))  # seconds in a bucket, buckets
N_UNKNOWN = 20
RATE_SECONDS = 60
LATELY = 300  # seconds

Parts = Sequence[tuple[str, int]]  # the requests of a batch, in order: id, number of rows


class Live:
    """What a model has been saying lately. Threads may share one.

    Args:
        classes: Labels of shape (n_classes,).
        layers: Names of the layers.
        picture: Makes pictures of the samples that it does not know, such as `as_image(28, 28)`.
            Without it nothing of an input is kept.
        reference: Levels of reference samples, of shape (n_reference,), to show beside those seen.
        threshold: The level from which on an answer is IK.
        clock: Seconds since 1970 that never run backward.

    Examples:
        >>> live = Live(ec.classes_, ec.layers_)
        >>> live.add(ec.assess(X), seconds=0.004, request="8c1f")
        >>> live.to_dict()["total"]["rows"] == len(X)
        True
    """

    def __init__(
        self,
        classes: Labels,
        layers: Sequence[str],
        picture: Renderer | None = None,
        *,
        reference: Floats | None = None,
        threshold: float | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._clock = steady_clock() if clock is None else clock
        self._since = self._clock()
        self._labels = [name(label) for label in np.asarray(classes).tolist()]
        self._layers = [name(layer) for layer in layers]
        self._looker = Looker(picture, clock=self._clock)
        self._lock = Lock()
        self._total = np.zeros(N_COLUMNS, dtype=np.int64)
        self._series = [Buckets(width, n, N_COLUMNS) for width, n in SERIES]
        self._recent = Recent(len(self._labels), reference, threshold)
        self._unknown: deque[dict[str, Any]] = deque(maxlen=N_UNKNOWN)

    def add(
        self,
        assessment: Assessment,
        seconds: float | Sequence[float],
        request: str | Parts,
        inputs: Any = None,
    ) -> None:
        """Count a batch. Now and then this searches for the evidence about an IDK.

        Args:
            assessment: What `assess` said about n rows.
            seconds: How long the request took, or each of several.
            request: The request's id; or, where several were assessed together, the id and the
                number of rows of each, in order.
            inputs: The n rows, to draw those that are IDK.
        """
        self.take(self._looker.look(assessment, inputs), seconds, request)

    def take(self, seen: Seen, seconds: float | Sequence[float], request: str | Parts) -> None:
        """Count what a `Looker` saw, perhaps in another process; otherwise like `add`."""
        parts = [(request, len(seen))] if isinstance(request, str) else list(request)
        durations = [seconds] * len(parts) if isinstance(seconds, (int, float)) else list(seconds)
        ends = list(accumulate(n_rows for _, n_rows in parts))
        if len(durations) != len(parts) or (ends or [0])[-1] != len(seen):
            raise InputError(
                f"a batch of {len(seen)} rows needs requests with as many rows, and a duration for "
                f"each; got {(ends or [0])[-1]} rows in {len(parts)} requests, and "
                f"{len(durations)} durations"
            )
        counts, now = count(seen, durations), self._clock()
        with self._lock.held():
            self._total += counts
            for buckets in self._series:
                buckets.add(now, counts)
            self._recent.add(seen)
            for portrait in seen.unknown:
                self._unknown.appendleft(_place(portrait, parts, ends, now))

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


def _place(portrait: dict[str, Any], parts: Parts, ends: list[int], now: float) -> dict[str, Any]:
    """The portrait with its request, and the row's place in that instead of in the batch."""
    row = portrait["row"]
    part = next(part for part, end in enumerate(ends) if row < end)
    moment = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")
    return portrait | {
        "time": moment.replace("+00:00", "Z"),
        "request": name(parts[part][0]),
        "row": row - (ends[part] - parts[part][1]),
    }
