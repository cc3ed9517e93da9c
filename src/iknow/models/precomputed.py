"""PrecomputedModel: takes the outputs of any framework, as arrays, for its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from iknow.errors import InputError, LayerError
from iknow.models.model import (
    Layer,
    Model,
    Observation,
    as_activations,
    check_layers,
    make_observation,
    mark_invalid,
)


class PrecomputedModel(Model):
    """A model that ran elsewhere: its inputs are `(scores, {layer: activations})`.

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
            said = make_observation(inputs[0], {})
            # Layers that the user does not choose may hold non-finite activations.
            layers = {k: as_activations(v, k, len(said)) for k, v in inputs[1].items()}
            return replace(said, activations=layers)
        raise InputError(
            "without a model the inputs must be its outputs, (scores, {layer: activations}); got "
            f"{type(inputs).__name__}: pass such a pair, or pass the model"
        )

    def layers(self, batch: Observation) -> tuple[Layer, ...]:
        if not batch.activations:
            raise LayerError(
                "the precomputed data has no layers to find support in: pass the activations of at "
                "least one, as (scores, {layer: activations})"
            )
        return tuple(Layer(name, "hidden") for name in batch.activations)

    def observe(self, batch: Observation, layers: Sequence[str]) -> Observation:
        check_layers(layers, batch.activations, "the precomputed data")
        chosen = {layer: batch.activations[layer] for layer in layers}
        return mark_invalid(replace(batch, activations=chosen))
