"""Committing: what changed in a loaded classifier, written to its bundle.

Changes of the evidence are appended, in time that depends on them alone. If something was chosen
anew, as by `recertify`, the bundle is written anew, with everything folded in.

A loaded classifier also catches up with changes that others appended to its bundle: both share all
but the rows that changed, so this takes little time and memory.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import fields
from pathlib import Path
from typing import Any, Self

from iknow.core.rule import Rule
from iknow.errors import BundleError, IknowError, InputError
from iknow.selection import Selection
from iknow.storage.opening import open_bundle
from iknow.storage.saving import SavingMixin
from iknow.storage.segments.appending import append_changes
from iknow.storage.segments.compacting import Chosen


class CommittingMixin(SavingMixin):
    """`commit`, for a classifier that was loaded."""

    _alone: Callable[[], AbstractContextManager[None]]
    _put: Callable[..., None]

    def commit(self, path: str | os.PathLike[str] | None = None) -> Self:
        """Write what changed since `load`, or since the last `commit`, to the bundle.

        When it returns, the changes survive a power failure; if it fails, the bundle is as it was,
        and the changes are still here. Classifiers loaded before go on as they are. Removed samples
        stay in the file until `iknow.storage.segments.compacting.compact_bundle`, or `save`.

        Args:
            path: The bundle. Default: the file that it was loaded from.

        Raises:
            ConflictError: Somebody else has changed the bundle since.
            OSError: The disk is full, or the file may not be written.

        Examples:
            >>> ec = EpistemicClassifier(FrozenEstimator(trained)).fit(X_train, y_train)
            >>> ec.tune(X_val, y_val).save("iris.iknow")
            >>> ec = EpistemicClassifier.load("iris.iknow", FrozenEstimator(trained))
            >>> ec = ec.remove([3], who="Ada", why="blurred").commit()
            >>> EpistemicClassifier.load("iris.iknow").changes_[0].why
            'blurred'
        """
        if "bundled_" not in vars(self):
            raise InputError("commit writes to the bundle of a loaded classifier: save this one")
        with self._alone():
            if "_uncommitted" not in vars(self):
                raise InputError(
                    "compact folded changes that were not committed: save this classifier instead"
                )
            changes, chosen = self._uncommitted, self._chosen_anew()
            if not changes and chosen is None:
                return self
            target = self.bundled_["path"] if path is None else path
            seen = self.bundled_["sha256"]
            sha256 = append_changes(target, changes, after=seen, chosen=chosen)
            bundled = {**self.bundled_, "sha256": sha256, "selection": self._selection()}
            self._put(bundled_=bundled, _uncommitted=())
        return self

    def _selection(self) -> Selection | None:
        found = getattr(self, "selection_", self.rule)
        return found if isinstance(found, Selection) else None

    def _chosen_anew(self) -> Chosen | None:
        """The selection and the rules, if they are not those in the bundle."""
        before, now = self.bundled_["selection"], self._selection()
        if _are_same(before, now):
            return None
        rules: dict[str, Rule] = getattr(self, "neighborhoods_", {})
        return Chosen(None if now is None else now.to_dict(), rules)


def _are_same(one: Selection | None, other: Selection | None) -> bool:
    """Whether nothing was chosen between two selections; a change of the evidence marks them."""
    if one is None or other is None:
        return one is other
    names = [each.name for each in fields(Selection) if each.name != "stale"]
    same = all(_same(getattr(one, name), getattr(other, name)) for name in names)
    return same and not (one.stale and not other.stale)


def _same(one: Any, other: Any) -> bool:
    return one is other or (isinstance(one, (int, float, str)) and one == other)


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
