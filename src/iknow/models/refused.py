"""Refused samples: keep those that a model may refuse away from the others.

Some models refuse a whole batch because of one NaN. Then they get the ordinary samples without the
strange ones, and the strange ones unchanged, one kind at a time. A sample that is still refused has
no belief; one with an answer but without its layers is invalid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from iknow.core.arrays import Bools, Ints
from iknow.core.codes import NO_BELIEF
from iknow.errors import RefusedError
from iknow.models.inputs import count_samples, take_rows
from iknow.models.model import Observation, check_width
from iknow.models.numbers import is_missing, is_number, is_sparse, is_text

ORDINARY, MISSING, INFINITE, NEGATIVE_INFINITE, BEYOND_FLOAT32 = range(5)
"""Kinds of values; a model may accept one and refuse another."""

Ask = Callable[[Any, Sequence[str]], Observation]


def is_refusal(error: Exception) -> bool:
    """Whether an error says that a classifier does not take its inputs.

    A missing text has no method `lower`: that is an AttributeError.
    """
    known = isinstance(error, (ValueError, TypeError, ArithmeticError, AttributeError))
    boosting = {"XGBoostError", "LightGBMError", "CatBoostError"}  # not all are ValueErrors
    return known or not boosting.isdisjoint(kind.__name__ for kind in type(error).__mro__)


def observe_if_taken(ask: Ask, batch: Any, layers: Sequence[str]) -> Observation:
    """What a model says about a batch; if it refuses, strange samples are kept apart."""
    try:
        return ask(batch, layers)
    except RefusedError:
        kinds = find_kinds(batch)
        if not kinds.any():
            raise
    return observe_apart(ask, batch, layers, kinds, lambda: _fill(batch))


def observe_apart(
    ask: Ask, batch: Any, layers: Sequence[str], kinds: Ints, substitute: Callable[[], Any]
) -> Observation:
    """What a model says about a batch with strange samples.

    kinds: of shape (n,); `ORDINARY` or a number for each other kind. substitute: makes a batch of
    the same shape without strange values, in case no sample is ordinary.
    """
    ordinary, answers = kinds == ORDINARY, None
    if ordinary.any():
        # An ordinary sample replaces each strange one: with the same batch size the others round
        # as they would among ordinary samples.
        rows = np.where(ordinary, np.arange(len(kinds)), ordinary.argmax())
        answers = silence(ask(take_rows(batch, rows), layers), ~ordinary)
    for kind in np.unique(kinds[~ordinary]):
        rows = np.flatnonzero(kinds == kind)
        part = _ask_what_it_takes(ask, take_rows(batch, rows), layers)
        if part is None:
            continue  # no answer
        if answers is None:
            has_layers = len(part.activations) == len(layers)
            like = part[np.zeros_like(kinds)] if has_layers else ask(substitute(), layers)
            answers = silence(like, ~ordinary)
        put(answers, rows, part)
    return silence(ask(substitute(), layers), ~ordinary) if answers is None else answers


def _ask_what_it_takes(ask: Ask, part: Any, layers: Sequence[str]) -> Observation | None:
    """What a model says about samples: answers and layers, only answers, or nothing."""
    for wanted in (layers, ()):
        try:
            said = ask(part, wanted)
        except RefusedError:
            continue
        return said if len(wanted) == len(layers) else replace(said, invalid=said.invalid | True)
    return None


def put(whole: Observation, rows: slice | Ints, part: Observation) -> None:
    """Copy an observation of some samples to these rows of another."""
    whole.scores[rows], whole.belief[rows] = part.scores, part.belief
    whole.invalid[rows] = part.invalid
    for layer, values in part.activations.items():
        check_width(layer, values, whole.activations[layer].shape[1])
        whole.activations[layer][rows] = values


def silence(observation: Observation, rows: Bools) -> Observation:
    """A copy without any answer for the marked samples; rows: mask of shape (n,)."""
    mask, layers = rows[:, None], observation.activations
    return Observation(
        np.where(mask, np.nan, observation.scores),
        np.where(rows, NO_BELIEF, observation.belief),
        {layer: np.where(mask, np.float32(0), layers[layer]) for layer in layers},
        rows | observation.invalid,
    )


def find_kinds(batch: Any) -> Ints:
    """Group samples with the same kinds of strange values in the same places, of shape (n,)."""
    kinds = np.zeros(count_samples(batch), dtype=np.int64)
    marks = _mark(batch)
    if marks is None or not len(kinds):
        return kinds
    marks = marks if is_sparse(marks) else marks.reshape(len(kinds), -1)
    strange = np.diff(marks.indptr) > 0 if is_sparse(marks) else marks.any(axis=1)
    if strange.any():
        few = marks[strange].toarray() if is_sparse(marks) else marks[strange]
        kinds[strange] = 1 + np.unique(few, axis=0, return_inverse=True)[1].ravel()
    return kinds


def _mark(batch: Any) -> Any:
    """The kind of each value, in an array or a sparse matrix like the batch; None if unknown."""
    if is_sparse(batch):
        parts = _mark_array(batch.data), batch.indices, batch.indptr
        marks: Any = csr_array(parts, shape=batch.shape, copy=True)
        marks.eliminate_zeros()  # in place, and the batch is the user's
        return marks
    if hasattr(batch, "iloc"):
        marks = np.where(batch.isna().to_numpy(), MISSING, ORDINARY).astype(np.uint8)
        if batch.ndim == 2:
            numeric = np.flatnonzero([is_number(dtype) for dtype in batch.dtypes])
            numbers = batch.iloc[:, numeric].to_numpy(dtype=np.float64, na_value=np.nan)
            marks[:, numeric] = _mark_array(numbers)
        return marks
    return _mark_array(batch) if isinstance(batch, np.ndarray) else None


def _mark_array(values: NDArray[Any]) -> NDArray[np.uint8]:
    if values.dtype.kind == "O":
        floats = [
            v if isinstance(v, float) else np.nan if is_missing(v) else 0.0 for v in values.flat
        ]
        values = np.array(floats).reshape(values.shape)
    if values.dtype.kind != "f":
        return np.zeros(values.shape, dtype=np.uint8)
    large = np.abs(values) > np.finfo(np.float32).max
    conditions = [np.isnan(values), values == np.inf, values == -np.inf, large]
    kinds = [MISSING, INFINITE, NEGATIVE_INFINITE, BEYOND_FLOAT32]
    return np.select(conditions, kinds, default=ORDINARY).astype(np.uint8)


def _fill(batch: Any) -> Any:
    """A copy with a value of the same column, or nothing, where one is not ordinary."""
    filled = batch.copy()
    if is_sparse(batch):
        filled.data[_mark_array(batch.data) != ORDINARY] = 0
        return filled
    strange = _mark(batch) != ORDINARY
    if isinstance(batch, np.ndarray):
        filled[strange] = "" if batch.ndim == 1 and is_text(batch.dtype) else 0
    elif batch.ndim == 1:
        return _fill_column(batch, ~strange)
    else:
        for j in np.flatnonzero(strange.any(axis=0)):
            filled.isetitem(j, _fill_column(batch.iloc[:, j], ~strange[:, j]))
    return filled


def _fill_column(column: Any, good: NDArray[np.bool_]) -> Any:
    if is_number(column.dtype) and column.dtype.kind != "b":
        return column.where(good, 0)
    return column.where(good, next(iter(column[good]), "" if is_text(column.dtype) else None))
