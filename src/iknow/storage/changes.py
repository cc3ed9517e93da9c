"""Changes of the evidence after it was collected: samples come, go, and get other labels.

Every change is the same step: some rows no longer count, and some count from now on. A relabeled
sample does both, under the same number. So evidence after any number of changes is that of a
training set, and a rebuild from that set must say the same.

In a bundle, a change is a payload behind the archive (`iknow.storage.archive`):

    change.json                what happened, when, by whom, why
    removed.npy                numbers of the samples that no longer count as they did
    rows.npy, labels.npy       numbers and class codes of those that count from now on
    layers/LAYER/points.npy    their activations, float32, transformed by the layer's metric

and `Folding` gives the evidence after some changes as one training set. Each row that counts lies
either in the base or in the change that brought it last. So its state is two small sets beside the
base: the base's rows that are gone, and where the others lie. A change is checked against that
state, in time that depends on the change alone.
"""

from __future__ import annotations

import io
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from time import time as clock
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec
import numpy as np

from iknow.core.arrays import Bools, Floats32, Ints
from iknow.core.codes import for_json
from iknow.core.quorum import Quorum
from iknow.core.rule import Rule
from iknow.core.text import names, shown
from iknow.errors import BundleError, InputError
from iknow.models.probe import Probe, restore_probe
from iknow.models.samples import extend_classes
from iknow.npy import check_array, decode_array, encode_array
from iknow.selection import Selection
from iknow.storage.archive import LONGEST_NAME, prefixed, read_zip, write_zip
from iknow.storage.manifest import (
    LONGEST_WORDS,
    WHEN,
    LogEntry,
    ProbeRecord,
    Record,
    read_record,
    write_record,
)

if TYPE_CHECKING:
    from iknow.storage.bundle import Bundle

ADD, REMOVE, RELABEL = KINDS = ("add", "remove", "relabel")
RECORD = "change.json"
NUMBERS = ("removed", "rows", "labels")
SMALL_QUORUM = 100
"""A quorum that costs little, even if a small training set cannot meet it."""


