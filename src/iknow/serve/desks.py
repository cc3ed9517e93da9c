"""Desks by name and version: opening, finding, replacing and closing them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from secrets import randbits
from typing import Any

from iknow.core.text import names, shown
from iknow.errors import InputError
from iknow.serve.batching import Batcher
from iknow.serve.computing import Computing
from iknow.serve.desk import Desk
from iknow.serve.live import Live
from iknow.serve.monitor import AccuracyMonitor, DriftAlarm, Monitors
from iknow.serve.refusal import Refusal
from iknow.serve.served import Served
from iknow.serve.settings import Settings


class Desks:
    """All models that are served. The last one added under a name is its default version."""

    def __init__(self) -> None:
        self._all: dict[str, dict[str, Desk]] = {}

    def __iter__(self) -> Iterator[Desk]:
        return (desk for versions in list(self._all.values()) for desk in list(versions.values()))

    def find(self, name: str, version: str | None = None) -> Desk:
        """A model's desk. Raises a `Refusal`, 404, if there is none."""
        versions = self._all.get(name)
        if versions is None:
            raise Refusal(404, f"there is no model {shown(name, 80)}: there is {names(self._all)}")
        if version is None:
            return next(reversed(versions.values()))
        if version not in versions:
            raise Refusal(
                404, f"{name} has no version {shown(version, 80)}: it has {names(versions)}"
            )
        return versions[version]

    def add(self, desk: Desk) -> None:
        versions = self._all.setdefault(desk.served.name, {})
        if desk.served.version in versions:
            raise InputError(
                f"{desk.served.title} is given twice: serve one of them as NAME=BUNDLE, or save it "
                "with a version of its own"
            )
        versions[desk.served.version] = desk

    def replace(self, old: Desk, new: Desk) -> None:
        """Put a desk in the place of another; a version of another name replaces it too."""
        versions = self._all[old.served.name]
        taken = versions.get(new.served.version)
        if taken is not None and taken is not old:
            raise InputError(f"{new.served.title} is served already, from another bundle")
        self._all[old.served.name] = {
            (new if each is old else each).served.version: new if each is old else each
            for each in versions.values()
        }


def open_desk(
    served: Served,
    settings: Settings,
    computing: Computing,
    tell: Callable[[str, Any], None],
    before: Desk | None = None,
) -> Desk:
    """A desk for a loaded model, with the state that an earlier run left behind.

    before: the one whose place it takes. Its alarms go on if they are about the same model.
    """
    classifier = served.classifier
    selection = getattr(classifier, "selection_", None)
    watch = getattr(selection, "watch", None)
    return Desk(
        served,
        make_batcher(served, settings, computing),
        Live(
            classifier.classes_,
            tuple(classifier.neighborhoods_),
            reference=None if watch is None else watch.levels,
            threshold=None if selection is None else selection.level,
        ),
        _open_monitors(served, settings, None if before is None else before.monitors),
        tell,
    )


def make_batcher(served: Served, settings: Settings, computing: Computing) -> Batcher:
    """The queue of a loaded model."""

    async def say(rows: Any, wanted: Any) -> Any:
        return await computing.say(served, rows, wanted)

    return Batcher(say, settings.most_waiting, settings.batch_rows, settings.workers)


def _open_monitors(served: Served, settings: Settings, before: Monitors | None) -> Monitors:
    selection = getattr(served.classifier, "selection_", None)
    promised = None
    if selection is not None and selection.is_certified:
        promised = selection.certificate.accuracy
    rate, layers = settings.alarm_rate, tuple(served.classifier.neighborhoods_)
    watch = getattr(selection, "watch", None)
    monitors = Monitors(
        served.title,
        DriftAlarm(watch, served.labels, layers, rate=rate, seed=randbits(32)),
        AccuracyMonitor(promised, rate=rate),
        _identify(served.classifier),
    )
    if before is not None and monitors.fits(before):
        return before
    if before is not None and before.title == served.title:
        before.close()  # its file is ours
    folder = _state_folder(served, settings)
    if folder is None:
        monitors.warn("neither a bundle nor an audit is a file")
    else:
        monitors.keep_in(folder, served.name, served.version)
    return monitors


def _identify(classifier: Any) -> str:
    """What the alarms are about: a model and how it was tuned, whatever became of its evidence."""
    selection = getattr(classifier, "selection_", None)
    chosen = {layer: repr(rule) for layer, rule in classifier.neighborhoods_.items()}
    tuned = chosen if selection is None else selection.to_dict() | {"stale": ""}
    content = getattr(classifier.model_, "content", b"")  # of a model in a bundle
    text = json.dumps(tuned, sort_keys=True, default=str)
    return hashlib.sha256(hashlib.sha256(content).digest() + text.encode()).hexdigest()


def _state_folder(served: Served, settings: Settings) -> Path | None:
    """The folder of the alarms' state: as asked for, else beside the audit or the bundle."""
    if settings.state is not None:
        return Path(settings.state)
    if settings.audit is not None and "://" not in settings.audit:
        return Path(f"{settings.audit}.state")
    return None if served.source is None else Path(f"{served.source.path}.state")
