"""The log of changes that a bundle's arrays hold already: who changed what, when and why.

The manifest has a record of each change; the numbers of its samples lie in an array, one change
after the other, as there may be many. Nothing of the samples themselves is kept.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from iknow.errors import BundleError
from iknow.storage.change import KINDS, WHEN, Logged, check_said
from iknow.storage.schema import check_list, check_record, check_text, check_whole, misfit

KEYS = ("what", "when", "who", "why", "classes", "ids")
IDS = "changes/ids.npy"


def log_to_record(log: Sequence[Logged]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The manifest's list of changes, and the array that goes with it, by its name."""
    records = [entry_to_dict(change) | {"ids": len(change.ids)} for change in log]
    if not log:
        return [], {}
    return records, {IDS: np.concatenate([change.ids for change in log]).astype("<i8")}


def log_from_record(records: object, arrays: Mapping[str, Any]) -> tuple[Logged, ...]:
    """The changes that `log_to_record` wrote."""
    entries = [check_record(each, "a change", KEYS) for each in check_list(records, "changes")]
    if not entries:
        return ()
    ids = arrays[IDS]
    ends = list(accumulate(check_whole(each["ids"], "changes.ids", 1) for each in entries))
    if ids.dtype != np.dtype("<i8") or ids.shape != (ends[-1],):
        raise BundleError(f"{IDS} must hold {ends[-1]} 64-bit integers")
    return tuple(
        _read_entry(entry, ids[start:end])
        for entry, (start, end) in zip(entries, pairwise([0, *ends]), strict=True)
    )


def entry_to_dict(change: Logged) -> dict[str, Any]:
    """A change as plain values for JSON."""
    words = {"what": change.what, "when": change.when, "who": change.who, "why": change.why}
    return words | {"ids": change.ids.tolist(), "classes": plain_labels(change.classes)}


def plain_labels(labels: Sequence[Any]) -> list[Any]:
    """Labels in Python's own types."""
    return [each.item() if isinstance(each, np.generic) else each for each in labels]


def _read_entry(entry: Mapping[str, Any], ids: Any) -> Logged:
    what, when = (check_text(entry[key], f"changes.{key}") for key in ("what", "when"))
    if what not in KINDS:
        raise misfit("changes.what", f"one of {', '.join(KINDS)}", what)
    if not WHEN.fullmatch(when):
        raise misfit("changes.when", "a time such as 2026-01-31T12:00:00Z", when)
    if ids[0] < 0 or not (ids[1:] > ids[:-1]).all():
        raise BundleError(f"{IDS} must hold whole numbers >= 0, those of a change ascending")
    said = check_said(entry["who"], "changes.who"), check_said(entry["why"], "changes.why")
    return Logged(what, when, *said, ids, tuple(check_list(entry["classes"], "changes.classes")))
