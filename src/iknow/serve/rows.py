"""Rows: the samples of a request, in one of the forms that models take.

    an array (n, ...)             numbers, one row each
    a list of n texts             for models that read text
    columns by name, each (n,)    for models that take several inputs, or a table with text

Requests whose rows have the same form are joined, and taken apart again.

As a classifier takes them: features that come by name are put in its order, those without names
count by their places. A model with several inputs takes them by name, a model in Python that was
fitted with a data frame takes one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.classifier.estimator import EpistemicClassifier
from iknow.core.text import names, shown
from iknow.serve.refusal import Refusal

Columns = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Rows:
    """n samples. values: an array, a list of texts, or arrays by name."""

    values: NDArray[Any] | list[str] | Columns

    def __len__(self) -> int:
        if isinstance(self.values, Mapping):
            return len(next(iter(self.values.values())))
        return len(self.values)

    @property
    def form(self) -> tuple[Any, ...]:
        """What rows must have in common to be joined."""
        if isinstance(self.values, Mapping):
            parts = self.values.items()
            return tuple((name, each.dtype.str, each.shape[1:]) for name, each in parts)
        if isinstance(self.values, list):
            return ("text",)
        return (self.values.dtype.str, self.values.shape[1:])

    def __getitem__(self, row: int) -> Any:
        """One sample: an array, a text, or values by name."""
        if isinstance(self.values, Mapping):
            return {name: each[row] for name, each in self.values.items()}
        return self.values[row]


def join_rows(parts: Sequence[Rows]) -> Rows:
    """Rows of the same form, one after another."""
    first = parts[0].values
    if len(parts) == 1:
        return parts[0]
    if isinstance(first, Mapping):
        columns: list[Any] = [part.values for part in parts]
        return Rows({name: np.concatenate([each[name] for each in columns]) for name in first})
    if isinstance(first, list):
        return Rows([text for part in parts for text in part.values])
    return Rows(np.concatenate([part.values for part in parts]))


def as_rows(values: Any) -> Rows:
    """Rows from what JSON holds: a list of numbers or lists, of texts, or of objects."""
    if not isinstance(values, list):
        raise Refusal(422, f"rows must be a list of samples; got {shown(values, 60)}")
    if not values:
        raise Refusal(422, "rows are empty: send at least one sample")
    if all(isinstance(each, str) for each in values):
        return Rows(values)
    if all(isinstance(each, dict) for each in values):
        return as_columns(values)
    if not all(isinstance(each, list) for each in values):
        raise Refusal(
            422,
            "each row must be a list of numbers, or each a text, or each an object by feature; "
            f"got {shown(next(e for e in values if not isinstance(e, list)), 60)}",
        )
    return Rows(as_numbers(values))


def as_numbers(rows: list[Any]) -> NDArray[Any]:
    """Lists of numbers, nested to any depth, as an array; null is NaN, a missing number."""
    try:
        array = np.array(rows)
    except (ValueError, OverflowError) as error:
        raise Refusal(422, _why_ragged(rows)) from error
    if array.dtype.kind == "O":  # null, or whole numbers beyond 64 bits
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError, OverflowError) as error:
            raise Refusal(422, f"rows must hold numbers: {_first_strange(array)}") from error
    if array.dtype.kind not in "biuf":
        raise Refusal(422, f"rows must hold numbers: {_first_strange(array)}")
    if array.size == 0:
        raise Refusal(422, f"rows have no values: got an array of shape {array.shape}")
    return array


def as_columns(rows: Sequence[Mapping[str, Any]]) -> Rows:
    """Objects by feature, all with the same features, as columns."""
    names = list(rows[0])
    if not names:
        raise Refusal(422, "the rows have no features: got an empty object")
    for i, row in enumerate(rows):
        if row.keys() != rows[0].keys():
            differing = shown(min(row.keys() ^ rows[0].keys()), 60)
            raise Refusal(
                422, f"all rows must have the features of the first: row {i}: {differing}"
            )
    return Rows({name: _as_column([row[name] for row in rows], name) for name in names})


def _as_column(cells: list[Any], name: str) -> NDArray[Any]:
    if all(isinstance(cell, str) or cell is None for cell in cells) and any(cells):
        return np.array(cells, dtype=object)
    column = as_numbers([[cell] for cell in cells])
    if column.ndim != 2:
        raise Refusal(422, f"feature {shown(name, 60)} must hold one value for each row")
    return column[:, 0]


def _why_ragged(rows: list[Any]) -> str:
    expected = len(rows[0])
    for i, row in enumerate(rows):
        if len(row) != expected:
            return f"row {i} has {len(row)} values, and the first has {expected}: send equally many"
    return "all rows must have the same shape; some are nested more deeply than others"


def _first_strange(array: NDArray[Any]) -> str:
    for place, value in np.ndenumerate(array):
        if value is not None and (isinstance(value, str) or not isinstance(value, (int, float))):
            return f"row {place[0]} holds {shown(value, 60)}"
    return "a number is too large"


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
        from iknow.tables.table import make_frame

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
