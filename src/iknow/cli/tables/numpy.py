"""Numpy's own files: one array in an .npy, named arrays in an .npz. Pickled objects are refused."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from iknow.cli.tables.table import (
    Table,
    as_features,
    as_labels,
    check_fits,
    check_rows,
    decoding,
)
from iknow.core.arrays import Floats, Labels
from iknow.core.text import names as quoted
from iknow.errors import InputError

LAYER_PREFIX = "layer:"
HEAD_BYTES = 12 + 10_000
"""Of an array's head; numpy itself refuses longer ones, but not before it has read them."""


def read_npy(path: Path, label: str | None = None) -> Table:
    """Read features of shape (n, ...) from a file with one array."""
    if label is not None:
        raise InputError(
            f"{path} has no labels {label!r}, as an .npy file holds one array: give the labels as "
            "a file of their own"
        )
    return Table(features=as_features(_load_npy(path), str(path)))


def read_npy_labels(path: Path) -> Labels:
    """Labels of shape (n,) from a file with one array."""
    return as_labels(_load_npy(path), str(path))


def read_npz(path: Path, label: str | None, *, labelled: bool = True) -> Table:
    """Read features `X`, or precomputed `scores` and one array `layer:NAME` for each layer."""
    with _opening(path) as archive:
        names = archive.files
        if ("X" in names) == ("scores" in names):
            raise InputError(
                f"{path} must hold either X, or scores and an array layer:NAME for each layer; "
                f"its arrays are {quoted(names)}"
            )
        table = _read_features(archive, path) if "X" in names else _read_outputs(archive, path)
        if label is not None and label not in names:
            raise InputError(f"{path} has no array {label!r}; its arrays are {quoted(names)}")
        label = label or "y"
        if not labelled or label not in names:
            return table
        labels = as_labels(archive.read(label, path), f"{label} in {path}")
    samples = "X" if table.scores is None else "scores"
    check_rows({f"{samples} in {path}": len(table), f"{label} in {path}": len(labels)})
    return replace(table, labels=labels)


def write_npz(columns: Mapping[str, NDArray[Any]], file: IO[bytes]) -> None:
    """Write arrays under their names."""
    # np.savez takes the names as keywords, and so cannot write one called "file".
    with zipfile.ZipFile(file, "w") as archive:
        for name, column in columns.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, column, allow_pickle=False)


def _read_features(archive: Archive, path: Path) -> Table:
    features = as_features(archive.read("X", path), f"X in {path}")
    if "feature_names" not in archive.files:
        return Table(features=features)
    names = archive.read("feature_names", path)
    if features.ndim != 2 or names.shape != features.shape[1:]:
        raise InputError(
            f"feature_names in {path} must name the columns of X, which has shape "
            f"{features.shape}; got shape {names.shape}"
        )
    return Table(features=features, feature_names=tuple(names.astype(np.str_).tolist()))


def _read_outputs(archive: Archive, path: Path) -> Table:
    scores = as_features(archive.read("scores", path), f"scores in {path}")
    if scores.ndim != 2:
        raise InputError(
            f"scores in {path} must have shape (n_samples, n_classes); got {scores.shape}"
        )
    activations: dict[str, Floats] = {}
    for name in archive.files:
        if name.startswith(LAYER_PREFIX):
            layer = as_features(archive.read(name, path), f"{name} in {path}")
            check_rows({f"scores in {path}": len(scores), f"{name} in {path}": len(layer)})
            activations[name.removeprefix(LAYER_PREFIX)] = layer
    if not activations:
        raise InputError(
            f"{path} holds scores but no layer: expected an array layer:NAME for each layer; its "
            f"arrays are {quoted(archive.files)}"
        )
    classes = None
    if "classes" in archive.files:
        classes = as_labels(archive.read("classes", path), f"classes in {path}")
        if len(classes) != scores.shape[1]:
            raise InputError(
                f"classes in {path} names {len(classes)} classes, but scores has "
                f"{scores.shape[1]} columns"
            )
    return Table(features=None, scores=scores, activations=activations, classes=classes)


@contextmanager
def _opening(path: Path) -> Iterator[Archive]:
    # Of anything else np.load says that it is a pickle, and how to load it unsafely.
    if not zipfile.is_zipfile(path):
        raise InputError(f"{path} cannot be read: it is not an .npz archive, or it is truncated")
    with decoding(path):
        archive = zipfile.ZipFile(path)
    with archive:
        yield Archive(archive)


class Archive:
    """The arrays of an .npz file, by name. files: their names."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._members = {
            member.filename.removesuffix(".npy"): member for member in archive.infolist()
        }
        self.files = list(self._members)

    def read(self, name: str, path: Path) -> NDArray[Any]:
        """One array; its damage or its objects come to light only here."""
        with decoding(path), self._archive.open(self._members[name]) as file:
            return _read_array(file, f"array {name!r}", path)


def _load_npy(path: Path) -> NDArray[Any]:
    with decoding(path), path.open("rb") as file:
        return _read_array(file, "the array", path)


def _read_array(file: IO[bytes], what: str, path: Path) -> NDArray[Any]:
    """The array in an .npy stream, of a type and a size that were looked at before."""
    head = io.BytesIO(file.read(HEAD_BYTES))
    old = np.lib.format.read_magic(head) == (1, 0)
    read_header = (
        np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
    )
    shape, _, kind = read_header(head)
    if kind.hasobject:
        raise ValueError(
            f"{what} holds pickled Python objects, which could execute code; save it as numbers "
            "or, with .astype(str), as text"
        )
    if kind.itemsize == 0 or min(shape, default=0) < 0:
        raise ValueError(f"{what} holds values without a size, of type {kind} and shape {shape}")
    n_values = math.prod(shape)
    # It is read, and then becomes float64.
    check_fits(n_values * (kind.itemsize + 8), f"{what} of {path}")
    file.seek(0)
    array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    return array
