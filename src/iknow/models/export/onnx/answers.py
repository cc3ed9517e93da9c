"""Answers: what classifiers make of their numbers, with scikit-learn's own rules for ties."""

from __future__ import annotations

from typing import Any

import numpy as np

from iknow.models.export.onnx.builder import Builder, Tensor


def highest(b: Builder, scores: Tensor) -> Tensor:
    """The position of the highest column, the first of equals, of shape (n,)."""
    return b.op("ArgMax", scores, kind="int64", width=None, axis=1, keepdims=0)


def is_above(b: Builder, decision: Tensor, bound: float = 0.0) -> Tensor:
    """1 where the only column is above a bound and 0 elsewhere, of shape (n,)."""
    above = b.op("Greater", decision, np.array(bound, decision.kind), kind="bool")
    flat = b.op("Reshape", above, np.array([-1]), width=None)
    return b.cast(flat, "int64")


def answer_of_decision(b: Builder, decision: Tensor) -> Tensor:
    """The answer of a linear classifier: the sign of one column, or the highest of several."""
    return is_above(b, decision) if decision.width == 1 else highest(b, decision)


def both_columns(b: Builder, chance: Tensor) -> Tensor:
    """The probabilities of two classes, from that of the second one."""
    other = b.op("Sub", np.array(1.0, chance.kind), chance)
    return b.concat([other, chance])


def both_signs(b: Builder, decision: Tensor) -> Tensor:
    """The scores of two classes, from the decision for the second one."""
    return b.concat([b.op("Neg", decision), decision])


def one_hot(b: Builder, codes: Tensor, n: int) -> Tensor:
    """1 in the column of each code and 0 elsewhere, of shape (n_samples, n)."""
    return b.op("Gather", np.eye(n), codes, kind="float64", width=n, axis=0)


def linear(b: Builder, x: Tensor, weights: Any, offset: Any) -> Tensor:
    """The product x @ weights + offset, of shape (n, n_columns)."""
    matrix = np.asarray(weights, np.float64)
    product = b.op("MatMul", x, matrix, width=matrix.shape[1])
    return b.op("Add", product, np.atleast_1d(np.asarray(offset, np.float64)))


def sigmoid(b: Builder, x: Tensor) -> Tensor:
    """1 / (1 + exp(-x)); onnxruntime's own is exact to single precision only where it is near 0."""
    raised = b.op("Add", b.op("Exp", b.op("Neg", x)), np.array(1.0))
    return b.op("Div", np.array(1.0), raised)


def normalized(b: Builder, chances: Tensor) -> Tensor:
    """Chances divided by their sum; all the same where that is 0."""
    total = b.reduce("ReduceSum", chances)
    is_zero = b.op("Equal", total, np.array(0.0), kind="bool")
    filled = b.op("Where", is_zero, np.ones((1, chances.width or 1)), chances,
                  kind="float64", width=chances.width)  # fmt: skip
    return b.op("Div", filled, b.reduce("ReduceSum", filled))
