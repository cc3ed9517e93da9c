"""Guard: samples that a model refuses get no answer from its graph either.

A graph computes something for every input, also where the model would raise an error: a forest that
never saw a missing value, an infinite number. Which of them a model refuses we ask the model, with a
sample into which such values are put; where the graph meets one, its scores are NaN, which is no
answer.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from iknow.core.arrays import Ints
from iknow.core.codes import NO_BELIEF
from iknow.errors import InputError
from iknow.models.adapt import has_base
from iknow.models.export.onnx.builder import Builder, Tensor
from iknow.models.export.onnx.inputs import TEXT, Frame, Value
from iknow.models.inputs import own_copy, take_rows
from iknow.models.numbers import is_sparse
from iknow.models.sklearn import SklearnModel

MISSING, INFINITE, NEGATIVE, LARGE = "missing", "infinite", "negative", "large"
VALUES = {MISSING: np.nan, INFINITE: np.inf, NEGATIVE: -np.inf, LARGE: 1e39}
SPLITS_COLUMNS = ("ColumnTransformer", "FeatureUnion")
TOO_LARGE = 2.0**128 - 2.0**103  # what becomes infinite in single precision


def find_refused(model: SklearnModel, sample: Any, value: Value) -> dict[str, Ints]:
    """The columns of numbers in which a model refuses each kind of value."""
    columns = _number_columns(value)
    if not len(columns):
        return {}
    row = take_rows(sample, slice(0, 1))
    refused = {}
    for kind, strange in VALUES.items():
        if not _is_refused(model, _put(row, columns, strange)):
            continue
        if _treats_alike(model):
            refused[kind] = columns
            continue
        each = [i for i in columns if _is_refused(model, _put(row, np.array([i]), strange))]
        refused[kind] = np.array(each or columns)
    return refused


def silence(b: Builder, scores: Tensor, refused: Mapping[str, Ints], value: Value) -> Tensor:
    """Scores that are NaN for refused samples, of shape (n, n_classes)."""
    found = [b.op("Reshape", each, np.array([-1, 1]), width=1) for each in b.refused]
    for kind, columns in refused.items():
        strange = b.cast(_find(b, kind, _select(b, value, columns)), "float32")
        found.append(b.op("Greater", b.reduce("ReduceMax", strange), np.float32(0.5), kind="bool"))
    if not found:
        return scores
    which = found[0]
    for each in found[1:]:
        which = b.op("Or", which, each)
    nothing = np.array(np.nan, scores.kind)
    return b.op("Where", which, nothing, scores, kind=scores.kind, width=scores.width)


def _find(b: Builder, kind: str, x: Tensor) -> Tensor:
    """Which values are of a kind."""
    if kind == MISSING:
        return b.op("IsNaN", x, kind="bool")
    if kind == LARGE:
        size = b.op("Abs", x)
        above = b.op("GreaterOrEqual", size, np.array(TOO_LARGE), kind="bool")
        return b.op("And", above, b.op("Less", size, np.array(np.inf), kind="bool"))
    sides = {"detect_positive": int(kind == INFINITE), "detect_negative": int(kind == NEGATIVE)}
    return b.op("IsInf", x, kind="bool", **sides)


def _number_columns(value: Value) -> Ints:
    if isinstance(value, Frame):
        kinds = [each.kind for each in value.columns.values()]
    else:
        kinds = [value.kind] * (value.width or 0)
    return np.flatnonzero([kind != TEXT for kind in kinds])


def _select(b: Builder, value: Value, columns: Ints) -> Tensor:
    if isinstance(value, Frame):
        tensors = list(value.columns.values())
        return b.concat([tensors[i] for i in columns])
    return value if len(columns) == value.width else b.columns(value, columns)


def _treats_alike(model: SklearnModel) -> bool:
    """Whether a model treats all columns alike as far as strange values go."""
    parts = [step for _, step in model.steps[:1]] or [model.classifier]
    return not any(has_base(part, name, "sklearn") for part in parts for name in SPLITS_COLUMNS)


def _put(row: Any, columns: Ints, strange: float) -> Any:
    """A copy of a sample with a strange value in some columns."""
    if is_sparse(row):
        dense = row.toarray().astype(np.float64)
        dense[:, columns] = strange
        return type(row)(dense)
    if hasattr(row, "iloc"):
        filled = own_copy(row)
        for i in columns:
            if not hasattr(row.dtypes.iloc[i], "categories"):
                filled.isetitem(i, np.array([strange]))
        return filled
    filled = np.array(row, dtype=object if row.dtype.kind == "O" else np.float64)
    filled[:, columns] = strange
    return filled


def _is_refused(model: SklearnModel, row: Any) -> bool:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return bool(model.observe(row, ()).belief[0] == NO_BELIEF)
        except InputError:
            return True
