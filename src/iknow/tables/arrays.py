"""Numpy's own files: one array in an .npy, named arrays in an .npz. Pickled objects are refused.

An .npy is read some rows at a time, so that it may be larger than memory; an .npz is read whole.
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
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from iknow.core.arrays import Labels
from iknow.core.text import names as quoted
from iknow.errors import InputError
from iknow.tables.table import (
    PART,
    DataTable,
    Roles,
    as_features,
    as_labels,
    check_fits,
    check_rows,
    decoding,
    rows_at_once,
)

LAYER_PREFIX = "layer:"
HEAD_BYTES = 12 + 10_000  # numpy refuses longer heads of arrays, but only after reading them


def read_npy(file: IO[bytes], path: Path, roles: Roles, *, whole: bool) -> Iterator[DataTable]:
    """Features of shape (n, ...) from a file with one array, some rows at a time unless whole."""
    if roles != Roles():
        named = next(name for name in (roles.label, roles.id, "columns") if name is not None)
        raise InputError(f"{path} holds one array, without {named!r}: give a file of labels")
    with decoding(path):
        head = NpyHeader.read(file, "the array")
        at_once = whole or head.by_column or not head.shape
        step = head.n_rows if at_once else rows_at_once(head.row_values, 2 * PART)
        head.check(min(step, head.n_rows), path, _size_of(file))
        file.seek(head.start)
    for start in range(0, max(1, head.n_rows), max(1, step)):
        with decoding(path):
            values = head.take(file, min(step, head.n_rows - start))
        yield DataTable(as_features(values, str(path)))


def read_npy_labels(file: IO[bytes], path: Path) -> Labels:
    """Labels of shape (n,) from a file with one array."""
    with decoding(path):
        head = NpyHeader.read(file, "the array")
        head.check(head.n_rows, path, _size_of(file))
        file.seek(head.start)
        return as_labels(head.take(file, head.n_rows), str(path))


def read_npz(file: IO[bytes], path: Path, roles: Roles, *, labelled: bool) -> DataTable:
    """Features `X`, or precomputed `scores` and one array `layer:NAME` for each layer."""
    # np.load would take any other file for a pickle, and say how to load it unsafely.
    if not zipfile.is_zipfile(file):
        raise InputError(f"{path} cannot be read: it is no .npz archive, or it is truncated")
    with decoding(path):
        archive = zipfile.ZipFile(file)
    members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
    its = f"its arrays are {quoted(list(members))}"
    if ("X" in members) == ("scores" in members):
        raise InputError(
            f"{path} must hold either X, or scores and an array layer:NAME for each layer; {its}"
        )
    for asked in (roles.label, roles.id):
        if asked is not None and asked not in members:
            raise InputError(f"{path} has no array {asked!r}; {its}")
    precomputed = "scores" in members
    layers = [each for each in members if each.startswith(LAYER_PREFIX) and precomputed]
    if precomputed and not layers:
        raise InputError(
            f"{path} holds scores but no layer: expected an array layer:NAME for each layer; {its}"
        )
    label, names = roles.label or "y", "classes" if precomputed else "feature_names"
    wanted = ["scores" if precomputed else "X", *layers]
    wanted += [label] if labelled and label in members else []
    wanted += [] if roles.id is None else [roles.id]
    arrays = {each: _read_member(archive, members[each], path) for each in wanted}
    check_rows({f"{each} in {path}": len(np.atleast_1d(a)) for each, a in arrays.items()})
    named = _read_member(archive, members[names], path) if names in members else None
    table = (_as_outputs if precomputed else _as_inputs)(arrays, named, path, roles)
    if labelled and label in arrays:
        table = replace(table, labels=as_labels(arrays[label], f"{label} in {path}"))
    if roles.id is not None:
        table = replace(table, ids=_as_ids(arrays[roles.id]), id_name=roles.id)
    return table


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> NDArray[Any]:
    """One array of an .npz; its damage or its objects come to light only here."""
    with decoding(path):
        with archive.open(member) as file:
            head = NpyHeader.read(file, f"array {member.filename.removesuffix('.npy')!r}")
        head.check(head.n_rows, path, member.file_size)
        with archive.open(member) as file:
            file.read(head.start)
            values = head.take(file, head.n_rows)
            file.read(1)  # the archive compares its checksum at the end
    return values


def _as_inputs(
    arrays: Mapping[str, NDArray[Any]], named: NDArray[Any] | None, path: Path, roles: Roles
) -> DataTable:
    samples, names = arrays["X"], None
    if named is not None:
        if samples.ndim != 2 or named.shape != samples.shape[1:]:
            raise InputError(
                f"feature_names in {path} must name the columns of X, which has shape "
                f"{samples.shape}; got shape {named.shape}"
            )
        names = tuple(named.astype(np.str_).tolist())
    features = as_features(samples, f"X in {path}")
    if not (roles.drop or roles.features or roles.text):
        return DataTable(features, feature_names=names)
    if names is None:
        raise InputError(f"X in {path} has no names to choose columns by: add feature_names")
    chosen = replace(roles, label=None, id=None).find_features(names, str(path))
    return DataTable(features[:, [names.index(name) for name in chosen]], feature_names=chosen)


def _as_outputs(
    arrays: Mapping[str, NDArray[Any]], named: NDArray[Any] | None, path: Path, roles: Roles
) -> DataTable:
    shape = arrays["scores"].shape
    if len(shape) != 2:
        raise InputError(f"scores in {path} must have shape (n_samples, n_classes); got {shape}")
    classes = None if named is None else as_labels(named, f"classes in {path}")
    if classes is not None and shape[1] != len(classes):
        raise InputError(
            f"classes in {path} names {len(classes)} classes, but scores has {shape[1]} columns"
        )
    layers = {
        name.removeprefix(LAYER_PREFIX): as_features(values, f"{name} in {path}")
        for name, values in arrays.items()
        if name.startswith(LAYER_PREFIX)
    }
    scores = as_features(arrays["scores"], f"scores in {path}")
    return DataTable(features=None, scores=scores, activations=layers, classes=classes)


def _as_ids(values: NDArray[Any]) -> NDArray[Any]:
    if values.ndim != 1 or values.dtype.kind not in "biufU":
        raise InputError(
            f"the ids must be numbers or text along one axis; got {values.dtype} of shape "
            f"{values.shape}"
        )
    return values


class NpyHeader(NamedTuple):
    """What an .npy file says about its array. start: where its values begin."""

    what: str
    shape: tuple[int, ...]
    by_column: bool
    kind: np.dtype[Any]
    start: int

    @classmethod
    def read(cls, file: IO[bytes], what: str) -> NpyHeader:
        """The head of an .npy file, if its array holds plain values."""
        head = io.BytesIO(file.read(HEAD_BYTES))
        old = npy.read_magic(head) == (1, 0)
        read_header = npy.read_array_header_1_0 if old else npy.read_array_header_2_0
        shape, by_column, kind = read_header(head)
        if kind.hasobject:
            raise ValueError(
                f"{what} holds pickled Python objects, which could execute code; save it as "
                "numbers or, with .astype(str), as text"
            )
        if kind.itemsize == 0 or min(shape, default=0) < 0:
            raise ValueError(
                f"{what} holds values without a size, of type {kind} and shape {shape}"
            )
        return cls(what, shape, by_column, kind, head.tell())

    @property
    def n_rows(self) -> int:
        return self.shape[0] if self.shape else 1

    @property
    def row_values(self) -> int:
        return math.prod(self.shape[1:])

    def check(self, n_rows: int, path: Path, size: int | None) -> None:
        """Refuse rows that do not fit into memory, or an array larger than its file."""
        # As it is read, and then as float64.
        check_fits(n_rows * self.row_values * (self.kind.itemsize + 8), f"{self.what} of {path}")
        if size is not None and self.n_rows * self.row_values * self.kind.itemsize > size:
            raise ValueError(
                f"{self.what} of shape {self.shape} is truncated: there are {size:,} bytes"
            )

    def take(self, file: IO[bytes], n_rows: int) -> NDArray[Any]:
        """The next rows of a file that stands at values, in an array that may be changed."""
        content = bytearray(n_rows * self.row_values * self.kind.itemsize)
        done = file.readinto(content)  # type: ignore[attr-defined]
        if done < len(content):
            raise ValueError(f"{self.what} is truncated: {len(content) - done:,} bytes are missing")
        shape = (n_rows, *self.shape[1:]) if self.shape else ()
        values = np.frombuffer(content, dtype=self.kind)
        return values.reshape(shape, order="F" if self.by_column else "C")


def _size_of(file: IO[bytes]) -> int | None:
    """The size of an ordinary file; None for a pipe."""
    try:
        status = os.fstat(file.fileno())
    except (OSError, AttributeError):
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
