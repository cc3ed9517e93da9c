"""A desk: one served model with its queue, its live figures and its alarm.

Answers first: what is counted and watched is handed to a thread of its own, after the answer.

Evidence of alarms is given, to the page and `GET /v1/status`, by its
logarithm to base 10, beside that of the threshold at which it rings.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from math import log10
from typing import Any

import numpy as np

from iknow.core.text import names
from iknow.serve.batching import Batcher
from iknow.serve.live import Live
from iknow.serve.monitor import AccuracyReport, Alarm, Detector, DriftReport, Monitors
from iknow.serve.said import Said
from iknow.serve.served import Served

log = logging.getLogger("iknow.serve")
GATHER_SECONDS = 0.05
"""In which answers are gathered to be watched together."""
MOST_BEHIND = 1_000
"""Answers to requests that wait to be watched, at most; those beyond are not."""
MOST_NAMED = 5


@dataclass(frozen=True)
class Moment:
    """One answered request, on its way to those who watch."""

    request: str
    said: Said
    seconds: float
    watch: bool


class Desk:
    """What belongs to one served model while it is served."""

    def __init__(
        self,
        served: Served,
        batcher: Batcher,
        live: Live,
        monitors: Monitors,
        tell: Callable[[str, Any], None],
    ) -> None:
        self.served, self.batcher, self.monitors = served, batcher, monitors
        self._live, self._tell = live, tell
        self._pool = ThreadPoolExecutor(1, "iknow-watch")
        self._behind: deque[Moment] = deque()
        self._scheduled, self.n_unwatched = False, 0
        self.states: tuple[str, ...] = (served.sha256,)

    def succeed(self, served: Served, batcher: Batcher, tell: Callable[[str, Any], None]) -> Desk:
        """A desk for the same model with changed evidence: its figures and its alarm go on.

        states: the sha256s of all bundles that these are about.
        """
        desk = Desk(served, batcher, self._live, self.monitors, tell)
        desk.n_unwatched = self.n_unwatched
        desk.states = (*self.states, served.sha256)
        return desk

    def watch(self, moment: Moment) -> None:
        """Count an answered request, and let the alarm look at it; returns at once."""
        if len(self._behind) >= MOST_BEHIND:
            self.n_unwatched += len(moment.said)  # which ones does not depend on what they say
            return
        self._behind.append(moment)
        if not self._scheduled:
            self._scheduled = True
            with suppress(RuntimeError):  # another bundle took its place: nobody looks at it
                self._pool.submit(self._watch_all)

    def _watch_all(self) -> None:
        """Watch all that was answered lately at once: one row takes almost as long as a hundred."""
        time.sleep(GATHER_SECONDS)
        self._scheduled = False
        moments = [self._behind.popleft() for _ in range(len(self._behind))]
        try:
            for moment in moments:
                self._live.take(moment.said, moment.seconds, moment.request)
            watched = [moment.said for moment in moments if moment.watch]
            if watched:
                self._update(watched)
        except Exception:  # an answer was given already; nobody else would hear of it
            log.exception("what %s answered could not be watched", self.served.title)

    def _update(self, said: list[Said]) -> None:
        columns = [
            np.concatenate([getattr(each, name) for each in said])
            for name in ("watched", "belief", "watched_layers")
        ]
        for alarm in self.monitors.watch(*columns):
            self._raise(alarm)

    def _raise(self, alarm: Alarm) -> None:
        self._tell("drift", alarm.to_dict() | {"text": str(alarm)})

    def learn(self, right: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
        """Take note whether some IKs were right."""
        if self.monitors.learn(right):
            self._tell("accuracy", self.reports()[1])

    def reports(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the alarm and the monitor of labels say."""
        drift, accuracy = self.monitors.reports()
        return summarize_drift(drift), summarize_accuracy(accuracy)

    def status(self) -> dict[str, Any]:
        """What the page shows about this model."""
        alarm, accuracy = self.reports()
        return {
            "name": self.served.name,
            "version": self.served.version,
            "bundle": self.served.sha256,
            "promises": list(self.served.promises),
            "live": self._live.to_dict(),
            "alarm": alarm,
            "accuracy": accuracy,
            "unwatched": self.n_unwatched,
        }

    def close(self) -> None:
        """Wait until everything that was answered has been watched."""
        self._pool.shutdown(wait=True)


def summarize_drift(report: DriftReport) -> dict[str, Any]:
    """The state of a drift alarm in plain values."""
    overall = next(each for each in report.detectors if each.kind == "overall")
    return {
        "alarmed": report.alarmed,
        "since": report.alarms[0].sample if report.alarms else None,
        "n_samples": report.samples,
        "reference": report.reference,
        "rate": report.rate,
        "resets": report.resets,
        **_evidence(overall),
        "by_class": _by_name(report, "class"),
        "by_layer": _by_name(report, "layer"),
        "text": _tell_drift(report),
    }


def _tell_drift(report: DriftReport) -> str:
    """The state in a sentence or two, as the page has no room for all sentences of a report."""
    if not report.alarmed:
        return ". ".join(report.sentences())
    moved = {
        what: names([each.name for each in report.suspects(kind)], MOST_NAMED)
        for kind, what in (("class", "beliefs"), ("layer", "layers"))
        if report.suspects(kind)
    }
    where = "; ".join(f"{what} that moved: {named}" for what, named in moved.items())
    compared = "the reference samples" if report.reference else "the beginning of the stream"
    return (
        f"since answer {report.alarms[0].sample:,} the inputs are unlike {compared}"
        f"{f'; {where}' if where else ''}"
    )


def summarize_accuracy(report: AccuracyReport) -> dict[str, Any]:
    """The state of a monitor of labels in plain values."""
    return {
        "n": report.samples,
        "estimate": report.accuracy,
        "low": report.low,
        "high": report.high,
        "certified": report.certified,
        "alarmed": report.alarmed,
        "text": _tell_accuracy(report),
    }


def _tell_accuracy(report: AccuracyReport) -> str:
    if not report.samples:
        return "no label of an IK has come yet"
    between = f"the accuracy on IK lies between {report.low:.4f} and {report.high:.4f}"
    promised = "" if report.certified is None else f"; {report.certified:.4f} is certified"
    verdict = ", and that does not hold any longer" if report.alarmed else ""
    return f"{report.right:,} of {report.samples:,} labels agree: {between}{promised}{verdict}"


def _by_name(report: DriftReport, kind: str) -> dict[str, dict[str, float]]:
    return {each.name: _evidence(each) for each in report.detectors if each.kind == kind}


def _evidence(detector: Detector) -> dict[str, float]:
    evidence = detector.log2_evidence * log10(2)
    return {"evidence": round(evidence, 4), "threshold": round(log10(detector.threshold), 4)}
