"""Desks by name and version: opening, finding, replacing and closing them."""

from __future__ import annotations

import json
import logging
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
from iknow.serve.monitor import AccuracyMonitor, DriftAlarm
from iknow.serve.refusal import Refusal
from iknow.serve.served import Served
from iknow.serve.settings import Settings
from iknow.storage.files import write_bytes

log = logging.getLogger("iknow.serve")


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
) -> Desk:
    """A desk for a loaded model, with the state that an earlier run left behind."""
    classifier = served.classifier
    selection = getattr(classifier, "selection_", None)
    watch = getattr(selection, "watch", None)
    promised = None
    if selection is not None and selection.is_certified:
        promised = selection.certificate.accuracy
    layers = tuple(classifier.neighborhoods_)
    alarm = DriftAlarm(watch, served.labels, layers, rate=settings.alarm_rate, seed=randbits(32))
    accuracy = AccuracyMonitor(promised, rate=settings.alarm_rate)
    state = _read_state(served, settings)
    if state is not None:
        alarm = DriftAlarm.from_dict(state["alarm"])
        accuracy = AccuracyMonitor.from_dict(state["accuracy"])
    return Desk(
        served,
        make_batcher(served, settings, computing),
        Live(
            classifier.classes_,
            layers,
            reference=None if watch is None else watch.levels,
            threshold=None if selection is None else selection.level,
        ),
        alarm,
        accuracy,
        tell,
    )


def make_batcher(served: Served, settings: Settings, computing: Computing) -> Batcher:
    """The queue of a loaded model."""

    async def say(rows: Any, wanted: Any) -> Any:
        return await computing.say(served, rows, wanted)

    return Batcher(say, settings.most_waiting, settings.batch_rows, settings.workers)


def keep_state(desk: Desk, settings: Settings) -> None:
    """Write what outlives a restart, if it is to be kept."""
    path = _state_path(desk.served, settings)
    if path is None:
        return
    record = {"bundle": desk.served.sha256, **desk.state()}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(path, json.dumps(record).encode())
    except OSError as error:  # the next restart begins anew, and the service goes on
        log.error("the state of %s could not be kept: %s", desk.served.title, error)


def _read_state(served: Served, settings: Settings) -> Any:
    path = _state_path(served, settings)
    if path is None or not path.is_file():
        return None
    try:
        state = json.loads(path.read_bytes())
        return state if state["bundle"] == served.sha256 else None  # of another model: begin anew
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.error(
            "%s cannot be read, so the alarm of %s begins anew: %s", path, served.title, error
        )
        return None


def _state_path(served: Served, settings: Settings) -> Path | None:
    if settings.state is None:
        return None
    return Path(settings.state) / f"{served.name}-{served.version}.json"
