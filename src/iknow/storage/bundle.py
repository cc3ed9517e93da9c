"""Bundles: a fitted classifier on disk, with or without its model.

A bundle is one file: a ZIP of a JSON manifest and plain arrays, and changes behind it (see
`archive`). Nothing in it can execute code. The manifest (see `manifest`) holds the sha256 of every
array, and each array is compared with its own before its first use (see `sealed`). Saving and
compacting replace a bundle in one step; changes of the evidence are appended to it.

    manifest.json                  the table of contents
    labels.npy                     class codes, ascending
    rows.npy                       the training row each stored sample came from
    layers/LAYER/activations.npy   float32, in the order of labels.npy, transformed by the metric
    layers/LAYER/metric-*.npy      the arrays of the layer's metric, if it has any
    probe/NAME.npy                 what identifies the model, if anything
    changes/ids.npy                numbers of samples in the log of changes, if there were any
    model.onnx                     the model itself, if the bundle is portable

An attacker can recompute checksums, so a correct one proves nothing: names are built from the
manifest and never followed as paths, and every value is checked.
"""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from iknow.core.arrays import Floats32, Ints, Labels
from iknow.core.quorum import check_quorum
from iknow.core.rule import Rule
from iknow.core.text import names, shown
from iknow.errors import BundleError, ConflictError, InputError
from iknow.metrics import Metric, metric_from_dict, metric_to_dict
from iknow.npy import check_array, decode_array, encode_array
from iknow.rules import rule_from_dict, rule_to_dict
from iknow.rules.registry import rule_named
from iknow.search.index import check_activations
from iknow.selection import Selection
from iknow.storage.archive import (
    MANIFEST,
    Contents,
    Opened,
    append,
    open_file,
    prefixed,
    write_file,
)
from iknow.storage.changes import (
    Change,
    Folding,
    Logged,
    check_quorum_fits,
    decode_change,
    encode_change,
    escape,
    fold_changes,
    name_array,
)
from iknow.storage.files import locked, replacing
from iknow.storage.manifest import (
    FORMAT,
    ClassifierRecord,
    Exported,
    LayerRecord,
    LogEntry,
    Manifest,
    read_classes,
    read_record,
    write_classes,
    write_record,
)
from iknow.storage.sealed import Guard, Pieces, verify_all
from iknow.version import __version__

MODEL = "model.onnx"
IDS = "changes/ids.npy"
LARGEST_MODEL = (1 << 31) - 1
"""Bytes of a model, which protobuf cannot exceed either."""


@dataclass(frozen=True, eq=False)
class Bundle:
    """The content of a bundle."""

    classes: Labels  # of shape (n_classes,)
    labels: Ints  # of shape (n_rows,)
    rows: Ints  # of shape (n_rows,)
    activations: Mapping[str, Floats32]  # by layer, of shape (n_rows, n_features)
    metrics: Mapping[str, Metric]
    neighborhoods: Mapping[str, Rule]
    settings: ClassifierRecord
    selection: Selection | None = None
    probe: Mapping[str, Any] = field(default_factory=dict)  # small arrays, read at once
    check: Callable[[], None] | None = None  # refuses damage; to call before each use of the others
    model: Callable[[], bytes] | None = None  # gives the model's ONNX file, if it is held
    exported: Exported | None = None
    log: tuple[Logged, ...] = ()  # changes that the arrays hold already
    changes: tuple[Change, ...] = ()  # those that follow, in segments
    version: str = __version__  # of iknow that wrote the file it was read from
    n_bytes: int = 0
    sha256: str = ""  # seals all of it: of the manifest or, if there are changes, the last segment
    n_torn: int = 0  # bytes at its end that an interrupted writer left

    @property
    def model_classes(self) -> Labels:
        """The classes that the model scores: the others came with changes."""
        later = sum(len(each.classes) for each in self.log)
        return self.classes[: len(self.classes) - later]


# Reading


def as_path(path: Any) -> Path:
    """A file name as a path."""
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"path must be a file name; got {shown(path)}")
    return Path(path)


