"""Support vector machines with a kernel.

libsvm trains a classifier for each pair of classes (i, j): a sum over the support vectors of both,
which is above 0 for i. The answer is the class with the most votes, the first of equals; a pair at
exactly 0 votes for j there, but for i in scikit-learn's decision function, which adds to the votes
a share of the sums below 1/3.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from iknow.core.arrays import Floats
from iknow.models.export.foreign import convert_classifier
from iknow.models.export.onnx.answers import highest
from iknow.models.export.onnx.builder import Builder, Tensor
from iknow.models.export.onnx.inputs import as_numbers
from iknow.models.export.parts import Answer, Part

KERNELS = ("linear", "poly", "rbf", "sigmoid")


def read_support_vectors(part: Part) -> Answer:
    """An SVC or NuSVC; skl2onnx converts its probabilities, if it has any."""
    b, machine = part.b, part.estimator
    if machine.kernel not in KERNELS or machine._sparse:
        return convert_classifier(part)
    chances = None
    if hasattr(machine, "predict_proba"):
        chances = convert_classifier(part).chances
    kernel = _kernel(b, machine, as_numbers(b, part.value))
    weights, n = _weights(machine), len(machine.classes_)
    sums = b.op("MatMul", kernel, weights, width=weights.shape[1])
    sums = b.op("Add", sums, np.asarray(machine._intercept_, np.float64)[None])
    belief = highest(b, _votes(b, sums, n, "Greater"))
    if n == 2:
        return Answer(chances, b.op("Neg", sums), belief)
    if machine.decision_function_shape == "ovo":
        return Answer(chances, sums, belief)
    decision = _decide(b, sums, n)
    return Answer(chances, decision, highest(b, decision) if machine.break_ties else belief)


def _kernel(b: Builder, machine: Any, x: Tensor) -> Tensor:
    """The kernel between the samples and all support vectors, of shape (n, n_vectors)."""
    vectors = np.asarray(machine.support_vectors_, np.float64)
    products = b.op("MatMul", x, np.ascontiguousarray(vectors.T), width=len(vectors))
    gamma = np.array(float(machine._gamma))
    if machine.kernel == "linear":
        return products
    if machine.kernel == "rbf":
        sizes = b.op("Sub", b.reduce("ReduceSumSquare", x),
                     b.op("Mul", products, np.array(2.0)), width=len(vectors))  # fmt: skip
        squares = b.op("Add", sizes, (vectors**2).sum(axis=1)[None])
        apart = b.op("Max", squares, np.array(0.0))  # rounding may put them below
        return b.op("Exp", b.op("Neg", b.op("Mul", apart, gamma)))
    raised = b.op("Add", b.op("Mul", products, gamma), np.array(float(machine.coef0)))
    if machine.kernel == "sigmoid":
        return b.op("Tanh", raised)
    return b.op("Pow", raised, np.array(float(machine.degree)))


def _weights(machine: Any) -> Floats:
    """What each support vector adds for each pair of classes, of shape (n_vectors, n_pairs)."""
    dual = np.asarray(machine._dual_coef_, np.float64)
    owner = np.repeat(np.arange(len(machine.n_support_)), machine.n_support_)
    pairs = list(combinations(range(len(machine.classes_)), 2))
    weights = np.zeros((len(owner), len(pairs)))
    for p, (i, j) in enumerate(pairs):
        weights[owner == i, p] = dual[j - 1, owner == i]
        weights[owner == j, p] = dual[i, owner == j]
    return weights


def _votes(b: Builder, sums: Tensor, n: int, compare: str) -> Tensor:
    """The number of pairs that each class wins, of shape (n_samples, n)."""
    first = b.cast(b.op(compare, sums, np.array(0.0), kind="bool"), "float64")
    second = b.op("Sub", np.array(1.0), first)
    for_first, for_second = _sides(n)
    return b.op("Add", b.op("MatMul", first, for_first, width=n),
                b.op("MatMul", second, for_second, width=n))  # fmt: skip


def _decide(b: Builder, sums: Tensor, n: int) -> Tensor:
    """scikit-learn's decision function with a column for each class."""
    for_first, for_second = _sides(n)
    total = b.op("MatMul", sums, for_first - for_second, width=n)
    size = b.op("Add", b.op("Abs", total), np.array(1.0))
    share = b.op("Div", total, b.op("Mul", size, np.array(3.0)))
    return b.op("Add", _votes(b, sums, n, "GreaterOrEqual"), share)


def _sides(n: int) -> tuple[Floats, Floats]:
    """For each pair the first class, and the second, as rows of 0 and 1."""
    first, second = zip(*combinations(range(n), 2), strict=True)
    return np.eye(n)[list(first)], np.eye(n)[list(second)]
