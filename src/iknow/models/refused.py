"""Refused samples: keep those that a model may refuse away from the others.

Some models refuse a whole batch because of one NaN. Then they get the ordinary samples without the
strange ones, and the strange ones unchanged, one kind at a time. A sample that is still refused has
no belief; one with an answer but without its layers is invalid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

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
    parts = []
    for kind in np.unique(kinds[~ordinary]):
        rows = np.flatnonzero(kinds == kind)
        for wanted in (layers, ()):  # answers and layers, or only answers, or nothing
            with suppress(RefusedError):
                part = ask(take_rows(batch, rows), wanted)
                bad = part.invalid | (len(wanted) < len(layers))
                parts.append((rows, replace(part, invalid=bad)))
                break
    if answers is None:
        like = next((part for _, part in parts if len(part.activations) == len(layers)), None)
        like = ask(substitute(), layers) if like is None else like[np.zeros_like(kinds)]
        answers = silence(like, ~ordinary)
    for rows, part in parts:
        answers.scores[rows], answers.belief[rows] = part.scores, part.belief
        answers.invalid[rows] = part.invalid
        if answers.unseen is not None:
            answers.unseen[rows] = np.nan if part.unseen is None else part.unseen
        for layer, values in part.activations.items():
            check_width(layer, values, answers.activations[layer].shape[1])
            answers.activations[layer][rows] = values
    return answers


def silence(observation: Observation, rows: Bools) -> Observation:
    """A copy without any answer for the marked samples; rows: mask of shape (n,)."""
    mask, layers, unseen = rows[:, None], observation.activations, observation.unseen
    return Observation(
        np.where(mask, np.nan, observation.scores),
        np.where(rows, NO_BELIEF, observation.belief),
        {layer: np.where(mask, np.float32(0), layers[layer]) for layer in layers},
        rows | observation.invalid,
        None if unseen is None else np.where(rows, np.nan, unseen),
    )


def find_kinds(batch: Any) -> Ints:
    """Group samples with the same kinds of strange values in the same places, of shape (n,)."""
    kinds = np.zeros(count_samples(batch), dtype=np.int64)
    if is_sparse(batch):
        rows = np.unique(batch.tocoo().row[_mark_array(batch.data) != ORDINARY])
        marks = _mark_array(batch[rows].toarray())
    elif not len(kinds) or (marks := _mark(batch)) is None:
        return kinds
    else:
        marks = marks.reshape(len(kinds), -1)
        rows = np.flatnonzero(marks.any(axis=1))
        marks = marks[rows]
    if len(rows):
        kinds[rows] = 1 + np.unique(marks, axis=0, return_inverse=True)[1].ravel()
    return kinds


def _mark(batch: Any) -> Any:
    """The kind of each value, in an array like the batch, which is not sparse; None if unknown."""
    if not hasattr(batch, "iloc"):
        return _mark_array(batch) if isinstance(batch, np.ndarray) else None
    marks = np.where(batch.isna().to_numpy(), MISSING, ORDINARY).astype(np.uint8)
    if batch.ndim == 2:
        numeric = np.flatnonzero([is_number(dtype) for dtype in batch.dtypes])
        numbers = batch.iloc[:, numeric].to_numpy(dtype=np.float64, na_value=np.nan)
        marks[:, numeric] = _mark_array(numbers)
    return marks


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
    if not isinstance(batch, np.ndarray) and batch.ndim == 1:
        return _fill(batch.to_frame()).iloc[:, 0]
    good = _mark(batch) == ORDINARY
    if isinstance(batch, np.ndarray):
        filled[~good] = "" if batch.ndim == 1 and is_text(batch.dtype) else 0
        return filled
    for j in np.flatnonzero(~good.all(axis=0)):
        column, kept = batch.iloc[:, j], good[:, j]
        is_plain = is_number(column.dtype) and column.dtype.kind != "b"
        nothing = 0 if is_plain else "" if is_text(column.dtype) else None
        filled.isetitem(j, column.where(kept, next(iter(column[kept]), nothing)))
    return filled