def read_bundle(
    path: str | os.PathLike[str],
    *,
    verify: bool | Literal["now"] = True,
    copied_up_to: int | None = None,
    at: str | None = None,
) -> Bundle:
    """Read a bundle, its arrays copied into memory or, if they are large, mapped.

    verify: True compares arrays with their checksums on first use (`check`), "now" right here,
    False never. The manifest is always compared with its own. copied_up_to: see `SealedFile`. at:
    the sha256 that it had at some time, to read it without later changes.
    """
    if not (isinstance(verify, bool) or (isinstance(verify, str) and verify == "now")):
        raise InputError(f"verify must be True, False or 'now'; got {shown(verify)}")
    source = as_path(path)
    opened = open_file(source, copied_up_to)
    if at is not None:
        with prefixed(f"{source}: "):
            opened = opened.as_of(at)
    return _read_opened(source, opened, verify)


def _read_opened(source: Path, opened: Opened, verify: bool | Literal["now"]) -> Bundle:
    """The bundle in an open file; see `read_bundle`."""
    file, damaged = opened.file, f"{source} is damaged: "
    with prefixed(f"{damaged}{MANIFEST} is damaged: "):
        manifest = read_record(opened.manifest, Manifest)
    places = opened.places
    belong = {MANIFEST, *manifest.arrays, *([MODEL] if manifest.model else [])}
    if wrong := sorted(set(places) ^ belong):
        problem = "does not belong in it" if wrong[0] in places else "is missing"
        raise BundleError(f"{damaged}{wrong[0]} {problem}")
    sealed, arrays = [], Arrays()
    for name in manifest.arrays:
        # A copy where an array is small and used at once, without asking the guard.
        small = name.startswith(("probe/", "changes/")) or "/metric-" in name
        place = places[name]
        held = file.read(place.start, place.stop) if small else file.content[place]
        content = np.frombuffer(held, dtype=np.uint8) if small else held
        sealed.append((name, content, manifest.arrays[name]))
        with prefixed(f"{damaged}{name} cannot be read: "):
            arrays[name] = decode_array(content)
        if small and verify:
            with prefixed(damaged):
                verify_all(sealed[-1:])
    # The bundle may be sound and only use a rule or metric that is not registered here.
    with prefixed(f"{source} cannot be loaded: {MANIFEST}: "):
        bundle = _from_manifest(manifest, arrays)

    def check_content() -> None:
        with prefixed(damaged):
            if verify:
                verify_all(sealed)
            _check_values(bundle)

    def read_model() -> bytes:
        assert manifest.model is not None
        place = places[MODEL]
        if (size := place.stop - place.start) > LARGEST_MODEL:
            raise BundleError(f"{damaged}{MODEL} may have 2 GB; it has {size:,} bytes")
        content = file.read(place.start, place.stop)
        if len(content) != size or (verify and _sha256([content]) != manifest.model.sha256):
            raise BundleError(f"{damaged}{MODEL} does not match its checksum")
        return content

    end, turn = opened.heads[-1].end, opened.find_turn
    guard = Guard(source, file, check_content, end, turn, by_content=bool(verify))
    with prefixed(damaged):
        changes = tuple(read_changes(opened))
    if verify == "now" or (verify and changes):
        guard.check()
    if changes:
        with prefixed(damaged):
            Folding(bundle, changes)
    if verify == "now" and manifest.model is not None:
        read_model()
    return replace(
        bundle,
        check=guard.check,
        model=None if manifest.model is None else read_model,
        changes=changes,
        n_bytes=file.opened.size,
        sha256=opened.sha256,
        n_torn=opened.torn,
    )


def read_changes(opened: Opened) -> Iterator[Change]:
    """The changes behind the archive, in order."""
    for number, payload in enumerate(opened.payloads(), 1):
        with prefixed(f"its change {number}: "):
            yield decode_change(payload)


# Writing


def write_bundle(path: str | os.PathLike[str], bundle: Bundle) -> None:
    """Write a bundle, or leave what was there untouched."""
    target, contents = as_path(path), _encode(bundle)
    try:
        is_folder = stat.S_ISDIR(os.stat(target).st_mode)
    except FileNotFoundError:
        is_folder = False
    except (OSError, ValueError) as error:  # too long, a loop of links, or NUL
        raise BundleError(f"{shown(str(target))} is not a valid file name: {error}") from error
    if is_folder:
        raise BundleError(
            f"{target} exists and is not a bundle but a folder: choose another name or remove it"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target):
        _replace(target, contents)


