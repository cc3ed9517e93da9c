"""scikit-learn's classifiers of products: linear ones, networks, support vector machines.

The answer of a linear classifier is that of the
product itself, not of the probabilities: far from the boundary these are all 0 or 1 in double
precision, while the product still has a highest column.

libsvm trains a classifier for each pair of classes (i, j): a
sum over the support vectors of both, which is above 0 for i. The answer is the class with the most
votes, the first of equals; a pair at exactly 0 votes for j there, but for i in scikit-learn's
decision function, which adds to the votes a share of the sums below 1/3.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from iknow.core.arrays import Floats
from iknow.errors import ExportError
from iknow.models.export.foreign import convert_classifier
from iknow.models.export.onnx.answers import (
    answer_of_decision,
    both_columns,
    highest,
    is_above,
    linear,
    normalized,
    sigmoid,
)
from iknow.models.export.onnx.builder import Builder, Tensor
from iknow.models.export.onnx.inputs import as_numbers
from iknow.models.export.parts import Answer, Part


def read_linear(part: Part) -> Answer:
    """A linear classifier; that of SGD has probabilities for two of its losses."""
    decision = _decide(part)
    chances = None
    if hasattr(part.estimator, "predict_proba"):
        loss = part.estimator.loss
        if loss not in ("log_loss", "modified_huber"):
            raise ExportError(f"SGDClassifier with the probabilities of {loss!r} is not known here")
        spread = _clipped if loss == "modified_huber" else sigmoid
        chances = _one_against_rest(part.b, spread(part.b, decision))
    return Answer(chances, decision, answer_of_decision(part.b, decision))


def read_logistic(part: Part) -> Answer:
    """Logistic regression, or another model with the same formula."""
    model, decision = part.estimator, _decide(part)
    is_apart = getattr(model, "multi_class", None) == "ovr" or getattr(model, "solver", None) == (
        "liblinear"
    )
    if decision.width == 1 or is_apart:
        chances = _one_against_rest(part.b, sigmoid(part.b, decision))
    else:
        chances = part.b.op("Softmax", decision, axis=1)
    return Answer(chances, decision, answer_of_decision(part.b, decision))


def _decide(part: Part) -> Tensor:
    x = as_numbers(part.b, part.value)
    model = part.estimator
    return linear(part.b, x, np.atleast_2d(model.coef_).T, model.intercept_)


def _clipped(b: Builder, decision: Tensor) -> Tensor:
    """The probabilities of the modified Huber loss: (clip(decision, -1, 1) + 1) / 2."""
    clipped = b.op("Clip", decision, np.array(-1.0), np.array(1.0))
    return b.op("Div", b.op("Add", clipped, np.array(1.0)), np.array(2.0))


def _one_against_rest(b: Builder, chances: Tensor) -> Tensor:
    return both_columns(b, chances) if chances.width == 1 else normalized(b, chances)


OPS = {"identity": "Identity", "logistic": "Sigmoid", "tanh": "Tanh", "relu": "Relu",
       "softmax": "Softmax"}  # fmt: skip


def read_network(part: Part) -> Answer:
    """A network; its layers are "hidden1", "hidden2", ... and "logits"."""
    b, network = part.b, part.estimator
    if network.out_activation_ not in OPS or network.activation not in OPS:
        raise ExportError(f"an MLPClassifier with {network.out_activation_!r} is not known here")
    values, layers = as_numbers(b, part.value), {}
    *hidden, last = zip(network.coefs_, network.intercepts_, strict=True)
    for i, (weights, offset) in enumerate(hidden):
        values = _apply(b, network.activation, linear(b, values, weights, offset))
        layers[f"hidden{i + 1}"] = values
    layers["logits"] = logits = linear(b, values, *last)
    chances = _apply(b, network.out_activation_, logits)
    if chances.width == 1:  # scikit-learn compares the probability, not the logit
        return Answer(both_columns(b, chances), None, is_above(b, chances, 0.5), layers)
    return Answer(chances, None, highest(b, chances), layers)


def _apply(b: Builder, activation: str, values: Tensor) -> Tensor:
    return sigmoid(b, values) if activation == "logistic" else b.op(OPS[activation], values)


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
    decision = _decide_by_votes(b, sums, n)
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


def _decide_by_votes(b: Builder, sums: Tensor, n: int) -> Tensor:
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
