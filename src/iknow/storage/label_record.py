"""Class labels as JSON, values with their kind: text, numbers, or a mix (numpy's objects)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from iknow.core.arrays import Labels
from iknow.errors import BundleError, InputError
from iknow.storage.schema import check_list, check_record, check_text, misfit

INTEGERS = "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"
FLOATS = "float16", "float32", "float64"
NUMBERS: dict[str, type[Any]] = {
    "bool": bool, **dict.fromkeys(INTEGERS, int), **dict.fromkeys(FLOATS, float)
}  # fmt: skip
"""Kinds of numbers by numpy's names, and Python's type for their values."""
LARGEST_TEXT = 1 << 28
"""Bytes of an array of text, in which numpy makes every label as long as the longest."""


def classes_to_dict(classes: Labels) -> dict[str, Any]:
    """Labels of shape (n_classes,) as plain values; `classes_from_dict` reads them back."""
    kind = {"U": "str", "O": "object"}.get(classes.dtype.kind, classes.dtype.name)
    values = [v.item() if isinstance(v, np.generic) else v for v in classes.tolist()]
    wanted = "only labels that are text or numbers can be saved"
    if kind not in (*NUMBERS, "str", "object"):
        raise InputError(f"{wanted}; got dtype {classes.dtype}")
    for value in values:
        if not _is_label(value):
            shown = repr(value) if isinstance(value, float) else f"a {type(value).__name__}"
            raise InputError(f"{wanted}; one is {shown}")
    return {"kind": kind, "values": values}


def classes_from_dict(record: object) -> Labels:
    """The labels that `classes_to_dict` wrote, of shape (n_classes,)."""
    found = check_record(record, "classes", ("kind", "values"))
    kind = check_text(found["kind"], "classes.kind")
    values = check_list(found["values"], "classes.values")
    if len(values) < 2:
        raise misfit("classes.values", "at least two labels", f"{len(values)}")
    if kind in NUMBERS:
        labels = _make_numbers(values, kind)
    elif kind == "str":
        labels = _make_text(values)
    elif kind == "object":
        for value in values:
            if not _is_label(value):
                raise misfit("a label", "text or a number", value)
        labels = np.empty(len(values), dtype=object)
        labels[:] = values
    else:
        raise misfit("classes.kind", f"str, object or one of {', '.join(NUMBERS)}", kind)
    if len(set(values)) != len(values):
        raise BundleError("classes.values must differ from one another; some are equal")
    return labels


def _is_label(value: object) -> bool:
    return isinstance(value, str | int | float) and value == value  # NaN is not


def _make_numbers(values: list[Any], kind: str) -> Labels:
    for value in values:
        if type(value) is not NUMBERS[kind] or not math.isfinite(float(value)):
            raise misfit("a label", f"of kind {kind}", value)
    try:
        labels = np.array(values, dtype=kind)
    except (OverflowError, ValueError) as error:
        raise BundleError(f"classes.values must be of kind {kind}: {error}") from error
    if labels.tolist() != values:
        raise BundleError(f"classes.values must be of kind {kind}; some are beyond its range")
    return labels


def _make_text(values: list[Any]) -> Labels:
    for value in values:
        if not isinstance(value, str):
            raise misfit("a label", "text", value)
    if 4 * len(values) * max(map(len, values)) > LARGEST_TEXT:
        raise BundleError(
            f"labels may take {LARGEST_TEXT:,} bytes as an array of text; {len(values)} labels of "
            f"up to {max(map(len, values)):,} characters take more"
        )
    labels = np.array(values, dtype=str)
    if labels.tolist() != values:
        raise BundleError("labels that end in NUL characters do not survive as an array of text")
    return labels
