"""The layers of an MLPClassifier."""

from __future__ import annotations

from iknow.errors import ExportError
from iknow.models.export.onnx.answers import both_columns, highest, is_above, linear, sigmoid
from iknow.models.export.onnx.builder import Builder, Tensor
from iknow.models.export.onnx.inputs import as_numbers
from iknow.models.export.parts import Answer, Part

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
