"""Bundles: a fitted classifier on disk, with or without its model.

A bundle is one file, a ZIP of a JSON manifest and plain arrays (see `archive`). Nothing in it can
execute code. The manifest holds the sha256 of every array and of itself, and each array is compared
with its own before its first use (see `sealed`). Saving replaces a bundle in one step.

    manifest.json                  the table of contents; always first
    labels.npy                     class codes, ascending
    rows.npy                       the training row each stored sample came from
    layers/LAYER/activations.npy   float32, in the order of labels.npy, transformed by the metric
    layers/LAYER/metric-*.npy      the arrays of the layer's metric, if it has any
    probe/NAME.npy                 what identifies the model, if anything
    model.onnx                     the model itself, if the bundle is portable

An attacker can recompute checksums, so a correct one proves nothing: names are built from the
manifest and never followed as paths, and `bundle_record` checks every value.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from iknow.core.npy import decode_array, encode_array
from iknow.core.text import shown
from iknow.errors import BundleError, InputError
from iknow.memory import Pieces
from iknow.storage.archive import ArchiveError, read_archive, write_archive
from iknow.storage.atomic import replacing
from iknow.storage.bundle_record import (
    FORMAT,
    MODEL,
    Bundle,
    check_values,
    from_record,
    name_arrays,
    to_record,
)
from iknow.storage.exported_record import check_exported, without_checksum
from iknow.storage.manifest import LARGEST, read_manifest, write_manifest
from iknow.storage.schema import add_missing, check_record
from iknow.storage.sealed import Guard, SealedFile, verify_all

READABLE = (2, 3, 4, 5, FORMAT)
FORMAT_LINE = re.compile(rb'\{\n"format": (\d{1,9}),')
MANIFEST = "manifest.json"
KEYS = ("format", "iknow", "classes", "layers", "probe", "settings", "arrays", "model")
SINCE_FORMAT_6 = ("model",)
LARGEST_MODEL = (1 << 31) - 1
"""Bytes of a model, which protobuf cannot exceed either."""

__all__ = ["Bundle", "read_bundle", "write_bundle"]


def write_bundle(path: str | os.PathLike[str], bundle: Bundle, version: str) -> None:
    """Write a bundle, or leave what was there untouched."""
    target = _as_path(path)
    name = shown(str(target))
    if "\0" in str(target):
        raise BundleError(f"{name} is not a valid file name: it contains NUL")
    contents = _encode(bundle, version)
    try:
        is_folder = target.is_dir()
    except OSError as error:  # too long, or a loop of links
        raise BundleError(f"{name} is not a valid file name: {error.strerror}") from error
    if is_folder:
        raise BundleError(
            f"{target} exists and is not a bundle but a folder: choose another name or remove it"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target, _check_may_replace) as file:
        write_archive(file, contents)


def _as_path(path: Any) -> Path:
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"path must be a file name; got {shown(path)}")
    return Path(path)


def read_bundle(
    path: str | os.PathLike[str],
    *,
    verify: bool | Literal["now"] = True,
    copied_up_to: int | None = None,
) -> Bundle:
    """Read a bundle, its arrays copied into memory or, if they are large, mapped.

    verify: True compares arrays with their checksums on first use (`check`), "now" right here,
    False never. The manifest is always compared with its own. copied_up_to: see `SealedFile`.
    """
    if not (isinstance(verify, bool) or (isinstance(verify, str) and verify == "now")):
        raise InputError(f"verify must be True, False or 'now'; got {shown(verify)}")
    source = _as_path(path)
    file = SealedFile(source, copied_up_to)
    places = _find_contents(source, file)
    manifest, sha256 = _read_manifest(source, file, places[MANIFEST])
    with _prefixed(f"{source} is damaged: {MANIFEST}: "):
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
        with _prefixed(f"{source} is damaged: {name} cannot be read: "):
            arrays[name] = decode_array(content)
    with _prefixed(f"{source} is damaged: "):
        if verify:
            verify_all(each for each in sealed if _is_needed_at_once(each[0]))
    # The bundle may be sound and only use a rule or metric that is not registered here.
    with _prefixed(f"{source} cannot be loaded: "):
        bundle = from_record(manifest, arrays)

    def check_content() -> None:
        with _prefixed(f"{source} is damaged: "):
            if verify:
                verify_all(sealed)
            check_values(bundle)

    def read_model() -> bytes:
        assert exported is not None
        checksum = exported["sha256"] if verify else None
        return _read_model(source, file, places[MODEL], checksum)

    guard = Guard(source, file, check_content, by_content=bool(verify))
    if verify == "now":
        guard.check()
        if exported is not None:
            read_model()
    return replace(
        bundle,
        check=guard.check,
        model=None if exported is None else read_model,
        exported=None if exported is None else without_checksum(exported),
        n_bytes=file.opened.size,
        sha256=sha256,
    )


def _encode(bundle: Bundle, version: str) -> list[tuple[str, list[bytes | memoryview]]]:
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
        file = SealedFile(target, copied_up_to=0)
        _read_manifest(target, file, _find_contents(target, file)[MANIFEST])
    except BundleError as error:
        raise BundleError(
            f"{target} exists and is not a bundle, or not a complete one ({error}): choose another "
            "name or remove it"
        ) from error


def _find_contents(source: Path, file: SealedFile) -> dict[str, slice]:
    try:
        places = read_archive(file.read, file.opened.size)
    except ArchiveError as error:
        raise BundleError(f"{source} is not a bundle, or damaged: {error}") from error
    if next(iter(places), None) != MANIFEST:
        raise BundleError(f"{source} is not a bundle: {MANIFEST} is missing")
    return places


def _read_manifest(source: Path, file: SealedFile, place: slice) -> tuple[dict[str, Any], str]:
    """The manifest, and its sha256."""
    text = file.read(place.start, min(place.stop, place.start + LARGEST + 1))
    # The format comes before the checksum: a newer format may compute it differently.
    found = FORMAT_LINE.match(text)
    if found and int(found[1]) not in READABLE:
        raise BundleError(
            f"{source} has format {int(found[1])}; this version of iknow reads formats "
            f"{READABLE[0]} to {FORMAT}: use the version that wrote it, or a newer one"
        )
    with _prefixed(f"{source} is damaged: {MANIFEST} is damaged: "):
        manifest = read_manifest(text)
        if found and int(found[1]) < 6:
            manifest = add_missing(manifest, dict.fromkeys(SINCE_FORMAT_6))
        check_record(manifest, "the manifest", KEYS)
        if not any(manifest["format"] is each for each in READABLE):  # excludes True and 5.0
            raise BundleError(f"its format must be {FORMAT}")
    return manifest, hashlib.sha256(text).hexdigest()


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
    """Whether an array, of a metric or a probe, is small and needed on load."""
    return name.startswith("probe/") or "/metric-" in name


@contextmanager
def _prefixed(prefix: str) -> Iterator[None]:
    try:
        yield
    except (BundleError, ValueError) as error:
        raise BundleError(f"{prefix}{error}") from error
