"""Catching up: a loaded classifier after changes that others appended to its bundle since.

Both share all but the rows that changed, so this takes little time and memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from iknow.errors import BundleError, IknowError
from iknow.storage.opening import open_bundle


def catch_up(classifier: Any, sha256: str | None = None) -> Any:
    """A classifier as its bundle is now, or was at a sha256; None if it must be loaded.

    classifier: one that was loaded, without changes of its own; it stays as it is.
    """
    bundled = getattr(classifier, "bundled_", None)
    if bundled is None or getattr(classifier, "_uncommitted", None) != ():
        return None
    try:
        opened = open_bundle(Path(bundled["path"]), copied_up_to=0)
        wanted = opened if sha256 is None else opened.as_of(sha256)
        before = wanted.as_of(bundled["sha256"])
    except BundleError:
        return None
    later = wanted.read_changes()[len(before.chain.segments) :]
    follower = classifier._view()
    try:
        for change in later:
            follower._apply(change)
    except IknowError:  # loading it says what is wrong
        return None
    selection = follower._selection()
    facts = {**bundled, "sha256": wanted.head(), "selection": selection}
    follower._put(bundled_=facts, _uncommitted=())
    return follower
