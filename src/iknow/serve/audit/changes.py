"""Changes of a bundle in the audit: announced before they are made, and completed after a crash.

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

from iknow.serve.audit.journal import Retention
from iknow.serve.audit.records import Event, Subject, make_event
from iknow.storage.changes import Logged

ANNOUNCED, MADE, UNDONE, FOUND = "change announced", "change", "change undone", "change found"
FEW_IDS = 1_000  # samples of a change that the audit names; its bundle names all
FEW_ENTRIES = 100  # changes in one event

Entry = Mapping[str, Any]


def shorten(log: Iterable[Logged]) -> list[Entry]:
    """Changes as the audit holds them: with a few of their samples."""
    entries = [each.to_dict() for each in log]
    return [{**each, "ids": each["ids"][:FEW_IDS], "n": len(each["ids"])} for each in entries]


def complete(
    events: Iterable[Event],
    subject: Subject,
    log: Sequence[Entry],
    retention: Retention,
) -> list[Event]:
    """What the audit has to add, so that it says about a model what its bundle's log says.

    Args:
        events: Those of the journal, in order.
        subject: The model, with the sha256 of its bundle now.
        log: All changes in the bundle, in order, by `shorten`.
        retention: Changes that are older than it says need not be in the journal.
    """
    announced, made, found = _read(events, subject)
    known, unknown = made + found, []
    for entry in log:
        if known[_key(entry)] > 0:
            known[_key(entry)] -= 1
        else:
            unknown.append(entry)
    oldest = retention.oldest_time()[:19]
    missing = [entry for entry in unknown if entry["when"] >= oldest]
    came = found + Counter(map(_key, unknown))
    return [
        *(
            make_event(FOUND, subject, changes=missing[start : start + FEW_ENTRIES])
            for start in range(0, len(missing), FEW_ENTRIES)
        ),
        *(
            make_event(UNDONE, subject, bundle=sha256, before=details["before"])
            for sha256, details in announced.items()
            if not Counter(map(_key, details["changes"])) <= came
        ),
    ]


def _read(
    events: Iterable[Event], subject: Subject
) -> tuple[dict[str, Any], Counter[str], Counter[str]]:
    """Announcements that nothing followed, by sha256; and the changes made, and those found."""
    announced: dict[str, Any] = {}
    made: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for event in events:
        details = event.details
        if (event.model, details.get("version")) != (subject.name, subject.version):
            continue
        if event.what == ANNOUNCED:
            announced[details["bundle"]] = details
        elif event.what in (MADE, UNDONE):
            announced.pop(details["bundle"], None)
        if event.what == MADE:
            made.update(map(_key, details["changes"]))
        elif event.what == FOUND:
            found.update(map(_key, details["changes"]))
    return announced, made, found


def _key(entry: Entry) -> str:
    return json.dumps(entry, sort_keys=True)
