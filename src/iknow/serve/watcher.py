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
from iknow.core.text import names
from iknow.serve.activity import Activity
from iknow.serve.answers import RequestAnswers
from iknow.serve.monitor import (
    AccuracyMonitor,
    AccuracyReport,
    Detector,
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
MOST_NAMED = 5
Tell = Callable[["ServedModel", str, dict[str, Any]], None]


class Watcher:
    """Counts the answers of a model and lets its monitors see them. Threads may share it.

    Args:
        model: The model, which `follow` replaces.
        activity: What counts.
        monitors: What rings.
        tell: Is told, by the watcher's thread, of which model which alarm rang, with details.
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
        """Count an answered request; returns at once.

        Args:
            answers: What was answered.
            request: The id of the request.
            seconds: How long it took.
            watch: Whether the drift alarm may see it.
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
            self._tell(self._model, "accuracy", self.reports()[1])

    def reports(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the drift alarm and the monitor of labels say, in plain values."""
        drift, accuracy = self.monitors.reports()
        return summarize_drift(drift), summarize_accuracy(accuracy)

    def status(self) -> dict[str, Any]:
        """What the page shows."""
        alarm, accuracy = self.reports()
        return {
            "live": self._activity.to_dict(),
            "alarm": alarm,
            "accuracy": accuracy,
            "unwatched": self.n_unwatched,
        }

    def close(self) -> None:
        """Wait until everything that was answered has been watched."""
        self._pool.shutdown(wait=True)


def open_watcher(
    model: ServedModel, settings: Settings, tell: Tell, before: Watcher | None = None
) -> Watcher:
    """The watcher of a loaded model, with the state that an earlier run left behind.

    before: the one whose place it takes. Its alarms go on if they are about the same model.
    """
    classifier, rate = model.classifier, settings.alarm_rate
    selection = getattr(classifier, "selection_", None)
    watch, layers = getattr(selection, "watch", None), tuple(classifier.neighborhoods_)
    promised = None
    if selection is not None and selection.is_certified:
        promised = selection.certificate.accuracy
    activity = Activity(
        classifier.classes_,
        layers,
        reference=None if watch is None else watch.levels,
        threshold=None if selection is None else selection.level,
    )
    monitors = Monitors(
        model.title,
        DriftAlarm(watch, model.labels, layers, rate=rate, seed=randbits(32)),
        AccuracyMonitor(promised, rate=rate),
        _identify(classifier),
    )
    if before is not None and monitors.fits(before.monitors):
        return Watcher(model, activity, before.monitors, tell)
    if before is not None and before.monitors.title == model.title:
        before.monitors.close()  # its file is ours
    folder = _state_folder(model, settings)
    if folder is None:
        monitors.warn("neither a bundle nor an audit is a file")
    else:
        monitors.keep_in(folder, model.name, model.version)
    return Watcher(model, activity, monitors, tell)


def _identify(classifier: Any) -> str:
    """What the alarms are about: a model and how it was tuned, whatever became of its evidence."""
    selection = getattr(classifier, "selection_", None)
    chosen = {layer: repr(rule) for layer, rule in classifier.neighborhoods_.items()}
    tuned = chosen if selection is None else selection.to_dict() | {"stale": ""}
    content = getattr(classifier.model_, "content", b"")  # of a model in a bundle
    text = json.dumps(tuned, sort_keys=True, default=str)
    return hashlib.sha256(hashlib.sha256(content).digest() + text.encode()).hexdigest()


def _state_folder(model: ServedModel, settings: Settings) -> Path | None:
    """The folder of the alarms' state: as asked for, else beside the audit or the bundle."""
    if settings.state is not None:
        return Path(settings.state)
    if settings.audit is not None and "://" not in settings.audit:
        return Path(f"{settings.audit}.state")
    return None if model.source is None else Path(f"{model.source.path}.state")


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
