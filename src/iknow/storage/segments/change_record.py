"""A change of the evidence as the payload of a segment, and back; any wrong value raises.

change.json                what happened, when, by whom, why; sealed like a manifest
removed.npy                numbers of the samples that no longer count as they did
rows.npy, labels.npy       numbers and class codes of those that count from now on
layers/LAYER/points.npy    their activations, float32, transformed by the layer's metric
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from iknow.core.text import shown
from iknow.errors import BundleError, InputError
from iknow.npy import decode_array, encode_array
from iknow.storage.archive import ArchiveError, find_end, read_archive, write_archive
from iknow.storage.bundle_record import name_array
from iknow.storage.change import Change, check_change
from iknow.storage.log_record import plain_labels
from iknow.storage.manifest import read_manifest, write_manifest
from iknow.storage.schema import check_list, check_record, check_text

RECORD = "change.json"
KEYS = ("what", "when", "who", "why", "layers", "classes")
NUMBERS = ("removed.npy", "rows.npy", "labels.npy")


def encode_change(change: Change) -> bytes:
    """The payload of a change.

    Raises:
        InputError: It cannot be stored, and why.
    """
    record = {
        "what": change.what,
        "when": change.when,
        "who": change.who,
        "why": change.why,
        "layers": list(change.points),
        "classes": plain_labels(change.classes),
    }
    columns = change.removed, change.rows, change.labels
    arrays: dict[str, Any] = {
        name: np.asarray(column, dtype="<i8") for name, column in zip(NUMBERS, columns, strict=True)
    }
    for layer, points in change.points.items():
        arrays[name_array(layer, "points")] = np.asarray(points, dtype="<f4")
    contents: list[tuple[str, Sequence[bytes | memoryview]]]
    try:
        contents = [(RECORD, [write_manifest(record)])]
        contents += [(name, encode_array(array)) for name, array in arrays.items()]
        file = io.BytesIO()
        write_archive(file, contents)
        decode_change(file.getvalue())
    except BundleError as error:
        raise InputError(f"this change cannot be stored: {error}") from error
    return file.getvalue()


def decode_change(payload: bytes) -> Change:
    """The change in a payload, whose values fit each other (`Folding` says to what else).

    Raises:
        BundleError: It is damaged.
    """

    def read(start: int, stop: int) -> bytes:
        return payload[start:stop]

    try:
        if find_end(read, len(payload)) != (len(payload), 0):
            raise ArchiveError("something follows its end")
        places = read_archive(read, len(payload))
    except ArchiveError as error:
        raise BundleError(str(error)) from error
    if next(iter(places), None) != RECORD:
        raise BundleError(f"{RECORD} is missing")
    record = check_record(read_manifest(payload[places[RECORD]]), RECORD, KEYS)
    layers = [
        check_text(each, "the name of a layer") for each in check_list(record["layers"], "layers")
    ]
    names = {layer: name_array(layer, "points") for layer in layers}
    if set(places) != {RECORD, *NUMBERS, *names.values()} or len(names) != len(layers):
        raise BundleError("its arrays are not those of its layers")
    content = np.frombuffer(payload, dtype=np.uint8)
    arrays = {}
    for name in (*NUMBERS, *names.values()):
        try:
            arrays[name] = decode_array(content[places[name]])
        except ValueError as error:
            raise BundleError(f"{name} cannot be read: {error}") from error
    removed, rows, labels = (arrays[name] for name in NUMBERS)
    change = Change(
        what=check_text(record["what"], "what"),
        when=check_text(record["when"], "when"),
        who=check_text(record["who"], "who"),
        why=check_text(record["why"], "why"),
        removed=removed,
        rows=rows,
        labels=labels,
        points={layer: arrays[name] for layer, name in names.items()},
        classes=tuple(check_list(record["classes"], "classes")),
    )
    try:
        check_change(change, names)
    except InputError as error:
        raise BundleError(str(error)) from error
    _check_points(change)
    return change


def _check_points(change: Change) -> None:
    """Check what `check_change` leaves open: the types, and that all numbers are finite."""
    for name, values in (("removed", change.removed), ("rows", change.rows)):
        if values.dtype != np.dtype("<i8"):
            raise BundleError(f"{name} must be 64-bit integers; they are {values.dtype}")
    if change.labels.dtype != np.dtype("<i8"):
        raise BundleError(f"labels must be 64-bit integers; they are {change.labels.dtype}")
    for layer, points in change.points.items():
        where, n_rows = f"layer {shown(layer, 80)}", len(change.rows)
        if points.dtype != np.dtype("<f4") or points.ndim != 2 or len(points) != n_rows:
            raise BundleError(f"{where} must hold {n_rows} rows of 32-bit floats")
        if not np.isfinite(points).all():
            raise BundleError(f"{where} must hold finite numbers")
