"""Transformers of numbers: scalers, imputers, powers.

A scaler works in the precision of its input: a table in single precision is rounded to it after
each operation. A learned number in double precision makes that one operation double. Powers and
products are in double precision.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.core.arrays import Floats
from iknow.errors import ExportError
from iknow.models.export.onnx.builder import TEXT, Builder, Tensor
from iknow.models.export.onnx.inputs import Value, as_numbers
from iknow.models.export.parts import Part, transform
from iknow.models.numbers import is_missing, is_sparse


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


def multiply(part: Part) -> Tensor:
    """PolynomialFeatures: each output is a product of features, of 1 where there are fewer."""
    b, x = part.b, as_numbers(part.b, part.value)
    powers = np.asarray(part.estimator.powers_)
    n_out, n_in = powers.shape
    degree = max(1, int(powers.sum(axis=1).max()))
    factors = np.full((n_out, degree), n_in)
    for i, row in enumerate(powers):
        chosen = np.repeat(np.arange(n_in), row)
        factors[i, : len(chosen)] = chosen
    padded = b.op("Pad", x, np.array([0, 0, 0, 1]), np.array(1.0), width=n_in + 1)
    product = b.columns(padded, factors[:, 0])
    for column in factors.T[1:]:
        product = b.op("Mul", product, b.columns(padded, column))
    return product


def straighten(part: Part) -> Tensor:
    """A PowerTransformer, which brings each feature near a normal distribution."""
    b, x, fitted = part.b, as_numbers(part.b, part.value), part.estimator
    lambdas: Floats = np.asarray(fitted.lambdas_, np.float64)
    if np.isnan(lambdas).any():
        raise ExportError("a PowerTransformer with a feature that has no values is not known here")
    if fitted.method == "box-cox":
        x = _box_cox(b, x, lambdas)
    else:
        zero = np.array(0.0)
        above = _box_cox(b, b.op("Add", b.op("Max", x, zero), np.array(1.0)), lambdas)
        below = b.op("Neg", b.op("Min", x, zero))
        below = b.op("Neg", _box_cox(b, b.op("Add", below, np.array(1.0)), 2 - lambdas))
        x = b.op("Add", above, below)  # one of them is 0
    if not fitted.standardize:
        return x
    return as_numbers(b, transform(Part(b, fitted._scaler, x, np.zeros((1, len(lambdas))))))


def _box_cox(b: Builder, x: Tensor, lambdas: Floats) -> Tensor:
    """(x**λ - 1) / λ for each column, and log x where λ is 0."""
    is_zero = np.abs(lambdas) < np.spacing(1.0)
    safe = np.where(is_zero, 1.0, lambdas)[None]
    raised = b.op("Div", b.op("Sub", b.op("Pow", x, safe), np.array(1.0)), safe)
    if not is_zero.any():
        return raised
    return b.op("Where", is_zero[None], b.op("Log", x), raised, kind="float64", width=x.width)
