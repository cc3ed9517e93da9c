"""The watcher of a served model: it counts answers and lets monitors see them, afterwards.

An answer is sent first. What is counted and watched is handed to a thread of its own, which takes
all that was answered in `MONITOR_INTERVAL` seconds at once: one row takes almost as long as a
hundred.

Evidence of alarms is given, to the page and `GET /v1/status`, by its logarithm to base 10, beside
that of the threshold at which it rings.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from math import log10
from pathlib import Path
from secrets import randbits
from typing import TYPE_CHECKING, Any

import numpy as np

from iknow.core.arrays import Bools
from iknow.serve.activity import Activity
from iknow.serve.answers import RequestAnswers
from iknow.serve.monitor import (
    AccuracyMonitor,
    AccuracyReport,
    DriftAlarm,
    DriftReport,
    Monitors,
)
from iknow.serve.settings import Settings

if TYPE_CHECKING:
    from iknow.serve.served import ServedModel

log = logging.getLogger("iknow.serve")
MONITOR_INTERVAL = 0.05
MAX_UNWATCHED = 1_000
"""Requests that wait to be watched, at most; more are counted as unwatched."""
Tell = Callable[["ServedModel", str, dict[str, Any]], None]


class Watcher:
    """Counts the answers of a model and lets its monitors see them. Threads may share it.

    tell: is told, by the watcher's thread, of which model which alarm rang, with details.
    """

    def __init__(
        self, model: ServedModel, activity: Activity, monitors: Monitors, tell: Tell
    ) -> None:
        self.monitors = monitors
        self._model, self._activity, self._tell = model, activity, tell
        self._pool = ThreadPoolExecutor(1, "iknow-watch")
        self._waiting: deque[tuple[RequestAnswers, str, float, bool]] = deque()
        self._scheduled, self.n_unwatched = False, 0
        self.bundles = [model.sha256]

    def follow(self, model: ServedModel) -> None:
        """Go on with the same model and changed evidence; `bundles`: all that this is about."""
        self._model = model
        self.bundles.append(model.sha256)

    def put(self, answers: RequestAnswers, request: str, seconds: float, watch: bool) -> None:
        """Count a `request` by its id, which took `seconds`; returns at once.

        watch: whether the drift alarm may see it.
        """
        if len(self._waiting) >= MAX_UNWATCHED:
            self.n_unwatched += len(answers)  # which ones does not depend on what they say
            return
        self._waiting.append((answers, request, seconds, watch))
        if not self._scheduled:
            self._scheduled = True
            with suppress(RuntimeError):  # another bundle took its place: nobody looks at it
                self._pool.submit(self._watch_waiting)

    def _watch_waiting(self) -> None:
        time.sleep(MONITOR_INTERVAL)
        self._scheduled = False
        watched = []
        try:
            for _ in range(len(self._waiting)):
                answers, request, seconds, watch = self._waiting.popleft()
                self._activity.add(answers, seconds, request, answers.portraits)
                if watch:
                    watched.append(answers)
            if watched:
                columns = [
                    np.concatenate([getattr(each, name) for each in watched])
                    for name in ("watched", "belief", "watched_by_layer")
                ]
                for alarm in self.monitors.watch(*columns):
                    self._tell(self._model, "drift", alarm.to_dict() | {"text": str(alarm)})
        except Exception:  # an answer was given already; nobody else would hear of it
            log.exception("what %s answered could not be watched", self._model.title)

    def learn(self, right: Bools) -> None:
        """Take note whether some IKs were right."""
        if self.monitors.learn(right):
            self._tell(self._model, "accuracy", self.reports()["accuracy"])

    def reports(self) -> dict[str, dict[str, Any]]:
        """What the drift alarm and the monitor of labels say, in plain values."""
        drift, accuracy = self.monitors.reports()
        return {"alarm": summarize_drift(drift), "accuracy": summarize_accuracy(accuracy)}

    def status(self) -> dict[str, Any]:
        """What the page shows."""
        live = self._activity.to_dict()
        return {"live": live, "unwatched": self.n_unwatched, **self.reports()}

    def close(self) -> None:
        """Wait until everything that was answered has been watched."""
        self._pool.shutdown(wait=True)


def open_watcher(
    model: ServedModel, settings: Settings, tell: Tell, before: Watcher | None = None
) -> Watcher:
    """The watcher of a loaded model, with the state that an earlier run left behind.

    before: the one whose place it takes. Its alarms go on if they are about the same model.
    """
    classifier, selection, rate = model.classifier, model.selection, settings.alarm_rate
    layers = list(classifier.neighborhoods_)
    watch, promised, levels, threshold = None, None, None, None
    if selection is not None:
        watch, threshold = selection.watch, selection.level
        promised = selection.certificate.accuracy if selection.is_certified else None
        levels = None if watch is None else watch.levels
    activity = Activity(
        classifier.classes_, layers, reference=levels, threshold=threshold,
        calibration=None if selection is None else selection.calibration,
    )  # fmt: skip
    drift = DriftAlarm(watch, model.labels, layers, rate=rate, seed=randbits(32))
    accuracy = AccuracyMonitor(promised, rate=rate)
    monitors = Monitors(model.title, drift, accuracy, _identify(model))
    if before is not None and monitors.fits(before.monitors):
        return Watcher(model, activity, before.monitors, tell)
    if before is not None and before.monitors.title == model.title:
        before.monitors.close()  # its file is ours
    if settings.state is not None:
        folder = Path(settings.state)
    elif settings.audit is not None and "://" not in settings.audit:
        folder = Path(f"{settings.audit}.state")
    elif model.source is not None:
        folder = Path(f"{model.source.path}.state")
    else:
        monitors.warn("neither a bundle nor an audit is a file")
        return Watcher(model, activity, monitors, tell)
    monitors.keep_in(folder, model.name, model.version)
    return Watcher(model, activity, monitors, tell)


def _identify(model: ServedModel) -> str:
    """What the alarms are about: a model and how it was tuned, whatever became of its evidence."""
    rules = model.classifier.neighborhoods_.items()
    chosen = {layer: repr(rule) for layer, rule in rules}
    tuned = chosen if model.selection is None else model.selection.to_dict() | {"stale": ""}
    content = getattr(model.classifier.model_, "content", b"")  # of a model in a bundle
    text = json.dumps(tuned, sort_keys=True, default=str)
    return hashlib.sha256(hashlib.sha256(content).digest() + text.encode()).hexdigest()


def summarize_drift(report: DriftReport) -> dict[str, Any]:
    """The state of a drift alarm in plain values; of the alarms the first is told."""
    found: dict[str, dict[str, Any]] = {"overall": {}, "class": {}, "layer": {}}
    for each in report.detectors:
        evidence, threshold = each.log2_evidence * log10(2), log10(each.threshold)
        found[each.kind][each.name] = {
            "evidence": round(evidence, 4), "threshold": round(threshold, 4)
        }  # fmt: skip
    said = report.sentences()
    return {
        "alarmed": report.alarmed,
        "since": report.alarms[0].sample if report.alarms else None,
        "n_samples": report.samples,
        "reference": report.reference,
        "rate": report.rate,
        "resets": report.resets,
        **found["overall"][""],
        "by_class": found["class"],
        "by_layer": found["layer"],
        "text": ". ".join([*said[:1], *said[max(len(report.alarms), 1) :]]),
    }


def summarize_accuracy(report: AccuracyReport) -> dict[str, Any]:
    """The state of a monitor of labels in plain values."""
    text = "no label of an IK has come yet"
    if report.samples:
        promised = "" if report.certified is None else f"; {report.certified:.4f} is certified"
        text = (
            f"{report.right:,} of {report.samples:,} labels agree: the accuracy on IK lies between "
            f"{report.low:.4f} and {report.high:.4f}{promised}"
            f"{', and that does not hold any longer' if report.alarmed else ''}"
        )
    return {
        "n": report.samples,
        "estimate": report.accuracy,
        "low": report.low,
        "high": report.high,
        "certified": report.certified,
        "alarmed": report.alarmed,
        "text": text,
    }
