"""The codes of a condensed classifier as plain values and arrays, and back.

They add to a bundle, whose other arrays are of the rows kept in full:

    condensed/labels.npy, condensed/rows.npy   class codes and row numbers of the rows left out
    layers/LAYER/codes.npy                     their codes, 16-bit integers
    layers/LAYER/code-directions.npy, code-center.npy

and the entry `condensed` to the manifest, which only condensed classifiers have.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from iknow.core.arrays import Ints
from iknow.errors import BundleError
from iknow.search.condensed.codes import Codes
from iknow.search.condensed.record import Condensed
from iknow.storage.schema import check_fields, check_mapping, check_record, misfit

KEYS = ("about", "layers")
NUMBERS = ("unit", "blur", "longest")
LABELS, ROWS = "condensed/labels.npy", "condensed/rows.npy"
PARTS = {"codes": "<i2", "code-directions": "<f8", "code-center": "<f8"}

Name = Callable[[str, str], str]
"""From a layer and an array to its name in the archive."""


def codes_to_record(
    codes: Mapping[str, Codes], condensed: Condensed, name: Name
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The manifest's entry, and the arrays by their names in the archive."""
    first = next(iter(codes.values()))
    arrays = {LABELS: np.asarray(first.labels, "<i8"), ROWS: np.asarray(first.rows, "<i8")}
    for layer, each in codes.items():
        values = each.values, each.directions, each.center
        for (part, dtype), array in zip(PARTS.items(), values, strict=True):
            arrays[name(layer, part)] = np.asarray(array, dtype)
    about = vars(condensed) | {
        "directions": dict(condensed.directions),
        "features": dict(condensed.features),
    }
    numbers = {
        layer: {number: getattr(each, number) for number in NUMBERS}
        for layer, each in codes.items()
    }
    return {"about": about, "layers": numbers}, arrays


def name_code_arrays(layers: Collection[str], name: Name) -> list[str]:
    """The names in the archive of all arrays of codes."""
    return [LABELS, ROWS, *(name(layer, part) for layer in layers for part in PARTS)]


def codes_from_record(
    entry: Any, layers: Mapping[str, Any], arrays: Mapping[str, Any], name: Name
) -> tuple[dict[str, Codes], Condensed]:
    """The codes by layer, without reading the large arrays. layers: points of the rows in full."""
    record = check_record(entry, "condensed", KEYS)
    about = check_mapping(record["about"], "condensed.about")
    check_fields(Condensed, about, "condensed.about")
    for part in ("directions", "features"):
        check_record(about[part], f"condensed.about.{part}", list(layers))
    numbers = check_record(record["layers"], "condensed.layers", list(layers))
    n_rows = len(arrays[ROWS]) if arrays[ROWS].ndim else 1
    for each in (LABELS, ROWS):
        _check_array(each, arrays[each], "<i8", (n_rows,))
    codes = {}
    for layer, points in layers.items():
        where = f"condensed.layers.{layer[:80]}"
        given = check_record(numbers[layer], where, NUMBERS)
        for number, value in given.items():
            if type(value) is not float or not 0 <= value < np.inf:
                raise misfit(f"{where}.{number}", "a finite number >= 0", value)
        if given["unit"] == 0:
            raise misfit(f"{where}.unit", "above 0", 0.0)
        found = {part: arrays[name(layer, part)] for part in PARTS}
        d = found["code-directions"].shape[-1] if found["code-directions"].ndim else 0
        shapes = (n_rows, d + 1), (points.shape[1], d), (points.shape[1],)
        for (part, dtype), shape in zip(PARTS.items(), shapes, strict=True):
            _check_array(name(layer, part), found[part], dtype, shape)
        codes[layer] = Codes(
            center=found["code-center"],
            directions=found["code-directions"],
            values=found["codes"],
            labels=arrays[LABELS],
            rows=arrays[ROWS],
            **given,
        )
    return codes, Condensed(**about)


def check_code_values(codes: Mapping[str, Codes], kept: Ints, n_classes: int) -> None:
    """Check the values of the large arrays, which reads them. kept: rows that are in full."""
    any_codes = next(iter(codes.values()))
    labels, rows = any_codes.labels, any_codes.rows
    if len(labels) and not 0 <= labels[0] <= labels[-1] < n_classes:
        raise BundleError(f"{LABELS} must hold class codes from 0 to {n_classes - 1}")
    if not (labels[1:] >= labels[:-1]).all():
        raise BundleError(f"{LABELS} must be ascending")
    numbers = np.sort(np.concatenate([rows, kept]))
    if numbers[0] < 0 or not (numbers[1:] > numbers[:-1]).all():
        raise BundleError(f"{ROWS} must hold whole numbers >= 0, none twice or kept in full")


def _check_array(name: str, array: Any, dtype: str, shape: tuple[int, ...]) -> None:
    if array.dtype != np.dtype(dtype) or array.shape != shape:
        raise BundleError(
            f"{name} must have shape {shape} and dtype {dtype}; it has {array.shape} and "
            f"{array.dtype}"
        )
