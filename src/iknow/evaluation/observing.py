"""Observing: what a classifier's model makes of samples, in the form that its peers take.

Peers see the input in the metric that the classifier itself uses there, if it does (features of
different units would make nearest neighbors a matter of units); the last hidden layer as it is; and
logits, or the logarithms of probabilities where a model gives only those. In a scikit-learn
pipeline the output of the last transformer, which prepares inputs for the classifier, stands for
the input.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.core.arrays import Bools, Floats, Ints
from iknow.core.level import are_probabilities
from iknow.errors import InputError, LayerError
from iknow.evaluation.peers import Observed
from iknow.models.inputs import count_samples, cut_batches
from iknow.models.joined import join_whole
from iknow.models.model import Model
from iknow.models.precomputed import PrecomputedModel
from iknow.models.sklearn import SklearnModel

SMALLEST = 1e-300  # a probability of 0 has no logarithm


@dataclass(frozen=True, eq=False)
class Observer:
    """Asks a model about samples.

    Attributes:
        model: The model.
        input: The layer that stands for the input.
        hidden: The last hidden layer, if there is one.
        logits: The layer that holds logits; None for the model's scores.
        from_probabilities: Whether scores are probabilities.
        transform: Applied to the input layer.
    """

    model: Model
    input: str
    hidden: str | None
    logits: str | None
    from_probabilities: bool
    transform: Callable[[Any], NDArray[Any]]

    def observe(self, X: Any, labels: Ints | None = None) -> tuple[Observed, Bools]:
        """What the model makes of samples, and which it cannot answer, of shape (n,)."""
        prepared = self.model.prepare(X)
        layers = [name for name in (self.input, self.hidden, self.logits) if name is not None]
        parts = (self.model.observe(batch, layers) for batch in cut_batches(prepared))
        said = join_whole(parts, count_samples(prepared))
        logits: Floats = said.scores
        if self.logits is not None:
            logits = said.activations[self.logits].astype(np.float64)
        elif self.from_probabilities:
            logits = np.log(np.maximum(said.scores, SMALLEST))
        invalid = said.invalid
        return Observed(
            self.transform(said.activations[self.input]),
            None if self.hidden is None else said.activations[self.hidden],
            np.where(invalid[:, None], 0.0, logits),
            np.where(invalid, 0, said.belief),
            labels,
        ), invalid


def find_observer(classifier: Any, X: Any) -> Observer:
    """The observer of a fitted classifier's model, found by running a few samples."""
    model = classifier.model_
    if isinstance(model, PrecomputedModel):
        raise InputError(
            "a comparison perturbs inputs, so it needs the model itself; this classifier holds "
            "only a model's outputs: fit it on the model and its inputs"
        )
    few = next(iter(cut_batches(model.prepare(X), 64)))
    described = model.layers(few)
    names = [each.name for each in described if each.role in ("hidden", "output")]
    inside = [name for name in names if name not in ("input", "output", "logits")]
    said = model.observe(few, tuple(inside))
    # The layer that gives the scores is not hidden, whatever its name.
    inside = [name for name in inside if not _same(said.activations[name], said.scores)]
    hidden, logits = inside[0] if inside else None, None
    steps = [each.name for each in described if each.role == "input" and each.name != "input"]
    first = steps[0] if steps and hidden is None else _find_input(classifier, few, hidden)
    if isinstance(model, SklearnModel) and "logits" in names and said.scores.shape[1] > 2:
        logits = "logits"  # of two classes there is one column
    index = getattr(classifier, "indexes_", {}).get(first)
    transform = np.asarray if index is None else index.metric.transform
    return Observer(model, first, hidden, logits, are_probabilities(said.scores), transform)


def _find_input(classifier: Any, batch: Any, hidden: str | None) -> str:
    """The layer that stands for the input: that of texts and tokens is no place to measure in."""
    try:
        classifier.model_.observe(batch, ("input",))
    except LayerError:
        return hidden or str(classifier.layers_[0])
    return "input"


def _same(activations: NDArray[Any], scores: Floats) -> bool:
    return activations.shape == scores.shape and np.allclose(activations, scores, rtol=1e-5)