def append_changes(
    path: str | os.PathLike[str],
    changes: Sequence[Change],
    *,
    after: str | None = None,
    announce: Callable[[str], None] | None = None,
) -> str:
    """Append changes to a bundle, all or none, and return its new sha256.

    Whoever keeps a record of changes elsewhere is told the new sha256 while nothing is written yet,
    and can refuse. Nothing but these changes has that sha256, so after a crash the bundle says
    whether they were made.

    Args:
        path: The bundle.
        changes: The changes, in order.
        after: The sha256 of the bundle that they follow. Default: whatever is there now.
        announce: Is called with the new sha256 before anything is written. If it raises, nothing
            is.

    Raises:
        ConflictError: The bundle is not the one that they follow any more.
        BundleError: The bundle is damaged, or the changes do not fit it.
        OSError: They could not be written; the bundle is as it was.
    """
    source = as_path(path)
    if source.is_file() and not os.access(source, os.W_OK):
        raise PermissionError(errno.EACCES, "it may not be written", str(source))
    payloads = [encode_change(change) for change in changes]
    with locked(source, in_place=True) as descriptor:
        opened, bundle = _open_after(source, after, verify=False)
        assert descriptor is not None
        with prefixed(f"{source} cannot take this change: "):
            Folding(bundle, (*bundle.changes, *changes))
        return append(descriptor, opened, payloads, announce)


def compact_bundle(path: str | os.PathLike[str]) -> str:
    """Fold the changes of a bundle into its arrays, and return its new sha256.

    Nothing of a removed sample is left in the new file, which replaces the old one: its rows are
    not copied, nor are inputs of the probe that may be its. Of the changes, the log stays: who
    changed which samples, when and why. Readers of the old file keep it.

    Raises:
        BundleError: The bundle is damaged.
        OSError: The new file could not be written; the old one is as it was.
    """
    return rewrite_bundle(path, fold_changes)


def rewrite_bundle(
    path: str | os.PathLike[str],
    edit: Callable[[Bundle], Bundle],
    *,
    after: str | None = None,
    announce: Callable[[str], None] | None = None,
) -> str:
    """Write what `edit` makes of a bundle in its place; see `append_changes`."""
    source = as_path(path)
    with locked(source, in_place=True) as descriptor:
        if descriptor is None:
            raise BundleError(f"{source} is not a bundle: the file does not exist")
        _, bundle = _open_after(source, after, verify="now")
        contents = _encode(replace(edit(bundle), version=__version__))
        if announce is not None:
            announce(_sha256(contents[0][1]))
        return _replace(source, contents)


def _open_after(
    source: Path, after: str | None, verify: bool | Literal["now"]
) -> tuple[Opened, Bundle]:
    """A bundle that nobody has changed since it had a sha256; it is locked."""
    opened = open_file(source, copied_up_to=0)
    if after is not None and opened.sha256 != after:
        raise ConflictError(
            f"{source} was changed by somebody else meanwhile: load it again and repeat the change"
        )
    return opened, _read_opened(source, opened, verify)


def _replace(target: Path, contents: Contents) -> str:
    """Write a bundle's file; whoever may append to the one before must be locked out."""
    with replacing(target, _check_may_replace) as file:
        write_file(file, contents)
    return _sha256(contents[0][1])


def _check_may_replace(target: Path) -> None:
    """Refuse to replace anything but a bundle."""
    try:
        open_file(target, copied_up_to=0)
    except BundleError as error:
        raise BundleError(
            f"{target} exists and is not a bundle, or not a complete one ({error}): choose another "
            "name or remove it"
        ) from error


