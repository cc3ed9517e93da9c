"""Numpy's own files: one array in an .npy, named arrays in an .npz. Pickled objects are refused."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from iknow.cli.tables.table import Table, as_features, as_labels, check_fits, check_rows, decoding
from iknow.core.arrays import Floats, Labels
from iknow.core.text import names as quoted
from iknow.errors import InputError

LAYER_PREFIX = "layer:"
HEAD_BYTES = 12 + 10_000  # numpy refuses longer heads of arrays, but only after reading them


def read_npy(path: Path, label: str | None = None) -> Table:
    """Read features of shape (n, ...) from a file with one array."""
    if label is not None:
        raise InputError(f"{path} holds one array, without {label!r}: give a file of labels")
    return Table(features=as_features(_load_npy(path), str(path)))


def read_npy_labels(path: Path) -> Labels:
    """Labels of shape (n,) from a file with one array."""
    return as_labels(_load_npy(path), str(path))


def read_npz(path: Path, label: str | None, *, labelled: bool = True) -> Table:
    """Read features `X`, or precomputed `scores` and one array `layer:NAME` for each layer."""
    with Archive(path) as archive:
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
        labels = as_labels(archive.array(label), f"{label} in {path}")
    samples = "X" if table.scores is None else "scores"
    check_rows({f"{samples} in {path}": len(table), f"{label} in {path}": len(labels)})
    return replace(table, labels=labels)


def write_npz(columns: Mapping[str, NDArray[Any]], file: IO[bytes]) -> None:
    """Write arrays under their names."""
    # np.savez takes the names as keywords, and so cannot write one called "file".
    with zipfile.ZipFile(file, "w") as archive:
        for name, column in columns.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array(member, column, allow_pickle=False)


def _read_features(archive: Archive, path: Path) -> Table:
    features = as_features(archive.array("X"), f"X in {path}")
    if "feature_names" not in archive.files:
        return Table(features=features)
    names = archive.array("feature_names")
    if features.ndim != 2 or names.shape != features.shape[1:]:
        raise InputError(
            f"feature_names in {path} must name the columns of X, which has shape "
            f"{features.shape}; got shape {names.shape}"
        )
    return Table(features=features, feature_names=tuple(names.astype(np.str_).tolist()))


def _read_outputs(archive: Archive, path: Path) -> Table:
    scores = as_features(archive.array("scores"), f"scores in {path}")
    if scores.ndim != 2:
        raise InputError(
            f"scores in {path} must have shape (n_samples, n_classes); got {scores.shape}"
        )
    activations: dict[str, Floats] = {}
    for name in archive.files:
        if name.startswith(LAYER_PREFIX):
            layer = as_features(archive.array(name), f"{name} in {path}")
            check_rows({f"scores in {path}": len(scores), f"{name} in {path}": len(layer)})
            activations[name.removeprefix(LAYER_PREFIX)] = layer
    if not activations:
        raise InputError(
            f"{path} holds scores but no layer: expected an array layer:NAME for each layer; its "
            f"arrays are {quoted(archive.files)}"
        )
    table = Table(features=None, scores=scores, activations=activations)
    if "classes" not in archive.files:
        return table
    classes = as_labels(archive.array("classes"), f"classes in {path}")
    if (n_columns := scores.shape[1]) != len(classes):
        raise InputError(
            f"classes in {path} names {len(classes)} classes, but scores has {n_columns} columns"
        )
    return replace(table, classes=classes)


class Archive(zipfile.ZipFile):
    """The arrays of an .npz file, by name. files: their names."""

    def __init__(self, path: Path) -> None:
        # np.load would take any other file for a pickle, and say how to load it unsafely.
        if not zipfile.is_zipfile(path):
            raise InputError(f"{path} cannot be read: it is no .npz archive, or it is truncated")
        with decoding(path):
            super().__init__(path)
        self.path = path
        self.members = {info.filename.removesuffix(".npy"): info for info in self.infolist()}
        self.files = list(self.members)

    def array(self, name: str) -> NDArray[Any]:
        """One array; its damage or its objects come to light only here."""
        with decoding(self.path), self.open(self.members[name]) as file:
            return _read_array(file, f"array {name!r}", self.path)


def _load_npy(path: Path) -> NDArray[Any]:
    with decoding(path), path.open("rb") as file:
        return _read_array(file, "the array", path)


def _read_array(file: IO[bytes], what: str, path: Path) -> NDArray[Any]:
    """The array in an .npy stream, after checking its type and size."""
    head = io.BytesIO(file.read(HEAD_BYTES))
    old = npy.read_magic(head) == (1, 0)
    read_header = npy.read_array_header_1_0 if old else npy.read_array_header_2_0
    shape, _, kind = read_header(head)
    if kind.hasobject:
        raise ValueError(
            f"{what} holds pickled Python objects, which could execute code; save it as numbers "
            "or, with .astype(str), as text"
        )
    if kind.itemsize == 0 or min(shape, default=0) < 0:
        raise ValueError(f"{what} holds values without a size, of type {kind} and shape {shape}")
    # As it is read, and then as float64.
    check_fits(math.prod(shape) * (kind.itemsize + 8), f"{what} of {path}")
    file.seek(0)
    array: NDArray[Any] = npy.read_array(file, allow_pickle=False)
    return array
