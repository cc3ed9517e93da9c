"""PrecomputedModel: the outputs of any framework, given as arrays.

The inputs of such a model are its outputs: `(scores, {layer: activations})`, or an `Observation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from iknow.errors import InputError, LayerError
from iknow.models.model import (
    Model,
    Observation,
    as_activations,
    check_layers,
    make_observation,
    mark_invalid,
)


class PrecomputedModel(Model):
    """A model that ran elsewhere: its inputs are `(scores, {layer: activations})`.

    Nothing is known about how its layers move.

    Examples:
        >>> outputs = (np.array([[0.9, 0.1]]), {"hidden": np.array([[1.0, 2.0]])})
        >>> PrecomputedModel().prepare(outputs).belief
        array([0])
    """

    def prepare(self, inputs: Any) -> Observation:
        """Turn `inputs`, `(scores, {layer: activations})`, into an `Observation`."""
        if isinstance(inputs, Observation):
            return inputs
        if isinstance(inputs, tuple) and len(inputs) == 2 and isinstance(inputs[1], Mapping):
            return _take_outputs(*inputs)
        raise InputError(
            "without a model the inputs must be its outputs, (scores, {layer: activations}); got "
            f"{type(inputs).__name__}: pass such a pair, or pass the model"
        )

    def default_layers(self, batch: Observation) -> tuple[str, ...]:
        if not batch.activations:
            raise LayerError(
                "the precomputed data has no layers to find support in: pass the activations of at "
                "least one, as (scores, {layer: activations})"
            )
        return tuple(batch.activations)

    def observe(self, batch: Observation, layers: Sequence[str]) -> Observation:
        check_layers(layers, batch.activations, "the precomputed data")
        chosen = {layer: batch.activations[layer] for layer in layers}
        return mark_invalid(replace(batch, activations=chosen))


def _take_outputs(scores: Any, activations: Mapping[str, Any]) -> Observation:
    """All outputs, checked; layers that are not chosen may hold non-finite activations."""
    said = make_observation(scores, {})
    layers = {
        layer: as_activations(values, layer, len(said)) for layer, values in activations.items()
    }
    return replace(said, activations=layers)
