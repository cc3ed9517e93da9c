"""Changes of a bundle in the audit: announced before they are made, and said to be made or undone.

The bundle and the journal are two files, which no commit joins. So an event "change announced",
with the sha256 that the bundle will have, is durable before the bundle is touched, and "change"
follows when it holds the change. Whatever comes between them, the bundle's own log says later
whether the change was made:

    the journal             the log    what happened                           at the next look
    -                       -          refused: the journal cannot be written  -
    announced               -          killed before it was on disk            + change undone
    announced               has it     killed after it was on disk             + change found
    announced, undone       -          an error of the disk, and taken back    -
    announced, change       has it     made, and answered                      -
    -                       has it     somebody else made it, or nobody had    + change found
                                       to record it
    announced, change       -          another file took the bundle's place    -

A journal is looked at when the service starts, and when it loads what changed on disk. An entry of
the log has no identifier, so the two are compared by what they say, and as often as they say it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from iknow.serve.audit.journal import Retention
from iknow.serve.audit.records import Event, Subject, make_event, now
from iknow.storage.changes import Logged

ANNOUNCED, MADE, UNDONE, FOUND = "change announced", "change", "change undone", "change found"
FEW_IDS = 1_000  # samples of a change that the audit names; its bundle names all
FEW_ENTRIES = 100  # changes in one event

Change = Mapping[str, Any]


def announce(subject: Subject, bundle: str, made: Sequence[Logged]) -> Event:
    """The event that says how the bundle of a model is about to change.

    subject: the model as it is. bundle: the sha256 of its bundle after the changes that are `made`.
    """
    details = {"bundle": bundle, "before": subject.sha256, "changes": shorten(made)}
    return make_event(ANNOUNCED, subject, **details)


def conclude(announced: Event, what: str) -> Event:
    """The event that says how an announced change ended: `MADE` or `UNDONE`."""
    return replace(announced, time=now(), what=what)


def shorten(log: Iterable[Logged]) -> list[Change]:
    """Changes as the audit holds them: with a few of their samples."""
    entries = [each.to_dict() for each in log]
    return [{**each, "ids": each["ids"][:FEW_IDS], "n": len(each["ids"])} for each in entries]


def complete(
    events: Iterable[Event], subject: Subject, log: Sequence[Change], retention: Retention
) -> list[Event]:
    """What the audit has to add, so that it says about a model what its bundle's log says.

    Args:
        events: Those of the journal, in order.
        subject: The model, with the sha256 of its bundle now.
        log: All changes in the bundle, in order, by `shorten`.
        retention: Changes that are older than it says need not be in the journal.
    """
    announced: dict[str, Event] = {}  # that nothing followed, by the sha256 of the bundle
    told: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for event in events:
        if (event.model, event.details.get("version")) != (subject.name, subject.version):
            continue
        if event.what == ANNOUNCED:
            announced[event.details["bundle"]] = event
        elif event.what in (MADE, UNDONE):
            announced.pop(event.details["bundle"], None)
        if event.what in (MADE, FOUND):
            told.update(_count(event.details["changes"]))
        if event.what == FOUND:
            found.update(_count(event.details["changes"]))
    unknown = []
    for entry in log:
        key = _key(entry)
        told[key] -= 1
        if told[key] < 0:
            unknown.append(entry)
    oldest = retention.oldest_time()[:19]
    missing = [entry for entry in unknown if entry["when"] >= oldest]
    found.update(_count(unknown))
    return [
        *(
            make_event(FOUND, subject, changes=missing[start : start + FEW_ENTRIES])
            for start in range(0, len(missing), FEW_ENTRIES)
        ),
        *(
            conclude(event, UNDONE)
            for event in announced.values()
            if not _count(event.details["changes"]) <= found
        ),
    ]


def _count(entries: Iterable[Change]) -> Counter[str]:
    return Counter(map(_key, entries))


def _key(entry: Change) -> str:
    return json.dumps(entry, sort_keys=True)
