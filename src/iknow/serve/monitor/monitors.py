"""The monitors of one served model, kept on disk: what rang still rings after a crash.

The drift alarm and the accuracy monitor promise how often they ever ring without reason. A restart
that began them anew would spend that probability once more each time, so their state outlives it:

    what rings      is on disk before anybody can read that it rings
    labels, resets  are on disk before they are answered
    all else        soon, as often as a twentieth of the time allows and at least each second, and
                    when the service stops

A killed process thus forgets at most the last second of ordinary samples. Nothing rang in it, and
these samples are watched no more.

A state belongs to one model, known by its `identity`. A file that is damaged, or about another
model, is not continued: the monitors begin anew, and the log says so.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from contextlib import suppress
from errno import EAGAIN
from pathlib import Path
from typing import Any

from iknow.core.text import shown
from iknow.errors import InputError
from iknow.serve.monitor.accuracy import AccuracyMonitor, AccuracyReport
from iknow.serve.monitor.drift import DriftAlarm, DriftReport
from iknow.serve.monitor.gamblers import Alarm
from iknow.storage.files import lock, write_bytes

log = logging.getLogger("iknow.serve")
PAUSES = 20  # how many times as long as a writing took no other one begins, unless something rang
KEYS = {"identity", "drift", "accuracy"}


class StateFile:
    """The file of one model's monitors, `NAME@VERSION.json` in a folder; one process writes it.

    Raises:
        InputError: The name or the version holds `@` or `/`, or is empty.
        OSError: It cannot be written, or another process writes it.
    """

    def __init__(self, folder: Path, name: str, version: str) -> None:
        for each in (name, version):
            if not each or {"@", "/", "\\", "\0"} & set(each):
                raise InputError(f"no file can be named after {shown(each)}: it holds @ or /")
        self.path = folder / f"{name}@{version}.json"
        folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        self._descriptor = os.open(self.path.with_suffix(".lock"), flags, 0o600)
        if lock(self._descriptor, wait=False) is False:  # None without locks
            os.close(self._descriptor)
            raise OSError(EAGAIN, "another service keeps its alarms there")

    def close(self) -> None:
        """Let another process write it."""
        os.close(self._descriptor)


class Monitors:
    """The drift alarm and the accuracy monitor of one served model. Threads may share them.

    Args:
        title: What the model is called in the log.
        drift: A drift alarm that has seen nothing yet.
        accuracy: An accuracy monitor that has seen nothing yet.
        identity: What they are about: the model, and what it is compared with.
    """

    def __init__(
        self, title: str, drift: DriftAlarm, accuracy: AccuracyMonitor, identity: str = ""
    ) -> None:
        self.title, self.identity = title, identity
        self._drift, self._accuracy = drift, accuracy
        self._file: StateFile | None = None
        self._reading = threading.RLock()  # between those who update and those who read
        self._writing = threading.Lock()  # acquired first, so that a later state is written later
        self._changed = self._failed = False
        self._due = 0.0

    def watch(self, level: Any, belief: Any, layer_levels: Any) -> tuple[Alarm, ...]:
        """Let the drift alarm see n samples; see `DriftAlarm.update`."""
        with self._writing:
            with self._reading:
                raised = self._drift.update(level, belief, layer_levels)
                self._changed = True
                if raised:
                    self._write()
            if time.monotonic() >= self._due:
                self._write()
            return raised

    def learn(self, right: Any) -> tuple[Alarm, ...]:
        """Let the accuracy monitor see whether n IKs were right; see `AccuracyMonitor.update`."""
        with self._writing, self._reading:
            raised, self._changed = self._accuracy.update(right), True
            self._write()
            return raised

    def reset(self) -> None:
        """Start the drift alarm anew, after somebody has looked at it."""
        with self._writing, self._reading:
            self._drift.reset()
            self._changed = True
            self._write()

    def reports(self) -> tuple[DriftReport, AccuracyReport]:
        """What the drift alarm and the accuracy monitor have seen."""
        with self._reading:
            return self._drift.report(), self._accuracy.report()

    def keep_in(self, folder: Path, name: str, version: str) -> None:
        """Go on where an earlier run ended, and from now on keep the state in this folder.

        If the folder cannot be written, one warning says what that means.
        """
        try:
            self._file = StateFile(folder, name, version)
            self._resume(self._file.path)
        except (OSError, InputError) as error:
            self.warn(f"the state cannot be kept in {folder} ({_reason(error)})")
            return
        self._changed = True
        self.keep()

    def keep(self) -> None:
        """Write what changed since the last time; readers need not wait for the disk."""
        with self._writing:
            self._write()

    def close(self) -> None:
        """Keep what changed last, and let another process go on."""
        with self._writing:
            self._write()
            if self._file is not None:
                self._file.close()
                self._file = None

    def fits(self, other: Monitors) -> bool:
        """Whether these may go on for what others are about."""
        return self.identity == other.identity and self.title == other.title

    def warn(self, why: str) -> None:
        """Say that the state does not outlive a restart."""
        log.warning(
            "%s, so the alarms of %s begin anew with each restart: the probability of a false one, "
            "%g, is promised from one start to the next only. Name a folder that can be written: "
            "--state FOLDER", why, self.title, self._drift.rate,
        )  # fmt: skip

    def _resume(self, path: Path) -> None:
        if not path.exists():
            return
        try:
            state = json.loads(path.read_bytes())
            if not isinstance(state, dict) or set(state) != KEYS:
                raise InputError(f"expected the entries {', '.join(sorted(KEYS))}")
            if state["identity"] != self.identity:
                log.warning(
                    "%s is about another model, or one that was tuned again: the alarms of %s "
                    "begin anew", path, self.title,
                )  # fmt: skip
                return
            drift = self._drift.resume(state["drift"])
            accuracy = AccuracyMonitor.from_dict(state["accuracy"], self._accuracy.rate)
        except (OSError, ValueError, RecursionError, InputError) as error:
            aside = path.with_name(f"{path.name}.damaged")
            with suppress(OSError):
                os.replace(path, aside)
            log.error(
                "%s cannot be read, so the alarms of %s begin anew; it is kept as %s: %s",
                path, self.title, aside.name, error,
            )  # fmt: skip
            return
        self._drift, self._accuracy = drift, accuracy
        for report in self.reports():
            if report.alarmed:
                log.warning("an alarm of %s rang before this start, and still does", self.title)

    def _write(self) -> None:
        """Write what changed; `_writing` is held."""
        if self._file is None or not self._changed:
            return
        with self._reading:
            state = {"identity": self.identity, "drift": self._drift.to_dict(),
                     "accuracy": self._accuracy.to_dict()}  # fmt: skip
            self._changed = False
        start = time.monotonic()
        try:
            write_bytes(self._file.path, json.dumps(state).encode())
            self._failed = False
        except (OSError, InputError) as error:  # tried again within a second; the service goes on
            self._changed = True
            if not self._failed:
                self.warn(f"{self._file.path} cannot be written ({_reason(error)})")
            self._failed = True
        now = time.monotonic()
        self._due = now + PAUSES * (now - start)


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
