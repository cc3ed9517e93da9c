"""Scalers, to the last place.

A scaler works in the precision of its input: a table in single precision is rounded to it after
each operation. A learned number in double precision makes that one operation double.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.models.export.onnx.builder import Builder, Tensor
from iknow.models.export.onnx.inputs import as_numbers
from iknow.models.export.parts import Part
from iknow.models.numbers import is_sparse


def standardize(part: Part) -> Tensor:
    """A StandardScaler, which rounds what it learned to the precision of its input."""
    b, scaler, x = part.b, part.estimator, _entering(part)
    if scaler.with_mean:
        x = _change(b, "Sub", x, np.asarray(scaler.mean_, x.kind))
    if scaler.with_std:
        x = _divide(part, x, np.asarray(scaler.scale_, x.kind))
    return b.cast(x, "float64")


def scale_to_range(part: Part) -> Tensor:
    """A MinMaxScaler."""
    b, scaler, x = part.b, part.estimator, _entering(part)
    x = _change(b, "Add", _change(b, "Mul", x, scaler.scale_), scaler.min_)
    return b.cast(_clip(b, x, *scaler.feature_range) if scaler.clip else x, "float64")


def scale_to_largest(part: Part) -> Tensor:
    """A MaxAbsScaler."""
    x = _divide(part, _entering(part), part.estimator.scale_)
    is_clipped = getattr(part.estimator, "clip", False)
    return part.b.cast(_clip(part.b, x, -1.0, 1.0) if is_clipped else x, "float64")


def scale_by_quantiles(part: Part) -> Tensor:
    """A RobustScaler."""
    b, scaler, x = part.b, part.estimator, _entering(part)
    if scaler.with_centering:
        x = _change(b, "Sub", x, scaler.center_)
    if scaler.with_scaling:
        x = _divide(part, x, scaler.scale_)
    return b.cast(x, "float64")


def binarize(part: Part) -> Tensor:
    """A Binarizer: 1 above the threshold, 0 on it."""
    x = _entering(part)
    bound = np.array(part.estimator.threshold, x.kind)
    return part.b.cast(part.b.op("Greater", x, bound, kind="bool"), "float64")


def _entering(part: Part) -> Tensor:
    """The input in the precision that scikit-learn keeps."""
    x = as_numbers(part.b, part.value)
    is_single = not is_sparse(part.sample) and np.asarray(part.sample).dtype == np.float32
    return part.b.cast(x, "float32") if is_single else x


def _change(b: Builder, name: str, x: Tensor, by: Any) -> Tensor:
    """An operation in the wider of two precisions, rounded to that of its input."""
    numbers = np.atleast_1d(np.asarray(by))
    wide = "float32" if numbers.dtype == x.kind == "float32" else "float64"
    return b.cast(b.op(name, b.cast(x, wide), numbers.astype(wide)), x.kind)


def _divide(part: Part, x: Tensor, by: Any) -> Tensor:
    if is_sparse(part.sample):  # for which scikit-learn multiplies
        return _change(part.b, "Mul", x, 1 / np.asarray(by))
    return _change(part.b, "Div", x, by)


def _clip(b: Builder, x: Tensor, low: float, high: float) -> Tensor:
    return b.op("Clip", x, np.array(low, x.kind), np.array(high, x.kind))
