"""Numpy's own files: one array in an .npy, named arrays in an .npz. Pickled objects are refused.

Arrays are read row by row, in one pass, so that a file may be larger than memory.
"""

from __future__ import annotations

import io
import math
import os
import stat
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from iknow.core.arrays import Floats, Labels
from iknow.core.text import names as quoted
from iknow.errors import InputError
from iknow.tables.roles import Roles
from iknow.tables.table import Table, as_features, as_labels, check_fits, check_rows, decoding

LAYER_PREFIX = "layer:"
HEAD_BYTES = 12 + 10_000  # numpy refuses longer heads of arrays, but only after reading them
PART = 1 << 24  # bytes of an array that make up a part
MOST_ROWS = 1 << 16


def read_npy(file: IO[bytes], path: Path, roles: Roles, *, whole: bool) -> Iterator[Table]:
    """Features of shape (n, ...) from a file with one array."""
    if roles != Roles():
        named = next(name for name in (roles.label, roles.id, "columns") if name is not None)
        raise InputError(f"{path} holds one array, without {named!r}: give a file of labels")
    with decoding(path):
        array = Rows(file, "the array", path, whole=whole, size=_size_of(file))
    for part in _parts_of({"X": array}):
        yield Table(as_features(part["X"], str(path)))


def read_npy_labels(file: IO[bytes], path: Path) -> Labels:
    """Labels of shape (n,) from a file with one array."""
    with decoding(path):
        array = Rows(file, "the array", path, whole=True, size=_size_of(file))
    return as_labels(array.take(array.n_rows), str(path))


def read_npz(
    file: IO[bytes], path: Path, roles: Roles, *, labelled: bool, whole: bool
) -> Iterator[Table]:
    """Features `X`, or precomputed `scores` and one array `layer:NAME` for each layer."""
    with Archive(file, path) as archive:
        names = archive.files
        if ("X" in names) == ("scores" in names):
            raise InputError(
                f"{path} must hold either X, or scores and an array layer:NAME for each layer; "
                f"its arrays are {quoted(names)}"
            )
        samples = "X" if "X" in names else "scores"
        for asked in (roles.label, roles.id):
            if asked is not None and asked not in names:
                raise InputError(f"{path} has no array {asked!r}; its arrays are {quoted(names)}")
        label = roles.label or "y"
        aside = [label] if labelled and label in names else []
        aside += [] if roles.id is None else [roles.id]
        layers = [each for each in names if each.startswith(LAYER_PREFIX) and samples == "scores"]
        if samples == "scores" and not layers:
            raise InputError(
                f"{path} holds scores but no layer: expected an array layer:NAME for each layer; "
                f"its arrays are {quoted(names)}"
            )
        arrays = {each: archive.rows(each, whole=whole) for each in (samples, *layers, *aside)}
        check_rows({f"{each} in {path}": rows.n_rows for each, rows in arrays.items()})
        make = _find_columns(archive, arrays[samples], path, roles)
        for part in _parts_of(arrays):
            table = make(part)
            if label in aside:
                table = replace(table, labels=as_labels(part[label], f"{label} in {path}"))
            if roles.id is not None:
                table = replace(table, ids=_as_ids(part[roles.id]), id_name=roles.id)
            yield table


def _find_columns(archive: Archive, samples: Rows, path: Path, roles: Roles) -> Any:
    """A function from parts of the arrays to tables."""
    if "scores" in archive.files:
        classes = _read_classes(archive, samples, path)
        return lambda part: _as_outputs(part, classes, path)
    names: tuple[str, ...] | None = None
    if "feature_names" in archive.files:
        found = archive.array("feature_names")
        if len(samples.shape) != 2 or found.shape != samples.shape[1:]:
            raise InputError(
                f"feature_names in {path} must name the columns of X, which has shape "
                f"{samples.shape}; got shape {found.shape}"
            )
        names = tuple(found.astype(np.str_).tolist())
    chosen, places = names, None
    if roles.drop or roles.features or roles.text:
        if names is None:
            raise InputError(f"X in {path} has no names to choose columns by: add feature_names")
        chosen = replace(roles, label=None, id=None).find_features(names, str(path))
        places = [names.index(name) for name in chosen]

    def make(part: Mapping[str, NDArray[Any]]) -> Table:
        features = as_features(part["X"], f"X in {path}")
        taken = features if places is None else features[:, places]
        return Table(taken, feature_names=chosen)

    return make


def _read_classes(archive: Archive, scores: Rows, path: Path) -> Labels | None:
    if len(scores.shape) != 2:
        raise InputError(
            f"scores in {path} must have shape (n_samples, n_classes); got {scores.shape}"
        )
    if "classes" not in archive.files:
        return None
    classes = as_labels(archive.array("classes"), f"classes in {path}")
    if (n_columns := scores.shape[1]) != len(classes):
        raise InputError(
            f"classes in {path} names {len(classes)} classes, but scores has {n_columns} columns"
        )
    return classes


def _as_outputs(part: Mapping[str, NDArray[Any]], classes: Labels | None, path: Path) -> Table:
    activations: dict[str, Floats] = {
        name.removeprefix(LAYER_PREFIX): as_features(values, f"{name} in {path}")
        for name, values in part.items()
        if name.startswith(LAYER_PREFIX)
    }
    scores = as_features(part["scores"], f"scores in {path}")
    return Table(features=None, scores=scores, activations=activations, classes=classes)


