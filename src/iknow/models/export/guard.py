"""Guard: samples that a model refuses get no answer from its graph either.

A graph computes something for every input, also where the model would raise an error: for a missing
value that a forest never saw, for an infinite number. Which of them a model refuses we ask the
model itself, with a sample into which such values are put. Where the graph meets one, its scores
are NaN, which is no answer.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np

from iknow.core.arrays import Ints
from iknow.models.adapt import has_base
from iknow.models.export.onnx.builder import TEXT, Builder, Tensor
from iknow.models.export.onnx.inputs import Frame, Value
from iknow.models.export.parts import Part
from iknow.models.inputs import own_copy, take_rows
from iknow.models.numbers import is_sparse
from iknow.models.refused import is_refusal
from iknow.models.sklearn import SklearnModel

MISSING, INFINITE, NEGATIVE, LARGE = "missing", "infinite", "negative", "large"
VALUES = {MISSING: np.nan, INFINITE: np.inf, NEGATIVE: -np.inf, LARGE: 1e39}
SPLITS_COLUMNS = ("ColumnTransformer", "FeatureUnion")
TOO_LARGE = 2.0**128 - 2.0**103  # what becomes infinite in single precision


def find_refused(model: Any, sample: Any, value: Value, *, alike: bool) -> dict[str, Ints]:
    """The columns of numbers in which a model refuses each kind of value.

    alike: whether it treats all columns alike, so that asking about all of them at once is enough.
    """
    columns = _number_columns(value)
    if not len(columns):
        return {}
    row = take_rows(sample, slice(0, 1))
    refused = {}
    for kind, strange in VALUES.items():
        if not _is_refused(model, _put(row, columns, strange)):
            continue
        if alike:
            refused[kind] = columns
            continue
        each = [i for i in columns if _is_refused(model, _put(row, np.array([i]), strange))]
        refused[kind] = np.array(each or columns)
    return refused


def guard(model: SklearnModel, entrance: Part, end: Part) -> None:
    """Refuse what the model refuses, and what its classifier refuses after the steps.

    entrance, end: what enters the first step and what enters the classifier.
    """
    first = next((step for _, step in model.steps), model.final)
    alike = not any(has_base(first, name, "sklearn") for name in SPLITS_COLUMNS)
    _refuse(entrance, find_refused(model.estimator, entrance.sample, entrance.value, alike=alike))
    if model.steps:
        _refuse(end, find_refused(model.final, end.sample, end.value, alike=True))


def _refuse(part: Part, refused: Mapping[str, Ints]) -> None:
    b = part.b
    for kind, columns in refused.items():
        strange = b.cast(_find(b, kind, _select(b, part.value, columns)), "float32")
        worst = b.reduce("ReduceMax", strange)
        b.refuse(b.op("Greater", worst, np.array(0.5, "float32"), kind="bool"))


def silence(b: Builder, scores: Tensor) -> Tensor:
    """Scores that are NaN for refused samples, of shape (n, n_classes)."""
    found = [b.op("Reshape", each, np.array([-1, 1]), width=1) for each in b.refused]
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
    return b.op(
        "IsInf",
        x,
        kind="bool",
        detect_positive=int(kind == INFINITE),
        detect_negative=int(kind == NEGATIVE),
    )


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


def _is_refused(model: Any, row: Any) -> bool:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            model.predict(row)
        except Exception as error:
            if not is_refusal(error):
                raise
            return True
    return False
