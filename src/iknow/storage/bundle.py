"""Bundles: a fitted classifier on disk, without its model.

A bundle is one file, a ZIP of a JSON manifest and plain arrays (see `archive`). Nothing in it can
execute code. The manifest holds the sha256 of every array and of itself, so a changed byte is
noticed: each array is compared with its own before it is first used (see `sealed`). A new bundle
takes the place of the old one in one step: at every moment one whole bundle is there.

    manifest.json                  what is here; always the first
    labels.npy                     class codes, ascending
    rows.npy                       the training row each stored sample came from
    layers/LAYER/activations.npy   float32, in the order of labels.npy, as the metric sees them
    layers/LAYER/metric-*.npy      the arrays of the layer's metric, if it has any
    probe/NAME.npy                 what the model is recognized by, if anything

Whoever changes a bundle on purpose can seal it again, so nothing that it says is believed because
its checksums are right: names are made from the manifest's and never followed, and `bundle_record`
checks every value.
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

from iknow.core.text import shown
from iknow.errors import BundleError, InputError
from iknow.storage.archive import ArchiveError, read_archive, write_archive
from iknow.storage.atomic import replacing
from iknow.storage.bundle_record import Bundle, check_values, from_record, name_arrays, to_record
from iknow.storage.manifest import LARGEST, read_manifest, write_manifest
from iknow.storage.npy import decode_array, encode_array
from iknow.storage.schema import check_record
from iknow.storage.sealed import Guard, SealedFile, verify_all

FORMAT = 3
READABLE = (2, FORMAT)
FORMAT_LINE = re.compile(rb'\{\n"format": (\d{1,9}),')
MANIFEST = "manifest.json"
KEYS = ("format", "iknow", "classes", "layers", "probe", "settings", "arrays")

__all__ = ["Bundle", "read_bundle", "write_bundle"]


def write_bundle(path: str | os.PathLike[str], bundle: Bundle, version: str) -> None:
    """Write a bundle, or leave what was there untouched."""
    target = _as_path(path)
    if "\0" in str(target):
        raise BundleError(f"{shown(str(target))} is not the name of a file: it holds a NUL")
    contents = _encode(bundle, version)
    try:
        is_folder = target.is_dir()
    except OSError as error:  # too long, or a loop of links
        raise BundleError(
            f"{shown(str(target))} is not the name of a file: {error.strerror}"
        ) from error
    if is_folder:
        raise BundleError(
            f"{target} exists and is not a bundle but a folder: choose another name or remove it"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing(target, _check_may_replace) as file:
        write_archive(file, contents)


def _as_path(path: Any) -> Path:
    """The path of a file, given as text or as a path."""
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"path must be the name of a file; got {shown(path)}")
    return Path(path)


def read_bundle(path: str | os.PathLike[str], *, verify: bool | Literal["now"] = True) -> Bundle:
    """Read a bundle, its arrays copied into memory or, if they are large, mapped.

    verify: True to compare the arrays with their checksums when they are first used (`check`),
    "now" to compare them here, False never to. The manifest is always compared with its own.
    """
    if not (isinstance(verify, bool) or (isinstance(verify, str) and verify == "now")):
        raise InputError(f"verify must be True, False or 'now'; got {shown(verify)}")
    source = _as_path(path)
    file = SealedFile(source)
    places = _find_contents(source, file)
    manifest = _read_manifest(source, file, places[MANIFEST])
    with _naming(source, f"{MANIFEST}: "):
        names = name_arrays(manifest)
        checksums = check_record(manifest["arrays"], "arrays", names)
    if set(places) != {MANIFEST, *names}:
        wrong = min(set(places) ^ {MANIFEST, *names})
        problem = "does not belong there" if wrong in places else "is missing"
        raise BundleError(f"{source} is damaged: {wrong} {problem}")
    sealed = [(name, _take(file, name, places[name]), checksums[name]) for name in names]
    arrays = {}
    for name, content, _ in sealed:
        with _naming(source, f"{name} cannot be read: "):
            arrays[name] = decode_array(content)
    with _naming(source):
        if verify:
            verify_all(each for each in sealed if _is_needed_at_once(each[0]))
        bundle = from_record(manifest, arrays)

    def check_content() -> None:
        with _naming(source):
            if verify:
                verify_all(sealed)
            check_values(bundle)

    guard = Guard(source, file, check_content, by_content=bool(verify))
    if verify == "now":
        guard.check()
    return replace(bundle, check=guard.check)


def _encode(bundle: Bundle, version: str) -> list[tuple[str, list[bytes | memoryview]]]:
    """The contents of a bundle's file. What is returned can be read: it is, once, up to values."""
    record, arrays = to_record(bundle)
    encoded: dict[str, list[bytes | memoryview]] = {}
    for name, array in arrays.items():
        try:
            encoded[name] = list(encode_array(array))
        except ValueError as error:
            raise InputError(f"this cannot be saved: {name}: {error}") from error
    try:
        text = write_manifest(
            {
                "format": FORMAT,
                "iknow": version,
                **record,
                "arrays": {name: _hash(parts) for name, parts in encoded.items()},
            }
        )
        from_record(read_manifest(text), {name: np.asarray(a) for name, a in arrays.items()})
    except BundleError as error:
        raise InputError(f"this cannot be saved: {error}") from error
    return [(MANIFEST, [text]), *encoded.items()]


def _hash(parts: list[bytes | memoryview]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _check_may_replace(target: Path) -> None:
    """Only a bundle is replaced by a bundle."""
    try:
        file = SealedFile(target, copied_up_to=0)
        _read_manifest(target, file, _find_contents(target, file)[MANIFEST])
    except BundleError as error:
        raise BundleError(
            f"{target} exists and is not a bundle, or not a whole one ({error}): choose another "
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


def _read_manifest(source: Path, file: SealedFile, place: slice) -> dict[str, Any]:
    text = file.read(place.start, min(place.stop, place.start + LARGEST + 1))
    # The format comes before the checksum: a newer one may compute it in another way.
    found = FORMAT_LINE.match(text)
    if found and int(found[1]) not in READABLE:
        raise BundleError(
            f"{source} has format {int(found[1])}; this version of iknow reads "
            f"formats {' and '.join(map(str, READABLE))}: "
            "use the version of iknow that wrote it, or a newer one"
        )
    with _naming(source, f"{MANIFEST} is damaged: "):
        manifest = check_record(read_manifest(text), "the manifest", KEYS)
        if not any(manifest["format"] is each for each in READABLE):  # True is none of them
            raise BundleError(f"its format must be {FORMAT}")
    return manifest


def _take(file: SealedFile, name: str, place: slice) -> Any:
    """The bytes of an array: what is looked at without asking the guard must be a copy."""
    if _is_needed_at_once(name):
        return np.frombuffer(file.read(place.start, place.stop), dtype=np.uint8)
    return file.content[place]


def _is_needed_at_once(name: str) -> bool:
    """Whether an array is small and looked at on load: of a metric or a probe."""
    return name.startswith("probe/") or "/metric-" in name


@contextmanager
def _naming(source: Path, what: str = "") -> Iterator[None]:
    """What is wrong with a bundle is told with its name."""
    try:
        yield
    except (BundleError, ValueError) as error:
        raise BundleError(f"{source} is damaged: {what}{error}") from error
