"""Apart: keep samples that a model may refuse away from the others.

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

from iknow.core.arrays import Ints
from iknow.core.codes import NO_BELIEF
from iknow.errors import RefusedError
from iknow.models.inputs import count_samples, take_rows
from iknow.models.joining import put
from iknow.models.model import Observation
from iknow.models.numbers import is_missing, is_sparse

ORDINARY, MISSING, INFINITE, NEGATIVE_INFINITE, BEYOND_FLOAT32 = range(5)
"""Kinds of values; a model may accept one and refuse another."""


Ask = Callable[[Any, Sequence[str]], Observation]


def observe_if_taken(ask: Ask, batch: Any, layers: Sequence[str]) -> Observation:
    """What a model says about a batch; if it refuses, strange samples are kept apart."""
    try:
        return ask(batch, layers)
    except RefusedError:
        kinds = find_kinds(batch)
        if not kinds.any():
            raise
    return observe_apart(ask, batch, layers, kinds, lambda: without_strange_values(batch))


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


def silence(observation: Observation, rows: NDArray[np.bool_]) -> Observation:
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
    marks = _mark_strange(batch)
    if marks is None or not len(kinds):
        return kinds
    if is_sparse(marks):
        strange = np.diff(marks.indptr) > 0
        marks = marks[np.flatnonzero(strange)].toarray()
    else:
        marks = marks.reshape(len(kinds), -1)
        strange = marks.any(axis=1)
        marks = marks[strange]
    if strange.any():
        kinds[strange] = 1 + np.unique(marks, axis=0, return_inverse=True)[1].ravel()
    return kinds


def without_strange_values(batch: Any) -> Any:
    """A copy with zeros, or a value of the same column, in place of all strange values."""
    if is_sparse(batch):
        filled = batch.copy()
        filled.data = np.where(_mark_array(batch.data) > 0, 0, batch.data).astype(batch.dtype)
        return filled
    marks = _mark_strange(batch) > 0
    if hasattr(batch, "iloc") and batch.ndim == 1:
        return _fill_column(batch, ~marks)
    if not hasattr(batch, "iloc"):
        stand_in = "" if marks.ndim == 1 else 0  # only text has one axis
        return np.where(marks, stand_in, batch).astype(batch.dtype)
    filled = batch.copy()
    for j in np.flatnonzero(marks.any(axis=0)):
        filled.isetitem(j, _fill_column(batch.iloc[:, j], ~marks[:, j]))
    return filled


def _fill_column(column: Any, good: NDArray[np.bool_]) -> Any:
    is_text = getattr(column.dtype, "kind", "O") == "O" and not hasattr(column.dtype, "categories")
    nothing = "" if is_text else None
    stand_in = 0 if _is_numeric(column.dtype) else next(iter(column[good]), nothing)
    return column.where(good, stand_in)


def _mark_strange(batch: Any) -> Any:
    """For each value of a batch, whether and how it is strange; same shape as the batch.

    Of a sparse matrix, a sparse matrix; None for anything that we cannot look into.
    """
    if is_sparse(batch):
        parts = _mark_array(batch.data), batch.indices, batch.indptr
        marks = csr_array(parts, shape=batch.shape, copy=True)
        marks.eliminate_zeros()  # in place, and the batch is the user's
        return marks
    if isinstance(batch, np.ndarray):
        return _mark_array(batch)
    if not hasattr(batch, "iloc"):
        return None
    missing = np.where(batch.isna().to_numpy(), MISSING, ORDINARY).astype(np.uint8)
    if batch.ndim == 1:
        return missing
    numeric = np.flatnonzero([_is_numeric(dtype) for dtype in batch.dtypes])
    numbers = batch.iloc[:, numeric].to_numpy(dtype=np.float64, na_value=np.nan)
    missing[:, numeric] = _mark_floats(numbers)
    return missing


def _mark_array(values: NDArray[Any]) -> NDArray[np.uint8]:
    if values.dtype.kind == "f":
        return _mark_floats(values)
    marks = np.zeros(values.shape, dtype=np.uint8)
    if values.dtype.kind == "O":
        for place, value in np.ndenumerate(values):
            number = value if isinstance(value, float) else 0.0
            marks[place] = MISSING if is_missing(value) else _mark_floats(np.array(number))
    return marks


def _is_numeric(dtype: Any) -> bool:
    return getattr(dtype, "kind", "O") in "fiu" and not hasattr(dtype, "categories")


def _mark_floats(values: NDArray[Any]) -> NDArray[np.uint8]:
    large = np.abs(values) > np.finfo(np.float32).max
    conditions = [np.isnan(values), values == np.inf, values == -np.inf, large]
    kinds = [MISSING, INFINITE, NEGATIVE_INFINITE, BEYOND_FLOAT32]
    return np.select(conditions, kinds, default=ORDINARY).astype(np.uint8)
