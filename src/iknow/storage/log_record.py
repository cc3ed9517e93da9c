"""The log of changes that a bundle's arrays hold already: who changed what, when and why.

The manifest has a record of each change; the numbers of its samples lie in two arrays, one change
after the other, as there may be many. Nothing of the samples themselves is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from iknow.core.change import Change
from iknow.core.text import visible
from iknow.errors import BundleError
from iknow.storage.schema import check_list, check_record, check_text, check_whole, misfit

KEYS = ("what", "when", "who", "why", "classes", "removed", "rows")
LOG_ARRAYS = ["changes/removed.npy", "changes/rows.npy"]
WHAT = ("add", "remove", "relabel")
LONGEST_WHO, LONGEST_WHY = 200, 2_000


def check_words(what: str, when: str, who: str, why: str) -> None:
    """Refuse words that iknow would not write about a change."""
    if what not in WHAT:
        raise misfit("what", f"one of {', '.join(WHAT)}", what)
    try:
        is_time = when.isascii() and when.endswith("Z") and bool(datetime.fromisoformat(when))
    except ValueError:
        is_time = False
    if not is_time or len(when) > 40:
        raise misfit("when", "a time such as 2026-01-31T12:00:00Z", when)
    for name, text, most in (("who", who, LONGEST_WHO), ("why", why, LONGEST_WHY)):
        if len(text) > most or visible(text) != text:
            raise misfit(name, f"one line of text, up to {most:,} characters", text)


def log_to_record(log: Sequence[Change]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The manifest's list of changes, and the arrays that go with it."""
    records = [
        {
            "what": change.what,
            "when": change.when,
            "who": change.who,
            "why": change.why,
            "classes": [v.item() if isinstance(v, np.generic) else v for v in change.classes],
            "removed": len(change.removed),
            "rows": len(change.rows),
        }
        for change in log
    ]
    if not log:
        return [], {}
    columns = [change.removed for change in log], [change.rows for change in log]
    arrays = [np.concatenate(column).astype("<i8") for column in columns]
    return records, dict(zip(LOG_ARRAYS, arrays, strict=True))


def log_from_record(records: object, arrays: Mapping[str, Any]) -> tuple[Change, ...]:
    """The changes that `log_to_record` wrote."""
    entries = [check_record(each, "a change", KEYS) for each in check_list(records, "changes")]
    found = {"removed": _split(entries, "removed", arrays), "rows": _split(entries, "rows", arrays)}
    log = []
    for i, entry in enumerate(entries):
        words = [check_text(entry[key], f"changes.{key}") for key in KEYS[:4]]
        check_words(*words)
        numbers = {key: column[i] for key, column in found.items()}
        classes = tuple(check_list(entry["classes"], "changes.classes"))
        nothing = np.empty(0, dtype=np.int64)
        log.append(Change(*words, **numbers, labels=nothing, points={}, classes=classes))
    return tuple(log)


def _split(entries: Sequence[Mapping[str, Any]], key: str, arrays: Mapping[str, Any]) -> list[Any]:
    """The numbers of each change."""
    if not entries:
        return []
    values = arrays[f"changes/{key}.npy"]
    ends = list(accumulate(check_whole(each[key], f"changes.{key}", 0) for each in entries))
    if values.dtype != np.dtype("<i8") or values.shape != (ends[-1],):
        raise BundleError(f"changes/{key}.npy must hold {ends[-1]} 64-bit integers")
    return [values[start:end] for start, end in pairwise([0, *ends])]
