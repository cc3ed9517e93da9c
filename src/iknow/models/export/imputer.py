"""The imputer of numbers: what is missing becomes what was learned for its column."""

from __future__ import annotations

import numpy as np

from iknow.errors import ExportError
from iknow.models.export.onnx.builder import TEXT, Tensor
from iknow.models.export.onnx.inputs import Value, as_numbers
from iknow.models.export.parts import Part
from iknow.models.numbers import is_missing


def impute(part: Part) -> Value:
    """A SimpleImputer; text passes, since none that is missing can enter a graph."""
    b, imputer = part.b, part.estimator
    looks_for_gaps = is_missing(imputer.missing_values)
    if as_kinds(part.value) == {TEXT}:
        if not looks_for_gaps or imputer.add_indicator:
            raise ExportError(
                f"a SimpleImputer that replaces the text {imputer.missing_values!r} cannot become "
                "ONNX: replace it before the model"
            )
        return part.value
    x = as_numbers(b, part.value)
    if looks_for_gaps:
        gaps = b.op("IsNaN", x, kind="bool")
    else:
        gaps = b.op("Equal", x, np.array(float(imputer.missing_values)), kind="bool")
    learned = np.asarray(imputer.statistics_, dtype=np.float64)
    filled = b.op("Where", gaps, learned[None], x, kind="float64", width=x.width)
    if imputer.strategy != "constant" and not imputer.keep_empty_features:
        kept = np.flatnonzero(~np.isnan(learned))
        filled = b.columns(filled, kept) if len(kept) < len(learned) else filled
    if not imputer.add_indicator:
        return filled
    flags = b.columns(gaps, np.asarray(imputer.indicator_.features_, np.int64))
    return b.concat([filled, b.cast(flags, "float64")])


def as_kinds(value: Value) -> set[str]:
    """The kinds of a value's columns."""
    parts = [value] if isinstance(value, Tensor) else list(value.columns.values())
    return {each.kind for each in parts}