def _as_ids(values: NDArray[Any]) -> NDArray[Any]:
    if values.ndim != 1 or values.dtype.kind not in "biufU":
        raise InputError(
            f"the ids must be numbers or text along one axis; got {values.dtype} of shape "
            f"{values.shape}"
        )
    return values


def write_npz(columns: Mapping[str, NDArray[Any]], file: IO[bytes]) -> None:
    """Write arrays under their names."""
    # np.savez takes the names as keywords, and so cannot write one called "file".
    with zipfile.ZipFile(file, "w") as archive:
        for name, column in columns.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array(member, column, allow_pickle=False)


class Archive(zipfile.ZipFile):
    """The arrays of an .npz file, by name. files: their names."""

    def __init__(self, file: IO[bytes], path: Path) -> None:
        # np.load would take any other file for a pickle, and say how to load it unsafely.
        if not zipfile.is_zipfile(file):
            raise InputError(f"{path} cannot be read: it is no .npz archive, or it is truncated")
        with decoding(path):
            super().__init__(file)
        self.path = path
        self.members = {info.filename.removesuffix(".npy"): info for info in self.infolist()}
        self.files = list(self.members)

    def rows(self, name: str, *, whole: bool) -> Rows:
        """One array, to be read row by row; its damage or its objects come to light only here."""
        with decoding(self.path):
            member = self.members[name]
            file, size = self.open(member), member.file_size
            return Rows(file, f"array {name!r}", self.path, whole=whole, size=size)

    def array(self, name: str) -> NDArray[Any]:
        """One array as a whole."""
        rows = self.rows(name, whole=True)
        return rows.take(rows.n_rows)


class Rows:
    """The array in an .npy stream, row by row, after checking its type and size.

    shape: of the whole array. rows_at_once: how many make up a part.
    """

    def __init__(
        self, file: IO[bytes], what: str, path: Path, *, whole: bool, size: int | None = None
    ) -> None:
        head = io.BytesIO(file.read(HEAD_BYTES))
        old = npy.read_magic(head) == (1, 0)
        read_header = npy.read_array_header_1_0 if old else npy.read_array_header_2_0
        self.shape, by_column, self._kind = read_header(head)
        self._file, self._ahead, self._what, self._path = file, head.read(), what, path
        if self._kind.hasobject:
            raise ValueError(
                f"{what} holds pickled Python objects, which could execute code; save it as "
                "numbers or, with .astype(str), as text"
            )
        item, n_values = self._kind.itemsize, math.prod(self.shape)
        if item == 0 or min(self.shape, default=0) < 0:
            raise ValueError(
                f"{what} holds values without a size, of type {self._kind} and shape {self.shape}"
            )
        self.n_rows = self.shape[0] if self.shape else 1
        row_values = n_values // max(1, self.n_rows)
        self.rows_at_once = max(1, min(MOST_ROWS, PART // max(1, 8 * row_values)))
        if whole or by_column or not self.shape:
            self.rows_at_once = max(1, self.n_rows)
        # As it is read, and then as float64.
        held = min(self.rows_at_once, self.n_rows) * row_values * (item + 8)
        check_fits(held, f"{what} of {path}")
        if size is not None and n_values * item > size:
            raise ValueError(f"{what} of shape {self.shape} is truncated: there are {size:,} bytes")
        self._order: Literal["C", "F"] = "F" if by_column else "C"

    def take(self, n_rows: int) -> NDArray[Any]:
        """The next rows, at most this number of them."""
        n_values = math.prod(self.shape[1:]) * min(n_rows, self.n_rows)
        shape = (-1, *self.shape[1:]) if n_values and self.shape else self.shape
        self.n_rows -= min(n_rows, self.n_rows)
        with decoding(self._path):
            values = self._read(n_values).reshape(shape, order=self._order)
            if not self.n_rows:
                self._file.read(1)  # an archive compares its checksum at the end
        return values

    def _read(self, n_values: int) -> NDArray[Any]:
        content = bytearray(n_values * self._kind.itemsize)
        done = min(len(content), len(self._ahead))
        content[:done], self._ahead = self._ahead[:done], self._ahead[done:]
        view = memoryview(content)
        while done < len(content) and (more := self._file.readinto(view[done:])):  # type: ignore[attr-defined]
            done += more
        if done < len(content):
            raise ValueError(
                f"{self._what} is truncated: {len(content) - done:,} bytes are missing"
            )
        return np.frombuffer(content, dtype=self._kind)


def _parts_of(arrays: Mapping[str, Rows]) -> Iterator[dict[str, NDArray[Any]]]:
    """The rows of several arrays of the same length, some at a time, at least once."""
    n_rows = next(iter(arrays.values())).n_rows
    step = min(rows.rows_at_once for rows in arrays.values())
    for _ in range(0, max(1, n_rows), step):
        yield {name: rows.take(step) for name, rows in arrays.items()}


def _size_of(file: IO[bytes]) -> int | None:
    """The size of an ordinary file; None for a pipe."""
    try:
        status = os.fstat(file.fileno())
    except (OSError, AttributeError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
