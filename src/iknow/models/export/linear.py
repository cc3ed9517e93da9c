"""Linear classifiers: a product with weights, and what becomes of it.

The answer is that of the product itself, not of the probabilities: far from the boundary these are
all 0 or 1 in double precision, while the product still has a highest column.
"""

from __future__ import annotations

import numpy as np

from iknow.errors import ExportError
from iknow.models.export.onnx.answers import (
    answer_of_decision,
    both_columns,
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
