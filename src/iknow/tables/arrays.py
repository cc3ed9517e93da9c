"""Numpy's own files: one array in an .npy, named arrays in an .npz. Pickled objects are refused.

An .npy is read some rows at a time, so that it may be larger than memory; an .npz is read and
written whole.
"""

from __future__ import annotations

import io
import math
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from iknow.core.arrays import Labels
from iknow.core.text import names as quoted
from iknow.errors import InputError
from iknow.explain.answers import Coded
from iknow.tables.table import (
    PART,
    Column,
    DataTable,
    Roles,
    Write,
    as_features,
    as_labels,
    as_text,
    check_fits,
    check_rows,
    decoded,
    decoding,
    rows_at_once,
)

LAYER_PREFIX = "layer:"
HEAD_BYTES = 12 + 10_000  # numpy refuses longer heads of arrays, but only after reading them


def _read_rows(
    file: IO[bytes], what: str, path: Path, n_bytes: int, *, whole: bool
) -> Iterator[NDArray[Any]]:
    """An array of plain values from a file of so many bytes, in parts along its first axis."""
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
        raise ValueError(f"{what} holds values without a size, of type {kind} and shape {shape}")
    whole |= by_column or not shape
    row = math.prod(shape[1:])
    step = 1 if whole else min(shape[0], rows_at_once(row, 2 * PART))
    # As the values are read, and then as float64.
    n_values = math.prod(shape) if whole else step * row
    check_fits(n_values * (kind.itemsize + 8), f"{what} of {path}")
    if head.tell() + math.prod(shape) * kind.itemsize > n_bytes:
        raise ValueError(f"{what} of shape {shape} is truncated: there are {n_bytes:,} bytes")
    file.seek(0 if whole else head.tell())
    if whole:
        yield npy.read_array(file, allow_pickle=False)
        return
    for start in range(0, max(1, shape[0]), max(1, step)):
        values = np.fromfile(file, kind, min(step, shape[0] - start) * row)
        yield values.reshape(-1, *shape[1:])


# One array


def read_npy(file: IO[bytes], path: Path, roles: Roles, *, whole: bool) -> Iterator[DataTable]:
    """Features of shape (n, ...) from a file with one array, some rows at a time unless whole."""
    if roles != Roles():
        named = next(name for name in (roles.label, roles.id, "columns") if name is not None)
        raise InputError(f"{path} holds one array, without {named!r}: give a file of labels")
    n_bytes = os.fstat(file.fileno()).st_size
    rows = _read_rows(file, "the array", path, n_bytes, whole=whole)
    for values in decoded(rows, path):
        yield DataTable(as_features(values, str(path)))


def read_npy_labels(file: IO[bytes], path: Path) -> Labels:
    """Labels of shape (n,) from a file with one array."""
    n_bytes = os.fstat(file.fileno()).st_size
    with decoding(path):
        return as_labels(next(_read_rows(file, "the array", path, n_bytes, whole=True)), str(path))


# Named arrays


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

    def read(name: str) -> NDArray[Any]:
        """One array; its damage or its objects come to light only here."""
        member = members[name]
        with decoding(path), archive.open(member) as content:
            (values,) = _read_rows(content, f"array {name!r}", path, member.file_size, whole=True)
            content.read(1)  # the archive compares its checksum at the end
        return values

    precomputed = "scores" in members
    layers = [each for each in members if each.startswith(LAYER_PREFIX) and precomputed]
    if precomputed and not layers:
        raise InputError(
            f"{path} holds scores but no layer: expected an array layer:NAME for each layer; {its}"
        )
    label = roles.label or "y"
    wanted = ["scores" if precomputed else "X", *layers]
    wanted += [label] if labelled and label in members else []
    wanted += [] if roles.id is None else [roles.id]
    arrays = {each: read(each) for each in wanted}
    check_rows({f"{each} in {path}": len(np.atleast_1d(a)) for each, a in arrays.items()})
    names = "classes" if precomputed else "feature_names"
    named = read(names) if names in members else None
    table = (_as_outputs if precomputed else _as_inputs)(arrays, named, path, roles)
    if labelled and label in arrays:
        table = replace(table, labels=as_labels(arrays[label], f"{label} in {path}"))
    if roles.id is None:
        return table
    ids = arrays[roles.id]
    if ids.ndim != 1 or ids.dtype.kind not in "biufU":
        raise InputError(
            f"the ids must be numbers or text along one axis; got {ids.dtype} of shape {ids.shape}"
        )
    return replace(table, ids=ids, id_name=roles.id)


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


@contextmanager
def npz_writer(file: IO[bytes]) -> Iterator[Write]:
    """An .npz archive, whose arrays are collected in memory: each is written at once."""
    parts = list[Mapping[str, Column]]()
    yield parts.append
    # np.savez takes the names as keywords, and so cannot write one called "file".
    with zipfile.ZipFile(file, "w") as archive:
        for name in parts[0] if parts else ():
            joined = np.concatenate([_as_array(part[name]) for part in parts])
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array(member, joined, allow_pickle=False)


def _as_array(column: Column) -> NDArray[Any]:
    """A column as an array of numbers, bools or text, which is empty where it is missing."""
    if isinstance(column, Coded):
        return column.expand()
    if not hasattr(column, "to_pylist"):
        array: NDArray[Any] = column
        return array
    values = column.to_pylist()
    numbers = all(type(value) in (int, float, bool) for value in values)
    texts = ["" if value is None else str(value) for value in values]
    return np.array(values) if numbers else as_text(texts, "a column")