@dataclass(frozen=True, eq=False)
class Logged:
    """What the log says about a change."""

    what: str  # "add", "remove" or "relabel"
    when: str  # in UTC, ISO 8601 with Z
    who: str  # "" if nobody said
    why: str
    ids: Ints  # numbers of the samples that it was about, ascending
    classes: tuple[Any, ...] = ()  # labels that came with it, which the model does not score

    def sentence(self) -> str:
        """Say what happened, in words."""
        n, what = len(self.ids), {ADD: "added", REMOVE: "removed", RELABEL: "relabeled"}[self.what]
        by = f" by {shown(self.who)}" if self.who else ""
        why = f", because {shown(self.why)}" if self.why else ""
        return f"{n:,} sample{'' if n == 1 else 's'} {what} at {self.when}{by}{why}"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values for JSON."""
        return {**vars(self), "ids": self.ids.tolist(), "classes": for_json(self.classes)}

    def entry(self) -> LogEntry:
        """Return it as a manifest holds it, with the number of its samples alone."""
        said = {**vars(self), "ids": len(self.ids), "classes": list(self.classes)}
        return LogEntry(**said)


@dataclass(frozen=True, eq=False)
class Change:
    """One change of the evidence, in all layers; what is said about it is as in `Logged`."""

    what: str
    when: str
    who: str
    why: str
    removed: Ints  # numbers of the samples that no longer count as they did, ascending
    rows: Ints  # numbers of those that count from now on, of shape (m,), ascending
    labels: Ints  # their class codes, of shape (m,)
    points: Mapping[str, Floats32]  # by layer, as the metric transforms, of shape (m, n_features)
    classes: tuple[Any, ...] = ()  # labels that were not known before; their codes come last

    def logged(self) -> Logged:
        """Return what a log keeps of it: no activations."""
        ids = self.removed if self.what == REMOVE else self.rows
        return Logged(self.what, self.when, self.who, self.why, ids, self.classes)


def stale(selection: Selection | None, changes: Sequence[Logged]) -> Selection | None:
    """A selection after changes of the memory; the first one ever says since when it is stale."""
    if selection is None or selection.stale or not changes:
        return selection
    return replace(selection, stale=changes[0].sentence())


class ChangeRecord(Record):
    """A change without its arrays."""

    said: LogEntry
    layers: list[str]


def now() -> str:
    """The time in UTC to the second; SOURCE_DATE_EPOCH, seconds since 1970, takes its place."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    try:
        time = datetime.fromtimestamp(int(clock() if given is None else given), UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise InputError(
            f"SOURCE_DATE_EPOCH must be seconds since 1970; it is {shown(given)}"
        ) from error
    return time.isoformat().replace("+00:00", "Z")


def check_change(change: Change) -> None:
    """Refuse a change that no classifier can take; `check_fits` says what a certain one can.

    Every field may come from a file or a request, and so may be anything.
    """
    if change.what not in KINDS:
        raise InputError(f"a change must be one of {names(KINDS)}; got {shown(change.what)}")
    if not isinstance(change.when, str) or not re.match(WHEN, change.when):
        raise InputError(
            f"a change must say when in UTC, such as 2026-11-01T12:00:00Z; got {shown(change.when)}"
        )
    check_said(change.who, "who")
    check_said(change.why, "why")
    for name in ("removed", "rows"):
        _check_numbers(getattr(change, name), name)
    came, went = len(change.rows), len(change.removed)
    if change.labels.shape != (came,) or change.labels.dtype.kind not in "iu":
        raise InputError(f"a change needs a class code for each of its {came} samples")
    for layer, points in change.points.items():
        if not np.isfinite(points).all():
            raise InputError(f"layer {shown(layer, 80)}: a change must bring finite activations")
    fits = {
        ADD: came and not went,
        REMOVE: went and not came,
        RELABEL: came and np.array_equal(change.rows, change.removed),
    }
    if not fits[change.what]:
        raise InputError(f"{change.what} cannot remove {went} samples and bring {came}")


def check_fits(
    change: Change,
    n_classes: int,
    n_rows: int,
    has: Callable[[Ints], Bools],
    widths: Mapping[str, int],
    rules: Mapping[str, Rule],
) -> None:
    """Refuse a change that does not fit the samples that are there.

    n_classes: those of the change included. n_rows: of samples before it; has: which numbers are
    theirs. widths: the number of features by layer. rules: by layer, those in use.
    """
    if (len(change.rows) or change.points) and set(change.points) != set(widths):
        raise InputError(
            f"a change needs activations of the layers {names(sorted(widths))}; got "
            f"{names(sorted(change.points, key=shown))}"
        )
    for layer, points in change.points.items():
        if points.shape != (wanted := (len(change.rows), widths[layer])):
            raise InputError(
                f"layer {shown(layer, 80)}: a change needs activations of shape {wanted}, "
                f"{wanted[1]} features each; got {points.shape}"
            )
    check_there(change.removed, has)
    new = np.setdiff1d(change.rows, change.removed)
    if (taken := new[has(new)]).size:
        raise InputError(
            f"there are samples with these numbers: {names(taken.tolist())}; the rows of new ones "
            "must differ from theirs"
        )
    labels, n_left = change.labels, n_rows + len(change.rows) - len(change.removed)
    if labels.size and not 0 <= labels.min() <= labels.max() < n_classes:
        raise InputError(f"a change must give class codes from 0 to {n_classes - 1}")
    if not n_left:
        raise InputError(
            "no sample would be left, and without evidence nothing can be asserted: add others "
            "first"
        )
    for layer, rule in rules.items():
        if max(rule.n_neighbors, *rule.quorum) > n_left:
            raise InputError(
                f"{rule!r} of layer {shown(layer, 80)} asks for more samples than the {n_left} "
                "that would be left: add others first, or tune for fewer"
            )


def check_there(numbers: Ints, has: Callable[[Ints], Bools]) -> None:
    """Refuse numbers of samples that are not there."""
    there = has(numbers)
    if not there.all():
        missing = names(numbers[~there].tolist())
        raise InputError(f"there are no samples with these numbers: {missing}")


def check_said(text: Any, what: str) -> str:
    """Who made a change, or why: text of bounded length."""
    if not isinstance(text, str) or len(text) > LONGEST_WORDS:
        raise InputError(
            f"{what} must be text of at most {LONGEST_WORDS} characters; got {shown(text)}"
        )
    return text


def _check_numbers(numbers: Any, name: str) -> None:
    """Numbers of samples must be distinct, ascending and >= 0."""
    if not isinstance(numbers, np.ndarray) or numbers.ndim != 1 or numbers.dtype.kind not in "iu":
        raise InputError(f"{name} of a change must be an array of numbers; got {shown(numbers)}")
    if len(numbers) and (numbers[0] < 0 or not (numbers[1:] > numbers[:-1]).all()):
        raise InputError(f"{name} of a change must be distinct numbers >= 0, ascending")


# Payloads


def name_array(layer: str, array: str) -> str:
    """The name of a layer's array in an archive."""
    return f"layers/{escape(layer)}/{array}.npy"


def escape(name: str) -> str:
    """A name as part of a path: separators and a leading dot are escaped."""
    if not isinstance(name, str):
        raise InputError(f"layer names must be strings to be saved; got {name!r}")
    escaped = quote(name, safe="", errors="surrogatepass")
    if len(escaped) > LONGEST_NAME - 200:
        raise InputError(f"the name {name[:80]!r}... is too long to be saved")
    return "%2E" + escaped[1:] if escaped.startswith(".") else escaped or "%"


def encode_change(change: Change) -> bytes:
    """The payload of a change.

    Raises:
        InputError: It cannot be stored, and why.
    """
    file, record = io.BytesIO(), ChangeRecord(change.logged().entry(), list(change.points))
    arrays = {f"{name}.npy": np.asarray(getattr(change, name), dtype="<i8") for name in NUMBERS}
    for layer, points in change.points.items():
        arrays[name_array(layer, "points")] = np.asarray(points, dtype="<f4")
    try:
        contents = [(name, encode_array(array)) for name, array in arrays.items()]
        write_zip(file, [(RECORD, [write_record(record)]), *contents])
        decode_change(file.getvalue())
    except BundleError as error:
        raise InputError(f"this change cannot be stored: {error}") from error
    return file.getvalue()


def decode_change(payload: bytes) -> Change:
    """The change in a payload, whose values fit each other (`Folding` says to what else).

    Raises:
        BundleError: It is damaged.
    """
    places, _ = read_zip(lambda start, stop: payload[start:stop], 0, len(payload))
    if RECORD not in places:
        raise BundleError(f"{RECORD} is missing")
    record = read_record(payload[places.pop(RECORD)], ChangeRecord)
    wanted = {name_array(layer, "points"): layer for layer in record.layers}
    if set(places) != {*wanted, *(f"{name}.npy" for name in NUMBERS)}:
        raise BundleError("its arrays are not those of its layers")
    content, arrays = np.frombuffer(payload, dtype=np.uint8), {}
    for name, place in places.items():
        with prefixed(f"{name} cannot be read: "):
            arrays[name] = decode_array(content[place])
    numbers = {name: arrays[f"{name}.npy"] for name in NUMBERS}
    points = {layer: arrays[name] for name, layer in wanted.items()}
    said = msgspec.structs.asdict(record.said) | {"classes": tuple(record.said.classes)}
    n_ids = said.pop("ids")
    change = Change(**said, **numbers, points=points)
    with prefixed(""):
        for name, array in numbers.items():
            check_array(array, name, "<i8", array.shape[:1])
        for layer, array in points.items():
            check_array(array, f"layer {shown(layer, 80)}", "<f4", (len(change.rows), None))
        check_change(change)
    if n_ids != len(change.logged().ids):
        raise BundleError(f"it must be about {n_ids} samples")
    return change


# What identifies the model


def probe_of(bundle: Bundle) -> Probe | str:
    """What identifies the model of a bundle, or why nothing does."""
    record = bundle.settings.probe
    if isinstance(record, str):
        return record
    try:
        plain = msgspec.structs.asdict(record)
        return restore_probe(plain, bundle.probe, list(bundle.activations))
    except ImportError as error:  # inputs of a kind that cannot be read without some package
        return f"the inputs stored with it cannot be read here ({error})"


def store_probe(known_by: Probe | str) -> tuple[ProbeRecord | str, Mapping[str, Any]]:
    """What a bundle keeps of it: the record in its manifest, and arrays."""
    if isinstance(known_by, str):
        return known_by, {}
    record, arrays = known_by.store()
    return ProbeRecord(**record), arrays


# The evidence after some changes


def check_quorum_fits(quorum: Quorum, n_rows: int, where: str) -> None:
    """Refuse a quorum that would take unbounded memory to ask about."""
    if max(quorum) > max(n_rows, SMALL_QUORUM):
        raise BundleError(f"{where} has a quorum of {max(quorum)}, more than its {n_rows} rows")


class Folding:
    """The evidence of a bundle after changes, in order; `fold` gives the bundle that holds it.

    Raises:
        BundleError: A change does not fit what there is.
    """

    def __init__(self, bundle: Bundle, changes: Iterable[Change]) -> None:
        self._bundle, self.classes = bundle, bundle.classes
        self._sorted = np.sort(bundle.rows)
        self._gone: set[int] = set()
        self._left: set[int] = set()
        self._brought: dict[int, tuple[int, int]] = {}
        self._changes: list[Change] = []
        for number, change in enumerate(changes, 1):
            with prefixed(f"its change {number}: "):
                self._take(change)

    @property
    def n_rows(self) -> int:
        return len(self._sorted) - len(self._gone) + len(self._brought)

    def _take(self, change: Change) -> None:
        widths = {layer: each.shape[1] for layer, each in self._bundle.activations.items()}
        rules = self._bundle.neighborhoods
        classes = extend_classes(self.classes, change.classes)
        check_fits(change, len(classes), self.n_rows, self._has, widths, rules)
        removed, rows, self.classes = change.removed.tolist(), change.rows.tolist(), classes
        self._left |= set(removed) - set(rows)
        for row in removed:
            if self._brought.pop(row, None) is None:
                self._gone.add(row)
        self._brought |= {row: (len(self._changes), place) for place, row in enumerate(rows)}
        self._changes.append(change)

    def counts(self) -> list[int]:
        """The number of rows by class."""
        labels = self._bundle.labels[self._kept()]
        brought = [self._changes[which].labels[place] for which, place in self._brought.values()]
        every = np.concatenate([labels, np.array(brought, dtype=np.int64)])
        return np.bincount(every, minlength=len(self.classes)).tolist()  # type: ignore[no-any-return]

    def fold(self) -> Bundle:
        """The bundle of the rows that are left, without segments; its log is that of all.

        Nothing of a removed sample is left in it: neither its rows, nor inputs of the probe.
        """
        kept, before = self._kept(), self._bundle
        places: dict[int, list[int]] = {}
        for which, place in self._brought.values():
            places.setdefault(which, []).append(place)
        parts = [(self._changes[which], np.array(each)) for which, each in places.items()]
        labels = np.concatenate([before.labels[kept], *(c.labels[p] for c, p in parts)])
        rows = np.concatenate([before.rows[kept], *(c.rows[p] for c, p in parts)])
        order = np.lexsort((rows, labels))
        activations = {}
        for layer, points in before.activations.items():
            every = [points[kept], *(c.points[layer][p] for c, p in parts)]
            activations[layer] = np.concatenate(every)[order]
        record, probe = before.settings.probe, before.probe
        if self._left and not isinstance(record, str):
            known_by = probe_of(before)
            left = np.array(sorted(self._left), dtype=np.int64)
            record, probe = store_probe(
                known_by if isinstance(known_by, str) else known_by.without(left)
            )
        settings, logged = before.settings, [change.logged() for change in self._changes]
        about = msgspec.structs.replace(settings.about, per_class=self.counts())
        return replace(
            before,
            classes=self.classes,
            labels=labels[order],
            rows=rows[order],
            activations=activations,
            selection=stale(before.selection, logged),
            settings=msgspec.structs.replace(settings, about=about, probe=record),
            probe=probe,
            log=(*before.log, *logged),
            changes=(),
            check=None,
        )

    def _kept(self) -> Ints:
        gone = np.array(sorted(self._gone), dtype=np.int64)
        return np.flatnonzero(~np.isin(self._bundle.rows, gone))

    def _has(self, numbers: Ints) -> Bools:
        every, gone = self._sorted, self._gone
        in_base = np.searchsorted(every, numbers) < np.searchsorted(every, numbers, "right")
        pairs = zip(numbers.tolist(), in_base.tolist(), strict=True)
        there = [row in self._brought or (own and row not in gone) for row, own in pairs]
        return np.array(there, dtype=bool)


def fold_changes(bundle: Bundle) -> Bundle:
    """The bundle after its changes."""
    return Folding(bundle, bundle.changes).fold()
