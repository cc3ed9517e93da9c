"""Folding: the evidence after some changes, as one training set.

Each row that counts lies either in the base or in the change that brought it last. So the state is
two small sets beside the base: the base's rows that are gone, and where the others lie. A change is
checked against that state, in time that depends on the change alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from iknow.core.arrays import Ints, Labels
from iknow.core.text import names, shown
from iknow.errors import BundleError
from iknow.models.probe import restore_probe
from iknow.storage.bundle_record import Bundle, check_quorum_fits
from iknow.storage.change import Change
from iknow.storage.label_record import classes_from_dict, classes_to_dict


class Folding:
    """Takes changes in order; `fold` then gives the bundle that holds what is left."""

    def __init__(self, bundle: Bundle) -> None:
        self._bundle, self.classes = bundle, bundle.classes
        self._order = np.argsort(bundle.rows, kind="stable")
        self._sorted = bundle.rows[self._order]
        self._gone: set[int] = set()
        self._left: set[int] = set()
        self._brought: dict[int, tuple[int, int]] = {}
        self._changes: list[Change] = []

    @property
    def n_rows(self) -> int:
        return len(self._sorted) - len(self._gone) + len(self._brought)

    def take(self, change: Change) -> None:
        """Let a change happen.

        Raises:
            BundleError: It does not fit what there is.
        """
        self._check_layers(change)
        removed, rows = change.removed.tolist(), change.rows.tolist()
        if missing := [row for row in removed if not self._has(row)]:
            raise BundleError(f"it removes {names(missing)}, which are not there")
        leaving = set(removed)
        if twice := [row for row in rows if row not in leaving and self._has(row)]:
            raise BundleError(f"it adds {names(twice)}, which are there already")
        classes = self._extend_classes(change)
        if len(change.labels) and not 0 <= change.labels.min() <= change.labels.max() < len(
            classes
        ):
            raise BundleError(f"its class codes must be from 0 to {len(classes) - 1}")
        self._check_enough(self.n_rows - len(removed) + len(rows))
        self.classes = classes
        self._left |= leaving - set(rows)
        for row in removed:
            if self._brought.pop(row, None) is None:
                self._gone.add(row)
        self._brought |= {row: (len(self._changes), place) for place, row in enumerate(rows)}
        self._changes.append(change)

    def counts(self) -> Ints:
        """The number of rows by class, of shape (n_classes,)."""
        labels = self._bundle.labels[self._kept()]
        brought = [self._changes[which].labels[place] for which, place in self._brought.values()]
        came = np.array(brought, dtype=np.int64)
        return np.bincount(np.concatenate([labels, came]), minlength=len(self.classes))

    def fold(self) -> Bundle:
        """The bundle of the rows that are left, without segments; its log is that of all."""
        kept = self._kept()
        places = self._places_by_change()
        parts = [(self._changes[which], place) for which, place in places.items()]
        labels = np.concatenate([self._bundle.labels[kept], *(c.labels[p] for c, p in parts)])
        rows = np.concatenate([self._bundle.rows[kept], *(c.rows[p] for c, p in parts)])
        order = np.lexsort((rows, labels))
        activations = {}
        for layer, points in self._bundle.activations.items():
            every = [points[kept], *(c.points[layer][p] for c, p in parts)]
            activations[layer] = np.concatenate(every)[order]
        left = np.array(sorted(self._left), dtype=np.int64)
        probe, settings = _forget(self._bundle, left)
        if settings.get("about") is not None:
            counts = np.bincount(labels, minlength=len(self.classes)).tolist()
            settings["about"] = {**settings["about"], "per_class": counts}
        if settings.get("selection") is not None and self._changes:
            stale = settings["selection"].get("stale") or self._changes[0].logged().sentence()
            settings["selection"] = {**settings["selection"], "stale": stale}
        return replace(
            self._bundle,
            classes=self.classes,
            labels=labels[order],
            rows=rows[order],
            activations=activations,
            settings=settings,
            probe=probe,
            log=(*self._bundle.log, *(each.logged() for each in self._changes)),
            changes=(),
            check=None,
        )

    def _kept(self) -> Ints:
        gone = np.array(sorted(self._gone), dtype=np.int64)
        return np.flatnonzero(~np.isin(self._bundle.rows, gone))

    def _places_by_change(self) -> dict[int, Ints]:
        found: dict[int, list[int]] = {}
        for which, place in self._brought.values():
            found.setdefault(which, []).append(place)
        return {which: np.array(places) for which, places in found.items()}

    def _has(self, row: int) -> bool:
        if row in self._brought:
            return True
        place = int(np.searchsorted(self._sorted, row))
        there = place < len(self._sorted) and int(self._sorted[place]) == row
        return there and row not in self._gone

    def _check_layers(self, change: Change) -> None:
        layers = self._bundle.activations
        if len(change.rows) == 0 and not change.points:
            return
        if set(change.points) != set(layers):
            raise BundleError(f"its layers must be {names(layers)}; got {names(change.points)}")
        for layer, points in change.points.items():
            if points.shape[1] != layers[layer].shape[1]:
                raise BundleError(
                    f"layer {shown(layer, 80)} has {layers[layer].shape[1]} features; its points "
                    f"have {points.shape[1]}"
                )

    def _extend_classes(self, change: Change) -> Labels:
        if not change.classes:
            return self.classes
        record = classes_to_dict(self.classes)
        return classes_from_dict({**record, "values": [*record["values"], *change.classes]})

    def _check_enough(self, n_rows: int) -> None:
        if n_rows < 1:
            raise BundleError("it leaves no sample: at least one must stay")
        for layer, rule in self._bundle.neighborhoods.items():
            where = f"layer {shown(layer, 80)}"
            if rule.n_neighbors > n_rows:
                raise BundleError(
                    f"it leaves {n_rows} samples; {where} asks for {rule.n_neighbors} neighbors"
                )
            check_quorum_fits(rule.quorum, n_rows, where)


def fold_changes(bundle: Bundle, changes: Iterable[Change]) -> Bundle:
    """The bundle after some changes, in order."""
    folding = Folding(bundle)
    for change in changes:
        folding.take(change)
    return folding.fold()


def _forget(bundle: Bundle, rows: Ints) -> tuple[dict[str, Any], dict[str, Any]]:
    """The probe's arrays and the settings without some training samples, by their numbers."""
    settings, arrays = dict(bundle.settings), dict(bundle.probe)
    if isinstance(settings["probe"], str) or not len(rows):
        return arrays, settings
    try:
        left = restore_probe(settings["probe"], arrays, list(bundle.activations)).without(rows)
    except ImportError as error:  # it may hold them, in a form that we cannot read here
        left = f"samples were removed, and those it was known by cannot be read ({error})"
    record, arrays = (left, {}) if isinstance(left, str) else left.store()
    return arrays, {**settings, "probe": record}
