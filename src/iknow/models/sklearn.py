"""SklearnModel: looking into a fitted scikit-learn classifier.

Layers: "input"; each transformer of a pipeline by its step's name; "hidden1", "hidden2", ... and
"logits" of an MLPClassifier; "output" (decision function, else probabilities) of any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.special import expit
from sklearn.frozen import FrozenEstimator

from iknow.core.arrays import Floats, Ints, Labels
from iknow.errors import InputError, LayerError
from iknow.models.inputs import as_dense, zero_nonfinite
from iknow.models.model import Observation, check_layers, make_observation

ACTIVATIONS: dict[str, Callable[[Floats], Floats]] = {
    "identity": lambda z: z,
    "logistic": expit,
    "tanh": np.tanh,
    "relu": lambda z: np.maximum(z, 0),
}


class SklearnModel:
    """A fitted classifier, a pipeline ending in one, or either of them frozen."""

    def __init__(self, estimator: Any) -> None:
        if not hasattr(estimator, "classes_"):
            raise InputError(
                f"{type(estimator).__name__} is not a fitted classifier (it has no classes_): "
                "fit it first, or give it unfrozen to EpistemicClassifier, which trains a clone"
            )
        # The wrapping by which a user says "do not train this" is not part of the model.
        while isinstance(estimator, FrozenEstimator):
            estimator = estimator.estimator
        self.estimator = estimator
        self._steps, self._final = unwrap(estimator)

    @property
    def classes(self) -> Labels:
        labels: Labels = self.estimator.classes_
        return labels

    def prepare(self, inputs: Any) -> Any:
        return as_dense(inputs)

    def default_layers(self, batch: Any) -> tuple[str, ...]:
        if self._is_network:
            n_hidden = len(self._final.coefs_) - 1
            return (f"hidden{n_hidden}" if n_hidden else "input", "logits")
        return ("input", "output") if "output" in self._layer_names else ("input",)

    def observe(self, batch: Any, layers: Sequence[str]) -> Observation:
        check_layers(layers, self._layer_names, type(self._final).__name__)
        twice = [layer for layer in layers if self._layer_names.count(layer) > 1]
        if twice:
            raise LayerError(
                f"{twice[0]!r} names more than one layer: give the pipeline's step another name"
            )
        batch, invalid = zero_nonfinite(batch)
        return make_observation(
            self._scores(batch),
            self._activations(batch, layers),
            invalid=invalid,
            belief=self._belief(batch),
        )

    @property
    def _is_network(self) -> bool:
        return hasattr(self._final, "coefs_") and hasattr(self._final, "out_activation_")

    @property
    def _layer_names(self) -> list[str]:
        names = ["input", *(name for name, _ in self._steps)]
        if self._is_network:
            names += [f"hidden{i + 1}" for i in range(len(self._final.coefs_) - 1)] + ["logits"]
        elif _output_method(self._final) is not None:
            names += ["output"]
        return names

    def _belief(self, batch: Any) -> Ints:
        # Asked of the model itself: it need not be the highest score (SVC votes, for one).
        codes: Ints = np.searchsorted(self.classes, self.estimator.predict(batch))
        return codes

    def _scores(self, batch: Any) -> Floats:
        """Probabilities, else the decision function, else the prediction itself as 0 and 1."""
        if hasattr(self.estimator, "predict_proba"):
            probabilities: Floats = self.estimator.predict_proba(batch)
            return probabilities
        if hasattr(self.estimator, "decision_function"):
            decision: Floats = self.estimator.decision_function(batch)
            if decision.ndim == 1:
                return np.column_stack([-decision, decision])
            if decision.shape[1] == len(self.classes):  # else it is about pairs of classes
                return decision
        return np.eye(len(self.classes))[self._belief(batch)]

    def _activations(self, batch: Any, layers: Sequence[str]) -> dict[str, Any]:
        found = {"input": _as_numbers(batch)} if "input" in layers else {}
        inside = batch
        for name, transformer in self._steps:
            inside = inside if transformer == "passthrough" else transformer.transform(inside)
            if name in layers:
                found[name] = _as_numbers(inside)
        if "output" in layers and "output" not in found:
            method = _output_method(self._final)
            found["output"] = getattr(self._final, str(method))(inside)
        if self._is_network:
            found |= _network_activations(self._final, _as_numbers(inside))
        return {layer: found[layer] for layer in layers}


def unwrap(estimator: Any) -> tuple[list[tuple[str, Any]], Any]:
    """The transformers on the way and the classifier at the end, out of any wrapping."""
    steps: list[tuple[str, Any]] = []
    while True:
        if hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif isinstance(estimator, FrozenEstimator):
            estimator = estimator.estimator
        elif hasattr(estimator, "steps"):
            steps += [(name, "passthrough" if s is None else s) for name, s in estimator.steps[:-1]]
            estimator = estimator.steps[-1][1]
        else:
            return steps, estimator


def _output_method(classifier: Any) -> str | None:
    methods = ("decision_function", "predict_proba")
    return next((name for name in methods if hasattr(classifier, name)), None)


def _network_activations(network: Any, inputs: Floats) -> dict[str, Floats]:
    """Hidden activations, after the activation function, and logits of an MLPClassifier."""
    activate = ACTIVATIONS[network.activation]
    values, found = inputs, {}
    for i, (weights, bias) in enumerate(zip(network.coefs_, network.intercepts_, strict=True)):
        values = values @ weights + bias
        if i == len(network.coefs_) - 1:
            found["logits"] = values
        else:
            values = activate(values)
            found[f"hidden{i + 1}"] = values
    return found


def _as_numbers(batch: Any) -> Floats:
    if hasattr(batch, "toarray"):  # a transformer's sparse output
        batch = batch.toarray()
    try:
        return np.asarray(batch, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise LayerError(
            f"distances need numbers, but these inputs are not all numbers ({error}): "
            "choose layers after the step that encodes them"
        ) from error
