"""Differences: how samples differ from the training data, in sentences that name the column.

A model refuses what it was not trained on in words of its own, or takes text for numbers and finds
all of it strange. So we compare samples with the training inputs that the probe keeps: names and
kinds of columns before the model runs, which takes microseconds, and everything else once something
failed. Columns of objects may be of any kind, so a change of theirs is told only after a failure,
or as a warning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from numbers import Number
from typing import Any

import numpy as np

from iknow.core.text import names, shown
from iknow.errors import InputError
from iknow.models.inputs import (
    Fields,
    as_numbers,
    is_missing,
    is_number,
    is_sparse,
    is_text,
)

A_FRAME, AN_ARRAY, TEXTS = "a data frame", "an array", "a list of texts or other objects"
KINDS = {"b": "bools", "f": "floats", "i": "whole numbers", "u": "whole numbers"}
KINDS |= {"U": "text", "T": "text", "M": "dates", "m": "time spans"}
"""What numpy's letters for dtypes mean."""
FEW = 100  # values of a column of objects, enough to see what they are
ALIKE = {"text", "categories"}  # kinds that stand for each other to most models, and to distances


def compare_columns(found: Iterable[Any], wanted: Iterable[Any], remedy: str) -> str:
    """How the names of columns differ from those in training; "" if they do not.

    remedy: how to select those of training.
    """
    given, known = list(found), list(wanted)
    pairs = (known, set(given)), (given, set(known))
    missing, extra = ([name for name in some if name not in others] for some, others in pairs)
    if twice := find_twice(given):
        return f"X has the column {shown(twice)} more than once: {remedy}, or rename one"
    if missing:
        instead = f", and has {_columns(extra)} instead: rename or" if extra else ":"
        return f"X lacks {_columns(missing)} of the training data{instead} add what is missing"
    if extra:
        return f"X has {_columns(extra)}, which the training data does not have: {remedy}"
    moved = next((pair for pair in zip(given, known, strict=True) if pair[0] != pair[1]), None)
    if moved is None:
        return ""
    return (
        f"the columns of X are not in the order of the training data, where {shown(moved[1])} comes"
        f" in the place of {shown(moved[0])}: {remedy}"
    )


def find_twice(columns: Iterable[Any]) -> Any:
    """The first name that comes more than once, or None."""
    return next((name for name, count in Counter(columns).items() if count > 1), None)


def _columns(found: list[Any]) -> str:
    return f"the column{'s' * (len(found) > 1)} {names(found)}"


def find_changed_columns(
    known: Any, given: Any, *, alike: bool = False
) -> tuple[list[str], list[str]]:
    """Columns that hold another kind of values than in training: surely, and probably.

    known: training inputs; given: others with as many columns. Nothing is found in anything else.
    alike: whether text differs from categories, as it does to some models.
    """
    if _container(known) != A_FRAME or _container(given) not in (A_FRAME, AN_ARRAY):
        return [], []
    table = given if hasattr(given, "iloc") or np.ndim(given) != 2 else type(known)(given)
    if not hasattr(table, "iloc") or table.shape[1] != known.shape[1]:
        return [], []
    if table is given and not given.columns.equals(known.columns):
        return [], []
    changes: dict[tuple[bool, str, str], list[Any]] = {}
    for j, (before, now) in enumerate(zip(list(known.dtypes), list(table.dtypes), strict=True)):
        if before == now or (is_number(before) and is_number(now)):
            continue
        was, is_now = _kind(known.iloc[:, j]), _kind(table.iloc[:, j])
        same = was == is_now or (not alike and ALIKE.issuperset((was, is_now)))
        if was is not None and is_now is not None and not same:
            is_certain = before != np.dtype(object)
            changes.setdefault((is_certain, was, is_now), []).append(known.columns[j])
    found = {True: list[str](), False: list[str]()}
    for (is_certain, was, is_now), columns in changes.items():
        found[is_certain].append(
            f"{_columns(columns)} of X {'hold' if columns[1:] else 'holds'} {is_now}, and {was} in "
            f"the training data: convert {'them' if columns[1:] else 'it'} to {was}"
        )
    if found[True] and table is not given:
        found[True] = [f"X is {AN_ARRAY}, and the training data {_described(known)}", *found[True]]
    return found[True], found[False]


def _kind(column: Any) -> str | None:
    """What a column holds; None if it is missing, or of several kinds."""
    if is_text(column.dtype):
        values = [value for value in column.to_numpy()[:FEW] if not is_missing(value)]
        are_text, are_numbers = (all(isinstance(v, x) for v in values) for x in (str, Number))
        return None if are_text == are_numbers else "text" if are_text else "numbers"
    if not column.notna().any():
        return None
    if hasattr(column.dtype, "categories"):
        return "categories"
    return "numbers" if is_number(column.dtype) else KINDS.get(column.dtype.kind)


def find_differences(known: Any, given: Any, what: str = "X") -> list[str]:
    """What tells samples from training inputs: sentences, none if that is unknown."""
    before, now = _container(known), _container(given)
    if before != now:
        return [f"{what} is {now}, and the training data {_described(known)}"]
    if isinstance(known, Fields):
        both = [name for name in known.arrays if name in given.arrays]
        parts = [find_differences(known.arrays[each], given.arrays[each], each) for each in both]
        return [told for part in parts for told in part]
    if before == A_FRAME:
        return [told for part in find_changed_columns(known, given, alike=True) for told in part]
    if before == TEXTS:
        kinds = {type(value).__name__ for value in known if not is_missing(value)}
        for row, value in enumerate(given):
            if (kind := type(value).__name__) not in kinds and not is_missing(value):
                of = " or ".join(sorted(kinds))
                it = f"row {row} of {what} is of type {kind}, {shown(value, 60)}"
                return [f"{it}, and the training data of type {of}"]
        return []
    if before != AN_ARRAY:
        return []
    told, (shape, old) = list[str](), (tuple(each.shape[1:]) for each in (given, known))
    if shape != old:
        told.append(f"each sample of {what} has shape {shape}, and {old} in the training data")
    was, is_now = _values(known), _values(given)
    if None not in (was, is_now) and was != is_now:
        told.append(
            f"{what} holds {is_now} ({given.dtype}), and the training data {was} ({known.dtype}): "
            "convert it, and scale it as there"
        )
    elif was is not None and is_now is None:
        try:
            as_numbers(given, what)
        except InputError as error:  # it says what is there
            told.append(str(error))
    return told


def _container(inputs: Any) -> str:
    if isinstance(inputs, Fields):
        return "several arrays by name"
    if is_sparse(inputs):
        return "a sparse matrix"
    if hasattr(inputs, "iloc") and inputs.ndim == 2:
        return A_FRAME
    is_array = hasattr(inputs, "dtype") and hasattr(inputs, "shape")
    if isinstance(inputs, list) or (is_array and len(inputs.shape) == 1 and is_text(inputs.dtype)):
        return TEXTS
    return AN_ARRAY if is_array else f"a {type(inputs).__name__}"


def _described(known: Any) -> str:
    """Training inputs, with the names of their columns if they have any."""
    kind = _container(known)
    return f"{kind} with {_columns(list(known.columns))}" if kind == A_FRAME else kind


def _values(inputs: Any) -> str | None:
    """What an array or a tensor holds; None for objects, which may be anything."""
    if hasattr(inputs.dtype, "is_floating_point"):  # torch's
        return "floats" if inputs.dtype.is_floating_point else "whole numbers"
    return KINDS.get(getattr(inputs.dtype, "kind", "O"))
