"""Committing: what changed in a loaded classifier, written to its bundle.

Changes of the evidence are appended, in time that depends on them alone. If something was chosen
anew, as by `recertify`, the bundle is written anew, with everything folded in.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from iknow.errors import InputError
from iknow.selection import Selection
from iknow.storage.segments.appending import append_changes
from iknow.storage.segments.compacting import Chosen


def commit_changes(
    plan: Any,
    path: str | os.PathLike[str] | None,
    announce: Callable[[str], None] | None = None,
) -> Any:
    """The plan of a loaded classifier after its changes were written; see `Memory.commit`.

    announce: is called with the new sha256 before anything is written; see `append_changes`.
    """
    if not plan.bundled:
        raise InputError("commit writes to the bundle of a loaded classifier: save this one")
    if plan.uncommitted is None:
        raise InputError(
            "compact folded changes that were not committed: save this classifier instead"
        )
    selection = plan.selection or plan.given
    same = _are_same(plan.bundled["selection"], selection)
    if same and not plan.uncommitted:
        return plan
    record = None if selection is None else selection.to_dict()
    sha256 = append_changes(
        plan.bundled["path"] if path is None else path,
        plan.uncommitted,
        after=plan.bundled["sha256"],
        chosen=None if same else Chosen(record, plan.rules or {}),
        announce=announce,
    )
    bundled = {**plan.bundled, "sha256": sha256, "selection": selection}
    return replace(plan, bundled=bundled, uncommitted=())


def _are_same(one: Selection | None, other: Selection | None) -> bool:
    """Whether nothing was chosen between two selections; a change of the evidence marks them."""
    if one is None or other is None:
        return one is other
    names = [each.name for each in fields(Selection) if each.name != "stale"]
    same = all(_same(getattr(one, name), getattr(other, name)) for name in names)
    return same and not (one.stale and not other.stale)


def _same(one: Any, other: Any) -> bool:
    return one is other or (isinstance(one, (int, float, str)) and one == other)
