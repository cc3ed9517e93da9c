"""Columns: transformers side by side, and one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from iknow.core.text import shown
from iknow.errors import ExportError
from iknow.models.export.onnx.builder import Tensor
from iknow.models.export.onnx.inputs import Frame, Value, as_numbers
from iknow.models.export.parts import Answer, Part, classify, transform
from iknow.models.inputs import own_copy


def run_pipeline(part: Part) -> Value:
    """The output of a pipeline of transformers."""
    return _run_steps(part, [step for _, step in part.estimator.steps]).value


def end_pipeline(part: Part) -> Answer:
    """The answer of a pipeline that ends in a classifier, inside another model."""
    *steps, (_, final) = part.estimator.steps
    return classify(_run_steps(part, [step for _, step in steps]).of(final))


def _run_steps(part: Part, steps: Sequence[Any]) -> Part:
    """What leaves some steps."""
    for step in steps:
        part = follow(part.of(step))
    return part


def follow(part: Part) -> Part:
    """What leaves a step; its estimator is still that of the step."""
    value = transform(part)
    if part.estimator is None or isinstance(part.estimator, str):
        return part
    return Part(part.b, part.estimator, value, part.estimator.transform(own_copy(part.sample)))


def join_columns(part: Part) -> Tensor:
    """The outputs of a ColumnTransformer side by side."""
    ct = part.estimator
    places = ct._transformer_to_input_indices
    found = []
    for name, transformer, columns in ct.transformers_:
        which = np.asarray(places[name], np.int64)
        if (isinstance(transformer, str) and transformer == "drop") or not len(which):
            continue
        inner = select(part, which, is_one=isinstance(columns, (str, int, np.integer)))
        found.append(_weighted(part.of(transformer), inner, ct.transformer_weights, name))
    return _side_by_side(part, found)


def join_union(part: Part) -> Tensor:
    """The outputs of a FeatureUnion side by side."""
    union = part.estimator
    found = [
        _weighted(part.of(transformer), part, union.transformer_weights, name)
        for name, transformer in union.transformer_list
        if not (isinstance(transformer, str) and transformer == "drop")
    ]
    return _side_by_side(part, found)


def call_function(part: Part) -> Value:
    """The input itself, if a FunctionTransformer has no function: ONNX holds no Python."""
    if part.estimator.func is not None:
        called = getattr(part.estimator.func, "__name__", part.estimator.func)
        raise ExportError(
            f"a FunctionTransformer calls Python ({shown(called)}), which ONNX cannot hold: apply "
            "the function before the model"
        )
    return part.value


def select(part: Part, which: Any, is_one: bool = False) -> Part:
    """Some columns; a single one, named by itself, is an array of one axis."""
    sample = part.sample
    rows = sample.iloc[:, which] if hasattr(sample, "iloc") else sample[:, which]
    value: Value
    if isinstance(part.value, Frame):
        names = list(part.value.columns)
        value = Frame({names[i]: part.value.columns[names[i]] for i in which})
    else:
        value = part.b.columns(part.value, which)
    if is_one:
        rows = rows.iloc[:, 0] if hasattr(rows, "iloc") else rows[:, 0]
        only = next(iter(value.columns.values())) if isinstance(value, Frame) else value
        value = part.b.op("Reshape", only, np.array([-1]), width=None)
    return Part(part.b, part.estimator, value, rows)


def _weighted(part: Part, inner: Part, weights: Mapping[str, float] | None, name: str) -> Tensor:
    made = as_numbers(part.b, transform(inner.of(part.estimator)))
    weight = (weights or {}).get(name)
    return made if weight is None else part.b.op("Mul", made, np.array(float(weight)))


def _side_by_side(part: Part, found: list[Tensor]) -> Tensor:
    kept = [each for each in found if each.width]
    if not kept:
        raise ExportError(f"{type(part.estimator).__name__} leaves no column")
    return part.b.concat(kept)
