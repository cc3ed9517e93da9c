"""Applying: one change of the evidence, as one step.

A change (`iknow.storage.change`) makes new indexes that share all but the few rows that changed
with those before. Everything is checked first, and everything learned is put in place by one
assignment. An assessment that runs meanwhile has taken its view of the classifier before or after
that, and so sees the old or the new evidence in all layers; it never waits. Changes themselves take
turns.

What was promised was about the evidence before. It is marked as stale, and assertions go on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Self

import numpy as np

from iknow.classifier.fitting import FittingMixin
from iknow.core.arrays import Ints
from iknow.core.text import name, names
from iknow.errors import InputError
from iknow.locking import Lock
from iknow.models.labels import extend_classes
from iknow.models.probe import Probe
from iknow.search.layer import LayerIndex
from iknow.selection import Selection
from iknow.storage.change import Change, Logged, check_change


class ApplyingMixin(FittingMixin):
    """Steps from one state of the evidence to the next."""

    changes_: tuple[Logged, ...] = ()
    """What happened to the evidence since `fit`, the first change first."""

    def _apply(self, change: Change) -> Self:
        """Take one step, or raise an error and stay as it is."""
        with self._alone():
            self._put(**self._after(change))
        return self

    def _after(self, change: Change) -> dict[str, Any]:
        """What is known after a change. This checks everything and changes nothing."""
        check_change(change, self.layers_)
        classes = extend_classes(self.classes_, change.classes)
        self._check_there(change.removed)
        self._check_come(change, len(classes))
        self._check_rules(change)
        indexes = self.indexes_.items()
        after: dict[str, Any] = {
            "indexes_": {
                layer: _change_layer(layer, index, change, len(classes)) for layer, index in indexes
            },
            "classes_": classes,
            "changes_": (*self.changes_, change.logged()),
        }
        if "_uncommitted" in vars(self):  # it was loaded: `commit` writes them to the bundle
            after["_uncommitted"] = (*self._uncommitted, change)
        leaving = np.setdiff1d(change.removed, change.rows)
        if isinstance(self.probe_, Probe) and len(leaving):
            after["probe_"] = self.probe_.without(leaving)
        selection = getattr(self, "selection_", self.rule)
        if isinstance(selection, Selection):
            after["selection_"] = make_stale(selection, change.logged())
        return after

    def _check_there(self, numbers: Ints) -> None:
        """Refuse numbers of samples that are not there."""
        there = self.indexes_[self.layers_[0]].has(numbers)
        if not there.all():
            missing = names(numbers[~there].tolist())
            raise InputError(f"there are no samples with these numbers: {missing}")

    def _check_come(self, change: Change, n_classes: int) -> None:
        """Refuse samples whose numbers are taken or whose classes are unknown, and a last one."""
        index = self.indexes_[self.layers_[0]]
        new = np.setdiff1d(change.rows, change.removed)
        if (taken := new[index.has(new)]).size:
            raise InputError(f"there are samples with these numbers: {names(taken.tolist())}")
        if change.labels.size and not 0 <= change.labels.min() <= change.labels.max() < n_classes:
            raise InputError(f"a change must give class codes from 0 to {n_classes - 1}")
        if index.n_rows + len(change.rows) == len(change.removed):
            raise InputError(
                "no sample would be left, and without evidence nothing can be asserted: add others "
                "first"
            )

    def _check_rules(self, change: Change) -> None:
        """Refuse a training set that the neighborhoods in use cannot be asked about."""
        n_rows = self.indexes_[self.layers_[0]].n_rows + len(change.rows) - len(change.removed)
        for layer, rule in getattr(self, "neighborhoods_", {}).items():
            if rule.n_neighbors > n_rows or max(rule.quorum) > n_rows:
                raise InputError(
                    f"{rule!r} of layer {name(layer)!r} asks for more samples than the {n_rows} "
                    "that would be left: add others first, or tune for fewer"
                )

    @property
    def _n_columns(self) -> int:
        """How many classes the model scores: the others came later."""
        state = vars(self)  # one state, whatever happens meanwhile
        return len(state["classes_"]) - sum(len(e.classes) for e in state.get("changes_", ()))

    def _view(self) -> Self:
        """The classifier as it is now, whatever happens to it later."""
        view = object.__new__(type(self))
        view.__dict__ = vars(self).copy()
        return view

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Changes take turns."""
        with vars(self).setdefault("_changing", Lock()).held():
            yield

    def _put(self, *, without: Collection[str] = (), **learned: Any) -> None:
        """Replace what is known, and forget some of it, in one step."""
        state = {**vars(self), **learned}
        self.__dict__ = {name: value for name, value in state.items() if name not in without}


def make_stale(selection: Selection, change: Logged) -> Selection:
    """A selection after the evidence has changed; the first change says since when."""
    return selection if selection.stale else replace(selection, stale=change.sentence())


def _change_layer(layer: str, index: LayerIndex, change: Change, n_classes: int) -> LayerIndex:
    none = np.empty((0, index.n_features), dtype=np.float32)
    points = change.points[layer] if len(change.rows) else none
    try:
        return index.changed(change.removed, points, change.labels, change.rows, n_classes)
    except InputError as error:
        raise InputError(f"layer {name(layer)!r}: {error}") from error
