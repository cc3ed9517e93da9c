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

from iknow.core.arrays import Bools, Ints
from iknow.core.codes import NO_BELIEF
from iknow.errors import RefusedError
from iknow.models.inputs import ORDINARY, container_of, count_samples, take_rows
from iknow.models.joined import put
from iknow.models.model import Observation
from iknow.models.numbers import is_sparse

ERRORS = ("XGBoostError", "LightGBMError", "CatBoostError")
"""What the boosting packages raise about data, by name; not all are ValueErrors."""

Ask = Callable[[Any, Sequence[str]], Observation]


def is_refusal(error: Exception) -> bool:
    """Whether an error says that a classifier does not take its inputs.

    A missing text has no method `lower`: that is an AttributeError.
    """
    known = isinstance(error, (ValueError, TypeError, ArithmeticError, AttributeError))
    return known or any(kind.__name__ in ERRORS for kind in type(error).__mro__)


def observe_if_taken(ask: Ask, batch: Any, layers: Sequence[str]) -> Observation:
    """What a model says about a batch; if it refuses, strange samples are kept apart."""
    try:
        return ask(batch, layers)
    except RefusedError:
        kinds = find_kinds(batch)
        if not kinds.any():
            raise
    return observe_apart(ask, batch, layers, kinds, lambda: container_of(batch).fill(batch))


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
    marks = container_of(batch).mark(batch)
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