def _encode(bundle: Bundle) -> Contents:
    """The contents of a bundle's file, read back once to make sure that it can be loaded."""
    layers: dict[str, LayerRecord] = {}
    arrays = Arrays()
    arrays["labels.npy"] = np.asarray(bundle.labels, dtype="<i8")
    arrays["rows.npy"] = np.asarray(bundle.rows, dtype="<i8")
    for layer, values in bundle.activations.items():
        metric, rule = bundle.metrics[layer], bundle.neighborhoods.get(layer)
        parts, record = metric.arrays(), None if rule is None else rule_to_dict(rule)
        layers[layer] = LayerRecord(metric_to_dict(metric), list(parts), record)
        arrays[name_array(layer, "activations")] = np.asarray(values, dtype="<f4")
        for part, array in parts.items():
            arrays[name_array(layer, f"metric-{part}")] = np.asarray(array, dtype="<f8")
    for name, array in bundle.probe.items():
        arrays[f"probe/{escape(name)}.npy"] = np.asarray(array)
    if bundle.log:
        arrays[IDS] = np.concatenate([each.ids for each in bundle.log]).astype("<i8")
    contents: list[tuple[str, Iterable[bytes | memoryview]]] = []
    for name, array in arrays.items():
        try:
            contents.append((name, Pieces(encode_array(array))))
        except ValueError as error:
            raise InputError(f"this cannot be saved: {name}: {error}") from error
    sums = {name: _sha256(parts) for name, parts in contents}
    exported = None
    if bundle.model is not None and bundle.exported is not None:
        contents.append((MODEL, [bundle.model()]))
        exported = msgspec.structs.replace(bundle.exported, sha256=_sha256(contents[-1][1]))
    try:
        manifest = Manifest(
            format=FORMAT,
            iknow=bundle.version,
            classes=write_classes(bundle.classes),
            layers=layers,
            probe=list(bundle.probe),
            selection=None if bundle.selection is None else bundle.selection.to_dict(),
            settings=bundle.settings,
            arrays=sums,
            model=exported,
            changes=[each.entry() for each in bundle.log],
        )
        text = write_record(manifest)
        _from_manifest(read_record(text, Manifest), Arrays(arrays))
    except BundleError as error:
        raise InputError(f"this cannot be saved: {error}") from error
    return [(MANIFEST, [text]), *contents]


