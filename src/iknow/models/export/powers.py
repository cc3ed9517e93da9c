"""Powers and products of features, in double precision."""

from __future__ import annotations

import numpy as np

from iknow.core.arrays import Floats
from iknow.errors import ExportError
from iknow.models.export.onnx.builder import Builder, Tensor
from iknow.models.export.onnx.inputs import as_numbers
from iknow.models.export.parts import Part, transform


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
