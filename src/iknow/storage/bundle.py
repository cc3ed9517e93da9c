"""Bundles: a fitted classifier on disk, with or without its model.

A bundle is one file, a ZIP of a JSON manifest and plain arrays (see `archive`). Nothing in it can
execute code. The manifest holds the sha256 of every array and of itself, and each array is compared
with its own before its first use (see `sealed`). Saving replaces a bundle in one step; changes of
the evidence are appended to it (see `segments`).

    manifest.json                  the table of contents; always first
    labels.npy                     class codes, ascending
    rows.npy                       the training row each stored sample came from
    layers/LAYER/activations.npy   float32, in the order of labels.npy, transformed by the metric
    layers/LAYER/metric-*.npy      the arrays of the layer's metric, if it has any
    probe/NAME.npy                 what identifies the model, if anything
    changes/*.npy                  numbers of samples in the log of changes, if there were any
    model.onnx                     the model itself, if the bundle is portable

An attacker can recompute checksums, so a correct one proves nothing: names are built from the
manifest and never followed as paths, and `bundle_record` checks every value.

How near model.onnx comes to the model that it was made of is a record:

    samples    the number of samples that were compared
    scores     tolerance and difference: how far apart the scores of a sample may be, and how far
               the farthest are, as Euclidean distances
    layers     the same for the activations, by layer
    reading    of a model that was ONNX already, whose file is kept as it was: where its scores are,
               and how each layer is pooled; null for a graph that iknow made
    sha256     of model.onnx, in the manifest alone
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from iknow.core.text import shown
from iknow.errors import BundleError, InputError
from iknow.npy import decode_array, encode_array
from iknow.storage.archive import write_archive
from iknow.storage.bundle_record import (
    FORMAT,
    MODEL,
    Bundle,
    check_values,
    from_record,
    name_arrays,
    to_record,
)
from iknow.storage.change import Change
from iknow.storage.files import locked, replacing
from iknow.storage.manifest import read_manifest, write_manifest
from iknow.storage.opening import MANIFEST, Opened, open_bundle, prefixed
from iknow.storage.schema import check_mapping, check_record, check_text, check_whole, misfit
from iknow.storage.sealed import Guard, Pieces, SealedFile, verify_all
from iknow.storage.segments.folding import Folding
from iknow.storage.segments.marks import first_marks

KEYS = ("samples", "scores", "layers", "reading", "sha256")
WHERE = "model"


def check_exported(record: object, layers: Collection[str]) -> dict[str, Any] | None:
    """The manifest's record of a model, for a bundle of these layers; None without a model."""
    if record is None:
        return None
    found = check_record(record, WHERE, KEYS)
    check_whole(found["samples"], f"{WHERE}.samples", 1)
    _check_distance(found["scores"], f"{WHERE}.scores")
    compared = check_mapping(found["layers"], f"{WHERE}.layers")
    for distance in compared.values():
        _check_distance(distance, f"an entry of {WHERE}.layers")
    if missing := [layer for layer in layers if layer not in compared]:
        raise BundleError(f"{WHERE}.layers must have layer {missing[0][:80]!r}; it is missing")
    if found["reading"] is not None:  # its values are checked as the model is read by them
        reading = check_record(found["reading"], f"{WHERE}.reading", ("scores", "layers"))
        check_mapping(reading["layers"], f"{WHERE}.reading.layers")
    check_text(found["sha256"], f"{WHERE}.sha256")
    return found