def _sha256(parts: Iterable[bytes | memoryview]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


# The manifest, its arrays, and what must fit


class Arrays(dict[str, Any]):
    """Arrays by their names in the archive, each taken once."""

    def take(self, name: str) -> Any:
        if name not in self:
            raise BundleError(f"{name} is missing")
        return self.pop(name)


def _from_manifest(manifest: Manifest, arrays: Arrays) -> Bundle:
    """The bundle of a manifest and its arrays; `_check_values` checks the large arrays."""
    layers, rules, metrics, activations = manifest.layers, {}, {}, {}
    for layer, record in layers.items():
        where = f"of layer {layer[:80]!r} cannot be made: "
        if record.neighborhood is not None:
            with prefixed(f"the rule {where}"):
                rules[layer] = rule_from_dict(record.neighborhood)
        parts = {
            part: arrays.take(name_array(layer, f"metric-{part}")) for part in record.metric_arrays
        }
        with prefixed(f"the metric {where}"):
            for part, array in parts.items():
                check_array(array, part, "<f8", array.shape)
            metric = metrics[layer] = metric_from_dict(record.metric, parts)
            if metric.to_dict() != record.metric or set(metric.arrays()) != set(parts):
                raise BundleError("it has more entries or arrays than it needs")
        activations[layer] = arrays.take(name_array(layer, "activations"))
    bundle = Bundle(
        classes=read_classes(manifest.classes),
        labels=arrays.take("labels.npy"),
        rows=arrays.take("rows.npy"),
        activations=activations,
        metrics=metrics,
        neighborhoods=rules,
        settings=manifest.settings,
        selection=None if manifest.selection is None else Selection.from_dict(manifest.selection),
        probe={name: arrays.take(f"probe/{escape(name)}.npy") for name in manifest.probe},
        exported=manifest.model,
        log=tuple(_read_log(manifest.changes, arrays)),
        version=manifest.iknow,
    )
    if arrays:
        raise BundleError(f"{min(arrays)} does not belong in it")
    _check_shapes(bundle)
    _check_settings(bundle)
    return bundle


def _read_log(entries: Sequence[LogEntry], arrays: Arrays) -> Iterator[Logged]:
    if not entries:
        return
    ids, ends = arrays.take(IDS), list(accumulate(each.ids for each in entries))
    check_array(ids, IDS, "<i8", (ends[-1],))
    for each, (start, end) in zip(entries, pairwise([0, *ends]), strict=True):
        own = ids[start:end]
        if own[0] < 0 or not (own[1:] > own[:-1]).all():
            raise BundleError(f"{IDS} must hold whole numbers >= 0, those of a change ascending")
        yield Logged(each.what, each.when, each.who, each.why, own, tuple(each.classes))


def _check_shapes(bundle: Bundle) -> None:
    """Check that the arrays fit each other, without reading them."""
    n_rows = len(bundle.labels) if bundle.labels.ndim else 0
    check_array(bundle.labels, "labels.npy", "<i8", (n_rows or None,))
    check_array(bundle.rows, "rows.npy", "<i8", (n_rows,))
    for layer, points in bundle.activations.items():
        width = bundle.metrics[layer].width
        check_array(points, f"layer {layer[:80]!r}", "<f4", (n_rows, width))
    for layer, rule in bundle.neighborhoods.items():
        if rule.n_neighbors > n_rows:
            raise BundleError(f"layer {layer[:80]!r} asks for more neighbors than there are rows")
        check_quorum_fits(rule.quorum, n_rows, f"layer {layer[:80]!r}")


def _check_settings(bundle: Bundle) -> None:
    """Refuse settings and a selection that no classifier with this evidence can have."""
    settings, rules, selection = bundle.settings, bundle.neighborhoods, bundle.selection
    if settings.rule is not None:
        rule_named(settings.rule)
    if settings.quorum is not None:
        check_quorum_fits(check_quorum(settings.quorum), len(bundle.labels), "settings.quorum")
    given = ["one", "each", *(["selection"] if selection is not None else [])] if rules else []
    if settings.fixed not in ([None] if settings.rule is not None else given):
        raise BundleError(
            f"settings.fixed must be one of {names(given)}, or null beside a rule that is tuned; "
            f"it is {shown(settings.fixed)}"
        )
    if settings.metric not in (None, "one") and set(settings.metric or ()) - set(bundle.metrics):
        raise BundleError("settings.metric must be 'one' or names of layers")
    counts = settings.about.per_class
    if len(counts) != len(bundle.classes) or sum(counts) != len(bundle.labels):
        raise BundleError(
            f"settings.about.per_class must be {len(bundle.classes)} numbers that add up to "
            f"{len(bundle.labels)}; they are {len(counts)} and add up to {sum(counts)}"
        )
    compared = bundle.activations if bundle.exported is None else bundle.exported.layers
    if lacking := set(bundle.activations) - set(compared):
        raise BundleError(f"model.layers must have layer {shown(min(lacking), 80)}")
    check_layers(bundle.activations, rules, selection)
    watch = None if selection is None else selection.watch
    if watch is not None and watch.belief.max() >= len(bundle.classes):
        raise BundleError(f"the watch believes in more than the {len(bundle.classes)} classes")


def check_layers(
    layers: Collection[str], rules: Mapping[str, Rule], selection: Selection | None
) -> None:
    """Check that all layers have a rule, or none, and what a selection says about them."""
    if rules and set(rules) != set(layers):
        raise InputError("either all layers or none must have a rule")
    if selection is None:
        return
    if set(selection.neighborhoods) != set(layers):
        raise InputError("the selection must have a rule for each layer")
    if selection.levels is None:
        return
    if any(rule.quorum != selection.levels.quorum for rule in rules.values()):
        raise InputError(f"the levels have the quorum {selection.levels.quorum}, the rules do not")


def _check_values(bundle: Bundle) -> None:
    """Check the values of the large arrays, which reads them."""
    labels, rows, n_classes = bundle.labels, bundle.rows, len(bundle.classes)
    if len(labels) and not 0 <= labels[0] <= labels[-1] < n_classes:
        raise BundleError(f"labels.npy must hold class codes from 0 to {n_classes - 1}")
    if not (labels[1:] >= labels[:-1]).all():
        raise BundleError("labels.npy must be ascending")
    numbers = np.sort(rows)
    if len(rows) and numbers[0] < 0:
        raise BundleError("rows.npy must hold whole numbers >= 0")
    if not (numbers[1:] > numbers[:-1]).all():
        raise BundleError("rows.npy must not contain a number twice")
    for layer, points in bundle.activations.items():
        try:
            check_activations(points, f"the activations of layer {layer[:80]!r}")
        except InputError as error:
            raise BundleError(str(error)) from error
