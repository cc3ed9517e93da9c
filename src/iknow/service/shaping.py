"""Shaping: the rows of a request as the inputs that a classifier takes.

Features that come by name are put in the classifier's order; those that come without names count
by their places. A model with several inputs takes them by name, a model in Python that was fitted
with a data frame takes one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from iknow.classifier.epistemic import EpistemicClassifier
from iknow.core.text import names, shown
from iknow.service.refusal import Refusal
from iknow.service.rows import Rows


def shape_rows(classifier: EpistemicClassifier, rows: Rows) -> Rows:
    """The same samples in the form that the classifier takes.

    Raises:
        Refusal: 422 if the features are not those of the classifier.
    """
    known = getattr(classifier, "feature_names_in_", None)
    inputs = getattr(classifier.model_, "inputs", ())
    values = rows.values
    if len(inputs) > 1:
        return Rows(_by_input(values, tuple(inputs)))
    if known is None:
        if not isinstance(values, Mapping):
            return rows
        if len(values) == 1 and set(values) == set(inputs):
            return Rows(next(iter(values.values())))
        return Rows(_stack(values, tuple(values)))  # by their places, as in a file
    ordered = _in_order(values, tuple(str(name) for name in known))
    if inputs:
        return Rows(_stack(ordered, tuple(ordered)))
    return Rows(ordered)


def as_inputs(classifier: EpistemicClassifier, rows: Rows) -> Any:
    """Shaped rows as `assess` takes them; a frame if a model in Python was fitted with one."""
    values = rows.values
    in_python = not hasattr(classifier.model_, "inputs")
    if in_python and isinstance(values, Mapping) and hasattr(classifier, "feature_names_in_"):
        from iknow.tables.pandas import make_frame

        return make_frame(values)
    return values


def _by_input(values: Any, inputs: tuple[str, ...]) -> Mapping[str, Any]:
    """Arrays by the names of a model's inputs; the columns of a table if there are as many."""
    if isinstance(values, Mapping):
        if set(values) != set(inputs):
            raise Refusal(422, f"the model takes the inputs {names(inputs)}; got {names(values)}")
        return {name: values[name] for name in inputs}
    if isinstance(values, np.ndarray) and values.ndim == 2 and values.shape[1] == len(inputs):
        return {name: values[:, i] for i, name in enumerate(inputs)}
    raise Refusal(422, f"the model takes several inputs by name: send objects with {names(inputs)}")


def _in_order(values: Any, known: tuple[str, ...]) -> Mapping[str, Any]:
    if isinstance(values, Mapping):
        if missing := [name for name in known if name not in values]:
            raise Refusal(
                422, f"the feature {shown(missing[0], 60)} is missing; got {names(values)}"
            )
        if strange := [name for name in values if name not in known]:
            raise Refusal(
                422, f"there is no feature {shown(strange[0], 60)}; expected {names(known)}"
            )
        return {name: values[name] for name in known}
    table = values if isinstance(values, np.ndarray) else np.array(values, dtype=object)
    if table.ndim != 2 or table.shape[1] != len(known):
        raise Refusal(
            422,
            f"expected {len(known)} features, {names(known)}; got rows of shape {table.shape[1:]}",
        )
    return {name: table[:, i] for i, name in enumerate(known)}


def _stack(columns: Mapping[str, Any], order: tuple[str, ...]) -> Any:
    if text := [name for name in order if columns[name].dtype.kind == "O"]:
        raise Refusal(422, f"the feature {shown(text[0], 60)} must hold numbers; got text")
    widths = {columns[name].shape[1:] for name in order}
    if widths != {()}:
        raise Refusal(422, f"each feature must be one number per row; got shapes {sorted(widths)}")
    return np.column_stack([columns[name] for name in order])
