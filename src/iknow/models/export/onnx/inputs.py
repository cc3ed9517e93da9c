"""Inputs: what a classifier takes, as the inputs of a graph.

An array is one input of numbers in double precision, which holds all numbers of fewer bits; texts
are one input of text. A data frame is an input for each column, of the column's name, so that their
order does not matter; a column of categories holds their labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from iknow.core.text import shown
from iknow.errors import ExportError
from iknow.models.export.onnx.builder import TEXT, Builder, Tensor
from iknow.models.numbers import is_missing, is_sparse

NUMBERS = "fiub"


@dataclass(frozen=True, eq=False)
class Frame:
    """The columns of a data frame by name, each of shape (n, 1)."""

    columns: Mapping[str, Tensor]


Value = Tensor | Frame


def declare(b: Builder, inputs: Any) -> Value:
    """The inputs of a graph for samples like these."""
    if hasattr(inputs, "iloc") and inputs.ndim == 2:
        return Frame({name: _declare_column(b, name, inputs[name]) for name in _names(inputs)})
    if is_sparse(inputs):
        return b.input("X", "float64", int(inputs.shape[1]))
    values = np.asarray(inputs)
    if values.dtype.kind in NUMBERS and values.ndim == 2:
        return b.input("X", "float64", int(values.shape[1]))
    kind = _kind_of_objects(values.ravel().tolist())
    if kind is None or values.ndim > 2:
        raise ExportError(
            f"ONNX takes texts, or tables of numbers; got inputs of dtype {values.dtype} and shape "
            f"{values.shape}: pass a data frame, whose columns may be of different kinds"
        )
    return b.input("X", kind, None if values.ndim == 1 else int(values.shape[1]))


def as_tensor(b: Builder, value: Value) -> Tensor:
    """All columns side by side, as one tensor."""
    if isinstance(value, Tensor):
        return value
    kinds = {each.kind for each in value.columns.values()}
    if len(kinds) > 1:
        text = [name for name, each in value.columns.items() if each.kind == TEXT]
        raise ExportError(
            f"ONNX cannot put text ({shown(text[0])}) and numbers into one table: encode the text "
            "in a ColumnTransformer"
        )
    return b.concat(list(value.columns.values()))


def as_numbers(b: Builder, value: Value) -> Tensor:
    """All columns as one tensor of numbers in double precision."""
    tensor = as_tensor(b, value)
    if tensor.kind == TEXT:
        raise ExportError("these inputs are text, and a step that takes numbers reads them")
    return b.cast(tensor, "float64")


def _names(frame: Any) -> list[str]:
    names = list(frame.columns)
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        raise ExportError(
            "the columns of a data frame become inputs by name: each must have a text of its own "
            f"as its name; got {shown(names[:10])}"
        )
    return names


def _declare_column(b: Builder, name: str, column: Any) -> Tensor:
    dtype = column.dtype
    if getattr(dtype, "kind", "O") in NUMBERS and not hasattr(dtype, "categories"):
        return b.input(name, "float64", 1)
    labels = dtype.categories if hasattr(dtype, "categories") else column
    kind = _kind_of_objects(labels.tolist())
    if kind is None:
        raise ExportError(
            f"a column of ONNX holds numbers or text; {shown(name)} has dtype {dtype}: convert it "
            "before the model"
        )
    return b.input(name, kind, 1)


def _kind_of_objects(values: list[Any]) -> str | None:
    """What a list holds besides missing values."""
    present = [each for each in values if not is_missing(each)]
    if all(isinstance(each, str) for each in present):
        return TEXT
    return "float64" if all(isinstance(each, (int, float)) for each in present) else None
