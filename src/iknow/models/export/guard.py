"""Guard: samples that a model refuses get no answer from its graph either.

A graph computes something for every input, also where the model would raise an error: for a missing
value that a forest never saw, for an infinite number. Which of them a model refuses we ask the
model itself, with a sample into which such values are put. Where the graph meets one, its scores
are NaN, which is no answer.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from iknow.models.adapt import has_base
from iknow.models.export.graph import TEXT, Builder, Tensor
from iknow.models.inputs import own_copy, take_rows
from iknow.models.numbers import is_sparse
from iknow.models.refused import is_refusal
from iknow.models.sklearn import SklearnModel

if TYPE_CHECKING:
    from iknow.models.export.sklearn import Part

LARGE = 1e39
STRANGE = (np.nan, np.inf, -np.inf, LARGE)
SPLITS_COLUMNS = ("ColumnTransformer", "FeatureUnion")
TOO_LARGE = 2.0**128 - 2.0**103  # what becomes infinite in single precision


def guard(model: SklearnModel, entrance: Part, end: Part) -> None:
    """Refuse what the model refuses, and what its classifier refuses after the steps.

    entrance, end: what enters the first step and what enters the classifier.
    """
    first = next((step for _, step in model.steps), model.final)
    alike = not any(has_base(first, name, "sklearn") for name in SPLITS_COLUMNS)
    _refuse(entrance.of(model.estimator), alike)
    if model.steps:
        _refuse(end.of(model.final), alike=True)


def _refuse(part: Part, alike: bool) -> None:
    """Refuse strange values in the columns of numbers in which a part refuses them.

    alike: whether it treats all columns alike, so that asking about all of them at once is enough.
    """
    b, is_table = part.b, isinstance(part.value, Tensor)
    tensors = [part.tensor] * (part.tensor.width or 0) if is_table else part.columns
    columns = np.flatnonzero([each.kind != TEXT for each in tensors])
    if not len(columns):
        return
    row = take_rows(part.sample, slice(0, 1))
    for strange in STRANGE:
        if not _refuses(part.estimator, row, columns, strange):
            continue
        found = [] if alike else [i for i in columns if _refuses(part.estimator, row, [i], strange)]
        which = np.array(found or columns)
        if not is_table:
            x = b.concat([tensors[i] for i in which])
        else:
            x = part.tensor if len(which) == len(tensors) else b.columns(part.tensor, which)
        worst = b.reduce("ReduceMax", b.cast(_find(b, strange, x), "float32"))
        b.refused.append(b.op("Greater", worst, 0.5))


def _find(b: Builder, strange: float, x: Tensor) -> Tensor:
    """Which values are as strange."""
    if strange == LARGE:
        size = b.op("Abs", x)
        return b.op("And", b.op("GreaterOrEqual", size, TOO_LARGE), b.op("Less", size, np.inf))
    if np.isnan(strange):
        return b.op("IsNaN", x)
    up = int(strange > 0)
    return b.op("IsInf", x, detect_positive=up, detect_negative=1 - up)


def silence(b: Builder, scores: Tensor) -> Tensor:
    """Scores that are NaN for refused samples, of shape (n, n_classes)."""
    if not b.refused:
        return scores
    which, *others = [b.column(each) for each in b.refused]
    for each in others:
        which = b.op("Or", which, each)
    return b.where(which, np.nan, scores)


def _refuses(model: Any, row: Any, columns: Any, strange: float) -> bool:
    """Whether a model refuses a sample with a strange value in some columns."""
    asked = _put(row, columns, strange)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            model.predict(asked)
        except Exception as error:
            if not is_refusal(error):
                raise
            return True
    return False


def _put(row: Any, columns: Any, strange: float) -> Any:
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