def without_checksum(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a record says about the comparison."""
    return {name: value for name, value in record.items() if name != "sha256"}


def _check_distance(value: object, where: str) -> None:
    for name, number in check_record(value, where, ("tolerance", "difference")).items():
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        if not is_number or not 0 <= number < math.inf:
            raise misfit(f"{where}.{name}", "a number >= 0", number)


LARGEST_MODEL = (1 << 31) - 1
"""Bytes of a model, which protobuf cannot exceed either."""

__all__ = ["Bundle", "read_bundle", "write_bundle"]

Contents = list[tuple[str, list[bytes | memoryview]]]
"""The contents of a bundle's file, each a name and its parts."""


def write_bundle(path: str | os.PathLike[str], bundle: Bundle, version: str) -> None:
    """Write a bundle, or leave what was there untouched."""
    target = as_path(path)
    name = shown(str(target))
    if "\0" in str(target):
        raise BundleError(f"{name} is not a valid file name: it contains NUL")
    contents = encode_bundle(bundle, version)
    try:
        is_folder = target.is_dir()
    except OSError as error:  # too long, or a loop of links
        raise BundleError(f"{name} is not a valid file name: {error.strerror}") from error
    if is_folder:
        raise BundleError(
            f"{target} exists and is not a bundle but a folder: choose another name or remove it"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target):
        replace_bundle(target, contents)


def replace_bundle(target: Path, contents: Contents) -> None:
    """Write a bundle's file; whoever may append to the one before must be locked out."""
    digest = _hash(list(contents[0][1]))
    with replacing(target, _check_may_replace) as file:
        write_archive(file, contents, lambda end: first_marks(end, bytes.fromhex(digest)))


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
    opened = open_bundle(source, copied_up_to)
    if at is not None:
        with prefixed(f"{source}: "):
            opened = opened.as_of(at)
    return read_opened(source, opened, verify)


def read_opened(source: Path, opened: Opened, verify: bool | Literal["now"]) -> Bundle:
    """The bundle in an open file; see `read_bundle`."""
    file, manifest, places = opened.file, opened.manifest, opened.places
    with prefixed(f"{source} is damaged: {MANIFEST}: "):
        names = name_arrays(manifest)
        checksums = check_record(manifest["arrays"], "arrays", names)
        exported = check_exported(manifest["model"], manifest["layers"])
    belong = {MANIFEST, *names, *([] if exported is None else [MODEL])}
    if set(places) != belong:
        wrong = min(set(places) ^ belong)
        problem = "does not belong in it" if wrong in places else "is missing"
        raise BundleError(f"{source} is damaged: {wrong} {problem}")
    sealed = [(name, _take(file, name, places[name]), checksums[name]) for name in names]
    arrays = {}
    for name, content, _ in sealed:
        with prefixed(f"{source} is damaged: {name} cannot be read: "):
            arrays[name] = decode_array(content)
    with prefixed(f"{source} is damaged: "):
        if verify:
            verify_all(each for each in sealed if _is_needed_at_once(each[0]))
    # The bundle may be sound and only use a rule or metric that is not registered here.
    with prefixed(f"{source} cannot be loaded: "):
        bundle = from_record(manifest, arrays)

    def check_content() -> None:
        with prefixed(f"{source} is damaged: "):
            if verify:
                verify_all(sealed)
            check_values(bundle)

    def read_model() -> bytes:
        assert exported is not None
        checksum = exported["sha256"] if verify else None
        return _read_model(source, file, places[MODEL], checksum)

    end, turn = opened.committed, opened.find_turn
    guard = Guard(source, file, check_content, end, turn, by_content=bool(verify))
    with prefixed(f"{source} is damaged: "):
        changes = opened.read_changes()
    if verify == "now" or (verify and changes):
        guard.check()
    with prefixed(f"{source} is damaged: "):
        check_changes(bundle, changes)
    if verify == "now" and exported is not None:
        read_model()
    return replace(
        bundle,
        check=guard.check,
        model=None if exported is None else read_model,
        exported=None if exported is None else without_checksum(exported),
        changes=changes,
        n_bytes=file.opened.size,
        sha256=opened.head(),
        n_torn=opened.chain.torn,
    )


def check_changes(bundle: Bundle, changes: tuple[Change, ...]) -> None:
    """Check that changes fit the bundle that they follow, one after the other."""
    if not changes:
        return
    folding = Folding(bundle)
    for number, change in enumerate(changes, 1):
        with prefixed(f"its change {number}: "):
            folding.take(change)


def encode_bundle(bundle: Bundle, version: str) -> Contents:
    """The contents of a bundle's file, read back once to make sure that it can be loaded."""
    record, arrays = to_record(bundle)
    encoded: dict[str, list[bytes | memoryview]] = {}
    for name, array in arrays.items():
        try:
            encoded[name] = Pieces(encode_array(array))
        except ValueError as error:
            raise InputError(f"this cannot be saved: {name}: {error}") from error
    checksums = {name: _hash(parts) for name, parts in encoded.items()}
    contents: dict[str, list[bytes | memoryview]] = dict(encoded)
    exported = None
    if bundle.model is not None and bundle.exported is not None:
        contents[MODEL] = [bundle.model()]
        exported = {**bundle.exported, "sha256": _hash(contents[MODEL])}
    entries = {"arrays": checksums, "model": exported}
    manifest = {"format": FORMAT, "iknow": version, **record, **entries}
    try:
        text = write_manifest(manifest)
        from_record(read_manifest(text), {name: np.asarray(a) for name, a in arrays.items()})
    except BundleError as error:
        raise InputError(f"this cannot be saved: {error}") from error
    return [(MANIFEST, [text]), *contents.items()]


def _hash(parts: list[bytes | memoryview]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _check_may_replace(target: Path) -> None:
    """Refuse to replace anything but a bundle."""
    try:
        open_bundle(target, copied_up_to=0)
    except BundleError as error:
        raise BundleError(
            f"{target} exists and is not a bundle, or not a complete one ({error}): choose another "
            "name or remove it"
        ) from error


def _take(file: SealedFile, name: str, place: slice) -> Any:
    """The bytes of an array; a copy if the array is used without asking the guard."""
    if _is_needed_at_once(name):
        return np.frombuffer(file.read(place.start, place.stop), dtype=np.uint8)
    return file.content[place]


def _read_model(source: Path, file: SealedFile, place: slice, checksum: str | None) -> bytes:
    """A copy of the model's bytes, compared with their checksum unless that is None."""
    size = place.stop - place.start
    if size > LARGEST_MODEL:
        raise BundleError(f"{source} is damaged: {MODEL} may have 2 GB; it has {size:,} bytes")
    content = file.read(place.start, place.stop)
    changed = checksum is not None and hashlib.sha256(content).hexdigest() != checksum
    if len(content) != size or changed:
        raise BundleError(f"{source} is damaged: {MODEL} does not match its checksum")
    return content


def _is_needed_at_once(name: str) -> bool:
    """Whether an array, of a metric, a probe, the log or all codes, is small and needed on load."""
    return name.startswith(("probe/", "changes/")) or "/metric-" in name or "/code-" in name
